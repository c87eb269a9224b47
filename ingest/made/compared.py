"""What ranks did before the collectives that others are late in: views `_compared*`, large jobs."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..schema import TABLES
from . import causes
from .aligned import UNKNOWN, Clock, Windows
from .lateness import Lateness
from .participations import Participations
from .segmented import LEAST, runs
from .walk import Gaps

TABLE = "_made_compared"
KERNELS = "_made_compared_kernels"
"""`TABLE` says whether it is complete."""

MOST_ROWS = 4_000_000
"""Of more rows of kernels the job is left to the view."""

WORK = ("compute_ns", "transfer_ns", "comm_ns", "wait_ns", "memcpy_ns")
"""What each union of `walk.UNIONS` adds to the one before."""
IDLE = (*causes.CLASSES, "garbage_collection")
GARBAGE = len(causes.CLASSES)


class Stretches(NamedTuple):
    """Times of a rank that are compared (see `stretches` in `straggler_causes.sql`), by key and
    time; those of one key never overlap. Arrays of one length."""

    key: np.ndarray
    """rank that is late, -1 in whole steps"""
    from_ns: np.ndarray
    until_ns: np.ndarray
    first: np.ndarray
    """bool: from the first step's begin"""
    late_ns: np.ndarray
    """how far the late rank came behind the median start; `LEAST` in whole steps"""


class Marks(NamedTuple):
    """When a rank's host collects garbage or loads data, on the job's clock."""

    garbage: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray


class FirstStep(NamedTuple):
    """Where a rank's first step begins on its host and on its GPU."""

    host_ns: int
    device_ns: int


def first_steps(steps: pa.Table, known: dict[int, Clock]) -> dict[int, FirstStep]:
    """Those of all ranks with steps (view `_first_steps`)."""
    found: dict[int, tuple[list[int], list[int]]] = {}
    columns = (steps[c].to_pylist() for c in ("rank", "host_start_ns", "start_ns"))
    for rank, host, device in zip(*columns, strict=True):
        hosts, devices = found.setdefault(rank, ([], []))
        hosts.append(device if host is None else min(host, device))
        devices.append(device)
    out = {}
    for rank, of in found.items():
        clock = known.get(rank, UNKNOWN)
        out[rank] = FirstStep(*(int(clock.align(np.array(t, np.int64)).min()) for t in of))
    return out


def find(
    p: Participations,
    late: Lateness,
    ranks: pa.Table,
    known: dict[int, Clock],
    windows: dict[int, Windows],
    first: dict[int, FirstStep],
    blamed: dict[int, int],
) -> dict[int, Stretches]:
    """The stretches of each rank that is compared with any that is `blamed`."""
    keys, columns = _before_collectives(p, late, blamed, first), []
    if len(keys[0]):
        columns.append(keys)
    if -1 in blamed.values():
        its = _whole_steps(windows, first) if first else _whole_trace(ranks, known)
        columns.extend(
            (
                np.full(len(a), rank),
                np.full(len(a), -1),
                a,
                b,
                np.zeros(len(a), bool),
                np.full(len(a), LEAST),
            )
            for rank, a, b in its
        )
    if not columns:
        return {}
    rank, key, begin, end, is_first, late_ns = map(np.concatenate, zip(*columns, strict=True))
    order = np.lexsort((end, begin, key, rank))
    bounds = np.flatnonzero(np.diff(rank[order])) + 1
    return {
        int(rank[rows[0]]): Stretches(
            key[rows], begin[rows], end[rows], is_first[rows], late_ns[rows]
        )
        for rows in np.split(order, bounds)
    }


def blamed(
    late: Lateness, comms: list[str], ranks: pa.Table, windows: dict[int, Windows]
) -> dict[int, int]:
    """Rank that holds others up -> communicator on which that cost most; -1 in whole steps."""
    rows = np.flatnonzero((late.caused_ns > 0) & (late.sure == 1))
    by = runs(late.last_rank[rows], np.where(late.paired[rows], -1, late.comm[rows]))
    one = rows[by.order[by.first]]
    comm = np.where(late.paired[one], -1, late.comm[one])
    costs: dict[int, list[tuple[int, str, int]]] = {}
    for rank, c, ns in zip(
        late.last_rank[one].tolist(), comm.tolist(), by.total(late.caused_ns[rows]).tolist(),
        strict=True,
    ):  # fmt: skip
        costs.setdefault(rank, []).append((ns, comms[c] if c >= 0 else "", c))
    columns = (ranks[c].to_pylist() for c in ("rank", "start_ns", "end_ns"))
    traced = {r: b - a for r, a, b in zip(*columns, strict=True) if a is not None and b is not None}
    found = {}
    for rank, of in costs.items():
        its = windows.get(rank)
        own = traced.get(rank, 0) if its is None else int((its.end_ns - its.start_ns).sum())
        caused = sum(ns for ns, _, _ in of)
        paired = sum(ns for ns, _, c in of if c < 0)
        if 100 * caused >= own:
            named = [one for one in of if one[2] >= 0]
            found[rank] = max(named)[2] if 2 * paired <= caused else -1
    return found


