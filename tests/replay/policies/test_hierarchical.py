"""Level by level instead of one ring: a job of 16 ranks on two hosts, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from retime.replay import models, run
from retime.replay.fabric import load
from retime.replay.graph import Kind
from retime.replay.models import hierarchical
from retime.replay.models.hierarchical import Level
from retime.replay.policies import resolve
from retime.replay.policy import BadParam
from retime.replay.traced import build as kineto

MIB = 1 << 20
SIZES = (MIB, 192 * MIB)
ALPHA_NS, NIC = 5_000.0, 50e9
GIVEN = "alpha=5us,bandwidth=50GB/s,inner_alpha=1us,inner_bandwidth=450GB/s"


def two_hosts(tables, *, op="all_reduce", n=16, hosts=2, nics=1):
    """Rings of known cost over ranks of hosts, each host's ring over so many NICs."""
    at = 0.0
    for step in range(3):
        begin = at
        for k, size in enumerate(SIZES):
            took = float(models.time_ns(op, "ring", n, size, ALPHA_NS, nics * NIC)) / 1e3
            for rank in range(n):
                tables.kernel(rank, "work", at, at + 50, step=step)
                tables.part(
                    rank, op, at + 50, at + 50 + took, instance=step * 10 + k, stream=7,
                    step=step, in_bytes=size, out_bytes=size, group_size=n,
                )  # fmt: skip
            at = round(at + 50 + took, 3)
        for rank in range(n):
            tables.step(rank, step, begin, at)
    job = kineto.build(tables.frames(), "rings")
    ranks = pl.DataFrame(
        {
            "rank": range(n),
            "host": [f"h{r * hosts // n}" for r in range(n)],
            "local_rank": [r % (n // hosts) for r in range(n)],
            "device_name": ["NVIDIA H100 80GB HBM3"] * n,
        }
    )
    return run.baseline(replace(job, facts={**job.facts, "ranks": ranks})).job


def applied(job, spec="hierarchical"):
    policy, values = resolve(spec)
    return policy.apply(job, **values)


def took(job, size):
    graph = job.graph
    return graph.dur_ns[(graph.kind == Kind.TRANSFER) & (graph.bytes == size)][0]


def test_two_levels_of_sixteen_ranks(tables):
    job = two_hosts(tables)
    after = applied(job, f"hierarchical:{GIVEN},flat_nics=1")
    # 2*7 us + 14/8 * M/450 + 2 * 5 us + 24 MiB / 50; the ring took 30 * 5 us + 360 MiB / 50.
    m = 192 * MIB
    assert took(job, m) == pytest.approx(150_000 + 30 / 16 * m / 50, rel=1e-3)
    levels = 14_000 + 14 / 8 * m / 450 + 10_000 + m / 8 / 50
    assert took(after, m) == pytest.approx(levels, rel=1e-3)


def test_fitted_links_find_the_same(tables):
    after = applied(two_hosts(tables), "hierarchical:inner_alpha=1us,inner_bandwidth=450GB/s")
    m = 192 * MIB
    levels = 14_000 + 14 / 8 * m / 450 + 10_000 + m / 8 / 50
    assert took(after, m) == pytest.approx(levels, rel=0.05)
    assert any("fitted" in a for a in after.assumptions)


def test_the_cut_is_stored_by_direction(tables):
    after = applied(two_hosts(tables), f"hierarchical:{GIVEN}")
    cut = after.facts["cut"].filter(pl.col("size_bytes") == 192 * MIB)
    assert sorted(cut["direction"]) == ["in", "out"]
    # By counting: both directions together 720 MiB of one ring, 384 MiB of levels.
    assert cut["before_bytes"].sum() == 720 * MIB
    assert cut["after_bytes"].sum() == 384 * MIB
    assert cut["nic_before_bytes"].to_list() == [360 * MIB] * 2
    assert cut["nic_after_bytes"].to_list() == [24 * MIB] * 2
    assert cut["collectives"].to_list() == [3, 3]
    assert any("360 MiB over one NIC as one ring, 192 MiB over its NICs" in a
               for a in after.assumptions)  # fmt: skip


def test_fewer_nics_take_longer(tables):
    job = two_hosts(tables)
    eight, two = (
        took(applied(job, f"hierarchical:{GIVEN},nics={q},flat_nics=1"), 192 * MIB) for q in (8, 2)
    )
    assert two - eight == pytest.approx(3 * 24 * MIB / 50, rel=2e-2)


def test_a_ring_faster_than_a_nic_used_several(tables):
    after = applied(two_hosts(tables, nics=8), "hierarchical")
    assert any("taken to have used 8 of each host" in a for a in after.assumptions)


def test_chunks_hide_the_faster_level(tables):
    job = two_hosts(tables)
    whole, best = (
        took(applied(job, f"hierarchical:{GIVEN},chunks={k}"), 192 * MIB) for k in (1, 0)
    )
    assert best < whole


def test_ranks_of_one_host_use_no_nics(tables):
    # 400 GB/s in a host are eight NICs' worth, but of none.
    job = two_hosts(tables, hosts=1, nics=8)
    after = applied(job, "hierarchical:levels=8+2")
    assert took(after, 192 * MIB) != took(job, 192 * MIB)
    assert not any("one NIC" in a for a in after.assumptions)


def test_hosts_of_one_domain_are_joined_by_its_links(tables):
    # 16 ranks on 4 hosts, domains of two hosts or of all four: as the same levels by number.
    job = two_hosts(tables, hosts=4)
    fabric = load(FOUR)
    assert fabric.scale_up is not None
    took_ns = []
    for domain in (4, 16):
        wide = replace(fabric, scale_up=replace(fabric.scale_up, domain_gpus=domain))
        there = replace(job, facts={**job.facts, "fabric": wide})
        usual, named = (
            applied(there, f"hierarchical:{spec}{GIVEN},flat_nics=1")
            for spec in ("", "levels=4+4,")
        )
        np.testing.assert_array_equal(usual.graph.dur_ns, named.graph.dur_ns)
        took_ns.append(took(usual, 192 * MIB))
    m = 192 * MIB
    assert took_ns[0] == pytest.approx(36_000 + 6 / 4 * m / 450 + 6 / 4 / 4 * m / 50, rel=1e-3)
    want = 2 * 6_000 + (6 / 4 + 6 / 4 / 4) * m / 450
    assert took_ns[1] == pytest.approx(want, rel=1e-3)


def test_two_levels_by_name_are_the_usual_two(tables):
    job = two_hosts(tables)
    for spec in ("levels=8+2", "levels=8+2+1,local=8"):
        after = applied(job, f"hierarchical:{spec},{GIVEN},flat_nics=1")
        usual = applied(job, f"hierarchical:{GIVEN},flat_nics=1")
        np.testing.assert_array_equal(after.graph.dur_ns, usual.graph.dur_ns)


def test_three_levels(tables):
    # Two GPUs, four pairs of a host, two hosts: over NVLink, NVLink and NICs.
    job = two_hosts(tables)
    after = applied(job, f"hierarchical:levels=2+4+2,{GIVEN},flat_nics=1")
    m = 192 * MIB
    inside = 2 * (1 + 3) * 1_000 + (2 / 2 + 2 * 3 / 4 / 2) * m / 450
    assert took(after, m) == pytest.approx(inside + 10_000 + m / 8 / 50, rel=1e-3)
    nest = [Level(2, 1e3, 450e9), Level(4, 1e3, 450e9), Level(2, 5e3, 50e9, 8)]
    ring = float(models.time_ns("all_reduce", "ring", 16, m, 5e3, 50e9))
    ratio = float(hierarchical.time_ns("all_reduce", nest, m)) / ring
    assert took(after, m) == pytest.approx(took(job, m) * ratio, abs=1)
    assert any("levels of 2 x 4 x 2, scale-up links up to 8" in a for a in after.assumptions)
    # What crosses a host's boundary does not depend on how the hosts' ranks meet.
    assert after.facts["cut"]["after_bytes"].max() == 192 * MIB


def test_two_leaves_of_two_hosts(tables):
    # 16 ranks on 4 hosts of 4, leaves of 2 hosts: 4 x 2 x 2, NICs beyond the first.
    job = two_hosts(tables, hosts=4)
    fabric = load(FOUR)
    job = replace(job, facts={**job.facts, "fabric": fabric})
    given, m = f"{GIVEN},flat_nics=1", 192 * MIB
    after = applied(job, f"hierarchical:levels=fabric,{given}")
    want = 2 * 3 * 1_000 + 2 * 3 / 4 * m / 450 + 20_000 + (2 / 2 / 4 + 2 / 2 / 8) * m / 50
    assert took(after, m) == pytest.approx(want, rel=1e-3)
    same = applied(job, f"hierarchical:levels=4+2+2,{given}")
    np.testing.assert_array_equal(after.graph.dur_ns, same.graph.dur_ns)
    # In one domain of two hosts, the first two levels are NVLink's.
    assert fabric.scale_up is not None
    wide = replace(fabric, scale_up=replace(fabric.scale_up, domain_gpus=8))
    job = replace(job, facts={**job.facts, "fabric": wide})
    after = applied(job, f"hierarchical:levels=fabric,{given}")
    want = 8_000 + (2 * 3 / 4 + 2 / 2 / 4) * m / 450 + 10_000 + 2 / 2 / 8 * m / 50
    assert took(after, m) == pytest.approx(want, rel=1e-3)


FOUR = """
name = "four"
gpus_per_host = 4
hosts = 4
[scale_up]
bandwidth = "450GB/s"
[nic]
bandwidth = "400Gb/s"
[network]
wiring = "rail"
hosts_per_leaf = 2
uplinks = 2
"""


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("hierarchical:levels=8+4", "levels of 8 x 4 hold 32 ranks, it has 16"),
        ("hierarchical:levels=fabric", "needs a fabric"),
        ("hierarchical:local=5", "16 ranks do not divide into hosts of 5"),
        ("hierarchical:local=16", "its 16 ranks are on one host"),
        ("hierarchical:op=all_gather", "the job has no all_gather"),
    ],
)
def test_what_does_not_apply_is_left_and_said(tables, spec, why):
    job = two_hosts(tables)
    after = applied(job, spec)
    np.testing.assert_array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert any(why in w for w in after.warnings)


