"""Which of several costs is least where, on curves whose crossings are known."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay.models import curves

COSTS = {
    "flat": lambda s: np.full_like(s, 1000.0),
    "steep": lambda s: 10.0 + s,
    "never": lambda s: np.full_like(s, 5000.0),
    "absent": lambda s: np.full_like(s, np.nan),
}


def cost(name, sizes):
    return COSTS[name](sizes)


def test_ranges_end_where_the_next_begins():
    first, second = curves.ranges(cost, ("flat", "steep", "never", "absent"))
    assert (first.name, first.from_bytes) == ("steep", 0.0)
    assert first.to_bytes == second.from_bytes == pytest.approx(990, rel=1e-5)
    assert (second.name, second.to_bytes) == ("flat", None)


def test_crossings():
    assert curves.crossing(cost, "flat", "steep") == pytest.approx(990)
    assert curves.crossing(cost, "flat", "never") is None
    assert curves.crossing(cost, "flat", "absent") is None


def test_of_equals_the_first():
    (only,) = curves.ranges(lambda name, s: np.ones_like(s), ("b", "a"))
    assert only == ("b", 0.0, None)


def test_the_grid_has_its_ends():
    sizes = curves.grid(64, 1 << 34, 4)
    assert (sizes[0], sizes[-1], len(sizes)) == (64, pytest.approx(1 << 34), 28 * 4 + 1)
