"""The page of a job: `retime report`, beside what the peer computes of the same ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.suite.case import LIMIT, OURS, OUT, PEER, Case, Ratio, Way, cli, stage, way
from benchmarks.suite.inputs import Inputs, without

PAGE, READ = "retime report", "reading all tables"
HTA = "HolisticTraceAnalysis, four breakdowns"
TRACELENS = "not in the Python package index: what is called tracelens there is something else"


@stage("report")
def real(inputs: Inputs) -> Iterator[Case]:
    """Eight real ranks, from their traces."""
    ours = Way("retime, ingest and report", OURS,
               way("report.from_traces", inputs.demo, OUT, 2), 2)  # fmt: skip
    peer = Way(HTA, PEER, way("report.hta", inputs.demo), 2, rounds=1, missing=without("hta"))
    other = Way("TraceLens", PEER, missing=TRACELENS)
    yield Case("report, 8 real ranks, from their traces", "report", 8, "ranks",
               (ours, peer, other), (Ratio(ours.name, HTA),))  # fmt: skip
    yield _page(inputs.ingested(inputs.demo, "demo"), "8 real ranks", 8, "ranks")


@stage("report")
def large(inputs: Inputs) -> Iterator[Case]:
    """64 ranks of 100,000 events."""
    if not inputs.quick and inputs.wants("report, 64 ranks"):
        yield _page(inputs.cluster(64), "64 ranks", 64, "ranks", rounds=1)
    if inputs.large and inputs.wants("report, 1,024 ranks"):
        yield _page(inputs.cluster(1024), "1,024 ranks", 1024, "ranks", rounds=1)


@stage("report")
def growing(inputs: Inputs) -> Iterator[Case]:
    """A quarter and a sixteenth of a job."""
    events = 2_000 if inputs.quick else 25_000
    for hosts in (2, 4) if inputs.tiny else (2, 8) if inputs.quick else (2, 8, 32):
        what = f"{8 * hosts} ranks by {events:,}, for growth"
        if not inputs.wants(f"report, {what}"):
            continue
        yield _page(inputs.warehouse(hosts, events), what, 8 * hosts * events, "events", "report",
                    rounds=1)  # fmt: skip


def _page(
    warehouse: Path, what: str, n: float, unit: str, growth: str = "", rounds: int | None = None
) -> Case:
    command = cli("report", "cluster", "-o", f"{OUT}/page.html", "--warehouse", warehouse)
    return Case(
        f"report, {what}", "report", n, unit,
        (Way(PAGE, OURS, command, 2, rounds=rounds),
         Way(READ, LIMIT, way("report.tables", warehouse), 2, "inside_s", rounds=rounds)),
        (Ratio(PAGE, READ),), growth=growth, grows=(PAGE,),
    )  # fmt: skip
