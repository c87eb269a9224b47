"""Both sides of a doubt are two replays, with all that changed shorter and longer."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay import doubt, engine, steps
from retime.replay.graph import Kind, build
from retime.replay.policy import ReplayJob


def job(rng, marks):
    n = 60
    src, dst = (rng.integers(0, n, 90) for _ in range(2))
    low, high = np.minimum(src, dst), np.maximum(src, dst)
    extra = {}
    if marks:
        begins, ends = (np.full(n, -(2**63)) for _ in range(2))
        begins[[0, 1, 30]], ends[[31, 32, 59]] = [1, 1, 2], [1, 1, 2]
        extra = {"begins": begins, "ends": ends}
    graph, _ = build(
        n, low[low < high], high[low < high], order_ns=np.arange(n), extra=extra,
        gap_ns=rng.integers(0, 9, n), dur_ns=rng.integers(0, 99, n), rank=np.arange(n) % 2,
        step=np.arange(n) // 30 + 1, start_ns=np.arange(n),
        kind=rng.choice([Kind.COMPUTE, Kind.TRANSFER], n),
    )  # fmt: skip
    return ReplayJob(graph, "j", {})


@pytest.mark.parametrize("marks", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_equal_two_replays(marks, seed):
    rng = np.random.default_rng(seed)
    was = job(rng, marks)
    graph = was.graph
    dur, gap = (
        np.where(rng.random(graph.n) < 0.5, x, x // 3) for x in (graph.dur_ns, graph.gap_ns)
    )
    now = was.with_graph(dur_ns=dur, gap_ns=gap)
    wanted = np.array([1, 2])
    got = doubt.bounds_ns(was, now, wanted, 0.3)
    moved = np.where(graph.kind == Kind.TRANSFER, dur, abs(dur - graph.dur_ns))
    more = np.where(dur != graph.dur_ns, np.rint(0.3 * moved), 0).astype(np.int64)
    later = np.rint(0.3 * abs(gap - graph.gap_ns)).astype(np.int64)
    assert got is not None
    for k, sign in enumerate((-1, 1)):
        side = graph.with_(dur_ns=np.maximum(dur + sign * more, 0),
                           gap_ns=np.maximum(gap + sign * later, 0))  # fmt: skip
        numbers, times = steps.step_times(side, *engine.replay(side))
        assert got[k].tolist() == times[np.isin(numbers, wanted)].tolist()


def test_nothing_that_changed_has_no_doubt():
    was = job(np.random.default_rng(0), marks=True)
    same = was.with_graph(dur_ns=was.graph.dur_ns.copy())
    assert doubt.bounds_ns(was, same, np.array([1, 2]), 0.3) is None
