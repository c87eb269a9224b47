"""Re-timing: the inner loop against its memory, graphs against reading, a sweep, a study's job."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.suite.case import LIMIT, OURS, OUT, PEER, Bound, Case, Ratio, Way, stage, way
from benchmarks.suite.inputs import Inputs

LOOP, BARE, COUNT = "the engine's inner loop", "a bare pass over its arrays", "counting tasks"
PYTHON = "plain Python"
BUILT, READ = "a graph from its tables", "reading the events"


@stage("replay")
def loop(inputs: Inputs) -> Iterator[Case]:
    """A random graph: 1, 4 and 16 times."""
    most = 40_000 if inputs.tiny else 2_000_000 if inputs.quick else 10_000_000
    for tasks in (most // 16, most // 4, most):
        few = min(tasks, 400_000)
        yield Case(
            f"replay, inner loop, {tasks:,} tasks", "replay", tasks, "tasks",
            (Way(LOOP, OURS, way("replay.loop", tasks), 1, "inside_s"),
             Way(PYTHON, PEER, way("replay.loop_python", few), 1, "inside_s", few, rounds=1),
             Way(BARE, LIMIT, way("limits.passes.bare", tasks), 1, "inside_s"),
             Way(COUNT, LIMIT, way("limits.passes.count", tasks), 1, "inside_s")),
            (Ratio(LOOP, BARE, 1 / 3, "within 3 times of a bare pass"), Ratio(LOOP, COUNT),
             Ratio(LOOP, PYTHON)),
            growth="replay, inner loop", grows=(LOOP,),
            same=((LOOP, PYTHON),) if few == tasks else (),
        )  # fmt: skip


@stage("replay")
def graphs(inputs: Inputs) -> Iterator[Case]:
    """Task graphs of jobs in a warehouse, real and made up, against reading their events."""
    demo = inputs.ingested(inputs.demo, "demo")
    yield _graph("8 real ranks", 8, "ranks", f"{demo}|{demo}", demo)
    events = 2_000 if inputs.quick else 25_000
    for hosts in (2, 4) if inputs.tiny else (2, 8) if inputs.quick else (2, 8, 32):
        what = f"{8 * hosts} ranks by {events:,}"
        if not inputs.wants(f"replay, graph of {what}"):
            continue
        house = inputs.warehouse(hosts, events)
        yield _graph(what, 8 * hosts * events, "events",
                     f"{demo}|{house}", house, "replay, graph building")  # fmt: skip
    if not inputs.quick and inputs.wants("replay, graph of 64 ranks by 100,000"):
        house = inputs.cluster(64)
        yield _graph("64 ranks by 100,000", 6_400_000, "events", f"{demo}|{house}", house)
    if inputs.large and inputs.wants("replay, graph of 1,024 ranks by 100,000"):
        house = inputs.cluster(1024)
        yield _graph("1,024 ranks by 100,000", 103_000_000, "events", f"{demo}|{house}", house)


def _graph(
    what: str, n: float, unit: str, houses: str, house: object, growth: str = ""
) -> Case:  # fmt: skip
    return Case(
        f"replay, graph of {what}", "replay", n, unit,
        (Way(BUILT, OURS, way("replay.graph", houses), 2, "inside_s"),
         Way(READ, LIMIT, way("replay.events", house), 2, "inside_s")),
        (Ratio(BUILT, READ, 1, "graph building no slower than reading the events"),),
        growth=growth, grows=(BUILT,),
    )  # fmt: skip


@stage("replay")
def steps(inputs: Inputs) -> Iterator[Case]:
    """One step of 64, 256 and 1,024 ranks by 5,000 tasks under a policy; a sweep of the largest."""
    per_rank = 400 if inputs.tiny else 5000
    sizes = (16, 64) if inputs.quick else (64, 256, 1024)
    for ranks in sizes:
        ways = tuple(
            Way(policy, OURS, way("replay.step", ranks, per_rank, policy), 2, "inside_s", rounds=2)
            for policy in ("scale-fabric:factor=2", "align-arrivals")
        )
        yield Case(f"replay, a step of {ranks:,} ranks", "replay", ranks, "ranks", ways,
                   growth="replay, a step", grows=tuple(w.name for w in ways))  # fmt: skip
    points = 10 if inputs.quick else 100
    name = f"{points} points of scale-fabric"
    goal = Bound(name, "seconds", 60, "a 100-point sweep of a 1,024-rank step under a minute")
    yield Case(
        f"replay, a sweep of {points} points over {sizes[-1]:,} ranks", "replay", points, "points",
        (Way(name, OURS, way("replay.sweep", sizes[-1], per_rank, points), 2, "inside_s",
             rounds=1),),
        bounds=() if inputs.quick else (goal,),
    )  # fmt: skip


@stage("replay")
def study(inputs: Inputs) -> Iterator[Case]:
    """The published what-if set of the straggler study's job AR, and the study's own analyser."""
    trace = next(iter(sorted(inputs.traces.rglob("trace-AR.parquet"))), None) if (
        inputs.traces is not None
    ) else None  # fmt: skip
    if trace is None:
        return
    ours, theirs = "retime, S by type, worker and rank", "the straggler study's analyser"
    missing = "" if inputs.artifact else (
        "in no registry: `--straggler-artifact` takes a clone of its repository"
    )  # fmt: skip
    yield Case(
        "replay, the study's job AR", "replay", 117_216, "operations",
        (Way(ours, OURS, way("replay.published", trace, OUT), 2, "inside_s"),
         Way(theirs, PEER,
             way("replay.published_study", inputs.artifact, inputs.artifact_python.absolute()),
             2, "inside_s", missing=missing)),
        (Ratio(ours, theirs),), same=((ours, theirs),),
    )  # fmt: skip
