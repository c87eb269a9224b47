"""How much later tasks could end: by hand, and by replaying graphs with a task that is longer."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from retime.replay import engine
from retime.replay.findings import critical, slack
from retime.replay.findings.task_steps import task_steps
from retime.replay.graph import NULL, Kind, build
from retime.replay.traced import build as kineto

NONE = slack.UNBOUNDED


def graph_of(dur, edges, gap=None, step=None, **more):
    """A graph of tasks in the order given (an edge goes to a later one), of step 0 by default."""
    n = len(dur)
    gap = np.zeros(n, int) if gap is None else np.array(gap)
    src, dst = np.array(edges, int).reshape(-1, 2).T
    return build(
        n, src, dst, dur_ns=np.array(dur), gap_ns=gap,
        order_ns=np.arange(n), start_ns=np.arange(n), end_ns=np.arange(n),
        step=np.zeros(n) if step is None else np.array(step), **more,
    )[0]  # fmt: skip


def slack_of(graph):
    return slack.slack(graph, *engine.replay(graph)).tolist()


def test_a_chain_has_none_and_what_is_beside_it_has_the_difference():
    # 10 and 30 side by side, then 5: the short one could end 20 later.
    graph = graph_of([10, 30, 5], [(0, 2), (1, 2)])
    assert slack_of(graph) == [20, 0, 0]


def test_a_gap_behind_a_task_is_not_its_slack():
    # 0 -> gap 15 -> 2 starts at 25, and 1 ends at 30: 5 is left.
    graph = graph_of([10, 30, 5, 1], [(0, 2), (2, 3), (1, 3)], gap=[0, 0, 15, 0])
    assert slack_of(graph) == [0, 0, 0, 0]
    graph = graph_of([10, 36, 5, 1], [(0, 2), (2, 3), (1, 3)], gap=[0, 0, 15, 0])
    assert slack_of(graph) == [6, 0, 6, 0]


def test_each_step_has_an_end_of_its_own():
    # Step 0 ends at 30 (task 1); task 0 feeds step 1, which ends at 10 + 50.
    graph = graph_of([10, 30, 50], [(0, 2)], step=[0, 0, 1])
    assert slack_of(graph) == [0, 0, 0]
    graph = graph_of([10, 30, 50, 90], [(0, 2)], step=[0, 0, 1, 1])
    assert slack_of(graph) == [20, 0, 30, 0]


def test_what_no_step_s_end_waits_for_is_unbounded():
    graph = graph_of([10, 20], [], step=[0, -1])
    assert slack_of(graph) == [0, NONE]


def test_rows_take_the_tasks_of_a_name_together():
    graph = graph_of(
        [10, 4, 30, 5], [(0, 3), (1, 3), (2, 3)], kind=np.full(4, Kind.COMPUTE),
        rank=np.array([0, 0, 1, 1]), op=np.array([0, 0, 0, 1]), op_names=("f", "g"),
        extra={"event_id": np.array([7, 8, 9, -1])},
    )  # fmt: skip
    start, end = engine.replay(graph)
    rows = [tuple(r.values()) for r in slack.rows(graph, start, end, graph.step).to_pylist()]
    # step, rank, kind, name, tasks, dur_ns, slack_ns, median_slack_ns, critical, event_id
    assert rows == [
        (0, 0, "compute", "f", 2, 14, 20, 23, 0, 7),
        (0, 1, "compute", "f", 1, 30, 0, 0, 1, 9),
        (0, 1, "compute", "g", 1, 5, 0, 0, 1, None),
    ]


def test_a_rank_that_waits_could_arrive_later(tables):
    # Rank 0 arrives at 100 us, rank 1 at 300.
    for rank, us in enumerate((100, 300)):
        tables.kernel(rank, "f", 0, us, step=0)
        tables.part(rank, "all_reduce", us, 400, instance=0, stream=7, step=0)
        tables.step(rank, 0, 0, 400)
    job = kineto.build(tables.frames(), "job")
    rows = slack.rows(job.graph, *engine.replay(job.graph), task_steps(job)).to_pylist()
    assert {(r["rank"], r["kind"], r["name"]): r["slack_ns"] for r in rows} == {
        (0, "compute", "f"): 200_000,
        (0, "arrive", "all_reduce"): 200_000,
        (0, "transfer", "all_reduce"): 0,
        (1, "compute", "f"): 0,
        (1, "arrive", "all_reduce"): 0,
        (1, "transfer", "all_reduce"): 0,
    }


@st.composite
def graphs(draw):
    """Any small graph, its steps apart or not, with or without marks that end them."""
    n = draw(st.integers(1, 9))
    times = st.integers(0, 50)
    dur = draw(st.lists(times, min_size=n, max_size=n))
    gap = draw(st.lists(times, min_size=n, max_size=n))
    edges = draw(
        st.lists(
            st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] < e[1]),
            max_size=14,
        )
        if n > 1
        else st.just([])
    )
    step = draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n))
    release = draw(st.lists(st.integers(0, 100), min_size=n, max_size=n))
    more = {}
    if draw(st.booleans()):
        is_mark = draw(st.lists(st.booleans(), min_size=n, max_size=n))
        ends = [s if m and s >= 0 else int(NULL) for s, m in zip(step, is_mark, strict=True)]
        dur = [0 if e != NULL else d for d, e in zip(dur, ends, strict=True)]
        more = {"extra": {"ends": np.array(ends), "begins": np.full(n, NULL)}}
    return graph_of(dur, edges, gap, step, release_ns=np.array(release), **more)


def ends_of(graph, start, end):
    """When each step ends: its last mark, else its last task."""
    at = graph.extra.get("ends", np.where(graph.step >= 0, graph.step, NULL))
    return {int(s): int(end[at == s].max()) for s in np.unique(at[at != NULL])}


@given(graphs(), st.integers(1, 40))
def test_a_task_may_be_late_by_its_slack_and_by_no_more(graph, more):
    start, end = engine.replay(graph)
    before = ends_of(graph, start, end)
    later = slack.slack(graph, start, end)
    assert (later >= 0).all()
    for task in range(graph.n):
        unbounded = later[task] == NONE
        gap = graph.gap_ns.copy()
        gap[task] += 10_000 if unbounded else later[task]
        late = ends_of(graph, *engine.replay(graph.with_(gap_ns=gap)))
        assert late == before
        if not unbounded:
            gap[task] += more
            late = ends_of(graph, *engine.replay(graph.with_(gap_ns=gap)))
            # None by more than what it is too late by, and one by all of that.
            assert max(late[s] - before[s] for s in before) == more


@given(graphs())
def test_critical_paths_have_no_slack_and_add_up_to_their_steps(graph):
    if "ends" in graph.extra:
        graph = graph.with_(extra={})
    start, end = engine.replay(graph)
    later = slack.slack(graph, start, end)
    steps = np.unique(graph.step[graph.step >= 0])
    found = critical.pieces(graph, start, end, steps)
    for s in steps:
        mine = graph.step == s
        of = found.step == s
        edges = [*found.start_ns[of].tolist(), end[mine].max()]
        assert edges[0] == start[mine].min() if of.any() else end[mine].max() == start[mine].min()
        assert found.end_ns[of].tolist() == edges[1:]
    assert (found.end_ns > found.start_ns).all()
    assert (later[found.task] == 0).all()
