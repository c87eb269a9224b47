"""Keys that sort as (group, time) does, for any length of time."""

from __future__ import annotations

import numpy as np
import pytest
from retime.ingest.tasks.keys import paired
from retime.replay.traced import build as kineto

DAY_NS = 86_400 * 10**9


def test_keys_compare_like_pairs_over_any_span():
    for span in (10, 30 * DAY_NS, 2**62):
        one = np.array([0, 1, 1, 5]), np.array([span, 0, span - 1, 3])
        other = np.array([0, 1, -1]), np.array([span - 1, span - 1, span])
        keys, others = paired(one, other)
        pairs, other_pairs = (list(zip(*t, strict=True)) for t in (one, other))
        for key, a in zip(keys, pairs, strict=True):
            for k, b in zip(others, other_pairs, strict=True):
                assert (key < k, key == k) == (a < b, a == b)


def test_nothing_has_no_keys():
    none = np.empty(0, np.int64)
    assert [len(k) for k in paired((none, none), (none, none))] == [0, 0]


@pytest.mark.parametrize("pause_us", [0, 3 * 3_600 * 10**6, 40 * 86_400 * 10**6])
def test_a_pause_of_hours_between_steps_changes_no_step(tables, pause_us):
    for step in (0, 1):
        at = step * (1_000 + pause_us)
        for rank in (0, 1):
            tables.call(rank, "cudaLaunchKernel", at, at + 5, correlation=step + 1, step=step)
            tables.kernel(rank, "f", at + 10, at + 300, step=step, correlation=step + 1)
            tables.part(rank, "all_reduce", at + 300, at + 400, instance=step, step=step)
            tables.call(rank, "cudaStreamSynchronize", at + 20, at + 410, step=step)
            tables.step(rank, step, at + 10, at + 400)
    graph = kineto.build(tables.frames()).graph
    owner = np.repeat(np.arange(graph.n), np.diff(graph.pred_ptr))
    second = (graph.step == 1) & (graph.start_ns > 0)
    # Edges within the second step do not depend on how long after the first it came.
    inside = second[owner] & second[graph.pred]
    edges = {
        (graph.op_names[graph.op[a]], graph.op_names[graph.op[b]])
        for a, b in zip(graph.pred[inside], owner[inside], strict=True)
    }
    assert ("host gap", "step begins") in edges
    assert ("step begins", "f") in edges
    assert ("all_reduce", "host gap") in edges
    assert ("all_reduce", "step ends") in edges
