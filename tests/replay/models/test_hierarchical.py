"""Hierarchies and bytes across hosts, against arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.ingest.errors import UsageError
from retime.replay import models
from retime.replay.models import hierarchical, traffic
from retime.replay.models.hierarchical import Level

MIB = 1 << 20
TWO = [Level(8, 1_000, 450e9), Level(2, 5_000, 50e9)]


def test_two_levels_are_the_textbook_sum():
    # 2(L-1) a_i + 2(L-1)/L M/B_i + 2(H-1) a_o + 2(H-1)/H (M/L)/b, one NIC a GPU.
    inside, outside = hierarchical.stages_ns("all_reduce", TWO, 192 * MIB)
    assert inside == pytest.approx(14_000 + 14 / 8 * 192 * MIB / 450)
    assert outside == pytest.approx(10_000 + 24 * MIB / 50)
    assert hierarchical.time_ns("all_reduce", TWO, 192 * MIB) == pytest.approx(inside + outside)


def test_fewer_nics_carry_more():
    # 8 ranks over 2 NICs: four times the wire of the outer level, alpha as it was.
    shared = [TWO[0], TWO[1]._replace(ports=2)]
    outer = hierarchical.stages_ns("all_reduce", shared, 192 * MIB)[1]
    assert outer == pytest.approx(10_000 + 4 * 24 * MIB / 50)


def test_one_level_is_the_ring():
    one = [Level(8, 822, 450e9)]
    for op in ("all_reduce", "reduce_scatter", "all_gather"):
        flat = models.time_ns(op, "ring", 8, MIB, 822, 450e9)
        assert hierarchical.time_ns(op, one, MIB) == pytest.approx(float(flat))
    flat = models.time_ns("all_to_all", "pairwise", 8, MIB, 822, 450e9)
    assert hierarchical.time_ns("all_to_all", one, MIB) == pytest.approx(float(flat))
    flat = models.time_ns("broadcast", "tree", 8, MIB, 822, 450e9)
    assert hierarchical.time_ns("broadcast", one, MIB) == pytest.approx(float(flat))


def test_nesting_without_alpha_moves_the_bytes_of_a_ring():
    # Over links of one speed any nesting moves 2(n-1)/n M: shares telescope.
    nest = [Level(2, 0, 1e9), Level(3, 0, 1e9), Level(4, 0, 1e9)]
    assert hierarchical.ranks(nest) == 24
    assert hierarchical.time_ns("all_reduce", nest, 24e6) == pytest.approx(2 * 23 * 1e6)


def test_chunks_without_alpha_are_the_slowest_level_and_a_share_of_the_rest():
    free = [level._replace(alpha_ns=0) for level in TWO]
    stages = hierarchical.stages_ns("all_reduce", free, MIB)
    took = hierarchical.time_ns("all_reduce", free, MIB, chunks=4)
    assert took == pytest.approx(stages.max() + (stages.sum() - stages.max()) / 4)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 8), min_size=1, max_size=4), st.integers(1, 1 << 30))
def test_best_chunks_are_no_slower_than_one(sizes, size):
    nest = [Level(s, 1_000 * 2**i, 400e9 / 8**i) for i, s in enumerate(sizes)]
    best = hierarchical.best_chunks("all_reduce", nest, size)
    took = hierarchical.time_ns("all_reduce", nest, size, best)
    assert took <= hierarchical.time_ns("all_reduce", nest, size)
    # No level is passed in less than its own bytes take.
    assert took >= hierarchical.stages_ns("all_reduce", nest, size).max() * (1 - 1e-9)


def test_what_hierarchies_refuse():
    with pytest.raises(models.NoModel, match="no hierarchical model of 'scatter'"):
        hierarchical.time_ns("scatter", TWO, MIB)
    with pytest.raises(UsageError, match="1 port or more"):
        hierarchical.time_ns("all_reduce", [Level(8, 1, 1e9, ports=0)], MIB)
    with pytest.raises(UsageError, match="0 chunks"):
        hierarchical.time_ns("all_reduce", TWO, MIB, chunks=0)


def test_sixteen_ranks_on_two_hosts():
    """192 MiB: 720 MiB across the cut by one ring, 384 by levels, both directions together."""
    ring = traffic.ring_cut("all_reduce", 2, 8, 192 * MIB)
    assert ring.out_bytes == ring.in_bytes == 360 * MIB
    assert ring.out_bytes + ring.in_bytes == 720 * MIB
    levels = traffic.hierarchical_cut("all_reduce", 2, 8, 192 * MIB)
    assert levels.out_bytes + levels.in_bytes == 384 * MIB
    # A NIC, a direction: 360 MiB over one, 24 MiB over each of eight.
    assert (ring.nic_out_bytes, ring.nic_in_bytes) == (360 * MIB, 360 * MIB)
    assert (levels.nic_out_bytes, levels.nic_in_bytes) == (24 * MIB, 24 * MIB)


def test_one_host_sends_nothing_out():
    assert traffic.ring_cut("all_reduce", 1, 8, MIB) == (0, 0, 0, 0)
    assert traffic.hierarchical_cut("all_reduce", 1, 8, MIB) == (0, 0, 0, 0)
    with pytest.raises(models.NoModel, match="broadcast"):
        traffic.ring_cut("broadcast", 2, 8, MIB)


def test_parameter_server_has_two_figures():
    # A worker moves D out and D in; the server's port (n-1) D each way.
    found = traffic.parameter_server(8, 100.0)
    assert found.worker_bytes == 200
    assert (found.server_in_bytes, found.server_out_bytes) == (700, 700)
