"""Which participations, on different ranks, are one collective; and the clocks that follow.

By sequence number where the source has one, else by order on the communicator, laid side by side
by the moments at which operations end (`sequences`). Clocks come from what is matched so far
(`clocks`), help to match the rest, and judge it: rows that cannot be one collective are taken
apart again and counted as problems. A wrong row is worse than a row without partners.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from . import clocks as clock
from . import hosts, schema, sequences
from .hosts import replace_column
from .schema import Problem
from .sequences import Sequence

BARRIER_OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Operations in which nobody can end before everybody has started."""
P2P_OPS = ("send", "recv")
LONE, EXACT, ORDER, TORN = 0, 1, 2, 3
"""How a row was matched: not at all, by number, by order, or contradicted and set apart."""
UNNAMED = "unnamed"


class Resolved(NamedTuple):
    """The derived tables of a job, consistent with each other."""

    collectives: pa.Table
    """the rows given, same order, with collective_id, match, comm and group_size filled"""
    ranks: pa.Table
    """the rows given, same order, with host and clock columns filled"""
    comms: pa.Table
    """one row a communicator, by identity"""
    problems: list[Problem]
    clocks: str
    """one-host, aligned, partly-aligned, unaligned or recorded"""


class _Rows(NamedTuple):
    """Participations as arrays in canonical order (rank, start, ...): input order cannot matter."""

    rank: np.ndarray
    slot: np.ndarray
    """row of the rank in `ranks`, sorted by rank"""
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
    recorded: np.ndarray

    def sequence(self, index: np.ndarray, clocks: clock.Clocks | None = None) -> Sequence:
        """The operations at `index`; on the common clock if `clocks` are given."""
        start, end = self.start[index], self.end[index]
        if clocks is not None:
            start = clock.align(clocks, start, self.domain[index])
            end = clock.align(clocks, end, self.domain[index])
        return Sequence(
            start, end, self.mask[index], self.dtype[index], self.size[index], self.step[index],
            self.barrier[index],
        )  # fmt: skip


class _Comms(NamedTuple):
    names: list[str]
    members: list[tuple[int, ...] | None]
    size: np.ndarray
    """int64, -1 not known"""


class _State:
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

    def dissolve(self, rows: np.ndarray) -> None:
        """Contradicted rows (bool) stand alone again."""
        self.group[rows] = -1
        self.how[rows] = TORN

    def say(self, code: str, message: str, count: int, severity: str = "warning") -> None:
        if count:
            self.problems.append(Problem(code, message, severity, int(count)))


def resolve(collectives: pa.Table, ranks: pa.Table, comms: pa.Table, steps: pa.Table) -> Resolved:
    """Match participations across ranks and align the clocks of hosts.

    Tables have the schemas of `schema.COLLECTIVES`, RANKS, COMMS and STEPS and hold the rows of
    all sources of a job. Pure: the result depends on the rows, not on their order.

    `match` is the instance's, on each of its rows: `exact` where comm and sequence number agree
    (op, dtype and size too) on every member of the comm; `order` where at least one row has no
    number and its place in the order, checked by op, dtype, size and time, left one choice;
    `partial` where members were not seen or are not known, or rows contradict each other.

    collective_id is positive and equal on all rows of an instance. By number it is a hash of comm
    and number, and stays when more ranks arrive. By order there is no such name: it is a hash of
    the lowest rank's row, and stays unless a still lower rank arrives or the match itself changes.
    """
    ranks = hosts.place(ranks)
    domains = hosts.clock_domains(ranks)
    names, known = _merge_comms(comms)
    order, rows = _read(collectives, ranks, domains, known.names)
    state = _State(len(rows.rank))
    anchor = _anchors(ranks, domains, rows)

    world = _world(ranks)
    lent = _lend(rows, known)
    rows = rows._replace(comm=lent)
    rows, known, names = _unnamed_world(rows, known, names, world)

    _by_number(rows, state)
    clocks = _clocks(rows, state, anchor)
    clocks = _by_order(rows, state, clocks, known)
    clocks = _clocks(rows, state, anchor)
    _judge(rows, state, clocks)
    rows = _drop_unproven(rows, state, known)
    clocks = _clocks(rows, state, anchor)
    _point_to_point(rows, state, clocks)

    match = _finish(rows, state, known)
    ids = _identities(rows, state, known)
    collectives = _write(collectives, order, rows, ids, match, known)
    ranks, word = _write_clocks(ranks, domains, clocks, rows, state)
    used = set(np.unique(rows.comm[rows.comm >= 0]).tolist())
    table = _comms_table(names, known, world, used)
    return Resolved(collectives, ranks, table, state.problems, word)


# --- reading -------------------------------------------------------------------------------------


