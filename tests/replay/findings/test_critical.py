"""What critical paths are made of, on graphs whose path is known by hand."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay import engine, run
from retime.replay.findings.critical import critical_path, rows
from retime.replay.graph import Kind, build
from retime.replay.traced import build as kineto


def path_of(graph, steps=(0,)):
    """Shares of the replayed graph's steps, rounded."""
    start, end = engine.replay(graph)
    return [round(s, 9) for s in critical_path(graph, start, end, np.array(steps))]


def chain(kinds, dur, gap, edges, step=None, **more):
    """A graph of tasks in the order given."""
    n = len(kinds)
    src, dst = np.array(edges, int).reshape(-1, 2).T
    return build(
        n, src, dst, kind=np.array(kinds), dur_ns=np.array(dur), gap_ns=np.array(gap),
        order_ns=np.arange(n), step=np.zeros(n) if step is None else np.array(step),
        start_ns=np.arange(n), end_ns=np.arange(n), **more,
    )[0]  # fmt: skip


def test_each_kind_of_time_counts_for_itself():
    # work 40, gap 10 and host gap 20, gap 5 and transfer 25: 100 in all.
    graph = chain(
        [Kind.COMPUTE, Kind.HOST, Kind.TRANSFER], [40, 20, 25], [0, 10, 5], [(0, 1), (1, 2)],
        op_names=("host gap",), op=np.array([-1, 0, -1]),
    )  # fmt: skip
    assert path_of(graph) == [0.40, 0.20, 0.25, 0.15]


def test_a_named_host_operation_is_work():
    graph = chain([Kind.HOST], [7], [0], [], op_names=("DataLoader",), op=np.array([0]))
    assert path_of(graph) == [1, 0, 0, 0]


def test_the_path_takes_the_predecessor_that_ended_last():
    # The transfer waits for 90 of work on one rank, not for 30 and a gap of 50 on the other.
    graph = chain(
        [Kind.COMPUTE, Kind.COMPUTE, Kind.JOIN, Kind.TRANSFER], [90, 30, 0, 10], [0, 50, 0, 0],
        [(0, 2), (1, 2), (2, 3)],
    )  # fmt: skip
    assert path_of(graph) == [0.9, 0, 0.1, 0]


def test_what_nothing_led_to_is_unexplained():
    # Released at 60, when the other task of the step had begun at 0.
    graph = chain(
        [Kind.COMPUTE, Kind.COMPUTE], [10, 40], [0, 0], [], release_ns=np.array([0, 60])
    )  # fmt: skip
    assert path_of(graph) == [0.4, 0, 0, 0.6]


def test_steps_are_weighed_by_their_length():
    # Step 0: 30 of work. Step 1: 10 of transfer.
    graph = chain([Kind.COMPUTE, Kind.TRANSFER], [30, 10], [0, 0], [(0, 1)], step=[0, 1])
    assert path_of(graph, (0, 1)) == [0.75, 0, 0.25, 0]
    assert path_of(graph, (1,)) == [0, 0, 1, 0]
    assert path_of(graph, ()) == [0, 0, 0, 0]


def traced(tables, gap_us, after_us=(0, 0)):
    """Two ranks; rank 1 works 300 us, pauses, both reduce for 100 us and work on so long."""
    for rank in (0, 1):
        tables.kernel(rank, "f", 0, 100 + 200 * rank, step=0)
        begin = (100 + 200 * rank) + gap_us * rank
        tables.part(rank, "all_reduce", begin, 400 + gap_us, instance=0, stream=7, step=0)
        over = 400 + gap_us + after_us[rank]
        if after_us[rank]:
            tables.kernel(rank, "g", 400 + gap_us, over, step=0)
        tables.step(rank, 0, 0, over)
    return kineto.build(tables.frames(), "traced")


def test_a_traced_step_goes_through_the_rank_that_came_last(tables):
    result = run.replay(traced(tables, 100))
    assert result["fidelity_pct"] == 0
    assert result["critical_path"] == {
        "work_share": 0.6, "host_share": 0, "transfer_share": 0.2, "unexplained_share": 0.2,
    }  # fmt: skip


def test_the_rows_of_the_path_follow_each_other_across_ranks(tables):
    # After rank 1's 300 us and pause both reduce; rank 0 then works on for 50 us, rank 1 for 20.
    graph = traced(tables, 100, after_us=(50, 20)).graph
    start, end = engine.replay(graph)
    ids = np.where(graph.collective >= 0, 77, -1)
    found = rows(graph, start, end, np.array([0]), ids).to_pylist()
    events = {(r["rank"], r["name"]): r["event_id"] for r in tables.rows["events"]}
    reduce = events[1, "nccl all_reduce"]
    # step, position, rank, class, kind, name, event_id, collective_id, start_ns, end_ns, dur_ns
    assert [tuple(r.values()) for r in found] == [
        (0, 0, 1, "work", "compute", "f", events[1, "f"], None, 0, 300_000, 300_000),
        (0, 1, 1, "unexplained", "arrive", "all_reduce", reduce, 77, 300_000, 400_000, 100_000),
        (0, 2, 0, "transfer", "transfer", "all_reduce", events[0, "nccl all_reduce"], 77,
         400_000, 500_000, 100_000),
        (0, 3, 0, "work", "compute", "g", events[0, "g"], None, 500_000, 550_000, 50_000),
    ]  # fmt: skip


def test_of_ranks_that_end_a_step_together_the_path_of_the_lowest_is_shown(tables):
    graph = traced(tables, 100, after_us=(50, 50)).graph
    start, end = engine.replay(graph)
    found = rows(graph, start, end, np.array([0]), np.full(graph.n, -1)).to_pylist()
    assert [(r["rank"], r["name"]) for r in found] == [
        (1, "f"), (1, "all_reduce"), (0, "all_reduce"), (0, "g"),
    ]  # fmt: skip


@pytest.mark.parametrize(("gap_us", "warned"), [(100, False), (200, True)])
def test_more_than_a_quarter_unexplained_is_said_of_every_estimate(tables, gap_us, warned):
    # 100 of 500 us, or 200 of 600.
    result = run.replay(traced(tables, gap_us), ["align-arrivals", "align-arrivals:factor=0.5"])
    for entry in result["policies"]:
        assert any("33 % of the critical path is gaps" in w for w in entry["warnings"]) is warned