_Columns = tuple[np.ndarray, ...]
"""Rank, key, from, until, first, late."""


def _before_collectives(
    p: Participations, late: Lateness, blamed: dict[int, int], first: dict[int, FirstStep]
) -> _Columns:
    none = np.zeros(0, np.int64)
    comms = sorted({c for c in blamed.values() if c >= 0})
    rows = np.flatnonzero(p.timed & p.decides & (p.collective != LEAST) & np.isin(p.comm, comms))
    if not len(rows):
        return none, none, none, none, none > 0, none
    rows = rows[
        np.lexsort((p.collective[rows], p.end_ns[rows], p.start_ns[rows], p.rank[rows],
                    p.comm[rows]))
    ]  # fmt: skip
    comm, rank, start = p.comm[rows], p.rank[rows], p.start_ns[rows]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (comm[1:] != comm[:-1]) | (rank[1:] != rank[:-1])
    before = np.where(fresh, LEAST, np.roll(p.collective[rows], 1))
    left = np.full(len(rows), LEAST)
    for a, b in _bounds(fresh):
        left[a + 1 : b] = np.maximum.accumulate(p.end_ns[rows[a : b - 1]])
    whose, at = np.unique(rank, return_inverse=True)
    began = np.array([first[r].host_ns if r in first else LEAST for r in whose.tolist()])[at]
    from_ns = np.where(fresh, np.where(began <= start, began, LEAST), np.minimum(left, start))
    # Which of them are in a collective in which one of those ranks was last.
    sure = np.flatnonzero(
        (late.caused_ns > 0) & (late.sure == 1) & np.isin(late.last_rank, sorted(blamed))
    )
    number = runs(
        np.concatenate([late.collective[sure], p.collective[rows]]),
        np.concatenate([late.clock[sure], p.clock[rows]]),
    ).run
    key_of, late_of = np.full((2, len(sure) + len(rows)), -1)
    key_of[number[: len(sure)]] = late.last_rank[sure]
    late_of[number[: len(sure)]] = late.behind_median_ns[sure]
    group = number[len(sure) :]
    key = key_of[group]
    is_late = sorted(blamed)
    its_comm = np.array([blamed[r] for r in is_late])
    place = np.minimum(np.searchsorted(is_late, key), len(is_late) - 1)
    kept = np.flatnonzero((key >= 0) & (its_comm[place] == comm))
    by = runs(group[kept])
    ids, most = before[kept], np.iinfo(np.int64).max
    n, n_before = by.length, by.total((ids != LEAST).astype(np.int64))
    same = by.least(np.where(ids == LEAST, most, ids)) == by.most(ids)
    told = by.total((from_ns[kept] != LEAST).astype(np.int64)) == n
    good = (told & ((n_before == 0) | ((n_before == n) & same)))[by.run]
    is_first = (n_before == 0)[by.run][good]
    kept = kept[good]
    return rank[kept], key[kept], from_ns[kept], start[kept], is_first, late_of[group[kept]]


def _bounds(fresh: np.ndarray) -> list[tuple[int, int]]:
    at = [*np.flatnonzero(fresh).tolist(), len(fresh)]
    return list(pairwise(at))


def _whole_steps(
    windows: dict[int, Windows], first: dict[int, FirstStep]
) -> list[tuple[int, np.ndarray, np.ndarray]]:
    return [(r, windows[r].start_ns, windows[r].end_ns) for r in first]


def _whole_trace(
    ranks: pa.Table, known: dict[int, Clock]
) -> list[tuple[int, np.ndarray, np.ndarray]]:
    found = []
    for rank, a, b in zip(*(ranks[c].to_pylist() for c in ("rank", "start_ns", "end_ns")),
                          strict=True):  # fmt: skip
        if a is not None and b is not None:
            a, b = (known[rank].align(np.array([t], np.int64)) for t in (a, b))
            found.append((rank, a, b))
    return found