def _merge_comms(comms: pa.Table) -> tuple[dict[str, dict], _Comms]:
    """One record a communicator: what any rank knew about it, the lowest text where they differ."""
    merged: dict[str, dict] = {}
    unique = comms.select(
        ["comm", "name", "description", "ranks", "size", "dim", "dim_source", "backend"]
    ).to_pylist()
    for row in sorted(unique, key=lambda r: tuple("" if v is None else str(v) for v in r.values())):
        if row["comm"] is None:
            continue
        into = merged.setdefault(row["comm"], dict(row))
        for key, value in row.items():
            if into[key] is None or (key in ("dim", "dim_source") and into["dim"] == "unknown"):
                into[key] = value
    texts = sorted(merged)
    members = [
        tuple(sorted(merged[t]["ranks"])) if merged[t]["ranks"] is not None else None for t in texts
    ]
    size = np.array(
        [
            len(m) if m is not None else (merged[t]["size"] if merged[t]["size"] else -1)
            for t, m in zip(texts, members, strict=True)
        ],
        dtype=np.int64,
    )
    return merged, _Comms(texts, members, size)


def _codes(column: pa.ChunkedArray, names: list[str] | None = None) -> tuple[np.ndarray, list[str]]:
    """int64 codes of a text column by sorted name (-1 null); names given come first, in order."""
    flat = column.cast(pa.string()).combine_chunks().dictionary_encode()
    if isinstance(flat, pa.ChunkedArray):
        flat = flat.combine_chunks()
    texts = flat.dictionary.to_pylist()
    known = list(names or [])
    have = set(known)
    known += sorted(t for t in texts if t not in have)
    place = {t: i for i, t in enumerate(known)}
    table = np.array([place[t] for t in texts] + [-1], dtype=np.int64)
    index = flat.indices.cast(pa.int64()).fill_null(len(texts))
    return table[index.to_numpy(zero_copy_only=False)], known


def _ints(table: pa.Table, name: str, null: int = -1) -> np.ndarray:
    return table.column(name).cast(pa.int64()).fill_null(null).to_numpy(zero_copy_only=False)


def _read(
    table: pa.Table, ranks: pa.Table, domains: np.ndarray, comm_names: list[str]
) -> tuple[np.ndarray, _Rows]:
    """The canonical order (row of the table for each sorted row) and the sorted arrays."""
    rank = _ints(table, "rank")
    start, end = _ints(table, "start_ns", 0), _ints(table, "end_ns", 0)
    seq, event = _ints(table, "seq"), _ints(table, "event_id")
    comm, texts = _codes(table.column("comm"), comm_names)
    if len(texts) > len(comm_names):
        comm_names += texts[len(comm_names) :]
    op, ops = _codes(table.column("op"))
    dtype, dtypes = _codes(table.column("dtype"))
    source, sources = _codes(table.column("source"))
    size_in, size_out = _ints(table, "in_bytes"), _ints(table, "out_bytes")
    peer, group_size = _ints(table, "peer"), _ints(table, "group_size")
    stream = _ints(table, "stream", -2)
    keys = (size_out, size_in, dtype, op, peer, comm, stream, seq, event, end, start, rank)
    order = np.lexsort(keys)
    table_of_op = np.array([sequences.op_mask(o) for o in ops] + [sequences.ANY_OP], np.int64)
    is_p2p = np.array([o in P2P_OPS for o in ops] + [False])
    is_barrier = np.array([o in BARRIER_OPS for o in ops] + [False])
    # a SendRecv kernel of a group is an all-to-all unless time says otherwise
    is_barrier |= np.array([o == "send_recv" for o in ops] + [False])
    if "unknown" in dtypes:
        dtype = np.where(dtype == dtypes.index("unknown"), -1, dtype)
    by_rank = np.argsort(ranks.column("rank").to_numpy(zero_copy_only=False), kind="stable")
    sorted_ranks = ranks.column("rank").to_numpy(zero_copy_only=False)[by_rank]
    slot = np.searchsorted(sorted_ranks, rank[order])
    slot = np.clip(slot, 0, max(len(sorted_ranks) - 1, 0))
    domain = domains[by_rank][slot] if len(by_rank) else np.zeros(len(rank), np.int64)
    recorded = source == (sources.index("recorded") if "recorded" in sources else -2)
    rows = _Rows(
        rank[order], slot, domain, comm[order], seq[order], op[order], table_of_op[op][order],
        dtype[order], _whole_size(ops, op, size_in, size_out, group_size)[order], start[order],
        np.maximum(start, end)[order], stream[order], _ints(table, "step")[order], event[order],
        peer[order], group_size[order], _ints(table, "coalesced")[order], is_barrier[op][order],
        (is_p2p[op] & (peer >= 0))[order], recorded[order],
    )  # fmt: skip
    return order, rows


