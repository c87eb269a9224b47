"""Tasks of a traced job that should take the same: the k-th of an operation in a step, by rank."""

from __future__ import annotations

import numpy as np

from ...ingest.compiled import compiled
from ...ingest.tasks.codes import alike
from ...ingest.tasks.rows import slot
from ...ingest.tasks.sorting import grown
from ...ingest.tasks.tables import nth

COLUMNS = ("step", "kind", "op", "thread", "rank", "start_ns")
"""Columns of a graph that say what is alike."""

COUNTERS = 1 << 16
"""Kinds by ranks are counted in a table of so many, or of as many as there are tasks."""


def of(
    step: np.ndarray,
    kind: np.ndarray,
    op: np.ndarray,
    thread: np.ndarray,
    rank: np.ndarray,
    start_ns: np.ndarray,
) -> np.ndarray:
    """int64 [n]: codes that tasks share which are alike, of a graph's `COLUMNS`.

    Host segments are counted by thread (the first, second, ... that a rank's calls came from).
    """
    code, one = _kinds(step, kind, op, thread)
    columns = tuple(c[one] for c in (step, kind, op, thread))
    return placed(columns, code, np.arange(len(code), dtype=np.int32), rank, start_ns, 0)


def placed(
    kinds: tuple[np.ndarray, ...],
    code: np.ndarray,
    order: np.ndarray,
    rank: np.ndarray,
    start_ns: np.ndarray,
    none: int,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """`of` tasks in an order (int32 [n]), of which each has the `code` of its kind (int32 [n]).

    `kinds` are step, kind, op and thread of each code. `rank` and `start_ns` may be of fewer tasks:
    that of the others is -1, and they start at `none`. Into `out` (int64 [n]) where given.
    """
    if out is None:
        out = np.empty(len(order), np.int64)
    # The codes of kinds that are sorted: those that `alike` gives.
    by_columns = np.lexsort(kinds[::-1])
    like = np.empty(len(by_columns), np.int64)
    like[by_columns] = np.arange(len(by_columns))
    low = min(int(rank.min(initial=0)), -1)
    ranks = int(rank.max(initial=0)) - low + 1
    if len(like) * ranks <= max(COUNTERS, len(code)):
        many = np.zeros((len(like), ranks), np.int64)
        arrays = order, code, rank, low, start_ns, none
        if _in_time(*arrays, many):
            most = many.max(axis=1)[by_columns]
            first = (np.cumsum(most) - most)[like]
            many[:] = first[:, np.newaxis]
            _numbered(order, code, rank, low, many, out)
            return out
    rest = len(code) - len(rank)
    code = like[code][order]
    rank, start_ns = (
        np.concatenate([c, np.full(rest, empty, c.dtype)])[order]
        for c, empty in ((rank, -1), (start_ns, none))
    )
    _, own = alike(rank, code)
    out[:] = alike(code, nth(own, start_ns))[1]
    return out


@compiled
def _kinds(step, kind, op, thread):  # pragma: no cover - compiled
    """Rows that are equal share a code (int32), by their first one; and that one (int64)."""
    size = 1024
    slots = np.full(size, -1, np.int64)
    one = np.empty(size, np.int64)
    code = np.empty(len(step), np.int32)
    n = 0
    for i in range(len(step)):
        at = slot(step[i] * 64 + kind[i], thread[i] * 1_000_003 + op[i], size)
        while slots[at] >= 0:
            u = one[slots[at]]
            if op[u] == op[i] and step[u] == step[i] and kind[u] == kind[i] and (
                thread[u] == thread[i]
            ):  # fmt: skip
                break
            at = (at + 1) & (size - 1)
        if slots[at] < 0:
            slots[at] = n
            one[n] = i
            n += 1
        code[i] = slots[at]
        if 2 * n > size:
            # Twice the slots, and every kind put into them.
            size *= 2
            slots = np.full(size, -1, np.int64)
            one = grown(one, size)
            for k in range(n):
                u = one[k]
                at = slot(step[u] * 64 + kind[u], thread[u] * 1_000_003 + op[u], size)
                while slots[at] >= 0:
                    at = (at + 1) & (size - 1)
                slots[at] = k
    return code, grown(one, n)


@compiled
def _in_time(order, code, rank, low, start, none, many):  # pragma: no cover - compiled
    """Whether tasks come by time in each kind and rank; `many` (zeros, [kinds, ranks]) becomes how
    many there are."""
    latest = np.full(many.shape, np.iinfo(np.int64).min, np.int64)
    for t in order:
        there = t < len(rank)
        k, r = code[t], rank[t] - low if there else -1 - low
        begin = start[t] if there else none
        if begin < latest[k, r]:
            return False
        latest[k, r] = begin
        many[k, r] += 1
    return True


@compiled
def _numbered(order, code, rank, low, next_one, out):  # pragma: no cover - compiled
    """Numbers the tasks of each kind and rank on from `next_one`, which moves on."""
    for i in range(len(order)):
        t = order[i]
        k, r = code[t], rank[t] - low if t < len(rank) else -1 - low
        out[i] = next_one[k, r]
        next_one[k, r] += 1
