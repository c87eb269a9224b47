"""Instances of collectives while they are found: joined, judged by time, named."""

from __future__ import annotations

import hashlib

import numpy as np

from ..schema import Problem
from . import clocks as clock
from . import sequences
from .participations import Comms, Rows, code, occurrence, runs

LONE, EXACT, ORDER, TORN = 0, 1, 2, 3
"""How a row was matched: not at all, by number, by order, or contradicted and set apart."""
ABSURD_NS = 20_000_000
"""Ends of one numbered collective on one clock may differ by this much: scheduling delays."""


class Instances:
    """What is decided so far about each row; filled in stages."""

    def __init__(self, n: int) -> None:
        self.group = np.full(n, -1, dtype=np.int64)
        self.how = np.zeros(n, dtype=np.int8)
        self.next_group = 0
        self.problems: list[Problem] = []

    def join(self, index: np.ndarray, labels: np.ndarray, how: int) -> None:
        """Rows at `index` with equal label (any integers) become one instance."""
        if len(index) == 0:
            return
        _, code = np.unique(labels, return_inverse=True)
        self.group[index] = code + self.next_group
        self.how[index] = how
        self.next_group += int(code.max()) + 1

    def take_apart(self, groups: np.ndarray) -> None:
        """Contradicted instances: their rows stand alone again.

        Where numbered rows and rows placed by order are together, only the latter go.
        """
        index = np.flatnonzero((self.group >= 0) & np.isin(self.group, groups))
        ordered = self.how[index] == ORDER
        mixed = np.intersect1d(self.group[index[ordered]], self.group[index[~ordered]])
        go = index[ordered | ~np.isin(self.group[index], mixed)]
        self.group[go] = -1
        self.how[go] = TORN

    def say(self, code: str, message: str, count: int, severity: str = "warning") -> None:
        if count:
            self.problems.append(Problem(code, message, severity, int(count)))


def tear_signatures(rows: Rows, state: Instances, index: np.ndarray) -> None:
    """Set apart the rows of instances whose op, dtype or size differ."""
    order, first = runs(state.group[index])
    at = index[order]

    def differ(code: np.ndarray) -> np.ndarray:
        code = code.astype(np.int64)
        low = np.minimum.reduceat(np.where(code < 0, np.iinfo(np.int64).max, code), first)
        high = np.maximum.reduceat(code, first)
        return (low < high) & (high >= 0)

    bad = differ(rows.dtype[at]) | differ(rows.size[at])
    bad |= np.bitwise_and.reduceat(rows.mask[at], first) == 0
    state.say(
        "match_contradiction",
        "ranks disagree on op, dtype or size of collectives with the same communicator and "
        "sequence number; these rows stand alone (a restart, or groups with one name?)",
        int(bad.sum()),
    )
    state.take_apart(state.group[at[first[bad]]])


def judge(rows: Rows, state: Instances, clocks: clock.Clocks) -> None:
    """Take apart instances that time or signature contradicts, now that clocks are known.

    A rank that ends before another starts contradicts any match. Ends far apart contradict an
    order; a number only where they are absurd, as a busy host may note an end late.
    """
    index = np.flatnonzero((state.group >= 0) & ~rows.recorded)
    ordered = index[state.how[index] == ORDER]
    if len(ordered):
        tear_signatures(rows, state, index[np.isin(state.group[index], state.group[ordered])])
    groups = _impossible(rows, state, clocks)
    state.say(
        "match_contradiction",
        "collectives that their number or order would match cannot be one: a rank ends before "
        "another starts, or ends lie far apart; these rows stand alone",
        len(groups),
    )
    state.take_apart(groups)
    state.take_apart(_impossible(rows, state, clocks))


def _impossible(rows: Rows, state: Instances, clocks: clock.Clocks) -> np.ndarray:
    """Groups of barrier-like instances whose times cannot be one collective's."""
    index = np.flatnonzero((state.group >= 0) & ~rows.recorded & rows.timed)
    if len(index) == 0:
        return np.empty(0, np.int64)
    component = clocks.component[rows.domain]
    # only rows on one clock can be compared; the others pass
    order, first = runs(state.group[index], component[index])
    at = index[order]
    count = np.diff(np.append(first, len(at)))
    start = clock.align(clocks, rows.start[at], rows.domain[at])
    end = clock.align(clocks, rows.end[at], rows.domain[at])
    error = np.maximum.reduceat(clocks.error_ns[rows.domain[at]], first) * 2  # both sides
    one_domain = np.minimum.reduceat(rows.domain[at], first) == np.maximum.reduceat(
        rows.domain[at], first
    )
    error = np.where(one_domain, 0.0, error)
    last_end, first_end = np.maximum.reduceat(end, first), np.minimum.reduceat(end, first)
    ready = np.maximum.reduceat(start, first)
    barrier = np.logical_and.reduceat(rows.barrier[at], first)
    spread = (last_end - first_end).astype(np.float64)
    several = count > 1
    if not (several & barrier).any():
        return np.empty(0, np.int64)
    typical = float(np.median(spread[several & barrier]))
    transfer = first_end - ready
    numbered = np.logical_and.reduceat(state.how[at] == EXACT, first)
    host = np.minimum.reduceat(rows.stream[at], first) < -1
    near = np.where(host, sequences.HOST_NEAR_NS, sequences.NEAR_NS)
    limit = sequences.farthest(typical, transfer, near, 0.0)
    far = spread > np.where(numbered, np.maximum(10 * limit, ABSURD_NS), limit) + error
    early = transfer < -(sequences.SLACK_NS + error)
    bad = several & barrier & (far | early)
    return np.unique(state.group[at[first[bad]]])


