"""One row for the rows that are one participation: the better time, and what each source knows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import schema
from ..matching.participations import COUNTS_BY_FUNCTION, ints, numbered_by
from ..schema import Problem
from .rows import TIMELINES, Groups, View

TIME = ("start_ns", "end_ns", "timing", "clock")
"""Columns that come from one row together."""


class Merged(NamedTuple):
    """One row a participation."""

    table: pa.Table
    gone: np.ndarray
    """event ids that are not in the table any more"""
    stands: np.ndarray
    """the event ids of the rows that they are part of"""
    lent: np.ndarray
    """bool[rows]: the number is not from the source that the row's time is from"""
    problems: list[Problem]


def merge(table: pa.Table, view: View, groups: Groups) -> Merged:
    """The table with one row a participation.

    The row that stays is that of the kind with the best time; rows keep their order. Each column
    has the first value that is known, by kind; times come together, and so do communicator and
    number. `source` names all kinds, the one with the time first.
    """
    roots = np.unique(groups.root[(groups.member[groups.root] >= 0).sum(1) > 1])
    if not len(roots):
        none = np.empty(0, np.int64)
        return Merged(table, none, none, np.zeros(table.num_rows, dtype=bool), [])
    member = groups.member[roots]
    first = _first(member, _polled(table, view), view)
    rows = view.at[np.maximum(member, 0)]
    rows[member < 0] = -1
    keep = rows[np.arange(len(rows)), first]
    dropped = np.setdiff1d(rows[rows >= 0], keep)
    order = np.argsort(keep)
    keep, rows, first, member = keep[order], rows[order], first[order], member[order]
    out = {}
    for name in table.schema.names:
        at = _taken(table, name, rows, first, view, member)
        out[name] = _replaced(table.column(name), keep, at)
    out["source"] = _sources(table.column("source"), keep, member, first, view)
    stays = np.ones(table.num_rows, dtype=bool)
    stays[dropped] = False
    merged = pa.table(out, schema=schema.COLLECTIVES.schema).filter(pa.array(stays))
    event = ints(table, "event_id")
    stands = event[_taken(table, "event_id", rows, first, view, member)]
    gone, now = event[rows[rows >= 0]], np.repeat(stands, (rows >= 0).sum(1))
    moved = (gone != now) & (gone >= 0)
    lent = np.zeros(table.num_rows, dtype=bool)
    lent[keep] = ints(table, "seq")[keep] < 0
    lent = lent[stays] & (ints(merged, "seq") >= 0)
    problems = _without_moment(table, rows, out["enqueued_ns"], keep)
    return Merged(merged, gone[moved], now[moved], lent, problems)


def _polled(table: pa.Table, view: View) -> np.ndarray:
    """bool[view]: has times, if only a watchdog's."""
    there = table.column("start_ns").is_valid().to_numpy()
    return there[view.at] & ~view.timed


def _first(member: np.ndarray, polled: np.ndarray, view: View) -> np.ndarray:
    """Place of the kind whose time counts, or, where none has one, of the first there is."""
    there = member >= 0
    at = np.maximum(member, 0)
    timed, weak = there & view.timed[at], there & polled[at]
    first = np.where(weak.any(1), weak.argmax(1), there.argmax(1))
    return np.where(timed.any(1), timed.argmax(1), first)


