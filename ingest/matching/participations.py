"""Participations as sorted arrays, and the grouping of rows by integer keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ..ordered import narrow
from . import clocks as clock
from . import sequences
from .sequences import Sequence

_pc: Any = pyarrow.compute

BARRIER_OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Operations in which nobody can end before everybody has started."""
COUNTS_BY_FUNCTION = "nccl-"
"""How the names of communicators begin whose sequence numbers count each operation for itself."""
NUMBERED_BY = {"profiler": 1, "inspector": 1, "nsys": 2, "nccl-log": 3, "recorded": 4, "chakra": 5}
"""Who counts, by kind of source; the others have the framework's numbers (0). The library counts
what it launches, a log's lines are counted as they come, and nsys has ids of its own: numbers of
two of these say nothing of each other."""
P2P_OPS = ("send", "recv", "send_recv")
"""Operations between a rank and its `peer`; without one nobody can say with whom."""


class Rows(NamedTuple):
    """Participations as arrays in canonical order: input order cannot matter.

    By rank, of a rank those with times first (by start), then those without (their times are 0).
    """

    rank: np.ndarray
    domain: np.ndarray
    comm: np.ndarray
    """code in comm names, -1 none"""
    seq: np.ndarray
    op: np.ndarray
    mask: np.ndarray
    dtype: np.ndarray
    size: np.ndarray
    start: np.ndarray
    end: np.ndarray
    stream: np.ndarray
    step: np.ndarray
    event: np.ndarray
    peer: np.ndarray
    group_size: np.ndarray
    coalesced: np.ndarray
    barrier: np.ndarray
    p2p: np.ndarray
    """between this rank and `peer`"""
    loose: np.ndarray
    """point-to-point with nobody knows whom: no number and no order says who takes part"""
    recorded: np.ndarray
    timed: np.ndarray
    """with a start and an end that tell when it ran: the others match by number only"""
    by_function: np.ndarray
    """codes of communicators whose numbers count each operation for itself"""
    counter: np.ndarray
    """who counts, see `NUMBERED_BY`"""
    exchanged: np.ndarray
    """bytes that an all-to-all brought to its rank or took from it, the larger; -1: not known, or
    another operation, whose ranks all have as much to do"""

    @property
    def lane(self) -> np.ndarray:
        """What the numbers of each row count on: its communicator, or an operation of that.

        What two count (see `NUMBERED_BY`) are two.
        """
        each = 2 + int(self.op.max(initial=-1))
        op = np.where(np.isin(self.comm, self.by_function), 1 + self.op, each)
        who = 1 + max(NUMBERED_BY.values())
        return (self.comm.astype(np.int64) * (each + 1) + op) * who + self.counter

    @property
    def counted(self) -> np.ndarray:
        """bool[rows]: has a number, and it is known what that counts on."""
        vague = (self.mask == sequences.ANY_OP) & np.isin(self.comm, self.by_function)
        return (self.comm >= 0) & (self.seq >= 0) & ~self.p2p & ~self.loose & ~vague

    def sequence(self, index: np.ndarray, clocks: clock.Clocks | None = None) -> Sequence:
        """The operations at `index`; on the common clock if `clocks` are given."""
        start, end = self.start[index], self.end[index]
        if clocks is not None:
            start = clock.align(clocks, start, self.domain[index])
            end = clock.align(clocks, end, self.domain[index])
        return Sequence(
            start, end, self.mask[index], self.dtype[index], self.size[index], self.step[index],
            self.barrier[index],
            np.where(self.stream[index] < -1, sequences.HOST_NEAR_NS, sequences.NEAR_NS),
        )  # fmt: skip


class Comms(NamedTuple):
    names: list[str]
    members: list[tuple[int, ...] | None]
    size: np.ndarray
    """int64, -1 not known"""


def numbered_by(source: str | None, by_function: bool) -> int:
    """Who counts the operations of rows of a source (kinds that are joined: a+b), `NUMBERED_BY`.

    On a communicator of the library the first that is not the framework, on others the framework
    where it is among them.
    """
    parts = {NUMBERED_BY.get(kind, 0) for kind in (source or "").split("+")}
    return min(parts - {0}, default=0) if by_function else min(parts)


def codes(column: pa.ChunkedArray, names: list[str] | None = None) -> tuple[np.ndarray, list[str]]:
    """int64 codes of a text column by sorted name (-1 null); names given come first, in order."""
    if column.null_count == len(column):
        return np.full(len(column), -1, np.int64), list(names or [])
    flat = column.cast(pa.string()).combine_chunks().dictionary_encode()
    if isinstance(flat, pa.ChunkedArray):
        flat = flat.combine_chunks()
    texts = flat.dictionary
    known = list(names or [])
    table = np.full(len(texts) + 1, -1, dtype=np.int64)
    if known and len(texts):
        said = texts.to_pylist()
        have = set(known)
        known += sorted(t for t in said if t not in have)
        place = {t: i for i, t in enumerate(known)}
        table[:-1] = [place[t] for t in said]
    elif len(texts):
        order = _pc.sort_indices(texts)  # by their bytes, which is by their characters
        table[order.to_numpy()] = np.arange(len(texts))
        known = texts.take(order).to_pylist()
    index = flat.indices.cast(pa.int64()).fill_null(len(texts))
    return table[index.to_numpy(zero_copy_only=False)], known


