"""Which participations, on different ranks, are one collective; and the clocks that follow.

By sequence number where the source has one, else by order on the communicator, laid side by side
by the moments at which operations end (`sequences`). What has no times matches by number only.
Clocks come from what is matched so far (`clocks`), help to match the rest, and judge it: rows that
cannot be one collective are taken apart again and counted as problems. A wrong row is worse than a
row without partners.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import schema
from ..schema import Problem
from . import clocks as clock
from . import hosts, uneven
from .communicators import (
    comms_table,
    drop_unproven,
    extended,
    lend,
    merge,
    unnamed_world,
    world_size,
)
from .hosts import replace_column
from .instances import Instances, identities, judge, matches
from .number import by_number
from .order import by_order
from .p2p import point_to_point
from .participations import Comms, Rows, read


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
    """one-host, aligned, partly-aligned, unaligned, recorded or untimed"""


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
    names, known = merge(comms)
    if not collectives.num_rows:
        return _without_operations(collectives, ranks, domains, names, known)
    order, rows = read(collectives, ranks, domains, known.names)
    known = extended(known)
    state = Instances(len(rows.rank))
    anchor = _anchors(ranks, domains, rows)

    world = world_size(ranks)
    lent = lend(rows, known)
    rows = rows._replace(comm=lent)
    rows, known, names = unnamed_world(rows, known, names, world)

    by_number(rows, state)
    told = _Clocks(anchor)
    clocks = by_order(rows, state, told.of(rows, state), known)
    clocks = told.of(rows, state)
    judge(rows, state, clocks)
    rows = drop_unproven(rows, state, known)
    clocks = told.of(rows, state)
    point_to_point(rows, state, clocks)

    match = matches(rows, state, known)
    ids = identities(rows, state, known)
    collectives = _write(collectives, order, rows, ids, match, known)
    recorded = bool(len(rows.recorded)) and bool(rows.recorded.all())
    ranks, word = _write_clocks(ranks, domains, clocks, recorded, state)
    used = set(np.unique(rows.comm[rows.comm >= 0]).tolist())
    table = comms_table(names, known, world, used)
    return Resolved(collectives, ranks, table, state.problems, word)


def _without_operations(
    collectives: pa.Table, ranks: pa.Table, domains: np.ndarray, names: pa.Table, known: Comms
) -> Resolved:
    """What `resolve` gives of a job in which nobody communicates."""
    state = Instances(0)
    clocks = clock.untied(_anchors(ranks, domains))
    ranks, word = _write_clocks(ranks, domains, clocks, False, state)
    table = comms_table(names, known, world_size(ranks), set())
    return Resolved(collectives, ranks, table, state.problems, word)


def _anchors(ranks: pa.Table, domains: np.ndarray, rows: Rows | None = None) -> np.ndarray:
    """Middle of each domain's trace on its own clock: there the offset holds."""
    n = int(domains.max()) + 1 if len(domains) else 0
    low, high = np.full(n, np.iinfo(np.int64).max), np.full(n, np.iinfo(np.int64).min)
    for name, ends in (("start_ns", low), ("end_ns", high)):
        column = ranks.column(name)
        there = column.is_valid().to_numpy(zero_copy_only=False)
        value = column.fill_null(0).to_numpy(zero_copy_only=False)
        (np.minimum if ends is low else np.maximum).at(ends, domains[there], value[there])
    lost = low > high
    if lost.any() and rows is not None and len(rows.rank):
        use = lost[rows.domain] & rows.timed
        np.minimum.at(low, rows.domain[use], rows.start[use])
        np.maximum.at(high, rows.domain[use], rows.end[use])
    nothing = low > high
    low[nothing] = high[nothing] = 0
    return low + (high - low) // 2


class _Clocks:
    """The clocks that instances tell, worked out again only where these are others."""

    def __init__(self, anchor: np.ndarray):
        self._anchor = anchor
        self._group = np.empty(0, np.int64)
        self._found: clock.Clocks | None = None

    def of(self, rows: Rows, state: Instances) -> clock.Clocks:
        """Of rows, of which nothing but their communicators may change from call to call."""
        if self._found is None or not np.array_equal(self._group, state.group):
            self._group = state.group.copy()
            self._found = _clocks(rows, state, self._anchor)
        return self._found


def _clocks(rows: Rows, state: Instances, anchor: np.ndarray) -> clock.Clocks:
    """Clocks from the barrier-like instances matched so far.

    Without uneven exchanges, where others tie the same domains: their ends lie apart for a reason.
    """
    use = np.flatnonzero(
        (state.group >= 0) & rows.barrier & ~rows.recorded & ~rows.p2p & rows.timed
    )
    found = _estimate(rows, state, anchor, use)
    apart = uneven.uneven(state.group[use], rows.exchanged[use])
    if not apart.any():
        return found
    even = _estimate(rows, state, anchor, use[~apart])
    if np.array_equal(even.component, found.component) and _many(rows, state, use[~apart], found):
        return even
    doubt = uneven.doubt_ns(
        state.group[use], rows.domain[use], rows.end[use] - rows.start[use], rows.exchanged[use],
        found.component,
    )  # fmt: skip
    return found._replace(error_ns=found.error_ns + doubt)


def _estimate(rows: Rows, state: Instances, anchor: np.ndarray, use: np.ndarray) -> clock.Clocks:
    group, start, end = state.group[use], rows.start[use], rows.end[use]
    took = uneven.took_ns(group, (end - start).astype(np.float64), rows.exchanged[use])
    return clock.estimate(group, rows.domain[use], start, end, anchor, took)


def _many(rows: Rows, state: Instances, use: np.ndarray, found: clock.Clocks) -> bool:
    """Whether each domain that is tied to others takes part in enough of these collectives."""
    n = len(found.component)
    tied = np.bincount(found.component, minlength=n)[found.component] > 1
    pairs = np.unique(np.stack([state.group[use], rows.domain[use]]), axis=1)
    return bool((np.bincount(pairs[1], minlength=n)[tied] >= uneven.ENOUGH).all())


def _write(
    table: pa.Table,
    order: np.ndarray,
    rows: Rows,
    ids: np.ndarray,
    match: np.ndarray,
    known: Comms,
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
    ranks: pa.Table, domains: np.ndarray, clocks: clock.Clocks, recorded: bool, state: Instances
) -> tuple[pa.Table, str]:
    """Clock columns of `ranks`, and the word for the whole job; `recorded` are all its rows."""
    n = len(domains)
    tied = clocks.component[domains] == 0 if n else np.zeros(0, bool)
    silent = np.array([c == "none" for c in ranks.column("clock").to_pylist()], dtype=bool)
    tied &= ~silent
    drifts = clocks.drifts[domains] & tied if n else tied
    offset = np.where(tied, clocks.offset_ns[domains], 0) if n else np.zeros(0, np.int64)
    error = np.ceil(clocks.error_ns[domains]).astype(np.int64) if n else offset
    if recorded:
        offset, error, tied = offset * 0, error * 0, np.ones(n, bool)
        drifts = tied & False
        word = "recorded"
    elif n and silent.all():
        word = "untimed"
    elif len(np.unique(domains[~silent])) <= 1:
        word = "one-host"
    elif not (tied | silent).all():
        alone = tied & (domains != 0)
        word = "partly-aligned" if alone.any() else "unaligned"
        who = [str(r) for r in sorted(np.asarray(ranks.column("rank"))[~tied & ~silent].tolist())]
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
