"""Writes what views tell of participations and of whole collectives."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from ..schema import TABLES, TEXT
from ..writer import PartWriter
from . import instances, lateness, participations
from .aligned import Clock
from .batches import row_batch, slices, text_array
from .participations import Participations

MANY_PARTICIPATIONS = 100_000
"""Of fewer the view `late_ranks` takes a moment."""


def write(
    writer: PartWriter, tables: Mapping[str, pa.Table], clocks: dict[int, Clock]
) -> tuple[Participations, lateness.Lateness]:
    """Writes all, and gives what more is made of. Raises Odd."""
    if not len(tables["collectives"]):
        return _nothing()
    p = participations.find(tables["collectives"], tables["comms"], clocks)
    late, median = lateness.find(p)
    match = tables["collectives"]["match"].cast(TEXT).combine_chunks()
    for at in slices(len(p.rank)):
        writer.write("_made_participations", _participations(p, median, match, at))
    for at in slices(len(late.collective)):
        writer.write("_made_lateness", _lateness(late, p, at))
    if len(p.rank) >= MANY_PARTICIPATIONS:
        writer.write("_made_late_ranks", _late_ranks(lateness.of_ranks(p, late, median), p))
    del median
    whole = instances.find(p, tables["collectives"]["match"])
    for at in slices(len(whole.collective)):
        writer.write("_made_instances", _instances(whole, p, at))
    for table in ("_made_participations", "_made_lateness", "_made_late_ranks", "_made_instances"):
        writer.finish(table)
    return p, late


@functools.cache
def _nothing() -> tuple[Participations, lateness.Lateness]:
    """What there is to tell of a job in which nobody communicates."""
    p = participations.find(TABLES["collectives"].empty, TABLES["comms"].empty, {})
    return p, lateness.find(p)[0]


def _participations(
    p: Participations, median: np.ndarray, match: pa.Array, at: slice
) -> pa.RecordBatch:
    words = {c: text_array(code[at], pa.array(texts, pa.string())) for c, code, texts in (
        ("comm", p.comm, p.comms), ("dim", p.dim, p.dims), ("op", p.op, p.ops),
        ("host", p.host, p.hosts), ("clock", p.clock, p.clocks),
    )}  # fmt: skip
    flags = {
        c: pa.array(getattr(p, c)[at]) for c in ("timed", "decides", "ready_known", "wait_known")
    }
    numbers = {c: getattr(p, c)[at] for c in (
        "step", "bytes", "rank", "start_ns", "end_ns", "ready_ns", "root_start_ns", "shortest_ns",
        "clock_error_ns", "last_rank", "n_ranks", "n_seen", "n_timed", "n_comparable",
    )}  # fmt: skip
    columns = {
        **words, **flags, **numbers, "collective_id": p.collective[at], "event_id": p.event[at],
        "median_start_ns": median[at], "match": match[at],
    }  # fmt: skip
    return row_batch("_made_participations", columns)


def _lateness(late: lateness.Lateness, p: Participations, at: slice) -> pa.RecordBatch:
    columns = {
        "collective_id": late.collective[at],
        "clock": text_array(late.clock[at], pa.array(p.clocks, pa.string())),
        "comm": text_array(late.comm[at], pa.array(p.comms, pa.string())),
        "paired": pa.array(late.paired[at]),
        "sure": pa.array(late.sure[at] > 0, mask=late.sure[at] < 0),
        **{c: getattr(late, c)[at] for c in (
            "last_rank", "n_comparable", "behind_ns", "behind_median_ns", "median_start_ns",
            "clock_error_ns", "caused_ns",
        )},
    }  # fmt: skip
    return row_batch("_made_lateness", columns)


def _late_ranks(of: lateness.OfRanks, p: Participations) -> pa.RecordBatch:
    columns = of._asdict() | {"host": text_array(of.host, pa.array(p.hosts, pa.string()))}
    return row_batch("_made_late_ranks", columns)


def _instances(whole: instances.Instances, p: Participations, at: slice) -> pa.RecordBatch:
    words = {c: text_array(code[at], pa.array(texts, pa.string())) for c, code, texts in (
        ("comm", whole.comm, p.comms), ("dim", whole.dim, p.dims), ("op", whole.op, whole.ops),
        ("match", whole.match, whole.matches),
    )}  # fmt: skip
    known = whole.wait_known[at]
    columns = {
        **words, "collective_id": whole.collective[at],
        "wait_known": pa.array(known > 0, mask=known < 0),
        **{c: getattr(whole, c)[at] for c in (
            "step", "bytes", "n_ranks", "n_seen", "first_start_ns", "ready_ns", "end_ns", "wait_ns",
            "n_clocks", "last_rank", "skew_ns", "clock_error_ns",
        )},
    }  # fmt: skip
    return row_batch("_made_instances", columns)