def texts(code: np.ndarray, words: list[str]) -> pa.Array:
    """The text column of codes (-1 null); the reverse of `codes`. Words may repeat."""
    place = {w: i for i, w in enumerate(dict.fromkeys(words))}
    index = np.array([place[w] for w in words] + [-1], dtype=np.int32)[code]
    return pa.DictionaryArray.from_arrays(
        pa.array(index, mask=index < 0), pa.array(list(place), pa.string())
    )


def timed_rows(table: pa.Table) -> np.ndarray:
    """bool[rows]: has a start and an end that tell when the operation ran.

    A watchdog's times do not: it polls now and then, and says when it looked.
    """
    there = np.ones(table.num_rows, dtype=bool)
    for name in ("start_ns", "end_ns"):
        there &= table.column(name).is_valid().to_numpy()
    timing, words = codes(table.column("timing"))
    return there & (timing != (words.index("watchdog") if "watchdog" in words else -2))


def ints(table: pa.Table, name: str, null: int = -1) -> np.ndarray:
    """int64[rows] of a column; `null` stands for nulls."""
    column = table.column(name)
    if column.null_count == len(column):
        return np.full(len(column), null, np.int64)
    if not column.null_count:
        return column.to_numpy().astype(np.int64, copy=False)
    return column.cast(pa.int64()).fill_null(null).to_numpy(zero_copy_only=False)


def read(
    table: pa.Table, ranks: pa.Table, domains: np.ndarray, comm_names: list[str]
) -> tuple[np.ndarray, Rows]:
    """The canonical order (row of the table for each sorted row) and the sorted arrays.

    `comm_names` gets the names that only rows know. Rows of a rank that is not in `ranks` have no
    times: nobody says on which clock. Rows of no rank are loose.
    """
    of_ranks = ints(ranks, "rank")
    comm, texts = codes(table.column("comm"), comm_names)
    if len(texts) > len(comm_names):
        comm_names += texts[len(comm_names) :]
    op, ops = codes(table.column("op"))
    dtype, dtypes = codes(table.column("dtype"))
    timed = timed_rows(table) & np.isin(ints(table, "rank"), of_ranks)
    comm, op, dtype = (c.astype(np.int32) for c in (comm, op, dtype))
    order = _canonical(table, timed, comm, op, dtype)
    comm, op, dtype, timed = comm[order], op[order], dtype[order], timed[order]

    def sorted_ints(name: str, null: int = -1) -> np.ndarray:
        return ints(table, name, null)[order]

    def narrow(name: str) -> np.ndarray:
        """Of a column that has no more than 32 bits."""
        return sorted_ints(name).astype(np.int32)

    table_of_op = np.array([sequences.op_mask(o) for o in ops] + [sequences.ANY_OP], np.int32)
    is_p2p = np.array([o in P2P_OPS for o in ops] + [False])
    is_barrier = np.array([o in BARRIER_OPS for o in ops] + [False])
    # A bare SendRecv kernel is an all-to-all unless time says otherwise. With a number, or several
    # operations in it, it is a group of sends and receives: those number each rank for itself.
    is_group = np.array([o == "send_recv" for o in ops] + [False])[op]
    rank, peer, coalesced = narrow("rank"), narrow("peer"), narrow("coalesced")
    seq, group_size = sorted_ints("seq"), narrow("group_size")
    p2p = is_p2p[op] & (peer >= 0) & (rank >= 0)
    bare = is_group & ~p2p & (seq < 0) & (coalesced < 0)
    loose = (is_p2p[op] & ~p2p & ~bare) | (rank < 0)
    if "unknown" in dtypes:
        dtype[dtype == dtypes.index("unknown")] = -1
    size_in, size_out = sorted_ints("in_bytes"), sorted_ints("out_bytes")
    size = _whole_size(ops, op, size_in, size_out, group_size, p2p)
    exchanged = np.where(
        table_of_op[op] == sequences.op_mask("all_to_all"), np.maximum(size_in, size_out), -1
    )
    del size_in, size_out
    start = np.where(timed, sorted_ints("start_ns", 0), 0)
    end = np.maximum(start, np.where(timed, sorted_ints("end_ns", 0), 0))
    source, sources = codes(table.column("source"))
    source = source[order]
    recorded = source == (sources.index("recorded") if "recorded" in sources else -2)
    named = texts if len(order) else []  # without rows there may be many communicators
    native = np.array([c.startswith(COUNTS_BY_FUNCTION) for c in named] + [False])
    who = np.array([[numbered_by(s, n) for n in (False, True)] for s in [*sources, None]], np.int32)
    counter = who[source, native[comm].astype(np.int8)]
    del source
    rows = Rows(
        rank, _domains(rank, of_ranks, domains), comm, seq, op, table_of_op[op], dtype, size, start,
        end, sorted_ints("stream", -2), sorted_ints("step"), sorted_ints("event_id"), peer,
        group_size, coalesced, is_barrier[op] | bare, p2p, loose, recorded, timed,
        np.flatnonzero(native), counter, exchanged,
    )  # fmt: skip
    return order, rows


