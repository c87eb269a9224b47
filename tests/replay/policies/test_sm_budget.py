"""Other SMs for communication: GEMMs of a small job beside an all-gather, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from retime.ingest.schema import TABLES
from retime.replay import run
from retime.replay.contention import sm_share
from retime.replay.graph import Kind
from retime.replay.overlapped import kernel_facts
from retime.replay.policies import resolve, sm_budget
from retime.replay.policy import BadParam
from retime.replay.traced import build as kineto


def gemms(tables, *, blocks, beside_us, held=24, size=512 << 20, category="gemm", n_sms=132,
          op="all_gather", gathers=1000, grids=True):  # fmt: skip
    """Four GEMMs of 100 us alone, then four beside a collective, in each of three steps."""
    at = 0.0
    for step in range(3):
        begin = at
        for rank in range(2):
            now = begin
            shape = {"grid_blocks": blocks if grids else None, "block_threads": 256}
            for took in [100] * 4 + [beside_us] * 4:
                tables.kernel(rank, "gemm", now, now + took, step=step, category=category, **shape)
                now += took
            opened = begin + 400
            event = tables.kernel(
                rank, f"nccl {op}", opened, opened + gathers, stream=20, category="comm", step=step,
                grid_blocks=held if grids else None, block_threads=512,
            )  # fmt: skip
            tables.part(rank, op, opened, opened + gathers, instance=step, event=event, step=step,
                        in_bytes=size, out_bytes=size)  # fmt: skip
            at = max(now, opened + gathers)
        for rank in range(2):
            tables.step(rank, step, begin, at)
    frames = tables.frames()
    job = kineto.build(frames, "gemms")
    ranks = pl.DataFrame({"rank": [0, 1], "n_sms": [n_sms] * 2, "device_name": ["NVIDIA H100"] * 2})
    empty = {t: pl.from_arrow(TABLES[t].schema.empty_table()) for t in TABLES}
    facts = {"ranks": ranks, "tables": lambda t: frames.get(t, empty[t])}
    return run.baseline(replace(job, facts={**job.facts, **facts})).job


def after(job, spec):
    """Times of the GEMMs beside communication as they are replayed, us, and the job."""
    base = run.baseline(job)
    (tries,) = run.plan([spec])
    lines = run.timelines(base, tries)
    graph = lines.after.graph
    beside = (graph.kind == Kind.COMPUTE) & (job.graph.dur_ns != 100_000)
    return sorted(set((graph.dur_ns[beside] / 1e3).round(1).tolist())), lines.after


def test_a_gemm_of_as_many_blocks_as_sms_needs_them_all(tables):
    # NVIDIA forum 337991: 132 blocks beside 24 twice as long. Any SM held costs the second wave.
    job = gemms(tables, blocks=132, beside_us=200)
    assert after(job, "sm-budget:sms=4")[0] == [200]
    times, said = after(job, "sm-budget:engine=copy")
    assert times == [100]
    assert any("0 SMs" in a and "instead of 24" in a for a in said.assumptions)
    assert any("2 times as long" in a and "now runs 1 times" in a for a in said.assumptions)


def test_ten_waves_or_thirteen(tables):
    # 1,320 blocks: 13 waves of 108 SMs, 11 of 125, 10 of 132 (by hand).
    job = gemms(tables, blocks=1320, beside_us=130)
    assert after(job, "sm-budget:sms=7,engine=recorded,per=dynamic")[0] == [
        pytest.approx(110, abs=1)
    ]
    assert after(job, "sm-budget:engine=copy")[0] == [100]


def test_nothing_runs_faster_than_alone(tables):
    # Measured 1.05 beside 24 SMs, though two waves would be 2.0: no more than 1.05 comes back.
    job = gemms(tables, blocks=132, beside_us=105)
    assert after(job, "sm-budget:engine=copy")[0] == [100]


def test_what_waits_for_memory_gains_nothing(tables):
    job = gemms(tables, blocks=132, beside_us=150, category="elementwise")
    times, said = after(job, "sm-budget:engine=copy")
    assert times == [150]
    assert any("so none can gain" in w for w in said.warnings)


def test_what_waits_for_memory_gains_by_slower_communication(tables):
    # Each of two ranks sends 268.4 GB/s, which is read and as much written: 536.9 of 3,350 GB/s
    # slow memory 1 / (1 - 0.160) = 1.191 times. With 2 SMs of 50 GB/s it takes 200 GB/s: 1.0635
    # times, so 150 us become 150 x 1.0635 / 1.191 = 133.9 (by hand).
    job = gemms(tables, blocks=132, beside_us=150, category="elementwise")
    times, said = after(job, "sm-budget:sms=2")
    assert times == [pytest.approx(133.9, abs=0.3)]
    assert any(
        "took 16 % of the memory's 3.35 TB/s" in a and "5.97 %" in a for a in said.assumptions
    )
    # Of a device that nobody knows the memory is not known either.
    ranks = job.facts["ranks"].drop("device_name")
    unknown = replace(job, facts={**job.facts, "ranks": ranks})
    assert after(unknown, "sm-budget:sms=2")[0] == [150]


def test_tccl_in_a_job(tables):
    # T-CCL: from 23.76 to 6.60 active SMs overlap gains 1.25 times instead of 1.12. Persistent
    # GEMMs of 100 us beside 24 SMs take 132/108 as long, beside 6 SMs 132/126: with communication
    # of 0.369 of the GEMMs' time hidden, 1.12 becomes 1.307 (S = 132 is assumed).
    job = gemms(tables, blocks=13_200, beside_us=122.2, gathers=489)
    (slow,), _ = after(job, "sm-budget:sms=6,grid=smooth,rate=200GB/s")
    assert slow == pytest.approx(104.8, abs=0.1)
    ratio = 1.12 * 1.222 - 1
    gain = (1 + ratio) * 100 / slow
    assert gain == pytest.approx(1.306, abs=2e-3)
    assert abs(gain / 1.25 - 1) < 0.2


def test_fewer_sms_than_the_bandwidth_needs(tables):
    # A ring of 2: each sends half of 512 MiB in 1 ms, 268 GB/s: 5.4 SMs of 50 GB/s; with 2 it takes
    # 2.68 times as long; with six no longer.
    job = gemms(tables, blocks=1320, beside_us=130)
    moved = job.graph.kind == Kind.TRANSFER
    _, slow = after(job, "sm-budget:sms=2")
    assert slow.graph.dur_ns[moved] / 1e6 == pytest.approx(2.684, abs=1e-3)
    _, same = after(job, "sm-budget")
    assert (same.graph.dur_ns[moved] == 1_000_000).all()
    assert any("holds 6 SMs" in a for a in same.assumptions)


def test_dynamic_keeps_what_is_alone(tables):
    # Half of the collective's 1,040 us has nothing beside it.
    job = gemms(tables, blocks=1320, beside_us=130, gathers=1040)
    moved = job.graph.kind == Kind.TRANSFER
    fixed = after(job, "sm-budget:sms=12,engine=recorded")[1].graph.dur_ns[moved]
    dynamic = after(job, "sm-budget:sms=12,engine=recorded,per=dynamic")[1].graph.dur_ns[moved]
    assert (fixed == 2_080_000).all()
    assert (dynamic == 1_560_000).all()


def test_copy_engines_add_nothing_up(tables):
    job = gemms(tables, blocks=1320, beside_us=130, op="reduce_scatter")
    times, said = after(job, "sm-budget:engine=copy")
    assert times == [130]
    assert any("cannot add up" in w for w in said.warnings)
    small = gemms(type(tables)(), blocks=1320, beside_us=130, size=1 << 20)
    assert any("under 256 MiB" in w for w in after(small, "sm-budget:engine=copy")[1].warnings)


def test_all_to_alls_by_deepep(tables):
    # Two ranks on one host, 256 experts, top-8: as `sm_need.deepep` of 2 x 1.
    job = gemms(tables, blocks=1320, beside_us=130, op="all_to_all")
    _, said = after(job, "sm-budget:experts=256")
    assert any("SMs (mean over its time)" in a for a in said.assumptions)


def test_without_grids_it_says_what_to_record(tables):
    job = gemms(tables, blocks=1320, beside_us=130, grids=False)
    times, said = after(job, "sm-budget")
    assert times == [130]
    assert any("record kernels with their grids" in w for w in said.warnings)
    times, said = after(job, "sm-budget:recorded=24")
    assert times == [130]
    assert any("no GEMM, attention or convolution with its grid" in w for w in said.warnings)


def test_meetings_add_up_to_the_time_beside(tables):
    job = gemms(tables, blocks=1320, beside_us=130)
    found = sm_share.pairs(job.graph)
    assert found is not None
    # Of each rank and step 4 x 130 us beside a collective of 1 ms.
    assert found.together_ns.sum() == pytest.approx(2 * 3 * 520_000)
    assert sm_share.together(found, job.graph)[:3] == pytest.approx(0.52)
    assert set(np.round(found.slowdown, 6)) == {1.3}
    assert kernel_facts.sms(job) == (132, "132 SMs a device (recorded)")


def test_what_is_out_of_range(tables):
    job = gemms(tables, blocks=132, beside_us=200)
    for spec in ("sms=132", "sms=-1", "recorded=200", "experts=4,topk=8"):
        with pytest.raises(BadParam):
            after(job, f"sm-budget:{spec}")


def test_neutral_changes_nothing(tables):
    job = gemms(tables, blocks=132, beside_us=200)
    policy, values = resolve(("sm-budget", sm_budget.NEUTRAL))
    assert np.array_equal(policy.apply(job, **values).graph.dur_ns, job.graph.dur_ns)


def test_after_buckets_of_overlap(tables):
    # Other tasks than were recorded: computations are found by where they went.
    job = gemms(tables, blocks=132, beside_us=200, op="reduce_scatter")
    found = run.replay(job, ["overlap:chunk=100MiB", "sm-budget:sms=0,engine=copy,op=all_gather"])
    assert all(p["step_ns"] > 0 for p in found["policies"])
    both = run.replay(job, ["overlap:chunk=100MiB", "sm-budget"])["policies"][-1]
    assert both["name"] == "overlap + sm-budget"
