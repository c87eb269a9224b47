import numpy as np
import pytest
from retime.replay.findings.large.contract import ZERO, contract
from retime.replay.graph import NULL, Kind, TaskGraph


def chain(n: int) -> TaskGraph:
    """n tasks of one rank, each after the one before it."""
    nothing = np.zeros(n, np.int64)
    return TaskGraph(
        gap_ns=nothing, dur_ns=nothing, release_ns=nothing, comm=nothing, bytes=nothing,
        op_names=(), start_ns=nothing, end_ns=nothing, step=nothing, op=nothing, rank=nothing,
        kind=np.full(n, Kind.COMPUTE), collective=np.full(n, -1),
        pred_ptr=np.maximum(np.arange(-1, n), 0), pred=np.arange(n - 1),
    )  # fmt: skip


@pytest.mark.parametrize("n", [1, 1023, 1024, 1025, 4097, 9000])
def test_every_task_may_be_a_moment(n):
    more = np.arange(1, n + 1).reshape(-1, 1)
    found = contract(
        chain(n), np.full(n, -1), np.ones(n, bool), more, np.full(n, NULL)
    )  # fmt: skip
    assert found.task.tolist() == list(range(n))
    assert found.ptr.tolist() == list(range(n + 1))
    assert found.source.tolist() == [ZERO, *range(n - 1)]
    assert found.more_ns.tolist() == more.tolist()


@pytest.mark.parametrize("n", [2, 9000])
def test_what_lies_between_moments_is_added_up(n):
    kept = np.arange(n) % 2 == 1
    more = np.ones((n, 2), np.int64)
    found = contract(chain(n), np.full(n, -1), kept, more, np.full(n, NULL))
    assert found.task.tolist() == list(range(1, n, 2))
    assert found.more_ns.tolist() == [[2, 2]] * (n // 2)
