"""Questions to a job: every public view, and one question that peers answer, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.suite.case import (
    LIMIT,
    OURS,
    OUT,
    PART,
    PEER,
    Bound,
    Case,
    Ratio,
    Way,
    stage,
    way,
)
from benchmarks.suite.inputs import Inputs, without

HTA = "HolisticTraceAnalysis"
OURS_ASKED = "retime, overlap_by_rank"
SCANNED = "reading the columns that it needs"


@stage("queries")
def real(inputs: Inputs) -> Iterator[Case]:
    """Eight real ranks: from their traces to the overlap of each, and once they are held."""
    name, workers = "queries, overlap of 8 real ranks, from their traces", 2
    ours = Way("retime, ingest and view", OURS,
               way("queries.overlap_from_traces", inputs.demo, OUT, workers), workers)  # fmt: skip
    theirs = Way(HTA, PEER, way("queries.overlap_hta", inputs.demo), 2, missing=without("hta", HTA))
    yield Case(name, "queries", 8, "ranks", (ours, theirs), (Ratio(ours.name, HTA),))
    warehouse = inputs.ingested(inputs.demo, "demo")
    loaded = f"{HTA}, traces in memory"
    held = Way(loaded, PEER, way("queries.overlap_hta_loaded", inputs.demo), 2, "inside_s",
               missing=theirs.missing)  # fmt: skip
    yield _overlap("queries, overlap of 8 real ranks, held", 8, warehouse, held)
    yield _views("8 real ranks", 8, warehouse, inputs)


@stage("queries")
def large(inputs: Inputs) -> Iterator[Case]:
    """64 ranks of 100,000 events, and 1,024 with `--large`."""
    sizes = [] if inputs.quick else [64]
    if inputs.large:
        sizes.append(1024)
    for ranks in sizes:
        if not (inputs.wants(f"queries, overlap of {ranks:,} ranks, held")
                or inputs.wants(f"queries, views of {ranks:,} ranks")):  # fmt: skip
            continue
        warehouse = inputs.cluster(ranks)
        yield _overlap(f"queries, overlap of {ranks:,} ranks, held", ranks, warehouse)
        yield _views(f"{ranks:,} ranks", ranks, warehouse, inputs)


def _overlap(name: str, ranks: int, warehouse: Path, *more: Way) -> Case:
    engines = {
        f"plain {what}": Way(f"plain {what}", PEER, way(f"queries.overlap_{what.lower()}",
                                                        warehouse), 2, "inside_s",
                             missing=without(what.lower()))
        for what in ("DuckDB", "Polars", *(["pandas"] if ranks <= 64 else []))
    }  # fmt: skip
    peers = (*engines.values(), *more)
    return Case(
        name, "queries", ranks, "ranks",
        (Way(OURS_ASKED, OURS, way("queries.overlap_ours", warehouse), 2, "inside_s"), *peers,
         Way(SCANNED, LIMIT, way("queries.scan", warehouse), 2, "inside_s")),
        tuple(Ratio(OURS_ASKED, p.name) for p in (*peers, Way(SCANNED, LIMIT))),
        same=((OURS_ASKED, *engines),),
        note="Opening the connection counts, importing does not.",
    )  # fmt: skip


def _views(what: str, ranks: int, warehouse: Path, inputs: Inputs) -> Case:
    name, again = "every public view, cold", "what notebooks use most, connection open"
    asked = inputs.in_notebooks
    return Case(
        f"queries, views of {what}", "queries", ranks, "ranks",
        (Way(name, OURS, way("queries.views", warehouse), 2, "inside_s", rounds=1,
             part=way("queries.view", warehouse, PART)),
         Way(again, OURS, way("queries.warm", warehouse, *asked), 2, "inside_s", rounds=1,
             part=way("queries.view", warehouse, PART))),
        bounds=(
            Bound(name, "slowest", 10.0, "every view under 10 s cold"),
            Bound(again, "slowest", 1.0, "under 1 s for the views that notebooks use most"),
        ),
        note="Each view in a process and by a connection of its own, every column of every row; "
             "the files are dropped from the page cache before. A view that rests on a replay "
             "replays the job, if it is the first to ask. What notebooks use most is what they "
             f"ask more than once, all together: {', '.join(asked)}.",
    )  # fmt: skip


@stage("queries")
def growing(inputs: Inputs) -> Iterator[Case]:
    """A quarter and a sixteenth of a job, all views by one connection."""
    name, events = "every public view, one connection", 2_000 if inputs.quick else 25_000
    for hosts in (2, 4) if inputs.tiny else (2, 8, 32) if not inputs.quick else (2, 8):
        what = f"queries, views of {8 * hosts} ranks by {events:,}, for growth"
        if not inputs.wants(what):
            continue
        warehouse = inputs.warehouse(hosts, events)
        yield Case(
            what, "queries",
            8 * hosts * events, "events",
            (Way(name, OURS, way("queries.together", warehouse), 2, "inside_s", rounds=1),),
            growth="queries, every view", grows=(name,),
        )  # fmt: skip