def _whole_size(
    ops: list[str], op: np.ndarray, size_in: np.ndarray, size_out: np.ndarray, n: np.ndarray
) -> np.ndarray:
    """Bytes by which ranks can be compared: equal on all ranks of one operation; -1 if unknown."""
    size = np.full(len(op), -1, dtype=np.int64)
    scaled_in = np.where((size_in >= 0) & (n > 0), size_in * n, -1)
    scaled_out = np.where((size_out >= 0) & (n > 0), size_out * n, -1)
    whole = {
        "all_reduce": np.maximum(size_in, size_out),
        "all_gather": np.where(size_out >= 0, size_out, scaled_in),
        "reduce_scatter": np.where(size_in >= 0, size_in, scaled_out),
        "broadcast": np.maximum(size_in, size_out),
        "reduce": size_in,
        "gather": size_in,
        "scatter": size_out,
        "send": np.maximum(size_in, size_out),
        "recv": np.maximum(size_in, size_out),
    }
    for name, value in whole.items():
        if name in ops:
            size = np.where(op == ops.index(name), value, size)
    return size


def _anchors(ranks: pa.Table, domains: np.ndarray, rows: _Rows) -> np.ndarray:
    """Middle of each domain's trace on its own clock: there the offset holds."""
    n = int(domains.max()) + 1 if len(domains) else 0
    low, high = np.full(n, np.iinfo(np.int64).max), np.full(n, np.iinfo(np.int64).min)
    for name, ends in (("start_ns", low), ("end_ns", high)):
        column = ranks.column(name)
        there = pc.is_valid(column).to_numpy(zero_copy_only=False)
        value = column.fill_null(0).to_numpy(zero_copy_only=False)
        (np.minimum if ends is low else np.maximum).at(ends, domains[there], value[there])
    lost = low > high
    if lost.any() and len(rows.rank):
        use = lost[rows.domain]
        np.minimum.at(low, rows.domain[use], rows.start[use])
        np.maximum.at(high, rows.domain[use], rows.end[use])
    nothing = low > high
    low[nothing] = high[nothing] = 0
    return low + (high - low) // 2


def _world(ranks: pa.Table) -> int | None:
    """Ranks of the job, where the sources agree on it."""
    sizes = [v for v in set(ranks.column("world_size").to_pylist()) if v is not None]
    return int(sizes[0]) if len(sizes) == 1 else None


# --- communicators of rows that name none --------------------------------------------------------


def _lend(rows: _Rows, known: _Comms) -> np.ndarray:
    """comm of each row, those without one getting their stream's where it serves one comm only.

    A rank without any named row on a stream may borrow what that stream serves on every other
    rank, if it is a member. Whether the row really belongs there is for order and time to say.
    """
    comm = rows.comm.copy()
    lack = (comm < 0) & (rows.stream >= 0) & ~rows.recorded & ~rows.p2p
    have = (comm >= 0) & (rows.stream >= 0)
    if not lack.any() or not have.any():
        return comm
    places = np.unique(np.stack([rows.rank[have], rows.stream[have], comm[have]], 1), axis=0)
    one: dict[tuple[int, int], set[int]] = {}
    anywhere: dict[int, set[int]] = {}
    for r, s, c in places.tolist():
        one.setdefault((r, s), set()).add(c)
        anywhere.setdefault(s, set()).add(c)
    for r, s in np.unique(np.stack([rows.rank[lack], rows.stream[lack]], 1), axis=0).tolist():
        choice = one.get((r, s))
        if choice is None:
            choice = {c for c in anywhere.get(s, ()) if r in (known.members[c] or ())}
            if choice != anywhere.get(s):
                continue
        if len(choice) == 1:
            comm[lack & (rows.rank == r) & (rows.stream == s)] = next(iter(choice))
    return comm


def _unnamed_world(
    rows: _Rows, known: _Comms, names: dict[str, dict], world: int | None
) -> tuple[_Rows, _Comms, dict[str, dict]]:
    """A trial communicator of all ranks for streams on which no rank names one.

    Only where most ranks of the job are here and each has operations on that stream; it is kept
    only where every operation on it is then found on all ranks that are here (`_drop_unproven`).
    """
    if world is None or world < 2:
        return rows, known, names
    lack = (rows.comm < 0) & (rows.stream >= 0) & ~rows.recorded & ~rows.p2p
    named = set(np.unique(rows.stream[(rows.comm >= 0)]).tolist())
    comm = rows.comm.copy()
    texts, members, size = list(known.names), list(known.members), known.size
    for stream in sorted(set(np.unique(rows.stream[lack]).tolist()) - named):
        here = lack & (rows.stream == stream)
        seen = np.unique(rows.rank[here])
        if 2 * len(seen) < world or len(seen) < 2 or len(seen) < len(np.unique(rows.rank)):
            continue
        text = f"{UNNAMED}/stream {stream}"
        comm[here] = len(texts)
        texts.append(text)
        members.append(tuple(range(world)))
        size = np.append(size, world)
        names = names | {
            text: {
                "comm": text, "name": None, "description": None, "ranks": list(range(world)),
                "size": world, "dim": "world", "dim_source": "members", "backend": None,
            }
        }  # fmt: skip
    return rows._replace(comm=comm), _Comms(texts, members, size), names


