"""What-ifs side by side against the same ones replayed one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.replay import engine, lanes, steps
from retime.replay.graph import NULL, build


def made(seed: int, n: int, far: int, marks: bool):
    """A graph whose tasks wait for others at most `far` places before them."""
    rng = np.random.default_rng(seed)
    dst = rng.integers(1, n, 2 * n)
    src = np.maximum(0, dst - rng.integers(1, far + 1, len(dst)))
    own, gap = rng.integers(0, 1000, n), rng.integers(0, 100, n)
    extra = {}
    if marks:
        rank = np.arange(n) % 2
        extra = {k: np.full(n, NULL) for k in ("begins", "ends")}
        for r in (0, 1):
            at = np.flatnonzero(rank == r)
            own[at[[0, len(at) // 2, -1]]] = 0
            extra["begins"][at[[0, len(at) // 2]]] = 0, 1
            extra["ends"][at[[len(at) // 2, -1]]] = 0, 1
    step = np.sort(rng.integers(-1, 3, n))
    step[-1] = 2
    graph, _ = build(
        n, src, dst, dur_ns=own, gap_ns=gap, step=step, rank=np.arange(n) % 2,
        release_ns=rng.integers(0, 5000, n), order_ns=np.arange(n), extra=extra,
    )  # fmt: skip
    return graph, rng.integers(0, 1000, n)


@pytest.mark.parametrize("marks", [False, True])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(8, 300), far=st.integers(1, 300),
       groups=st.integers(1, 20))  # fmt: skip
def test_each_what_if_is_what_it_is_alone(marks, seed, n, far, groups):
    graph, other = made(seed, n, far, marks)
    if marks:
        other[graph.dur_ns == 0] = 0
    group = np.random.default_rng(seed).integers(-1, groups, n)
    got = lanes.step_times(graph, other, [(group, g) for g in range(groups)])
    durations = [np.where(group == g, graph.dur_ns, other) for g in range(groups)]
    replays = [engine.replay(graph.with_(dur_ns=dur)) for dur in durations]
    alone = [steps.step_times(graph, *both)[1] for both in replays]
    assert got.tolist() == np.stack(alone).tolist()


def test_columns_of_other_types_make_no_difference():
    graph, other = made(1, 50, 20, False)
    group = np.arange(50) % 3
    whole = lanes.step_times(graph, other, [(group, 1)])
    assert lanes.step_times(graph, other.astype(np.int32), [(group.astype(np.int8), 1)]) == (
        pytest.approx(whole, rel=0, abs=0)
    )