def _taken(
    table: pa.Table, name: str, rows: np.ndarray, first: np.ndarray, view: View, member: np.ndarray
) -> np.ndarray:
    """For each participation the row of the table that a column's value comes from; -1: null."""
    here = np.arange(len(rows))
    there = rows >= 0
    if name in TIME:
        return rows[here, first]
    if name == "event_id":
        lead = there.argmax(1)
        has_events = np.array([k in TIMELINES for k in view.kinds])[lead]
        return rows[here, np.where(has_events, lead, first)]
    if name == "op":
        # the name that leaves least open
        bits = np.array([bin(int(m) & 0xFFFFFFFF).count("1") for m in view.mask])
        open_to = np.where(there, bits[np.maximum(member, 0)], 99)
        best = open_to == open_to.min(1, keepdims=True)
        return rows[here, _choose(best, first)]
    valid = table.column(name).is_valid().to_numpy()
    known = there & valid[np.maximum(rows, 0)]
    if name in ("comm", "seq"):
        comm = np.where(there, view.comm[np.maximum(member, 0)], -1)
        chosen = _choose(comm >= 0, first)
        if name == "seq":
            mine = comm[here, chosen]
            known &= (comm == mine[:, None]) & (mine >= 0)[:, None]
            known &= _counting(there, mine, view)
        else:
            known &= comm >= 0
    if name == "enqueued_ns":
        clock = view.clock[np.maximum(member, 0)]
        known &= clock == clock[here, first][:, None]
    if name == "dtype":
        known &= view.dtype[np.maximum(member, 0)] >= 0
    if name in ("in_splits", "out_splits"):
        length = np.asarray(table.column(name).combine_chunks().value_lengths().fill_null(-1))
        most = np.where(known, length[np.maximum(rows, 0)], -1)
        known &= most == most.max(1, keepdims=True)
    return np.where(known.any(1), rows[here, _choose(known, first)], -1)


def _counting(there: np.ndarray, comm: np.ndarray, view: View) -> np.ndarray:
    """bool[participations, kinds]: those whose numbers the joined row's are held to be."""
    native = np.array([c.startswith(COUNTS_BY_FUNCTION) for c in view.comms] + [False])[comm]
    patterns, which = np.unique(
        np.concatenate([there, native[:, None]], axis=1), axis=0, return_inverse=True
    )
    who = [
        numbered_by("+".join(k for k, t in zip(view.kinds, kinds, strict=True) if t), by_function)
        for *kinds, by_function in patterns.tolist()
    ]
    of_kind = np.array([numbered_by(k, False) for k in view.kinds])
    return of_kind[None, :] == np.array(who)[which.reshape(-1)][:, None]


def _without_moment(
    table: pa.Table, rows: np.ndarray, now: pa.Array, keep: np.ndarray
) -> list[Problem]:
    """Tells of moments of enqueueing that are left out: on another clock than the row's times."""
    there = table.column("enqueued_ns").is_valid().to_numpy()
    said = ((rows >= 0) & there[np.maximum(rows, 0)]).any(1)
    gone = int((said & ~np.asarray(now.is_valid())[keep]).sum())
    if not gone:
        return []
    return [
        Problem(
            "enqueued_clock_unknown",
            "one source says when operations were enqueued, and another when they ran, on clocks "
            "that nothing ties: the first is left out",
            "info",
            gone,
        )
    ]


def _choose(known: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The place whose value counts: that of the time's source, else the first that knows one."""
    here = np.arange(len(known))
    return np.where(known[here, first], first, known.argmax(1))


def _replaced(column: pa.ChunkedArray, keep: np.ndarray, at: np.ndarray) -> pa.Array:
    """The column with the values of rows `at` in rows `keep`."""
    index = np.arange(len(column))
    index[keep] = at
    return column.combine_chunks().take(pa.array(index, mask=index < 0))


def _sources(
    column: pa.ChunkedArray, keep: np.ndarray, member: np.ndarray, first: np.ndarray, view: View
) -> pa.Array:
    patterns, which = np.unique(
        np.concatenate([member >= 0, first[:, None]], axis=1), axis=0, return_inverse=True
    )
    names = []
    for *there, lead in patterns.tolist():
        others = sorted(k for k, t in zip(view.kinds, there, strict=True) if t)
        others.remove(view.kinds[lead])
        names.append("+".join([view.kinds[lead], *others]))
    old = column.cast(pa.string()).combine_chunks().dictionary_encode()
    words = old.dictionary.to_pylist()
    index = old.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    index[keep] = len(words) + which.reshape(-1)
    return pa.DictionaryArray.from_arrays(
        pa.array(index.astype(np.int32), mask=index < 0), pa.array(words + names, pa.string())
    )
