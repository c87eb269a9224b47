"""Another algorithm for all-to-alls of uneven blocks: counted from their splits, by hand."""

from __future__ import annotations

import numpy as np
import pytest

CYCLE = np.array([[0, 4, 1], [1, 0, 4], [4, 1, 0]])
SKEWED = np.array([[0, 4, 1], [4, 0, 1], [1, 1, 0]])
"""MB: the busiest port has 5 of both; cyclic shifts have 4 + 1 and 4 + 4 (by hand)."""

GIVEN = "op=all_to_all,alpha=0,bandwidth=1GB/s"


@pytest.mark.parametrize(
    ("matrix", "algo", "ratio"),
    [
        # In pairs as recorded: 5 ms and 8; at once 5; round a ring 6 at its busiest edge; Bruck's
        # rounds move 4 and 4 (tests/replay/models/test_uneven.py).
        (CYCLE, "direct", 1.0),
        (SKEWED, "direct", 5 / 8),
        (SKEWED, "ring", 6 / 8),
        (SKEWED, "bruck", 8 / 8),
        (SKEWED, "pairwise", 1.0),
    ],
)
def test_uneven_blocks_take_what_their_ports_do(a2a_job, under, moved_ns, matrix, algo, ratio):
    job = a2a_job([[matrix * 10**6]], took_us=10_000.0, hosts=1, places=3)
    after = under(job, f"algorithm:algo={algo},from=pairwise,{GIVEN}")
    assert moved_ns(after) == [pytest.approx(10e6 * ratio, abs=1)]
    if algo != "pairwise":
        assert any("counted from who sends how much to whom" in a for a in after.assumptions)


def test_blocks_that_nobody_recorded_are_equal(a2a_job, under, moved_ns):
    job = a2a_job([[SKEWED * 10**6]], took_us=10_000.0, hosts=1, places=3, splits=False)
    after = under(job, f"algorithm:algo=direct,from=pairwise,{GIVEN}")
    # Without latency n - 1 equal blocks take as long in a row as at once.
    assert moved_ns(after) == [10_000_000]
    assert not any("who sends how much" in a for a in after.assumptions)
