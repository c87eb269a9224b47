"""On a package: the policy over forms that tests/replay/models holds to published figures."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay import models, run
from retime.replay.calibration import calibrate
from retime.replay.calibration.hockney import usual
from retime.replay.models import mesh, on_package
from retime.replay.policy import BadParam

LARGE = 80 << 20


def test_a_direct_all_gather(rings):
    job = rings.job(op="all_gather", hosts=1)
    after = rings.under(job, "on-package:alpha=700ns,link=50GB/s,links=7")
    expected = on_package.all_gather_ns("direct", 8, LARGE, 700 / 0.78, 50e9 * 0.94, 7) / 1e3
    assert rings.took_us(after, LARGE) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize(("size", "share"), [(64, 0.78), (64 << 30, 0.94)])
def test_tuned_ones_reach_shares_of_the_bounds(rings, size, share):
    """78 % of the latency bound, 94 % of the bandwidth bound: Maia 200's SDLA."""
    job = rings.job(op="all_gather", hosts=1, sizes=(64, 1 << 20, 64 << 30))
    after = rings.under(job, "on-package:alpha=700ns,link=50GB/s")
    # A message, or 7/8 of the size over seven links: no all-gather ends before.
    bound_us = max(0.7, 7 / 8 * size / (7 * 50e3))
    assert bound_us / rings.took_us(after, size) == pytest.approx(share, abs=0.01)
    ideal = rings.under(
        job, "on-package:alpha=700ns,link=50GB/s,latency_reached=1,bandwidth_reached=1"
    )
    assert bound_us / rings.took_us(ideal, size) == pytest.approx(1, abs=0.01)


def test_a_mesh_takes_the_best_pattern(rings):
    job = rings.job(n=16, hosts=1, sizes=(1 << 10, 1 << 20))
    auto = rings.under(job, "on-package:topology=mesh,rows=4,columns=4")
    each = [
        rings.under(job, f"on-package:topology=mesh,rows=4,columns=4,pattern={p}")
        for p in (*on_package.PATTERNS, "shards")
    ]
    for size in (1 << 10, 1 << 20):
        assert rings.took_us(auto, size) == min(rings.took_us(one, size) for one in each)
    # 1 MiB is 262,144 wavelets; all of them cross a chain's every link.
    cycles = on_package.mesh_all_reduce_cycles("chain", 4, 4, (1 << 20) / 4)
    assert rings.took_us(each[1], 1 << 20) == pytest.approx(float(cycles) / 850, rel=1e-3)


def gained(rings, job, after):
    return rings.took_us(after, LARGE) / rings.took_us(job, LARGE)


def modelled(job, op, n, new_us):
    """What a form in us is of the model of what ran."""
    link = calibrate.link(job, "0", op)
    old = models.time_ns(op, usual(op), n, LARGE, link.alpha_ns, link.bandwidth_bytes_per_s)
    return new_us * 1e3 / float(old)


EVERY = (
    "all_gather", "reduce_scatter", "all_to_all", "scatter", "gather", "broadcast", "reduce",
)  # fmt: skip


@pytest.mark.parametrize("op", EVERY)
def test_a_mesh_by_its_links(rings, op):
    job = rings.job(op=op, algo=usual(op), n=16, hosts=1, sizes=(1 << 10, LARGE))
    after = rings.under(job, "on-package:topology=mesh,by=link,link=50GB/s,alpha=10ns")
    model = float(mesh.time_ns(mesh.phases(op, 4, 4, LARGE), 10.0, 50e9)) / 1e3
    assert gained(rings, job, after) == pytest.approx(modelled(job, op, 16, model), rel=1e-3)
    assert any("no less than" in a for a in after.assumptions)


@pytest.mark.parametrize("op", ["all_gather", "all_to_all", "scatter", "broadcast"])
def test_operations_have_direct_forms(rings, op):
    job = rings.job(op=op, algo=usual(op), hosts=1, sizes=(1 << 10, LARGE))
    spec = "on-package:link=50GB/s,alpha=10ns,latency_reached=1,bandwidth_reached=1"
    model = float(on_package.direct_ns(op, 8, LARGE, 10.0, 50e9)) / 1e3
    after = rings.under(job, spec)
    assert gained(rings, job, after) == pytest.approx(modelled(job, op, 8, model), rel=1e-3)


@pytest.mark.parametrize(
    ("spec", "us"),
    [
        # 80 MiB on 16 dies: 15/16 of it over 15 links of 50 GB/s; over a corner's two links; an
        # all-reduce at a die's ramp, a word of 4 bytes a cycle of 1.18 ns.
        ({"op": "all_gather", "topology": "direct"}, LARGE / 16 / 50e3),
        ({"op": "all_gather", "topology": "mesh", "by": "link"}, LARGE * 15 / 16 / 100e3),
        ({"op": "all_reduce", "topology": "mesh"}, LARGE / 3.4e3),
    ],
)
def test_the_floor_is_of_the_packages_links(rings, spec, us):
    op = spec.pop("op")
    job = rings.job(op=op, n=16, hosts=1, sizes=(LARGE,), steps=2)
    base = run.baseline(job)
    params = {"alpha": 10.0, "latency_reached": 1.0, "bandwidth_reached": 1.0, **spec}
    entry = run.estimate(base, run.plan([("on-package", params)])[0])
    assert entry["floors"]["busiest_link_ns"] / 1e3 == pytest.approx(us, rel=1e-4)
    assert not any("raised" in w for w in entry["warnings"])


@pytest.mark.parametrize(("base_ms", "times"), [(17.1, 3.8), (28.2, 2.7)])
def test_a_thermal_stall(rings, base_ms, times):
    """47 to 49 ms turn into the 2.7 to 3.8 times reported for collectives of 17 to 28 ms."""
    job = rings.job(
        hosts=1, sizes=(1 << 30,), alpha_ns=0.0, bandwidth=(1 << 30) * 1.75 / base_ms * 1e3
    )
    assert rings.took_us(job, 1 << 30) == pytest.approx(base_ms * 1e3, rel=1e-3)
    after = rings.under(job, "on-package:topology=keep,stall=48ms")
    assert rings.took_us(after, 1 << 30) / rings.took_us(job, 1 << 30) == pytest.approx(
        times, abs=0.01
    )


def test_keep_changes_nothing(rings):
    job = rings.job()
    after = rings.under(job, "on-package:topology=keep")
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)


def test_ranks_that_are_no_mesh(rings):
    job = rings.job()
    after = rings.under(job, "on-package:topology=mesh,rows=3")
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert any("8 ranks are no mesh of 3" in w for w in after.warnings)


@pytest.mark.parametrize("topology", ["direct", "ring", "row", "keep"])
def test_rows_and_columns_are_of_a_mesh_only(rings, topology):
    with pytest.raises(BadParam, match="topology=mesh would work"):
        rings.under(rings.job(), f"on-package:topology={topology},rows=2,columns=4")


@pytest.mark.parametrize(
    "spec", ["rows=-1", "clock=0", "stall=-1ms", "links=-2", "latency_reached=0"]
)
def test_out_of_range(rings, spec):
    with pytest.raises((BadParam, ValueError)):
        rings.under(rings.job(), f"on-package:{spec}")
