"""Building task graphs: the order taken, duplicate edges, cycles and bad columns."""

import numpy as np
import pytest
from retime.replay.graph import NULL, GraphCycle, Kind, build

NONE = np.array([], np.int64)


def test_free_tasks_go_in_order_of_time_then_index():
    graph, order = build(4, NONE, NONE, start_ns=np.array([30, 10, 20, 10]))
    assert order.tolist() == [1, 3, 2, 0]
    assert graph.start_ns.tolist() == [10, 10, 20, 30]


def test_an_edge_beats_time():
    # 0 starts before 1 (clocks disagree) but depends on it.
    graph, order = build(3, np.array([1]), np.array([0]), start_ns=np.array([0, 5, 9]))
    assert order.tolist() == [1, 0, 2]
    assert graph.pred_ptr.tolist() == [0, 0, 1, 1]
    assert graph.pred.tolist() == [0]


def test_equal_edges_count_once_and_their_order_does_not_matter():
    a, order_a = build(3, np.array([0, 0, 1, 0]), np.array([2, 2, 2, 1]))
    b, order_b = build(3, np.array([1, 0, 0]), np.array([2, 1, 2]))
    assert order_a.tolist() == order_b.tolist()
    assert a.pred.tolist() == b.pred.tolist() == [0, 0, 1]
    assert a.pred_ptr.tolist() == [0, 0, 1, 3]


def test_columns_left_out_are_neutral_and_extra_ones_follow_the_order():
    graph, _ = build(
        2, np.array([1]), np.array([0]), op=np.array([1, 0]), op_names=("gemm", "copy"),
        extra={"stage": np.array([3, 4])},
    )  # fmt: skip
    assert graph.kind.tolist() == [Kind.OTHER, Kind.OTHER]
    assert graph.start_ns.tolist() == [NULL, NULL]
    assert graph.collective.tolist() == [-1, -1]
    assert graph.extra["stage"].tolist() == [4, 3]
    assert graph.ops("copy").tolist() == [False, True]


def test_a_cycle_is_named_task_by_task():
    with pytest.raises(GraphCycle) as e:
        build(
            4, np.array([0, 1, 2, 3]), np.array([1, 2, 1, 2]), op=np.array([0, 1, 2, 3]),
            op_names=("load", "send", "recv", "add"), rank=np.array([0, 0, 1, 1]),
            step=np.array([5, 5, 5, 5]),
        )  # fmt: skip
    assert sorted(e.value.tasks) == [1, 2]
    assert "cycle of 2 tasks" in str(e.value)
    assert "send (rank 0, step 5)" in str(e.value)
    assert "recv (rank 1, step 5)" in str(e.value)
    assert "load" not in str(e.value)


def test_a_task_that_waits_for_itself_is_a_cycle():
    with pytest.raises(GraphCycle) as e:
        build(2, np.array([1]), np.array([1]))
    assert e.value.tasks == [1]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"dur_ns": np.array([1, -1])}, "task 1: dur_ns is -1"),
        ({"gap_ns": np.array([-3, 0])}, "task 0: gap_ns is -3"),
        ({"rank": np.array([1])}, "column rank has shape"),
        ({"colour": np.array([1, 2])}, r"no column \['colour'\]"),
    ],
)
def test_bad_columns_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        build(2, NONE, NONE, **columns)


def test_an_edge_to_nowhere_is_refused():
    with pytest.raises(ValueError, match="not there"):
        build(2, np.array([0]), np.array([2]))
