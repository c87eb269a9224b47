"""Participations of ranks that several sources describe, as arrays, and the groups they form."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from .. import classify
from ..matching import sequences
from ..matching.participations import (
    COUNTS_BY_FUNCTION,
    NUMBERED_BY,
    P2P_OPS,
    _whole_size,
    codes,
    ints,
    timed_rows,
)

if TYPE_CHECKING:
    from .shifts import RowClocks

KINDS = (
    "kineto", "nsys", "rocprof", "ascend", "recorded", "profiler", "inspector", "flight-recorder",
    "execution-trace", "nccl-log", "param", "chakra",
)  # fmt: skip
"""Kinds of sources, those with the better times first; others come after, by name."""
TIMELINES = frozenset(KINDS[:5])
NATIVE = frozenset({"profiler", "inspector", "nccl-log"})
"""Sources that speak for the communication library: its communicators, not the framework's."""
SENT_LATE_NS = 1_000_000
"""Nothing is enqueued later than this after it ended: two readings of one clock."""
STALE_NS = 3_600_000_000_000
"""Nothing waits longer than this in its queue: it would be another run's."""

BARRIER = 1 << sequences.OPS.index("barrier")
ALL_REDUCE = 1 << sequences.OPS.index("all_reduce")


class View(NamedTuple):
    """Rows of ranks that several kinds of sources describe; -1 where a number is not known.

    By rank, then kind, then order in time (rows without times after the others, by event id).
    """

    at: np.ndarray
    """row of the table"""
    kinds: list[str]
    comms: list[str]
    rank: np.ndarray
    kind: np.ndarray
    """place in `kinds`"""
    comm: np.ndarray
    seq: np.ndarray
    op: np.ndarray
    mask: np.ndarray
    p2p: np.ndarray
    dtype: np.ndarray
    size: np.ndarray
    """bytes of the whole operation, -1 where that is not known or not the same on all ranks"""
    in_bytes: np.ndarray
    out_bytes: np.ndarray
    group_size: np.ndarray
    peer: np.ndarray
    timed: np.ndarray
    clock: np.ndarray
    """of the row's times, as a code: what has the same can be compared"""
    own: np.ndarray
    """the clock of the row's rank"""
    process: np.ndarray
    """times count from a zero of the process's own"""
    start: np.ndarray
    end: np.ndarray
    exec_ns: np.ndarray
    enqueued: np.ndarray
    function: np.ndarray
    """record function"""
    event: np.ndarray
    step: np.ndarray
    counter: np.ndarray
    """who counts, see `NUMBERED_BY`"""
    many: np.ndarray
    """several operations that share a kernel: their sizes are summed"""

    @property
    def duration(self) -> np.ndarray:
        """ns that the operation took, -1 where no source of the row says."""
        return np.where(
            self.exec_ns >= 0, self.exec_ns, np.where(self.timed, self.end - self.start, -1)
        )


