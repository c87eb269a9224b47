"""Every participation with what its whole collective has in common: view `_participations`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ..matching.participations import codes, ints, timed_rows
from .aligned import UNKNOWN, Clock, Odd, within
from .segmented import LEAST, Runs, runs

_pc: Any = pyarrow.compute

PAIRED = ("send", "recv", "send_recv")
FROM_ROOT = ("broadcast", "scatter")
TO_ROOT = ("reduce", "gather")


class Participations(NamedTuple):
    """Arrays of one length, in the order of `collectives`; `LEAST` where a number is null.

    Of 32 bits are those that have no more and are never null.
    """

    rank: np.ndarray
    step: np.ndarray
    collective: np.ndarray
    event: np.ndarray
    comm: np.ndarray
    """code in `comms`, -1 null"""
    comms: list[str]
    dim: np.ndarray
    """code in `dims`, -1 null"""
    dims: list[str]
    op: np.ndarray
    """code in `ops`"""
    ops: list[str]
    clock: np.ndarray
    """code in `clocks`, -1 null"""
    clocks: list[str]
    host: np.ndarray
    """code in `hosts`, -1 null"""
    hosts: list[str]
    timed: np.ndarray
    decides: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    ready_ns: np.ndarray
    root_start_ns: np.ndarray
    shortest_ns: np.ndarray
    bytes: np.ndarray
    n_ranks: np.ndarray
    n_seen: np.ndarray
    n_timed: np.ndarray
    n_comparable: np.ndarray
    last_rank: np.ndarray
    last_start_ns: np.ndarray
    clock_error_ns: np.ndarray
    ready_known: np.ndarray
    wait_known: np.ndarray
    same_clock: Runs
    """of participations in one collective whose clocks can be compared"""

    @property
    def wait_ns(self) -> np.ndarray:
        """Part before ready, of the timed ones."""
        return np.maximum(0, np.minimum(self.ready_ns, self.end_ns) - self.start_ns)


def find(collectives: pa.Table, comms: pa.Table, known: dict[int, Clock]) -> Participations:
    """What the view gives. Raises Odd for a row without a rank or operation.

    A large job has millions of rows: no more columns of them are held at a time than must be.
    """
    null = int(LEAST)
    rank = ints(collectives, "rank", null)
    op, ops = codes(collectives["op"])
    if np.any(rank == null) or np.any(op < 0):
        raise Odd
    comm, names = codes(collectives["comm"])
    rank, op, comm = (c.astype(np.int32) for c in (rank, op, comm))
    collective, event = (
        ints(collectives, "collective_id", null),
        ints(collectives, "event_id", null),
    )
    timed = timed_rows(collectives)
    start, end = _aligned(collectives, rank, timed, known)
    clock, clocks, own, host, hosts, error = _places(rank, timed, known)
    whole = _wholes(collectives, rank, collective, event, op)
    same = runs(whole.run, clock)
    n_seen = whole.length.astype(np.int32)[whole.run]
    n_timed, n_comparable = _count(whole, timed), _count(same, timed)
    dim, dims, comm_size = _of_comms(comms, comm, names)
    n_ranks, bytes_ = _sizes(collectives, ops, op, rank, whole, n_seen, comm_size)
    shortest = whole.least(np.where(timed, end - start, _MOST))
    shortest = np.where(shortest == _MOST, LEAST, shortest)[whole.run]
    del whole
    last_start = same.most(start)[same.run]
    last_rank = same.least(np.where(start == last_start, rank, np.iinfo(np.int32).max))
    error = _errors(same, own, host, error, n_comparable)
    del own
    root = ints(collectives, "root", null)
    root_start = same.most(np.where(timed & (rank == root), start, LEAST))[same.run]
    ready, ready_known = _ready(
        ops, op, rank, root, start, last_start, root_start, n_comparable, n_ranks
    )
    del root
    decides = _shared(
        collectives, ops, op, rank, event, timed, ready, n_comparable, collective, ready_known
    )
    group_size = ints(collectives, "group_size", null)
    members = np.where(group_size != LEAST, group_size, comm_size)
    wait_known = (n_timed > 1) | (members == 1) | ((collective != LEAST) & ready_known)
    return Participations(
        rank, ints(collectives, "step", null), collective, event, comm, names, dim, dims, op, ops,
        clock, clocks, host, hosts, timed, decides, start, end, ready, root_start, shortest, bytes_,
        n_ranks, n_seen, n_timed, n_comparable, last_rank[same.run], last_start, error,
        ready_known, wait_known, same,
    )  # fmt: skip


_MOST = np.iinfo(np.int64).max


def _count(of: Runs, rows: np.ndarray) -> np.ndarray:
    """int32[rows]: how many of these rows (bool) are in the run of each."""
    return of.total(rows.astype(np.int32)).astype(np.int32)[of.run]


def _sizes(
    collectives: pa.Table, ops: list[str], op: np.ndarray, rank: np.ndarray, whole: Runs,
    n_seen: np.ndarray, comm_size: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """By row how many ranks take part, and the message's size."""
    null = int(LEAST)
    group_size = whole.most(ints(collectives, "group_size", null))[whole.run]
    paired = _among(ops, op, PAIRED)
    peer = ints(collectives, "peer", null)
    n_ranks = _n_ranks(ops, op, paired, rank, peer, group_size, comm_size, n_seen)
    del group_size, peer
    size = _message_bytes(collectives, ops, op, n_ranks)
    return n_ranks, whole.most(size)[whole.run]


