"""Clocks that only uneven exchanges tie: the stated error has what such ends may differ by."""

from __future__ import annotations

import numpy as np
import pytest
from retime.ingest.matching import uneven

MS = 1_000_000


def exchanges(shares, took_ms=30, n=8, ties=0):
    """Arrays of `n` all-to-alls of as many ranks as shares, and `ties` even reductions."""
    ranks = len(shares)
    instance = np.repeat(np.arange(n + ties), ranks)
    moved = np.tile(np.array(shares) * 1000, n + ties)
    moved[n * ranks :] = -1
    return (
        instance, np.tile(np.arange(ranks), n + ties), np.full(len(instance), took_ms * MS), moved,
        np.zeros(ranks, np.int64),
    )  # fmt: skip


def test_who_moves_a_third_may_end_two_thirds_of_the_time_earlier():
    # The reference has the most: 30 ms x (1 - 1/3), and itself nothing.
    assert uneven.doubt_ns(*exchanges([3, 1, 1, 1])) == pytest.approx([0, 20e6, 20e6, 20e6])


def test_who_moves_as_much_as_the_reference_ends_with_it():
    assert uneven.doubt_ns(*exchanges([1, 3, 1, 1])) == pytest.approx([0, 20e6, 0, 0])


def test_even_exchanges_and_as_many_other_collectives_leave_no_doubt():
    assert not uneven.doubt_ns(*exchanges([10, 9, 10, 8])).any()
    assert not uneven.doubt_ns(*exchanges([3, 1, 1, 1], ties=9)).any()
    assert not uneven.doubt_ns(*exchanges([-1, -1])).any()


def test_even_collectives_without_the_reference_say_nothing_of_it():
    """Ranks 1 and 2 reduce among themselves as often as they like."""
    instance, domain, took, moved, component = exchanges([3, 1, 1])
    more = np.repeat(np.arange(100, 150), 2)
    found = uneven.doubt_ns(
        np.append(instance, more), np.append(domain, np.tile([1, 2], 50)),
        np.append(took, np.full(100, MS)), np.append(moved, np.full(100, -1)), component,
    )  # fmt: skip
    assert found == pytest.approx([0, 20e6, 20e6])