def read(table: pa.Table, clocks: RowClocks) -> View:
    """The rows of ranks that more than one kind of source describes, of known kinds and ranks."""
    source, names = codes(table.column("source"))
    order_of = sorted(names, key=lambda k: (KINDS.index(k) if k in KINDS else len(KINDS), k))
    place = np.array([order_of.index(n) for n in names] + [len(names)], dtype=np.int64)
    rank, kind = ints(table, "rank"), place[source]
    told = (source >= 0) & (rank >= 0) & (len(names) > 1)
    pairs = np.unique(rank[told] * (len(names) + 1) + kind[told])
    ranks, count = np.unique(pairs // (len(names) + 1), return_counts=True)
    at = np.flatnonzero(told & np.isin(rank, ranks[count > 1]))
    table, rank, kind = table.take(pa.array(at)), rank[at], kind[at]
    comm, comms = codes(table.column("comm"))
    op, ops = codes(table.column("op"))
    timed = timed_rows(table)
    start = np.where(timed, ints(table, "start_ns", 0), 0)
    end = np.where(timed, np.maximum(start, ints(table, "end_ns", 0)), 0)
    is_p2p = np.array([o in P2P_OPS for o in ops] + [False])
    masks = np.array([sequences.op_mask(o) for o in ops] + [sequences.ANY_OP], np.int64)
    size_in, size_out = ints(table, "in_bytes"), ints(table, "out_bytes")
    group_size, peer = ints(table, "group_size"), ints(table, "peer")
    event, seq = ints(table, "event_id"), ints(table, "seq")
    order = np.lexsort((peer, size_out, size_in, op, comm, seq, event, start, ~timed, kind, rank))
    counter = np.array([NUMBERED_BY.get(k, 0) for k in order_of] + [0], dtype=np.int64)
    whole = _whole_size(ops, op, size_in, size_out, group_size, is_p2p[op])
    columns = (
        rank, kind, comm, seq, op, masks[op], is_p2p[op], _dtypes(table), whole, size_in, size_out,
        group_size, peer, timed, clocks.clock[at], clocks.own[at], clocks.of_process()[at],
        start, end, ints(table, "exec_ns"), ints(table, "enqueued_ns"),
        ints(table, "record_function"), event, ints(table, "step"), counter[kind],
        ints(table, "coalesced") > 1,
    )  # fmt: skip
    return View(at[order], order_of, comms, *(c[order] for c in columns))


def _dtypes(table: pa.Table) -> np.ndarray:
    """Codes of element types; the library is told all types of one byte but floats as one."""
    code, words = codes(table.column("dtype"))
    same: dict[str, int] = {}
    known = []
    for i, word in enumerate(words):
        one = classify.dtype_of(word)
        if one is None:
            known.append(-1 if word == "unknown" else len(words) + i)
            continue
        name = "byte" if one.itemsize == 1 and "float" not in one.name else one.name
        known.append(same.setdefault(name, i))
    return np.array([*known, -1], dtype=np.int64)[code]


def by_function(view: View) -> np.ndarray:
    """bool[rows]: the sequence number counts each operation of the communicator for itself.

    nsys has ids of its own: whatever they count, it is no operation's place among its like.
    """
    which = np.array([c.startswith(COUNTS_BY_FUNCTION) for c in view.comms] + [False])
    return which[view.comm] & (view.counter != NUMBERED_BY["nsys"])


def compatible(view: View, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Whether rows a[i] and b[i] may be one operation: nothing that both know differs.

    The library runs a barrier as a small all-reduce, whose type and size say nothing then.
    """
    ma, mb = view.mask[a], view.mask[b]
    barrier = (ma != -1) & (mb != -1) & ((ma | mb) == (BARRIER | ALL_REDUCE)) & (ma != mb)
    ok = (ma & mb) != 0
    for column in (view.dtype, view.size, view.in_bytes, view.out_bytes):
        x, y = column[a], column[b]
        if column is view.in_bytes or column is view.out_bytes:
            # where the whole is known on both sides, what each side calls its own may differ
            known = (view.size[a] >= 0) & (view.size[b] >= 0)
        else:
            known = np.zeros(len(x), dtype=bool)
        ok &= (x == y) | (x < 0) | (y < 0) | known
    peer_a, peer_b = view.peer[a], view.peer[b]
    ok &= (peer_a == peer_b) | (peer_a < 0) | (peer_b < 0)
    return (ok | barrier) & _timely(view, a, b) & _timely(view, b, a)


def _timely(view: View, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Not enqueued (a) after it ended (b), nor in another run, where one clock says both."""
    both = (view.enqueued[a] >= 0) & view.timed[b] & (view.end[b] > STALE_NS)
    both &= (view.clock[a] == view.clock[b]) & ~view.process[b]
    late = view.enqueued[a] > view.end[b] + SENT_LATE_NS
    stale = view.end[b] - view.enqueued[a] > STALE_NS
    return ~(both & (late | stale))


class Groups:
    """Rows that are one participation: at most one of each kind of source."""

    def __init__(self, view: View) -> None:
        n = len(view.at)
        self.view = view
        self.root = np.arange(n)
        self.member = np.full((n, max(len(view.kinds), 1)), -1, dtype=np.int64)
        self.member[np.arange(n), view.kind] = np.arange(n)

    def link(self, a: np.ndarray, b: np.ndarray) -> int:
        """Rows a[i] and b[i] become one participation; returns the pairs that may not.

        A pair may not where both are already described by one kind, or members contradict each
        other. Within one call each row is used at most once.
        """
        refused = 0
        while len(a):
            ra, rb = self.root[a], self.root[b]
            new = ra != rb
            a, b, ra, rb = a[new], b[new], ra[new], rb[new]
            if not len(a):
                break
            # two pairs that meet in one group: one after the other
            both = np.concatenate([ra, rb])
            _, first = np.unique(both, return_index=True)
            fresh = np.zeros(len(both), dtype=bool)
            fresh[first] = True
            now = fresh[: len(ra)] & fresh[len(ra) :]
            if not now.any():
                now[0] = True
            fits = self._fit(ra[now], rb[now])
            refused += int((~fits).sum())
            self._merge(ra[now][fits], rb[now][fits])
            a, b = a[~now], b[~now]
        return refused

    def _fit(self, ra: np.ndarray, rb: np.ndarray) -> np.ndarray:
        x, y = self.member[ra], self.member[rb]
        fits = np.logical_not(((x >= 0) & (y >= 0)).any(axis=1)).reshape(-1)
        for i in range(x.shape[1]):
            for j in range(x.shape[1]):
                have = (x[:, i] >= 0) & (y[:, j] >= 0)
                if have.any():
                    fits[have] &= compatible(self.view, x[have, i], y[have, j])
        return fits

    def _merge(self, ra: np.ndarray, rb: np.ndarray) -> None:
        keep, drop = np.minimum(ra, rb), np.maximum(ra, rb)
        self.member[keep] = np.maximum(self.member[keep], self.member[drop])
        for k in range(self.member.shape[1]):
            at = self.member[keep, k]
            self.root[at[at >= 0]] = keep[at >= 0]

    def partner(self, kind: int) -> np.ndarray:
        """For each row its participation's row of this kind, -1 for none."""
        return self.member[self.root, kind]
