"""The engine against a few tasks worked out by hand and a plain reference on random graphs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.replay import engine, spending
from retime.replay.graph import build


def test_a_task_starts_a_gap_after_its_last_predecessor():
    #  0 (10) --+
    #           +--> 2 (gap 2, 5) --> 3 (gap 0, 1)
    #  1 (7) ---+
    graph, order = build(
        4,
        np.array([0, 1, 2]),
        np.array([2, 2, 3]),
        gap_ns=np.array([0, 1, 2, 0]),
        dur_ns=np.array([10, 7, 5, 1]),
        release_ns=np.array([100, 105, 0, 0]),
    )
    start, end = engine.replay(graph)
    assert order.tolist() == [0, 1, 2, 3]
    assert start.tolist() == [100, 106, 115, 120]
    assert end.tolist() == [110, 113, 120, 121]


def test_release_holds_only_tasks_without_predecessors():
    graph, _ = build(2, np.array([0]), np.array([1]), release_ns=np.array([-50, 10]))
    assert engine.replay(graph)[0].tolist() == [-50, -50]


def test_an_empty_graph():
    graph, order = build(0, np.array([], int), np.array([], int))
    start, end = engine.replay(graph)
    assert (len(start), len(end), len(order)) == (0, 0, 0)


def test_steps_take_from_first_start_to_last_end():
    graph, _ = build(
        4,
        np.array([], int),
        np.array([], int),
        step=np.array([7, 7, 9, -1]),
        release_ns=np.array([5, 8, 100, 0]),
        dur_ns=np.array([1, 10, 3, 1000]),
    )
    start, end = engine.replay(graph)
    steps, span = engine.step_spans(graph, start, end)
    assert steps.tolist() == [7, 9]
    assert span.tolist() == [13, 3]
    _, spans = engine.step_spans(graph, np.stack([start, start]), np.stack([end, end + 1]))
    assert spans.tolist() == [[13, 3], [14, 4]]


def _reference(gap, dur, release, preds):
    """Longest path by recursion on predecessors, in plain Python."""
    ends = {}

    def end(i):
        if i not in ends:
            ready = max((end(p) for p in preds[i]), default=release[i])
            ends[i] = ready + gap[i] + dur[i]
        return ends[i]

    return [end(i) for i in range(len(dur))]


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 25))
    name = draw(st.permutations(range(n)))
    pairs = [(name[a], name[b]) for b in range(n) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=60)) if pairs else []
    times = st.lists(st.integers(0, 1000), min_size=n, max_size=n)
    return n, edges, draw(times), draw(times), draw(times), draw(times)


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_equals_the_reference_on_random_graphs(drawn):
    n, edges, gap, dur, release, when = drawn
    src = np.array([a for a, _ in edges], np.int64)
    dst = np.array([b for _, b in edges], np.int64)
    graph, order = build(
        n, src, dst, order_ns=np.array(when), gap_ns=np.array(gap), dur_ns=np.array(dur),
        release_ns=np.array(release),
    )  # fmt: skip
    owner = np.repeat(np.arange(n), np.diff(graph.pred_ptr))
    assert (graph.pred < owner).all()
    start, end = engine.replay(graph)
    preds = [[a for a, b in edges if b == i] for i in range(n)]
    assert end.tolist() == [_reference(gap, dur, release, preds)[i] for i in order]
    assert (end - start).tolist() == [dur[i] for i in order]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 30), st.integers(0, 9)),
                max_size=24))  # fmt: skip
def test_time_of_some_intervals_that_others_leave_bare(drawn):
    def arrays(mine):
        rows = sorted(((r, s, s + d) for a, r, s, d in drawn if a == mine), key=lambda x: x[0])
        rank, start, end = np.array(rows, np.int64).reshape(-1, 3).T.copy()
        return np.searchsorted(rank, np.arange(4)), start, end

    (first, came, left), (first_work, began, ended) = arrays(True), arrays(False)
    # Tasks: those that arrive, those that transfer, work.
    n, m = len(came), len(began)
    start, end = np.concatenate([came, came, began]), np.concatenate([came, left, ended])
    arrive, transfer, work = np.arange(n), np.arange(n, 2 * n), np.arange(2 * n, 2 * n + m)

    # Each moment of each rank, one by one.
    bare = 0
    for rank in range(3):
        for t in range(40):
            inside = {a for a, r, s, d in drawn if r == rank and s <= t < s + d}
            bare += inside == {True}
    room = np.empty((spending.ROOM, n + m), np.int64)
    found = spending._exposed(start, end, arrive, transfer, first, work, first_work, room)
    assert found == bare