def _drop_unproven(rows: _Rows, state: _State, known: _Comms) -> _Rows:
    """Rows without the trial communicators that order did not confirm.

    An instance of one stands only if every rank that has operations on that stream is in it.
    """
    trial = np.array([t.startswith(f"{UNNAMED}/") for t in known.names] + [False])
    index = np.flatnonzero(trial[rows.comm])
    if len(index) == 0:
        return rows
    present = np.zeros(len(known.names), dtype=np.int64)
    pairs = np.unique(np.stack([rows.comm[index], rows.rank[index]], 1), axis=0)
    np.add.at(present, pairs[:, 0], 1)
    joined = index[state.group[index] >= 0]
    seen = np.bincount(state.group[joined], minlength=1)
    short = joined[seen[state.group[joined]] < present[rows.comm[joined]]]
    state.group[short] = -1
    state.how[short] = LONE
    comm = rows.comm.copy()
    comm[index[state.group[index] < 0]] = -1
    return rows._replace(comm=comm)


# --- by number -----------------------------------------------------------------------------------


def _runs(*keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Order by keys (first is the most significant) and the indices where runs begin in it."""
    order = np.lexsort(keys[::-1])
    new = np.zeros(len(order), dtype=bool)
    if len(order):
        new[0] = True
        for key in keys:
            k = key[order]
            new[1:] |= k[1:] != k[:-1]
    return order, np.flatnonzero(new)


def _code(*keys: np.ndarray) -> np.ndarray:
    """Dense integer codes of rows of keys."""
    order, first = _runs(*keys)
    out = np.empty(len(order), dtype=np.int64)
    mark = np.zeros(len(order), dtype=np.int64)
    mark[first] = 1
    out[order] = np.cumsum(mark) - 1
    return out


def _occurrence(*keys: np.ndarray) -> np.ndarray:
    """How many earlier rows have the same keys (rows are in time order on each rank)."""
    order, first = _runs(*keys)
    count = np.diff(np.append(first, len(order)))
    out = np.empty(len(order), dtype=np.int64)
    out[order] = np.arange(len(order)) - np.repeat(first, count)
    return out


def _by_number(rows: _Rows, state: _State) -> None:
    """Instances by (comm, seq); rows that disagree on op, dtype or size are set apart."""
    index = np.flatnonzero((rows.comm >= 0) & (rows.seq >= 0) & ~rows.p2p)
    if len(index) == 0:
        return
    comm, seq, rank = rows.comm[index], rows.seq[index], rows.rank[index]
    nth = _occurrence(comm, seq, rank)
    key = _code(comm, seq, nth)
    state.join(index, key, EXACT)
    _tear_signatures(rows, state, index)
    _fill_numbers(rows, state)


def _tear_signatures(rows: _Rows, state: _State, index: np.ndarray) -> None:
    """Set apart the rows of instances whose op, dtype or size differ."""
    order, first = _runs(state.group[index])
    at = index[order]
    count = np.diff(np.append(first, len(at)))

    def differ(code: np.ndarray) -> np.ndarray:
        low = np.minimum.reduceat(np.where(code < 0, np.iinfo(np.int64).max, code), first)
        high = np.maximum.reduceat(code, first)
        return (low < high) & (high >= 0)

    bad = differ(rows.dtype[at]) | differ(rows.size[at])
    bad |= np.bitwise_and.reduceat(rows.mask[at], first) == 0
    torn = at[np.repeat(bad, count)]
    state.say(
        "match_contradiction",
        "ranks disagree on op, dtype or size of collectives with the same communicator and "
        "sequence number; these rows stand alone (a restart, or groups with one name?)",
        int(bad.sum()),
    )
    apart = np.zeros(len(rows.rank), dtype=bool)
    apart[torn] = True
    state.dissolve(apart)


def _fill_numbers(rows: _Rows, state: _State) -> None:
    """Rows without a number, on a comm that has numbers: the number their place implies.

    Backwards from the next numbered row of the rank, else forwards from the one before; where both
    exist they must agree. Joined to the instance of that number; time is checked later.
    """
    numbered = np.zeros(max(int(rows.comm.max()) + 1, 1), dtype=bool)
    numbered[rows.comm[(rows.seq >= 0) & (rows.comm >= 0) & ~rows.p2p]] = True
    index = np.flatnonzero((rows.comm >= 0) & ~rows.p2p & numbered[rows.comm])
    lack = rows.seq[index] < 0
    if not lack.any():
        return
    order = np.argsort(_code(rows.comm[index], rows.rank[index]), kind="stable")
    at = index[order]
    line = _code(rows.comm[at], rows.rank[at])
    place = np.arange(len(at))
    seq = rows.seq[at]
    have = seq >= 0
    before = np.maximum.accumulate(np.where(have, place, -1))
    after = np.minimum.accumulate(np.where(have, place, len(at))[::-1])[::-1]
    back = np.clip(after, 0, len(at) - 1)
    fore = np.clip(before, 0, len(at) - 1)
    can_back = (after < len(at)) & (line[back] == line)
    can_fore = (before >= 0) & (line[fore] == line)
    from_after = seq[back] - (back - place)
    from_before = seq[fore] + (place - fore)
    sure = ~have & np.where(can_back & can_fore, from_after == from_before, can_back | can_fore)
    implied = np.where(can_back, from_after, from_before)
    sure &= implied >= 0
    new_at, new_seq = at[sure], implied[sure]
    if len(new_at) == 0:
        return
    old_at = at[have]
    comm = np.concatenate([rows.comm[old_at], rows.comm[new_at]])
    number = np.concatenate([seq[have], new_seq])
    both = np.concatenate([old_at, new_at])
    key = _code(comm, number)
    first = _occurrence(key, rows.rank[both]) == 0
    keep = np.concatenate([state.group[old_at] >= 0, np.ones(len(new_at), bool)]) & first
    exact = np.concatenate([np.ones(len(old_at), bool), np.zeros(len(new_at), bool)])
    both, key, exact = both[keep], key[keep], exact[keep]
    mixed = np.isin(key, key[~exact])
    both, key, exact = both[mixed], key[mixed], exact[mixed]
    state.join(both, key, ORDER)
    state.how[both[exact]] = EXACT
    _tear_signatures(rows, state, both)


# --- by order ------------------------------------------------------------------------------------


def _clocks(rows: _Rows, state: _State, anchor: np.ndarray) -> clock.Clocks:
    """Clocks from every barrier-like instance matched so far."""
    use = (state.group >= 0) & rows.barrier & ~rows.recorded & ~rows.p2p
    return clock.estimate(
        state.group[use], rows.domain[use], rows.start[use], rows.end[use], anchor
    )


def _by_order(rows: _Rows, state: _State, clocks: clock.Clocks, known: _Comms) -> clock.Clocks:
    """Instances of comms without numbers, laid side by side rank by rank."""
    numbered = np.zeros(len(known.names) + 1, dtype=bool)
    numbered[rows.comm[rows.seq >= 0]] = True
    index = np.flatnonzero(
        (rows.comm >= 0) & (state.group < 0) & (state.how == LONE) & ~rows.p2p & ~rows.recorded
        & ~numbered[rows.comm]
    )  # fmt: skip
    order, first = _runs(rows.comm[index], rows.rank[index])
    parts = np.split(index[order], first[1:]) if len(index) else []
    lines: dict[int, list[np.ndarray]] = {}
    for part in parts:
        # lexsort is stable: the rows of a rank are still in time order
        lines.setdefault(int(rows.comm[part[0]]), []).append(part)
    # comms with much evidence tie clocks first
    work = sorted(lines, key=lambda c: (-min(len(p) for p in lines[c]), c))
    for comm in work:
        clocks = _tie_domains(rows, lines[comm], clocks)
    ambiguous = 0
    for comm in work:
        ambiguous += _lay(rows, state, lines[comm], clocks)
    state.say(
        "ambiguous_match",
        "operations without sequence numbers fit equally well at more than one place in their "
        "communicator's order (or hosts' clocks could not be tied); they stand alone",
        ambiguous,
    )
    return clocks


def _tie_domains(rows: _Rows, lines: list[np.ndarray], clocks: clock.Clocks) -> clock.Clocks:
    """Tie clocks of hosts that share this comm and that nothing ties yet."""
    domain = np.array([int(rows.domain[p[0]]) for p in lines])
    if len(np.unique(clocks.component[domain])) == 1:
        return clocks
    length = np.array([len(p) for p in lines])
    best: dict[int, int] = {}
    for i in np.lexsort((np.arange(len(lines)), -length)).tolist():
        best.setdefault(int(domain[i]), i)
    centre = best[int(domain.min())]
    for d in sorted(best):
        if clocks.component[d] == clocks.component[domain[centre]]:
            continue
        tied = [t for t in best if clocks.component[t] == clocks.component[domain[centre]]]
        for t in tied[:4]:
            a, b = rows.sequence(lines[best[t]]), rows.sequence(lines[best[d]])
            found = sequences.find_offset(a, b)
            if found is not None:
                clocks = clock.tie(clocks, t, d, found)
                break
    return clocks


def _lay(rows: _Rows, state: _State, lines: list[np.ndarray], clocks: clock.Clocks) -> int:
    """Join the ranks' operations on one comm; returns how many were left for being ambiguous.

    Each rank is laid beside the longest; what the longest lacks is laid beside the longest rest.
    """
    ambiguous = 0
    domain = np.array([int(rows.domain[p[0]]) for p in lines])
    component = clocks.component[domain]
    for c in np.unique(component).tolist():
        rest = [p for p, k in zip(lines, component.tolist(), strict=True) if k == c]
        if len(rest) < len(lines) and len(rest) == 1:
            ambiguous += len(rest[0])
        for _ in range(4):
            rest = [p for p in rest if len(p)]
            if len(rest) < 2:
                break
            longest = max(range(len(rest)), key=lambda i: (len(rest[i]), -i))
            base = rest[longest]
            a = rows.sequence(base, clocks)
            index, label, left, stuck = [], [], [], 0
            hit = np.zeros(len(base), dtype=bool)
            for i, part in enumerate(rest):
                if i == longest:
                    continue
                error = float(
                    clocks.error_ns[rows.domain[base[0]]] + clocks.error_ns[rows.domain[part[0]]]
                )
                if rows.domain[base[0]] == rows.domain[part[0]]:
                    error = 0.0
                pairs = sequences.align(a, rows.sequence(part, clocks), error)
                if pairs.ambiguous:
                    stuck += len(part)
                    continue
                got = pairs.index >= 0
                index.append(part[got])
                label.append(pairs.index[got])
                hit[pairs.index[got]] = True
                left.append(part[~got])
            ambiguous += stuck
            index.append(base[hit])
            label.append(np.flatnonzero(hit))
            state.join(np.concatenate(index), np.concatenate(label), ORDER)
            if not hit.any():
                break
            rest = left
    return ambiguous


# --- judging -------------------------------------------------------------------------------------


def _judge(rows: _Rows, state: _State, clocks: clock.Clocks) -> None:
    """Dissolve instances that time or signature contradicts, now that clocks are known."""
    index = np.flatnonzero((state.group >= 0) & ~rows.recorded)
    if len(index) == 0:
        return
    ordered = index[state.how[index] == ORDER]
    if len(ordered):
        _tear_signatures(rows, state, index[np.isin(state.group[index], state.group[ordered])])
        index = index[state.group[index] >= 0]
    component = clocks.component[rows.domain]
    # only rows on one clock can be compared; the others pass
    order, first = _runs(state.group[index], component[index])
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
        return
    typical = float(np.median(spread[several & barrier]))
    transfer = first_end - ready
    far = spread > sequences.farthest(typical, transfer, 0.0) + error
    early = transfer < -(sequences.SLACK_NS + error)
    bad = several & barrier & (far | early)
    groups = np.unique(state.group[at[first[bad]]])
    state.say(
        "match_contradiction",
        "collectives that their number or order would match cannot be one: a rank ends before "
        "another starts, or ends lie far apart; these rows stand alone",
        len(groups),
    )
    state.dissolve((state.group >= 0) & np.isin(state.group, groups))


# --- point to point ------------------------------------------------------------------------------


def _point_to_point(rows: _Rows, state: _State, clocks: clock.Clocks) -> None:
    """Pair each send with its recv: same comm, source and destination, in order.

    Where both sides carry numbers and these agree on the whole common range, `exact`; numbers of
    the two sides may differ (each rank counts its own), then, as without numbers, by order.
    """
    index = np.flatnonzero(rows.p2p)
    if len(index) == 0:
        return
    send = rows.op[index] == _send_code(rows, index)
    source = np.where(send, rows.rank[index], rows.peer[index])
    target = np.where(send, rows.peer[index], rows.rank[index])
    pair = _code(rows.comm[index], source, target)
    done = _pairs_by_number(rows, state, clocks, index, pair, send)
    ambiguous = 0
    order, first = _runs(pair)
    for part in np.split(order, first[1:]):
        if done[pair[part[0]]]:
            continue
        a, b = index[part[send[part]]], index[part[~send[part]]]
        if len(a) and len(b):
            ambiguous += _pair_by_order(rows, state, clocks, a, b)
    state.say(
        "ambiguous_match",
        "sends and receives fit equally well at more than one place in their order; "
        "they stand alone",
        ambiguous,
    )


def _send_code(rows: _Rows, index: np.ndarray) -> int:
    bit = sequences.op_mask("send")
    sends = index[rows.mask[index] == bit]
    return int(rows.op[sends[0]]) if len(sends) else -2


def _pairs_by_number(
    rows: _Rows,
    state: _State,
    clocks: clock.Clocks,
    index: np.ndarray,
    pair: np.ndarray,
    send: np.ndarray,
) -> np.ndarray:
    """Join (source, destination) pairs whose numbers agree; returns which pairs are done."""
    n = int(pair.max()) + 1
    done = np.zeros(n, dtype=bool)
    numbered = rows.seq[index] >= 0
    whole = np.bincount(pair[~numbered], minlength=n) == 0
    use = np.flatnonzero(numbered & whole[pair])
    if len(use) == 0:
        return done
    p, s, out = pair[use], rows.seq[index[use]], send[use]
    big = np.iinfo(np.int64).max
    low, high = np.full((2, n), big), np.full((2, n), -1)
    for side in (0, 1):
        mine = out == bool(side)
        np.minimum.at(low[side], p[mine], s[mine])
        np.maximum.at(high[side], p[mine], s[mine])
    common_low, common_high = low.max(0), high.min(0)
    inside = (s >= common_low[p]) & (s <= common_high[p])
    nth = _occurrence(p, s, out.astype(np.int64))
    key = _code(p, s, nth)
    sides = np.bincount(key, minlength=int(key.max()) + 1)
    met = (sides[key] == 2) & inside
    # every number of the common range must be on both sides
    good = (np.bincount(p[inside], minlength=n) > 0) & (
        np.bincount(p[inside & ~met], minlength=n) == 0
    )
    joined = met & good[p]
    at, key = index[use[joined]], key[joined]
    if len(at):
        order, _ = _runs(key, (~out[joined]).astype(np.int64))
        a, b = at[order][0::2], at[order][1::2]
        wrong = (rows.size[a] != rows.size[b]) & (rows.size[a] >= 0) & (rows.size[b] >= 0)
        wrong |= (rows.dtype[a] != rows.dtype[b]) & (rows.dtype[a] >= 0) & (rows.dtype[b] >= 0)
        tied = clocks.component[rows.domain[a]] == clocks.component[rows.domain[b]]
        sent = clock.align(clocks, rows.start[a], rows.domain[a])
        got = clock.align(clocks, rows.end[b], rows.domain[b])
        doubt = clocks.error_ns[rows.domain[a]] + clocks.error_ns[rows.domain[b]] + 50_000
        wrong |= tied & ~rows.recorded[a] & (sent > got + doubt)
        p_of = p[joined][order][0::2]
        good &= np.bincount(p_of[wrong], minlength=n) == 0
        ok = good[p[joined]]
        state.join(at[ok], key[ok], EXACT)
    return good


def _pair_by_order(
    rows: _Rows, state: _State, clocks: clock.Clocks, sends: np.ndarray, recvs: np.ndarray
) -> int:
    """Join one direction of one pair of ranks; returns how many rows stayed for ambiguity."""
    a, b = rows.sequence(sends, clocks), rows.sequence(recvs, clocks)
    # ops differ by design, and a small send may end before its receive begins
    a = a._replace(mask=np.full(len(sends), -1), barrier=np.zeros(len(sends), bool))
    b = b._replace(mask=np.full(len(recvs), -1), barrier=np.zeros(len(recvs), bool))
    da, db = int(rows.domain[sends[0]]), int(rows.domain[recvs[0]])
    error = 0.0 if da == db else float(clocks.error_ns[da] + clocks.error_ns[db])
    if clocks.component[da] != clocks.component[db]:
        return len(sends) + len(recvs)
    pairs = sequences.align(a, b, error)
    if pairs.ambiguous:
        return len(sends) + len(recvs)
    got = pairs.index >= 0
    left, right = sends[pairs.index[got]], recvs[got]
    # nothing is received before it is sent
    sane = a.start[pairs.index[got]] <= b.end[got] + sequences.SLACK_NS + error
    left, right = left[sane], right[sane]
    label = np.arange(len(left))
    state.join(np.concatenate([left, right]), np.concatenate([label, label]), ORDER)
    return 0


# --- writing -------------------------------------------------------------------------------------


def _finish(rows: _Rows, state: _State, known: _Comms) -> np.ndarray:
    """`match` code of each row: EXACT, ORDER or LONE (partial)."""
    n = len(rows.rank)
    group = state.group.copy()
    lone = group < 0
    group[lone] = state.next_group + np.arange(int(lone.sum()))
    order, first = _runs(group, rows.rank)
    head = np.zeros(n, dtype=np.int64)
    head[order[first]] = 1
    dense = _code(group)
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


def _identities(rows: _Rows, state: _State, known: _Comms) -> np.ndarray:
    """collective_id of each row; see `resolve` for what it depends on."""
    n = len(rows.rank)
    if n == 0:
        return np.zeros(0, np.int64)
    text = [int.from_bytes(hashlib.blake2b(t.encode(), digest_size=7).digest(), "big")
            for t in known.names]  # fmt: skip
    comm = np.array([*text, 0], dtype=np.int64)[rows.comm]
    nth = _occurrence(rows.rank, rows.event, rows.start, rows.end, rows.comm, rows.seq)
    row = _hash(np.full(n, 1), rows.rank, rows.event, rows.start, rows.end, comm, rows.seq, nth)
    # rows are sorted by rank: the first row of an instance is its lowest rank's
    out = row.copy()
    joined = np.flatnonzero(state.group >= 0)
    order, first = _runs(state.group[joined])
    at = joined[order]
    count = np.diff(np.append(first, len(at)))
    if len(at):
        out[at] = np.repeat(row[at[first]], count)
        exact = np.logical_and.reduceat(state.how[at] == EXACT, first)
        source = np.where(rows.p2p, np.minimum(rows.rank, rows.peer), -1)
        target = np.where(rows.p2p, np.maximum(rows.rank, rows.peer), -1)
        sends = np.where(rows.p2p, (rows.mask == sequences.op_mask("send"))
                         == (rows.rank < rows.peer), False)  # fmt: skip
        again = _occurrence(rows.comm, rows.seq, rows.rank, rows.peer, rows.mask, rows.p2p)
        number = _hash(np.full(n, 2), comm, rows.seq, source, target, sends, again)
        out[at] = np.where(np.repeat(exact, count), np.repeat(number[at[first]], count), out[at])
    return out


def _write(
    table: pa.Table,
    order: np.ndarray,
    rows: _Rows,
    ids: np.ndarray,
    match: np.ndarray,
    known: _Comms,
) -> pa.Table:
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    words = pa.array(["partial", "exact", "order"], pa.string())
    spoken = pa.DictionaryArray.from_arrays(pa.array(match[back].astype(np.int32)), words)
    comm = rows.comm[back]
    lent = pa.DictionaryArray.from_arrays(
        pa.array(comm.astype(np.int32), mask=comm < 0), pa.array(known.names, pa.string())
    )
    size = np.append(known.size, -1)[comm]
    size = np.where(rows.group_size[back] > 0, rows.group_size[back], size)
    for name, values in (
        ("collective_id", pa.array(ids[back])),
        ("match", spoken),
        ("comm", lent),
        ("group_size", pa.array(size.astype(np.int32), mask=size < 0)),
    ):
        table = replace_column(table, schema.COLLECTIVES, name, values)
    return table


def _write_clocks(
    ranks: pa.Table, domains: np.ndarray, clocks: clock.Clocks, rows: _Rows, state: _State
) -> tuple[pa.Table, str]:
    """Clock columns of `ranks`, and the word for the whole job."""
    n = len(domains)
    recorded = bool(len(rows.recorded)) and bool(rows.recorded.all())
    tied = clocks.component[domains] == 0 if n else np.zeros(0, bool)
    drifts = clocks.drifts[domains] & tied if n else tied
    offset = np.where(tied, clocks.offset_ns[domains], 0) if n else np.zeros(0, np.int64)
    error = np.ceil(clocks.error_ns[domains]).astype(np.int64) if n else offset
    if recorded:
        offset, error, tied = offset * 0, error * 0, np.ones(n, bool)
        drifts = tied & False
        word = "recorded"
    elif len(clocks.component) <= 1:
        word = "one-host"
    elif not tied.all():
        alone = tied & (domains != 0)
        word = "partly-aligned" if alone.any() else "unaligned"
        who = [str(r) for r in sorted(np.asarray(ranks.column("rank"))[~tied].tolist())]
        some = ", ".join(who[:8]) + (" ..." if len(who) > 8 else "")
        state.say(
            "clocks_unaligned",
            f"no matched collective ties the clock of rank {some} to the job's: waits between "
            "them and the others are not known",
            len(who),
        )
    else:
        word = "aligned"
    # positive drift: the host's clock runs fast, so that its correction shrinks
    drift = -clocks.rate[domains] * 1e6 if n else np.zeros(0)
    for name, values in (
        ("clock_offset_ns", pa.array(offset)),
        ("clock_drift_ppm", pa.array(drift, mask=~drifts)),
        ("clock_error_ns", pa.array(error, mask=~tied)),
    ):
        ranks = replace_column(ranks, schema.RANKS, name, values)
    return ranks, word


def _comms_table(
    names: dict[str, dict], known: _Comms, world: int | None, used: set[int]
) -> pa.Table:
    """One row a comm; dim `world` where the members are all ranks of the job."""
    out = []
    for code, text in enumerate(known.names):
        row = names.get(text)
        if row is None:
            row = dict.fromkeys(schema.COMMS.schema.names) | {"comm": text}
        if text.startswith(f"{UNNAMED}/") and code not in used:
            continue
        members = known.members[code]
        if row["dim"] in (None, "unknown"):
            whole = world is not None and members == tuple(range(world))
            row = row | {
                "dim": "world" if whole else "unknown",
                "dim_source": "members" if whole else "none",
            }
        if row["size"] is None and known.size[code] > 0:
            row = row | {"size": int(known.size[code])}
        out.append(row)
    columns = {c: [r[c] for r in out] for c in schema.COMMS.schema.names}
    return pa.Table.from_batches([schema.COMMS.batch(columns)])
