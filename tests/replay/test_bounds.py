"""The two floors: free communication and the busiest link, and that no estimate is under them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from retime.replay import bounds, engine, run
from retime.replay.calibration import machines
from retime.replay.graph import Kind
from retime.replay.policy import Policy
from retime.replay.steps import step_times
from retime.replay.traced import build as kineto

US = 1_000


def job_of(tables, n_steps=3, size=10**6, transfer_us=50.0, hosts=("h", "h")):
    """Two ranks; a step is 200 of work (rank 1: 300), an all-reduce, 20 of work."""
    at = 0.0
    for step in range(n_steps):
        done = at + 300 + transfer_us
        for rank in (0, 1):
            tables.kernel(rank, "forward", at, at + 200 + 100 * rank, step=step)
            tables.part(
                rank, "all_reduce", at + 200 + 100 * rank, done, instance=step, stream=7,
                step=step, in_bytes=size, out_bytes=size,
            )  # fmt: skip
            tables.kernel(rank, "update", done, done + 20, step=step)
            tables.step(rank, step, at, done + 20)
        at = done + 20
    frames = tables.frames()
    frames["ranks"] = frames["ranks"].with_columns(
        device_name=pl.lit("NVIDIA A100-SXM4-80GB"),
        host=pl.Series(list(hosts)),
        host_source=pl.lit("recorded"),
    )
    return kineto.build(frames, "small")


def faster(ratio, **_):
    """Every transfer in so much of its time."""

    def apply(job):
        graph = job.graph
        dur = np.where(graph.kind == Kind.TRANSFER, graph.dur_ns * ratio, graph.dur_ns)
        return job.with_graph(dur_ns=dur.astype(np.int64))

    return Policy("faster", "transfers scaled", "a test", (), ("none",), apply)


def test_free_communication_keeps_the_dependencies(tables):
    job = job_of(tables)
    base = run.baseline(job)
    # Rank 0 still waits for rank 1: 300 of work and 20, not 200 and 20.
    found = bounds.free_communication(job.graph, base.start_ns, base.steps)
    assert found == 320 * US
    (entry,) = run.replay(job, [faster(0.0)])["policies"]
    assert entry["floors"]["free_communication_ns"] == 320 * US
    assert entry["step_ns"] == 320 * US


def test_free_communication_of_one_step(tables):
    job = job_of(tables)
    result = run.replay(job, [faster(0.5)], step=1)
    assert result["floors"]["free_communication_ns"] == 320 * US
    assert result["policies"][0]["step_ns"] == 345 * US


def test_the_busiest_link_by_the_devices_name(tables):
    job = job_of(tables)
    # 2 (n-1)/n of 1 MB over 240 GB/s: 4.17 us.
    assert run.replay(job)["floors"]["busiest_link_ns"] == round(1e15 / 240e9)
    assert "rank 0, intra host: 0.001 GB a step at 240 GB/s" in run.replay(job)["floors"]["link"]


def test_hosts_apart_share_a_nic_each(tables):
    job = job_of(tables, hosts=("a", "b"))
    floors = run.replay(job)["floors"]
    # 2 (h-1)/h of 1 MB over 23.5 GB/s: 42.6 us.
    assert floors["busiest_link_ns"] == round(1e15 / 23.5e9)
    assert "inter host" in floors["link"]


def test_what_the_job_has_carried_is_no_floor_above_it(tables):
    # 100 MB in 50 us is 2 TB/s, more than any A100 sends: the link is what was seen.
    floors = run.replay(job_of(tables, size=10**8))["floors"]
    assert floors["busiest_link_ns"] == 50 * US
    assert "as fast as this job has sent" in floors["link"]


def test_an_estimate_under_the_link_is_raised_to_it_with_a_warning(tables):
    # 160 MB at 240 GB/s need 667 us: more than the 320 us of free communication.
    job = job_of(tables, size=160 * 10**6, transfer_us=5_000)
    link_ns = round(160e15 / 240e9)
    (entry,) = run.replay(job, [faster(0.0)])["policies"]
    assert entry["floors"]["free_communication_ns"] == 320 * US
    assert entry["floors"]["busiest_link_ns"] == link_ns
    assert entry["step_ns"] == entry["low_ns"] == entry["high_ns"] == link_ns
    assert any(w.startswith("raised to its floor: 0.32 ms") for w in entry["warnings"])
    assert entry["gain_pct"] == pytest.approx(100 * (1 - link_ns / (5_320 * US)))
    (kept,) = run.replay(job, [faster(0.5)])["policies"]
    assert kept["step_ns"] == 2_820 * US
    assert not any("raised" in w for w in kept["warnings"])


def test_a_policy_that_makes_links_faster_says_so(tables):
    from retime.replay.retiming import transfers

    def apply(job):
        job, rows = transfers.chosen(job)
        by = np.full(len(rows), 0.01)
        return transfers.scaled(job, rows, by, bandwidth_ratio=1 / by)

    job = job_of(tables, size=160 * 10**6, transfer_us=5_000)
    (entry,) = run.replay(job, [Policy("wide", "", "a test", (), ("none",), apply)])["policies"]
    assert entry["floors"]["busiest_link_ns"] == round(160e15 / 240e9 / 100)
    assert entry["step_ns"] == 370 * US


@pytest.mark.parametrize(
    ("op", "n", "volume"),
    [
        ("all_reduce", 8, 14 / 8),
        ("all_gather", 8, 7 / 8),
        ("all_to_all", 4, 3 / 4),
        ("send", 2, 1.0),
        ("recv", 2, 0.0),
        ("barrier", 8, 0.0),
        ("all_reduce", 1, 0.0),
    ],
)
def test_least_volumes(op, n, volume):
    assert bounds.least_volume(op, n) == volume


def test_a_rack_of_grace_hosts_is_one_domain(tables):
    job = job_of(tables, hosts=("a", "b"))
    ranks = job.facts["ranks"].with_columns(device_name=pl.lit("NVIDIA GB200"))
    job.facts["ranks"] = ranks
    rate, _ = bounds.capacities(job)
    assert rate[1] == rate[0] == machines.named("GB200").intra_bytes_per_s


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None,
          max_examples=25)  # fmt: skip
@given(st.floats(0, 2), st.integers(1, 10**8), st.floats(1, 5_000), st.booleans())
def test_no_estimate_is_under_its_floors(tables, ratio, size, transfer_us, apart):
    job = job_of(type(tables)(), size=size, transfer_us=transfer_us, hosts="ab" if apart else "aa")
    result = run.replay(job, [faster(ratio)])
    for entry in (*result["policies"], {**result, "step_ns": result["measured_ns"]}):
        floors = entry["floors"]
        highest = max(floors["free_communication_ns"], floors["busiest_link_ns"])
        assert entry["step_ns"] >= highest - 1
    graph = job.graph
    start, end = engine.replay(graph)
    _, times = step_times(graph, start, end)
    assert result["replayed_ns"] == round(times.mean())


@pytest.mark.parametrize(
    "spec",
    ["datapath:beta=1000", "scale-fabric:link=all,factor=1000", "algorithm:algo=nvls,from=tree"],
)
def test_policies_that_spare_or_widen_links_are_not_held_to_the_old_ones(tables, spec):
    job = job_of(tables, size=160 * 10**6, transfer_us=1_000)
    (entry,) = run.replay(job, [spec])["policies"]
    assert entry["gain_pct"] > 0
    assert not any("raised to its floor" in w for w in entry["warnings"])
    floors = entry["floors"]
    assert floors["busiest_link_ns"] < run.replay(job)["floors"]["busiest_link_ns"]


def test_links_rise_as_times_fall():
    from retime.replay.retiming import transfers

    rates = transfers.faster(np.array([0.5, 1.0, 2.0, 0.0]))
    assert rates.tolist() == [2.0, 1.0, 1.0, 1e12]