def idle(
    s: Stretches, gaps: Gaps, kind: np.ndarray, first: FirstStep | None, marks: Marks
) -> np.ndarray:
    """int64[IDLE, stretches]: how long the gaps are of each class that begin in each stretch.

    `kind` is the class of each gap (of `causes.CLASSES`); the time before the `first` step counts
    with them. Of some gaps after others it adds up.
    """
    at, what, ns = _idle(gaps, kind, first, marks)
    out = np.zeros((len(IDLE), len(s.key)), np.int64)
    for code, spent in enumerate(out):
        rows = np.flatnonzero(what == code)
        rows = rows[np.argsort(at[rows], kind="stable")]
        so_far = np.concatenate([[0], np.cumsum(ns[rows])])
        spent += so_far[np.searchsorted(at[rows], s.until_ns)]
        spent -= so_far[np.searchsorted(at[rows], s.from_ns)]
    return out


def sums(
    rank: int, s: Stretches, moments: np.ndarray, covered: np.ndarray, idle_ns: np.ndarray
) -> pa.RecordBatch:
    """A row a key: what the rank's time went to in its stretches, added up.

    `covered` is how long each of `walk.UNIONS` ran before each of `moments`, `idle_ns` what `idle`
    gives of all gaps.
    """
    by = runs(s.key)
    a, b = np.searchsorted(moments, s.from_ns), np.searchsorted(moments, s.until_ns)
    work = np.diff(covered, axis=1, prepend=0)
    work = work[b] - work[a]
    columns = {name: by.total(work[:, i]) for i, name in enumerate(WORK)}
    columns |= {f"{name}_ns": by.total(ns) for name, ns in zip(IDLE, idle_ns, strict=True)}
    # Moments, which add up to more than 64 bits hold.
    for name, its in (("before", ~s.first), ("began", s.first)):
        t = np.where(its & (s.key >= 0), s.from_ns, 0)
        columns[f"{name}_high"], columns[f"{name}_low"] = (
            by.total(part) for part in (t >> 32, t & 0xFFFFFFFF)
        )
    columns |= {"rank": np.full(len(by.first), rank), "key": s.key[by.order[by.first]]}
    return TABLES[TABLE].batch({c: pa.array(v) for c, v in columns.items()})


def _idle(
    gaps: Gaps, kind: np.ndarray, first: FirstStep | None, marks: Marks
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pieces of idle time: where each counts, its class (of `IDLE`), and its length."""
    start, end, kind = gaps.start_ns, gaps.end_ns, kind.astype(np.int64)
    if first is not None and first.host_ns < first.device_ns:
        start, end = np.append(start, first.host_ns), np.append(end, first.device_ns)
        kind = np.append(kind, causes.LAUNCH)
    row, a, b, what = marked(start, end, np.flatnonzero(kind != causes.STREAM), marks)
    return (
        np.concatenate([start, a, a]),
        np.concatenate([kind, what, kind[row]]),
        np.concatenate([end - start, b - a, a - b]),
    )


def marked(
    start: np.ndarray, end: np.ndarray, rows: np.ndarray, marks: Marks
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Which of these rows of idle time lie beside which marks: row, from, until and class."""
    if not len(marks.start_ns) or not len(rows):
        return rows[:0], start[:0], start[:0], rows[:0]
    at = np.unique(np.concatenate([marks.start_ns, marks.end_ns]))
    it_runs = _latest(marks.start_ns, marks.end_ns, at) > at
    g = marks.garbage
    what = np.where(_latest(marks.start_ns[g], marks.end_ns[g], at) > at, GARBAGE, causes.LOADING)
    # A piece runs from one of these moments to the next.
    one = np.maximum(np.searchsorted(at, start[rows], "right") - 1, 0)
    beyond = np.minimum(np.searchsorted(at, end[rows]), len(at) - 1)
    many = np.maximum(beyond - one, 0)
    row = np.repeat(rows, many)
    piece = np.arange(len(row)) + np.repeat(one - (np.cumsum(many) - many), many)
    a, b = np.maximum(start[row], at[piece]), np.minimum(end[row], at[piece + 1])
    kept = it_runs[piece] & (a < b)
    return row[kept], a[kept], b[kept], what[piece][kept]


def _latest(start: np.ndarray, end: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The latest end of those that have begun at each moment; `LEAST` none."""
    order = np.argsort(start, kind="stable")
    until = np.append(np.maximum.accumulate(end[order]), LEAST)
    return until[np.searchsorted(start[order], at, "right") - 1]
