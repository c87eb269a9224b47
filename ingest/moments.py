"""Times that no run can have had: rows of a source with them are damaged, and not taken as read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .schema import Problem

LATEST_NS = 1 << 62
"""Moments lie between this (the year 2116) and its negative, so that two of them differ by what
64 bits hold: queries add and subtract them. Clocks that count from a session's start may give
moments before it, so 0 is no bound."""

LONGEST_NS = 100 * 86_400 * 10**9
"""A hundred days: of longer durations, a thousand add up to more than 64 bits hold."""

_ROWS = {
    "events": ("start_ns", "dur_ns"),
    "steps": ("start_ns", "end_ns", "host_start_ns", "host_end_ns"),
    "counters": ("time_ns",),
}
"""Tables whose rows are nothing without their times: these go."""

_TIMES = {
    "ranks": ("start_ns", "end_ns"),
    "collectives": ("start_ns", "end_ns", "enqueued_ns", "exec_ns"),
    "transfers": ("start_ns", "end_ns"),
    "graph_nodes": ("start_ns", "dur_ns"),
}
"""Tables whose rows say something without them: their times become null."""


def sound(table: str, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Problem | None]:
    """The batch without times that no run has, and what was left out (`rank` of the first).

    A moment is within `LATEST_NS` of 0; a duration, and a participation's end less its start, at
    most `LONGEST_NS`. Where all is well this looks at the least and greatest of each column.
    """
    columns = _ROWS.get(table) or _TIMES.get(table)
    if columns is None or not batch.num_rows:
        return batch, None
    times = {name: _values(batch[name]) for name in columns}
    bad = np.zeros(batch.num_rows, bool)
    for name, values in times.items():
        _mark(bad, values, _bound(name))
    if table in ("collectives", "transfers"):
        # Ends less starts of rows that are bad already may wrap; these are bad anyhow.
        known = batch["start_ns"].is_valid().to_numpy(zero_copy_only=False)
        length = np.where(known, times["end_ns"] - times["start_ns"], 0)
        _mark(bad, length, LONGEST_NS, batch["end_ns"].is_valid())
    return _left_out(table, batch, bad) if bad.any() else (batch, None)


def _values(column: pa.Array) -> np.ndarray:
    known = column.fill_null(0) if column.null_count else column  # which copies
    return known.to_numpy(zero_copy_only=False)


def _bound(name: str) -> int:
    return LONGEST_NS if name in ("dur_ns", "exec_ns") else LATEST_NS


def _mark(bad: np.ndarray, values: np.ndarray, bound: int, where: pa.Array | None = None) -> None:
    """Sets `bad` where values lie beyond the bound, in place."""
    if values.min() < -bound or values.max() > bound:
        beyond = (values < -bound) | (values > bound)
        bad |= beyond if where is None else beyond & where.to_numpy(zero_copy_only=False)


def _left_out(table: str, batch: pa.RecordBatch, bad: np.ndarray) -> tuple[pa.RecordBatch, Problem]:
    rank = batch["rank"][int(np.flatnonzero(bad)[0])].as_py()
    if table in _ROWS:
        what, kept = "left out", batch.filter(pa.array(~bad))
    else:
        what, kept = "kept without them", batch
        for name in _TIMES[table]:
            i = batch.schema.get_field_index(name)
            null = bad | ~batch[name].is_valid().to_numpy(zero_copy_only=False)
            column = pa.array(_values(batch[name]), pa.int64(), mask=null)
            kept = kept.set_column(i, batch.schema.field(i), column)
    message = f"rows of {table} with times that no run has (damaged, or of another unit): {what}"
    return kept, Problem("time_out_of_range", message, "lost", count=int(bad.sum()), rank=rank)