def _among(ops: list[str], op: np.ndarray, these: Sequence[str]) -> np.ndarray:
    """bool: the operation is one of these."""
    return np.array([o in these for o in ops], bool)[op]


def _errors(
    same: Runs, own: np.ndarray, host: np.ndarray, error: np.ndarray, n_comparable: np.ndarray
) -> np.ndarray:
    """By row the error of the clocks of its collective: none within a host."""
    none = np.int32(np.iinfo(np.int32).max)
    lowest = same.least(np.where(own >= 0, own, none))
    one_host = (same.most(own) == np.where(lowest == none, -1, lowest))[same.run]
    largest = same.most(error)[same.run]
    largest[(n_comparable == 1) | (one_host & (host >= 0))] = 0
    return largest


def _ready(
    ops: list[str], op: np.ndarray, rank: np.ndarray, root: np.ndarray, start: np.ndarray,
    last_start: np.ndarray, root_start: np.ndarray, n_comparable: np.ndarray, n_ranks: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """By row from when it could have finished, and whether all that decide that were seen."""
    from_root, to_root = _among(ops, op, FROM_ROOT), _among(ops, op, TO_ROOT)
    is_root = (root != LEAST) & (rank == root)
    ready = np.where(from_root, np.maximum(root_start, start),
                     np.where(to_root & ~is_root, start, last_start))  # fmt: skip
    enough = (n_ranks != LEAST) & (n_comparable >= n_ranks)
    known = np.where(
        from_root, root_start != LEAST,
        np.where(to_root, (root != LEAST) & (~is_root | enough), enough),
    )  # fmt: skip
    return ready, known


def _aligned(
    collectives: pa.Table, rank: np.ndarray, timed: np.ndarray, known: dict[int, Clock]
) -> tuple[np.ndarray, np.ndarray]:
    """Start and end on the job's clock, `LEAST` where nothing timed it."""
    start = np.where(timed, ints(collectives, "start_ns", 0), 0)
    end = np.maximum(np.where(timed, ints(collectives, "end_ns", 0), 0), start)
    by_rank = runs(rank)
    out = np.full(len(rank), LEAST), np.full(len(rank), LEAST)
    for rows in np.split(by_rank.order, by_rank.first[1:]):
        if not len(rows):
            continue
        of = known.get(int(rank[rows[0]]), UNKNOWN)
        rows = rows[timed[rows]]
        out[0][rows], out[1][rows] = of.align(start[rows]), of.align(end[rows])
    return out


def _places(
    rank: np.ndarray, timed: np.ndarray, known: dict[int, Clock]
) -> tuple[np.ndarray, list[str], np.ndarray, np.ndarray, list[str], np.ndarray]:
    """By row: clock (texts), its host's own clock, host (texts), and the clock's error."""
    ranks, row = np.unique(rank, return_inverse=True)
    of = [known.get(r) for r in ranks.tolist()]
    names = [f"rank {r}" if c is None else c.name for r, c in zip(ranks.tolist(), of, strict=True)]
    clocks = sorted(set(names))
    owns = sorted({c.own for c in of if c is not None})
    hosts = sorted({c.host for c in of if c is not None and c.host is not None})
    at = {t: i for i, t in enumerate(clocks)}
    clock = np.array([at[t] for t in names], np.int32)[row]
    own_at, host_at = ({t: i for i, t in enumerate(texts)} for texts in (owns, hosts))
    own = np.array([-1 if c is None else own_at[c.own] for c in of], np.int32)
    host = np.array([-1 if c is None or c.host is None else host_at[c.host] for c in of], np.int32)
    error = np.array(
        [LEAST if c is None or c.error_ns is None else c.error_ns for c in of], np.int64
    )
    clock[~timed] = -1
    return clock, clocks, own[row], host[row], hosts, error[row]


def _wholes(
    collectives: pa.Table,
    rank: np.ndarray,
    collective: np.ndarray,
    event: np.ndarray,
    op: np.ndarray,
) -> Runs:
    """The rows of each collective; what nothing matched stands alone (but with its like)."""
    alone = np.flatnonzero(collective == LEAST)
    if not len(alone):
        return runs(collective)
    null = int(LEAST)
    keys = [rank, *(ints(collectives, c, null) for c in ("start_ns", "stream", "seq")), event, op]
    lone = np.zeros(len(rank), np.int64)
    lone[alone] = 1 + runs(*(k[alone] for k in keys)).run
    return runs(collective, lone)


def _of_comms(
    comms: pa.Table, comm: np.ndarray, names: list[str]
) -> tuple[np.ndarray, list[str], np.ndarray]:
    """By row the dimension (texts) and size of its communicator."""
    said = comms.column("comm").cast(pa.string()).combine_chunks()
    if len(said.drop_null().unique()) < len(said) - said.null_count:
        raise Odd
    dim, dims = codes(comms.column("dim"))
    at = _pc.index_in(pa.array(names, pa.string()), value_set=said).fill_null(-1)
    its = np.append(at.to_numpy(zero_copy_only=False), -1)[comm]
    size = ints(comms, "size", int(LEAST))
    return np.append(dim, -1).astype(np.int32)[its], dims, np.append(size, LEAST)[its]


def _n_ranks(
    ops: list[str],
    op: np.ndarray,
    paired: np.ndarray,
    rank: np.ndarray,
    peer: np.ndarray,
    group_size: np.ndarray,
    comm_size: np.ndarray,
    n_seen: np.ndarray,
) -> np.ndarray:
    n_seen = n_seen.astype(np.int64)
    said = np.where(group_size != LEAST, group_size, comm_size)
    whole = np.where(said != LEAST, said, np.where(n_seen == 1, LEAST, n_seen))
    loose = op == (ops.index("send_recv") if "send_recv" in ops else -2)
    loose &= peer == LEAST
    crowd = np.where(said != LEAST, said, np.maximum(2, n_seen))
    pair = np.where((peer != LEAST) & (peer == rank), 1, np.where(loose, crowd, 2))
    return np.where(paired, pair, whole)


def _message_bytes(
    collectives: pa.Table, ops: list[str], op: np.ndarray, n_ranks: np.ndarray
) -> np.ndarray:
    """The macro `message_bytes`. Raises Odd for sizes that are too large."""
    null = int(LEAST)
    into, out = ints(collectives, "in_bytes", null), ints(collectives, "out_bytes", null)
    most = max(into.max(initial=0), out.max(initial=0))
    within(np.array([float(most) * n_ranks.max(initial=1)]))

    def scaled(one: np.ndarray) -> np.ndarray:
        return np.where((one != LEAST) & (n_ranks != LEAST), one * n_ranks, LEAST)

    def either(first: np.ndarray, second: Callable[[], np.ndarray]) -> np.ndarray:
        return np.where(first != LEAST, first, second())

    found = np.maximum(into, out)
    values: dict[str, Callable[[], np.ndarray | int]] = {
        "barrier": lambda: null,
        "all_gather": lambda: either(out, lambda: scaled(into)),
        "gather": lambda: either(scaled(into), lambda: out),
        "reduce_scatter": lambda: either(into, lambda: scaled(out)),
        "scatter": lambda: either(scaled(out), lambda: into),
        "recv": lambda: either(out, lambda: into),
        "send": lambda: either(into, lambda: out),
    }
    for name, value in values.items():
        if name in ops:
            found = np.where(op == ops.index(name), value(), found)
    return found


def _shared(
    collectives: pa.Table,
    ops: list[str],
    op: np.ndarray,
    rank: np.ndarray,
    event: np.ndarray,
    timed: np.ndarray,
    ready: np.ndarray,
    n_comparable: np.ndarray,
    collective: np.ndarray,
    ready_known: np.ndarray,
) -> np.ndarray:
    """bool: of those that share a kernel, the row that decides; all others do.

    What they share is known where it is of all of them: `ready_known` says so then.
    """
    peer = ints(collectives, "peer", int(LEAST))
    shares = ints(collectives, "coalesced", int(LEAST)) > 1
    shares &= (peer != LEAST) & (event != LEAST) & _among(ops, op, PAIRED)
    rows, decides = np.flatnonzero(shares), np.ones(len(shares), bool)
    if not len(rows):
        return decides
    r, e, t = rank[rows], event[rows], timed[rows].astype(np.int64)
    unmatched = collective[rows] == LEAST
    order = np.lexsort(
        (collective[rows], unmatched, peer[rows], -n_comparable[rows],
         np.where(t > 0, -ready[rows], 0), t, e, r)
    )  # fmt: skip
    new = np.ones(len(rows), bool)
    new[1:] = False
    for key in (r, e, t):
        new[1:] |= key[order][1:] != key[order][:-1]
    decides[rows] = False
    decides[rows[order[new]]] = True
    of_kernel = runs(r, e)
    ready_known[rows] = of_kernel.least(ready_known[rows].astype(np.int64))[of_kernel.run] > 0
    return decides


def by_text(texts: list[str]) -> np.ndarray:
    """Place of each text in order, with one more for none."""
    place = np.full(len(texts) + 1, -1, np.int64)
    place[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    return place
