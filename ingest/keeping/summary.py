"""A job in one line, kept with its derived tables: lists of jobs open no Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

    from ..manifest import Manifest, Part

EPOCH_NS = (1_000_000_000_000_000_000, 4_102_444_800_000_000_000)
"""Times between these (2001 to 2100) are taken for times since the Unix epoch."""


class Summary(msgspec.Struct, frozen=True):
    """What `retime jobs` says of a job; times in ns since the epoch.

    `started_ns` and `ended_ns` are of its traces, None where their clocks do not count from the
    epoch. `problems` and `lost` count rows, `stored_bytes` the files that a reader would open.
    """

    ranks_seen: int
    world_size: int | None
    hosts: int | None
    framework: str
    sources: int
    steps: int
    participations: int
    clocks: str
    problems: int
    lost: int
    started_ns: int | None
    ended_ns: int | None
    created_at_ns: int
    newest_at_ns: int
    """When its newest source came."""
    stored_bytes: int


def of_tables(
    tables: Mapping[str, pa.Table],
    manifests: Iterable[Manifest],
    lost_in_sources: int,
    parts: Iterable[Part],
) -> Summary:
    """The summary of derived tables over some sources.

    `lost_in_sources` counts the rows of the sources' own `problems` that say lost; `parts` are the
    files of the derived tables.
    """
    manifests = list(manifests)
    job = tables["jobs"].to_pylist()[0]
    ranks, problems = tables["ranks"], tables["problems"]
    hosts = ranks["host"].cast("string")
    began, ended = _traced(ranks)
    severities = problems["severity"].cast("string")
    of_sources = {p.file: p for m in manifests for p in m.parts}
    own = sum(p.rows for m in manifests for p in m.tables.get("problems", []))
    return Summary(
        ranks_seen=job["ranks_seen"] or 0,
        world_size=job["world_size"],
        hosts=None if hosts.null_count or not len(hosts) else len(hosts.unique()),
        framework=job["framework"] or "",
        sources=job["sources"] or 0,
        steps=len(tables["steps"]["step"].drop_null().unique()),
        participations=tables["collectives"].num_rows,
        clocks=job["clocks"] or "",
        problems=own + problems.num_rows,
        lost=lost_in_sources + severities.to_pylist().count("lost"),
        started_ns=began,
        ended_ns=ended,
        created_at_ns=min(m.created_at_ns for m in manifests),
        newest_at_ns=max(m.created_at_ns for m in manifests),
        stored_bytes=sum(p.bytes for p in (*of_sources.values(), *parts)),
    )


def _traced(ranks: pa.Table) -> tuple[int | None, int | None]:
    rows = zip(
        ranks["clock"].cast("string").to_pylist(),
        ranks["start_ns"].to_pylist(),
        ranks["end_ns"].to_pylist(),
        strict=True,
    )
    times = [
        (start, end)
        for clock, start, end in rows
        if clock in (None, "host", "recorded")
        and start is not None
        and EPOCH_NS[0] <= start <= EPOCH_NS[1]
    ]
    ends = [e for _, e in times if e is not None and EPOCH_NS[0] <= e <= EPOCH_NS[1]]
    return min((s for s, _ in times), default=None), max(ends, default=None)
