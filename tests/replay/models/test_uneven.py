"""Uneven all-to-alls from the matrix, on matrices small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from retime.ingest.errors import UsageError
from retime.replay import models
from retime.replay.models import uneven

CYCLE = [[0, 4, 1], [1, 0, 4], [4, 1, 0]]
SKEWED = [[0, 4, 1], [4, 0, 1], [1, 1, 0]]


@pytest.mark.parametrize(("matrix", "waves", "port"), [(CYCLE, [4, 1], 5), (SKEWED, [4, 4], 5)])
def test_waves_and_ports(matrix, waves, port):
    assert uneven.waves(matrix).tolist() == waves
    assert uneven.port_bytes(matrix) == port


def test_times_of_the_skewed_matrix():
    # 1 B/ns, alpha 10: all at once 10 + 5; two waves 20 + 4 + 4.
    assert uneven.time_ns("direct", SKEWED, 10, 1e9) == 15
    assert uneven.time_ns("pairwise", SKEWED, 10, 1e9) == 28
    # Bruck: round 0 moves the blocks at distance 1 (4, 1, 1 out of ranks 0, 1, 2), round 1 those at
    # distance 2 (1, 4, 1): 20 + 4 + 4.
    assert uneven.time_ns("bruck", SKEWED, 10, 1e9) == 28
    # Edge 1->2 carries 1->2 (1), 1->0 (4) and 0->2 (1); edge 2->0 carries 1->0 (4), 2->0 (1) and
    # 2->1 (1); edge 0->1 carries 0->1 (4), 0->2 (1) and 2->1 (1).
    assert uneven.ring_bytes(SKEWED) == 6
    assert uneven.time_ns("ring", SKEWED, 10, 1e9) == 26


@pytest.mark.parametrize("n", [1, 2, 3, 6, 8, 13])
def test_equal_blocks_are_the_closed_forms(n):
    for algo in uneven.ALGOS:
        closed = models.time_ns("all_to_all", algo, n, 10**6, 1000, 1e9)
        took = uneven.time_ns(algo, uneven.even(n, 10**6), 1000, 1e9)
        assert took == pytest.approx(float(closed))


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.int64, st.integers(1, 9).map(lambda n: (n, n)), elements=st.integers(0, 10**6))
)
def test_nothing_beats_the_busiest_port(matrix):
    floor = uneven.port_bytes(matrix)
    for algo in uneven.ALGOS:
        assert uneven.time_ns(algo, matrix, 0, 1e9) >= floor * (1 - 1e-12)


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.int64, st.integers(2, 9).map(lambda n: (n, n)), elements=st.integers(0, 10**6))
)
def test_what_is_sent_is_received_on_a_turned_matrix(matrix):
    # Ports are the same both ways: a transposed matrix is the same collective backwards.
    assert uneven.port_bytes(matrix) == uneven.port_bytes(matrix.T)
    assert uneven.time_ns("direct", matrix, 5, 1e9) == uneven.time_ns("direct", matrix.T, 5, 1e9)


@pytest.mark.parametrize("bad", [[[1, 2]], [[0, -1], [1, 0]], [[0, float("nan")], [1, 0]]])
def test_what_is_no_matrix_of_bytes_is_refused(bad):
    with pytest.raises(UsageError, match="bytes by rank are"):
        uneven.time_ns("direct", bad, 1, 1e9)


def test_unknown_algorithm():
    with pytest.raises(models.NoModel, match="direct, pairwise, bruck, ring"):
        uneven.time_ns("tree", CYCLE, 1, 1e9)
