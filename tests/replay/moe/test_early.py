"""What of an all-to-all moves before its last member is there."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay.moe import early


def arrived(took, spread, late=None):
    return early.Arrived(*(np.array(x, float) for x in (took, spread, late or spread)))


def test_a_port_that_needs_longer_than_was_seen_began_before():
    # 18.6 ms after the last arrival where the busiest port needs 30: the lab's hot experts.
    was = arrived([18.6e6, 40e6], [57e6, 57e6])
    assert early.early_ns(was, np.array([30e6, 30e6])).tolist() == pytest.approx([11.4e6, 0])


def test_no_more_than_there_was_time_for():
    was = arrived([18.6e6], [5e6])
    assert early.early_ns(was, np.array([30e6])).tolist() == [5e6]


def test_ports_faster_than_said_are_seen_where_members_come_together():
    # Together it takes 20 of the 40 that the port is said to need: it is twice as fast.
    was = arrived([20e6, 20e6, 12e6], [0, 1e6, 30e6])
    found = early.early_ns(was, np.array([40e6, 40e6, 40e6]))
    assert found.tolist() == pytest.approx([0, 0, 8e6])
    assert early.reached(was, np.full(3, 10e6)) == 1.0


def test_what_still_moves_early_goes_by_how_long_members_wait():
    was, now = arrived([1, 1, 1], [4, 4, 0]), arrived([1, 1, 1], [1, 8, 3])
    assert early.share(was, now).tolist() == [0.25, 1.0, 1.0]