def test_hosts_that_nothing_says_are_asked_for(tables):
    job = two_hosts(tables)
    nowhere = job.facts["ranks"].with_columns(host=pl.lit(None, pl.String))
    job = replace(job, facts={**job.facts, "ranks": nowhere})
    after = applied(job)
    np.testing.assert_array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert any("say local, or record the hosts" in w for w in after.warnings)
    assert took(applied(job, "hierarchical:local=8"), 192 * MIB) < took(job, 192 * MIB)


def test_a_rank_a_host_changes_nothing(tables):
    job = two_hosts(tables)
    after = applied(job, "hierarchical:local=1")
    np.testing.assert_array_equal(after.graph.dur_ns, job.graph.dur_ns)


def test_bad_parameters_are_named():
    with pytest.raises(BadParam, match="no levels of 'send'"):
        applied(None, "hierarchical:op=send")
    with pytest.raises(BadParam, match="innermost first"):
        applied(None, "hierarchical:levels=8+x")
    with pytest.raises(BadParam, match="nics=-1"):
        applied(None, "hierarchical:nics=-1")
    with pytest.raises(BadParam, match="chunks=-2"):
        applied(None, "hierarchical:chunks=-2")


def test_an_algorithm_of_that_name_is_this_policy(tables):
    job = two_hosts(tables)
    named = applied(job, "algorithm:op=all_reduce,algo=hierarchical,alpha=5us,bandwidth=50GB/s")
    own = applied(job, "hierarchical:alpha=5us,bandwidth=50GB/s")
    assert np.array_equal(named.graph.dur_ns, own.graph.dur_ns)
    assert not np.array_equal(named.graph.dur_ns, job.graph.dur_ns)