def matches(rows: Rows, state: Instances, known: Comms) -> np.ndarray:
    """`match` code of each row: EXACT, ORDER or LONE (partial)."""
    n = len(rows.rank)
    group = state.group.copy()
    lone = group < 0
    group[lone] = state.next_group + np.arange(int(lone.sum()))
    order, first = runs(group, rows.rank)
    head = np.zeros(n, dtype=np.int64)
    head[order[first]] = 1
    dense = code(group)
    seen = np.bincount(dense, head, minlength=1)[dense] if n else np.zeros(0)
    size = np.append(known.size, -1)[rows.comm]
    expected = np.where(rows.p2p, 2, np.where(size > 0, size, rows.group_size))
    ordered = np.bincount(dense, state.how == ORDER, minlength=1)[dense] > 0
    by = np.where(ordered, ORDER, EXACT)
    alone_by_number = (state.how == EXACT) | (rows.group_size == 1) | (size == 1)
    whole = (expected > 0) & (seen == expected) & (state.how != TORN) & (~lone | alone_by_number)
    match = np.where(whole, np.where(lone & (rows.seq < 0), ORDER, by), LONE)
    state.say(
        "match_incomplete",
        "collectives of which not every member's part was found: ranks without a trace, capture "
        "windows that began or ended at different moments, or parts that could not be told apart",
        len(np.unique(dense[match == LONE])),
        "info",
    )
    return match


def _mix(h: np.ndarray) -> np.ndarray:
    """Finaliser of splitmix64 on uint64 (public domain, Vigna): every bit depends on every bit."""
    h = h + np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


def _hash(*keys: np.ndarray) -> np.ndarray:
    """Positive 63-bit hash of rows of integer keys."""
    h = np.zeros(len(keys[0]), dtype=np.uint64)
    for key in keys:
        h = _mix(h ^ _mix(key.astype(np.int64).view(np.uint64)))
    return np.maximum((h >> np.uint64(1)).astype(np.int64), 1)


def identities(rows: Rows, state: Instances, known: Comms) -> np.ndarray:
    """collective_id of each row; see `resolve` for what it depends on."""
    n = len(rows.rank)
    if n == 0:
        return np.zeros(0, np.int64)
    text = [int.from_bytes(hashlib.blake2b(t.encode(), digest_size=7).digest(), "big")
            for t in known.names]  # fmt: skip
    comm = np.array([*text, 0], dtype=np.int64)[rows.comm]
    nth = occurrence(rows.rank, rows.event, rows.start, rows.end, rows.comm, rows.seq)
    row = _hash(np.full(n, 1), rows.rank, rows.event, rows.start, rows.end, comm, rows.seq, nth)
    # rows are sorted by rank: the first row of an instance is its lowest rank's
    out = row.copy()
    joined = np.flatnonzero(state.group >= 0)
    order, first = runs(state.group[joined])
    at = joined[order]
    count = np.diff(np.append(first, len(at)))
    if len(at):
        out[at] = np.repeat(row[at[first]], count)
        exact = np.logical_and.reduceat(state.how[at] == EXACT, first)
        source = np.where(rows.p2p, np.minimum(rows.rank, rows.peer), -1)
        target = np.where(rows.p2p, np.maximum(rows.rank, rows.peer), -1)
        upward = (rows.mask == sequences.op_mask("send")) == (rows.rank < rows.peer)
        both = rows.mask == sequences.op_mask("send_recv")
        sends = np.where(rows.p2p, np.where(both, 2, upward), 0)
        lane = rows.lane
        by_function = ~rows.p2p & np.isin(rows.comm, rows.by_function)
        sends = np.where(by_function, 3 + (rows.mask & 0xFFFF), sends)
        again = occurrence(lane, rows.seq, rows.rank, rows.peer, rows.mask, rows.p2p)
        number = _hash(2 + (rows.counter << 8), comm, rows.seq, source, target, sends, again)
        out[at] = np.where(np.repeat(exact, count), np.repeat(number[at[first]], count), out[at])
    return out
