"""One row a rank, of all sources that describe it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from .. import schema
from ..detect import FORMATS
from ..matching.participations import ints, timed_rows
from ..schema import Problem

SPAN = ("start_ns", "end_ns", "clock")
"""Columns that come from one source together."""
SAME = ("host", "pid", "world_size")
"""What sources of one rank must not contradict."""


def ranks_with_times(collectives: pa.Table) -> set[int]:
    """Ranks of which a source says when a participation ran."""
    rank = ints(collectives, "rank")[timed_rows(collectives)]
    return set(np.unique(rank).tolist())


def one_a_rank(
    ranks: pa.Table, formats: list[str], timed: set[int]
) -> tuple[pa.Table, list[Problem]]:
    """One row for each rank, by rank: what any source says, the one with the timeline first.

    `formats[i]` is that of row i's source. Start, end and clock come from one source together: a
    timeline's, else one with times of a process's own clock (that of the operations it timed),
    else another with times. The clock is `none` where neither a timeline nor a participation (of
    `timed` ranks) has times. `source` names all.
    A row without a rank is left out.
    """
    by_rank: dict[int, list[tuple]] = {}
    lines: Counter[int] = Counter()
    nameless = 0
    for row, format in zip(ranks.to_pylist(), formats, strict=True):
        if row["rank"] is None:
            nameless += 1
            continue
        if row["clock"] is None and row["start_ns"] is not None:
            row["clock"] = "recorded" if format == "recorded" else "host"
        timeline = format not in FORMATS or FORMATS[format].holds == "timeline"
        if not timeline and row["clock"] == "host" and row["rank"] not in timed:
            row["clock"] = "none"
        lines[row["rank"]] += timeline
        order = (not timeline, row["start_ns"] is None, row["clock"] != "process")
        text = tuple(str(v) for v in row.values())
        by_rank.setdefault(row["rank"], []).append((order, row["source"] or "", text, row))
    out, differ = [], {name: [] for name in SAME}
    for rank in sorted(by_rank):
        told = sorted(by_rank[rank], key=lambda r: r[:3])
        rows = [r for i, (order, *_, r) in enumerate(told) if i == 0 or order[0]]
        out.append(_merged(rows))
        for name in SAME:
            said = {_plain(name, r[name]) for r in rows if r[name] is not None}
            if len(said) > 1:
                differ[name].append((rank, sorted(map(str, said))))
    columns: dict[str, Any] = {c: [r[c] for r in out] for c in schema.RANKS.schema.names}
    spare = {r: n - 1 for r, n in lines.items() if n > 1}
    problems = [
        Problem(
            "rank_twice",
            f"rank {min(spare)} is described more than once; the first description counts",
            count=sum(spare.values()),
        )
    ] if spare else []  # fmt: skip
    if nameless:
        problems.append(
            Problem("rank_missing", "a source describes a rank without its number", count=nameless)
        )
    problems += [
        Problem(
            "rank_sources_differ",
            f"sources of rank {found[0][0]} disagree on its {name} ({', '.join(found[0][1][:4])}): "
            "are they of one run? What the source with the timeline says counts",
            count=len(found),
            rank=found[0][0],
        )
        for name, found in differ.items()
        if found
    ]
    return pa.Table.from_batches([schema.RANKS.batch(columns)]), problems


def _merged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The first value known of each column; the span from one row."""
    out = {}
    for name in rows[0]:
        out[name] = next((r[name] for r in rows if r[name] is not None), None)
    spanned = next((r for r in rows if r["start_ns"] is not None), None)
    for name in SPAN:
        out[name] = spanned[name] if spanned is not None else None
    if spanned is None:
        out["clock"] = "none"
    sources = dict.fromkeys(r["source"] for r in rows if r["source"] is not None)
    out["source"] = "; ".join(sources) or None
    return out


def _plain(name: str, value: Any) -> Any:
    """A value as it is compared: hosts by their first label, as logs cut them."""
    return value.split(".")[0].lower() if name == "host" else value
