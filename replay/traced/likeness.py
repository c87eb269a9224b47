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
    columns = step, kind, op, thread
    code, one = _kinds(*columns)
    # The codes of kinds that are sorted: those that `alike` gives.
    order = np.lexsort(tuple(c[one] for c in columns[::-1]))
    like = np.empty(len(one), np.int64)
    like[order] = np.arange(len(one))
    low = int(rank.min(initial=0))
    ranks = int(rank.max(initial=0)) - low + 1
    if len(one) * ranks <= max(COUNTERS, len(rank)):
        many = np.zeros((len(one), ranks), np.int64)
        place, in_time = _counted(code, rank, low, start_ns, many)
        if in_time:
            most = many.max(axis=1)[order]
            first = (np.cumsum(most) - most)[like]
            return first[code] + place
    code = like[code]
    _, own = alike(rank, code)
    return alike(code, nth(own, start_ns))[1]


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
def _counted(code, rank, low, start, many):  # pragma: no cover - compiled
    """How many of its kind and rank come before each task (int64), if tasks come by time in each;
    `many` (zeros, [kinds, ranks]) becomes how many there are."""
    place = np.empty(len(code), np.int64)
    latest = np.full(many.shape, np.iinfo(np.int64).min, np.int64)
    for i in range(len(code)):
        k, r = code[i], rank[i] - low
        if start[i] < latest[k, r]:
            return place, False
        latest[k, r] = start[i]
        place[i] = many[k, r]
        many[k, r] += 1
    return place, True
