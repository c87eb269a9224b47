"""A GEMM and the collective next to it, tile by tile: FlashOverlap's own shape as a small job."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from retime.ingest.schema import TABLES
from retime.replay import run
from retime.replay.graph import Kind
from retime.replay.policies import resolve, tile_overlap
from retime.replay.policy import BadParam
from retime.replay.traced import build as kineto

LARGE, SMALL = 400_000_000, 1_000_000


def layers(tables, *, op="reduce_scatter", tiles=1060, first=False, between=False, tail=None):
    """GEMMs of 1 ms and collectives of 10 us and 1 us a MB (400 MB: 410 us), and small ones."""
    at = 0.0
    for step in range(4):
        begin = at
        for k, size in enumerate((LARGE, SMALL)):
            took = 10 + size / 1e6
            for rank in range(2):
                now = at
                if first:
                    tables.part(rank, op, now, now + took, instance=10 * step + k, stream=7,
                                step=step, in_bytes=size, out_bytes=size)  # fmt: skip
                    now += took
                tables.kernel(rank, "matmul", now, now + 1000, step=step, category="gemm",
                              grid_blocks=tiles, block_threads=256)  # fmt: skip
                now += 1000
                if between:
                    tables.kernel(rank, "add", now, now + 5, step=step, category="elementwise")
                    now += 5
                if not first:
                    tables.part(rank, op, now, now + took, instance=10 * step + k, stream=7,
                                step=step, in_bytes=size, out_bytes=size)  # fmt: skip
                    now += took
            at = round(now, 3)
        for rank in range(2):
            tables.step(rank, step, begin, at)
    frames = tables.frames()
    job = kineto.build(frames, "layers")
    ranks = pl.DataFrame({"rank": [0, 1], "n_sms": [108] * 2, "device_name": ["NVIDIA A800"] * 2})
    empty = {t: pl.from_arrow(TABLES[t].schema.empty_table()) for t in TABLES}
    facts = {"ranks": ranks, "tables": lambda t: frames.get(t, empty[t])}
    return run.baseline(replace(job, facts={**job.facts, **facts})).job


def pair_us(job, spec, size=LARGE):
    """GEMM and transfer of the pairs of a size, us, and the job."""
    policy, values = resolve(spec)
    after = policy.apply(job, **values)
    graph = after.graph
    moved = np.flatnonzero((graph.kind == Kind.TRANSFER) & (graph.bytes == size))[0]
    gemm = np.flatnonzero(graph.kind == Kind.COMPUTE)
    before = gemm[graph.start_ns[gemm] < graph.start_ns[moved]]
    near = before[np.argmax(graph.start_ns[before])]
    return graph.dur_ns[near] / 1e3, graph.dur_ns[moved] / 1e3, after


def test_flash_overlap_in_a_job(tables):
    # 1,410 us become 1132.6 with 8 SMs for communication: 10 waves become 11 (its predictor).
    job = layers(tables)
    gemm, sent, after = pair_us(job, "tile-overlap:sms=8,groups=0")
    assert gemm == pytest.approx(1100)
    assert gemm + sent == pytest.approx(1132.6, abs=1)
    (said,) = [a for a in after.assumptions if "times as fast" in a]
    assert said.startswith("4 collectives")


def test_two_sms_are_the_default(tables):
    # With five equal groups 1090.0; the best has a last group of one wave: 1050.
    job = layers(tables)
    gemm, sent, _ = pair_us(job, "tile-overlap:groups=5")
    assert (gemm, gemm + sent) == (pytest.approx(1000), pytest.approx(1090, abs=1))
    gemm, sent, after = pair_us(job, "tile-overlap:op=reduce_scatter")
    assert gemm + sent == pytest.approx(1050, abs=1)
    # Nothing is computed beside the last tenth, 50 us and 10.1 of the small ones: 1,410 + 1,011 us
    # over 1,050 + 1,010.1, which is the bound too (by hand).
    (said,) = [a for a in after.assumptions if "times as fast" in a]
    assert "1.175 times as fast" in said
    assert "at most 1.175 times by overlap" in said


def test_gathers_come_first(tables):
    # Backwards: the first group of one wave is exposed.
    job = layers(tables, op="all_gather", first=True)
    policy, values = resolve("tile-overlap")
    base = run.baseline(job)
    (tries,) = run.plan(["tile-overlap"])
    entry = run.estimate(base, tries)
    assert entry["gain_pct"] > 0
    assert entry["step_ns"] >= entry["floors"]["free_communication_ns"]
    after = policy.apply(job, **values)
    large = (after.graph.kind == Kind.TRANSFER) & (after.graph.bytes == LARGE)
    assert after.graph.dur_ns[large] / 1e3 == pytest.approx(50, abs=1)


def test_the_step_gains_what_the_pairs_do(tables):
    entry = run.replay(layers(tables), ["tile-overlap:sms=8,op=reduce_scatter"])["policies"][0]
    assert entry["gain_pct"] > 0
    # The small ones send 11 us after 1,000: overlapped they would take longer than apart.
    _, sent, after = pair_us(layers(type(tables)()), "tile-overlap:sms=8", SMALL)
    assert sent == pytest.approx(11)
    assert any("would not be faster" in w for w in after.warnings)


def test_orders_of_tiles(tables):
    job = layers(tables)
    whole = {}
    for order in ("destination", "row"):
        gemm, sent, _ = pair_us(job, f"tile-overlap:order={order}")
        whole[order] = gemm + sent
    # Two ranks: the other's shard is done after half of the GEMM, or at its end.
    assert whole["destination"] == pytest.approx(1000)
    assert whole["row"] == pytest.approx(1410)
    _, _, after = pair_us(job, "tile-overlap:order=column")
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)


def test_only_neighbours(tables):
    job = layers(tables, between=True)
    _, _, after = pair_us(job, "tile-overlap")
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert any("nothing to overlap by tiles" in w for w in after.warnings)


def test_without_tiles_it_says_what_to_record(tables):
    job = layers(tables, tiles=None)
    assert any("record kernels" in w for w in pair_us(job, "tile-overlap")[2].warnings)
    gemm, sent, _ = pair_us(job, "tile-overlap:tiles=1060,groups=5")
    assert gemm + sent == pytest.approx(1090, abs=1)


def test_a_job_without_devices_is_left_as_it_is_and_told(tables):
    job = layers(tables)
    nowhere = {"ranks": job.facts["ranks"].drop("n_sms", "device_name"),
               "comms": pl.DataFrame({"backend": ["gloo"]})}  # fmt: skip
    policy, values = resolve("tile-overlap")
    after = policy.apply(replace(job, facts={**job.facts, **nowhere}), **values)
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert any("0 SMs a device" in w and "gloo" in w for w in after.warnings)


def test_what_is_out_of_range(tables):
    job = layers(tables)
    for spec in ("op=broadcast", "sms=108", "groups=-1", "tiles=-1"):
        with pytest.raises(BadParam):
            pair_us(job, f"tile-overlap:{spec}")


def test_neutral_changes_nothing(tables):
    job = layers(tables)
    policy, values = resolve(("tile-overlap", tile_overlap.NEUTRAL))
    assert np.array_equal(policy.apply(job, **values).graph.dur_ns, job.graph.dur_ns)
