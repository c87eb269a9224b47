"""On-package patterns against the wafer model worked out for a row of 16, and package bounds."""

from __future__ import annotations

import numpy as np
import pytest
from retime.ingest.errors import UsageError
from retime.replay.models import NoModel, on_package


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        # Formulas of arXiv 2404.15888, P = 16, T_R = 2, to the digits worked out by script.
        (1, {"star": 28, "chain": 91, "tree": 37.1, "two-phase": 46.6}),
        (16, {"star": 245, "chain": 106, "tree": 84, "two-phase": 70.6}),
        (256, {"star": 3845, "chain": 346, "tree": 1044, "two-phase": 542}),
    ],
)
def test_a_row_of_sixteen(words, expected):
    found = {name: float(on_package.reduce_cycles(name, 16, words)) for name in expected}
    assert found == pytest.approx(expected, abs=0.06)


def test_one_element_costs_nothing():
    for name in on_package.PATTERNS:
        assert on_package.reduce_cycles(name, 1, [1, 5]).tolist() == [0, 0]


def test_a_mesh_is_rows_then_a_column():
    rows = on_package.reduce_cycles("chain", 16, 8)
    column = on_package.reduce_cycles("chain", 4, 8)
    assert on_package.mesh_reduce_cycles("chain", 4, 16, 8) == rows + column
    # Flooding back: words + P + 2 T_R along both.
    back = (8 + 4 + 4) + (8 + 16 + 4)
    assert on_package.mesh_all_reduce_cycles("chain", 4, 16, 8) == rows + column + back


def test_a_root_in_the_middle_is_nearer():
    for name in on_package.PATTERNS:
        end = on_package.reduce_cycles(name, 16, 1)
        assert on_package.reduce_cycles(name, 16, 1, centre=True) < end


def test_bounds_of_direct_links():
    # 4 chips, 3 links of 100 GB/s, 1 us, 12 MB: 3/4 of it over 300 GB/s is 30 us.
    found = on_package.bounds("all_gather", 4, 12e6, 1_000, 100e9)
    assert found.bandwidth_ns == pytest.approx(30_000)
    assert on_package.bounds("all_gather", 4, 12, 1_000, 100e9).floor_ns == 1_000
    assert on_package.bounds("all_reduce", 4, 12e6, 1_000, 100e9, 2).floor_ns == 60_000


@pytest.mark.parametrize("op", [*on_package.PASSES, *on_package.ONE_LINK])
def test_no_direct_collective_is_under_its_bounds(op):
    sizes = np.logspace(1, 9, 9)
    took = on_package.direct_ns(op, 4, sizes, 1_000, 100e9)
    assert (took >= on_package.bounds(op, 4, sizes, 1_000, 100e9).floor_ns).all()


def test_direct_collectives_by_hand():
    # 8 MB on 4 chips with a link of 100 GB/s to each: 2 MB a link; a broadcast 8 MB on each.
    for op, us in (("all_to_all", 21), ("scatter", 21), ("all_reduce", 42), ("broadcast", 81)):
        found = on_package.direct_ns(op, 4, 8e6, 1_000, 100e9)
        assert found == pytest.approx(us * 1e3)
    with pytest.raises(NoModel, match="no direct form of 'barrier'"):
        on_package.direct_ns("barrier", 4, 1, 1, 1)


def test_direct_and_ring_all_gather():
    # direct: 1 us + 30 us; ring: 3 * (1 us + 3 MB / 200 GB/s).
    assert on_package.all_gather_ns("direct", 4, 12e6, 1_000, 100e9) == pytest.approx(31_000)
    assert on_package.all_gather_ns("ring", 4, 12e6, 1_000, 100e9) == pytest.approx(48_000)
    sizes = np.logspace(1, 9, 9)
    for topology in ("direct", "ring"):
        took = on_package.all_gather_ns(topology, 4, sizes, 1_000, 100e9)
        assert (took >= on_package.bounds("all_gather", 4, sizes, 1_000, 100e9).floor_ns).all()


def test_what_is_not_there_is_named():
    with pytest.raises(UsageError, match="star, chain, tree, two-phase"):
        on_package.reduce_cycles("spiral", 4, 1)
    with pytest.raises(UsageError, match="direct, ring"):
        on_package.all_gather_ns("torus", 4, 1, 1, 1)
    with pytest.raises(UsageError, match="a package of 0"):
        on_package.broadcast_cycles(0, 1)