_TIES = ["end_ns", "event_id", "seq", "stream", "peer", "in_bytes", "out_bytes"]


def _domains(rank: np.ndarray, of_ranks: np.ndarray, domains: np.ndarray) -> np.ndarray:
    """int32: the clock domain of each row's rank."""
    by_rank = np.argsort(of_ranks, kind="stable")
    if not len(by_rank):
        return np.zeros(len(rank), np.int32)
    slot = np.searchsorted(of_ranks[by_rank], rank)
    return domains[by_rank].astype(np.int32)[np.minimum(slot, len(by_rank) - 1)]


def _canonical(
    table: pa.Table, timed: np.ndarray, comm: np.ndarray, op: np.ndarray, dtype: np.ndarray
) -> np.ndarray:
    """The order of `Rows`: by rank and time, and where these tie by all else that is known."""
    rank, start = ints(table, "rank"), np.where(timed, ints(table, "start_ns", 0), 0)
    order = np.lexsort((start, ~timed, rank))
    same = np.ones(max(len(order) - 1, 0), bool)
    for key in (rank, timed, start):
        key = key[order]
        same &= key[1:] == key[:-1]
    tied = np.append(same, False) | np.append(False, same) if len(order) else same
    if not tied.any():
        return order
    rows = order[tied]
    group = np.cumsum(np.append(True, ~same))[tied]
    some = table.select(_TIES).take(pa.array(rows))
    end = np.where(timed[rows], ints(some, "end_ns", 0), 0)
    keys = (
        ints(some, "out_bytes"), ints(some, "in_bytes"), dtype[rows], op[rows],
        ints(some, "peer"), comm[rows], ints(some, "stream", -2), ints(some, "seq"),
        ints(some, "event_id"), end, group,
    )  # fmt: skip
    order[tied] = rows[np.lexsort(keys)]
    return order


def _whole_size(
    ops: list[str],
    op: np.ndarray,
    size_in: np.ndarray,
    size_out: np.ndarray,
    n: np.ndarray,
    p2p: np.ndarray,
) -> np.ndarray:
    """Bytes by which ranks can be compared: equal on all ranks of one operation; -1 if unknown."""
    size = np.full(len(op), -1, dtype=np.int64)

    def scaled(one: np.ndarray) -> np.ndarray:
        return np.where((one >= 0) & (n > 0), one * n, -1)

    whole: dict[str, Callable[[], np.ndarray]] = {
        "all_reduce": lambda: np.maximum(size_in, size_out),
        "all_gather": lambda: np.where(size_out >= 0, size_out, scaled(size_in)),
        "reduce_scatter": lambda: np.where(size_in >= 0, size_in, scaled(size_out)),
        "broadcast": lambda: np.maximum(size_in, size_out),
        "reduce": lambda: size_in,
        "gather": lambda: size_in,
        "scatter": lambda: size_out,
        "send": lambda: np.maximum(size_in, size_out),
        "recv": lambda: np.maximum(size_in, size_out),
        # what goes and what comes: the peer has the two the other way around
        "send_recv": lambda: np.where(
            p2p & (size_in >= 0) & (size_out >= 0), size_in + size_out, -1
        ),
    }
    for name, value in whole.items():
        if name in ops:
            size = np.where(op == ops.index(name), value(), size)
    return size


def runs(*keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Order by keys (first is the most significant) and the indices where runs begin in it."""
    order = np.lexsort([narrow(key) for key in reversed(keys)])
    new = np.zeros(len(order), dtype=bool)
    if len(order):
        new[0] = True
        for key in keys:
            k = key[order]
            new[1:] |= k[1:] != k[:-1]
    return order, np.flatnonzero(new)


def code(*keys: np.ndarray) -> np.ndarray:
    """Dense integer codes of rows of keys."""
    order, first = runs(*keys)
    out = np.empty(len(order), dtype=np.int64)
    mark = np.zeros(len(order), dtype=np.int64)
    mark[first] = 1
    out[order] = np.cumsum(mark) - 1
    return out


def occurrence(*keys: np.ndarray) -> np.ndarray:
    """How many earlier rows have the same keys (rows are in time order on each rank)."""
    order, first = runs(*keys)
    count = np.diff(np.append(first, len(order)))
    out = np.empty(len(order), dtype=np.int64)
    out[order] = np.arange(len(order)) - np.repeat(first, count)
    return out
