"""Calibration: the link of a communicator from its own collectives, else from elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from retime.ingest.schema import TABLES
from retime.replay import models
from retime.replay.calibration import calibrate, machines
from retime.replay.traced import build as kineto

ALPHA_US, GB_PER_S = 3.0, 40.0


def ring_us(op, size, n=2, alpha_us=ALPHA_US, gb_per_s=GB_PER_S):
    """What a ring takes: 2(n-1) messages and 2(n-1)/n sizes for an all-reduce, else half."""
    passes = 2 if op == "all_reduce" else 1
    return passes * (n - 1) * (alpha_us + size / n / (gb_per_s * 1e3))


def job_of(tables, sizes, op="all_reduce", late_us=5.0, device=None, backend="nccl"):
    """Two ranks; rank 1 comes `late_us` after rank 0 to each collective."""
    at = 0.0
    for i, size in enumerate(sizes):
        took = ring_us(op, size)
        for rank in (0, 1):
            tables.part(
                rank, op, at + late_us * rank, at + late_us + took, instance=i,
                in_bytes=size, out_bytes=size, step=0,
            )  # fmt: skip
        at += late_us + took + 10
    for rank in (0, 1):
        tables.step(rank, 0, 0, at)
    frames = tables.frames()
    name = pl.lit(device, dtype=pl.String)
    frames["ranks"] = frames["ranks"].with_columns(
        device_name=name, host=pl.lit("h"), host_source=pl.lit("recorded")
    )
    frames["comms"] = pl.DataFrame(
        {"comm": ["0"], "dim": ["dp"], "backend": [backend], "ranks": [[0, 1]]}
    )
    return kineto.build(frames, "calibrated")


def with_table(job, name, **columns):
    """The job with rows of one warehouse table."""
    table = TABLES[name]
    frame = pl.from_arrow(table.batch({c.name: columns.get(c.name) for c in table.columns
                                       if c.name in columns}))  # fmt: skip
    empty = {n: pl.from_arrow(t.schema.empty_table()) for n, t in TABLES.items()}
    return replace(job, facts={**job.facts, "tables": lambda n: {**empty, name: frame}[n]})


SIZES = [2**k for k in range(10, 28, 2)]


def test_the_link_of_the_job_itself(tables):
    found = calibrate.link(job_of(tables, SIZES), "0", "all_reduce")
    assert found.source == "fitted"
    assert found.alpha_ns == pytest.approx(3_000, rel=0.01)
    assert found.bandwidth_bytes_per_s == pytest.approx(40e9, rel=0.01)
    assert (found.min_bytes, found.max_bytes) == (SIZES[0], SIZES[-1])
    assert found.level == "intra host"
    assert found.outside([SIZES[0], SIZES[-1]]) == ""
    assert "extrapolation" in found.outside(2**30)


def test_another_operation_of_the_communicator_stands_in(tables):
    found = calibrate.link(job_of(tables, SIZES, op="all_gather"), "0", "all_reduce")
    assert found.source == "fitted"
    assert "all_gather on 0" in found.words
    assert found.bandwidth_bytes_per_s == pytest.approx(40e9, rel=0.01)


def test_sizes_too_alike_say_so(tables):
    found = calibrate.link(job_of(tables, [2**20] * 3), "0", "all_reduce")
    assert found.source == "fitted"
    assert "standard errors" not in found.words
    (row,) = calibrate.table(job_of(tables, [2**20] * 3))
    assert not row["separated"]


def test_a_benchmark_where_the_job_has_none(tables):
    sizes = np.array(SIZES)
    job = with_table(
        job_of(tables, []),
        "cost_curves",
        op=["all_reduce"] * len(sizes),
        bytes=sizes,
        n_ranks=[8] * len(sizes),
        time_ns=[round(1e3 * ring_us("all_reduce", s, 8, 2.0, 100.0)) for s in SIZES],
    )
    found = calibrate.link(job, "0", "all_reduce")
    assert found.source == "curve"
    assert found.alpha_ns == pytest.approx(2_000, rel=0.01)
    assert found.bandwidth_bytes_per_s == pytest.approx(100e9, rel=0.01)
    assert calibrate.link(job, "0", "broadcast").source == "assumed"


def test_the_default_machine_by_the_devices_name(tables):
    found = calibrate.link(job_of(tables, [], device="NVIDIA H100 80GB HBM3"), "0", "all_reduce")
    # 18 links of 20.6 GB/s: NCCL's topo.h.
    assert (found.source, found.bandwidth_bytes_per_s) == ("assumed", 18 * 20.6e9)
    assert "H100" in found.words
    assert found.outside(2**40) == ""


@pytest.mark.parametrize(
    ("device", "row"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A10G", "A10"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("NVIDIA GB200", "GB200"),
        ("Quantum 9", None),
    ],
)
def test_machines_by_name(device, row):
    found = machines.named(device)
    assert (found.name if found else None) == row


def test_hosts_that_speak_gloo(tables):
    found = calibrate.link(job_of(tables, [], backend="gloo"), "0", "all_reduce")
    assert (found.source, found.alpha_ns) == ("assumed", machines.SOCKET_ALPHA_NS)


def test_the_table_of_it(tables):
    (row,) = calibrate.table(job_of(tables, SIZES))
    assert (row["comm"], row["dim"], row["op"], row["algo"], row["n"]) == (
        "0", "dp", "all_reduce", "ring", 2,
    )  # fmt: skip
    # Rank 0 waits 5 us for rank 1, which waits for nobody: 2.5 in the middle of the two.
    assert (row["tau_ns"], row["tau_spread_ns"]) == (2_500, 0)
    assert row["alpha_ns"] == pytest.approx(3_000, rel=0.01)
    assert row["error_pct"] < 1
    assert row["caveat"] is None


def test_what_gives_no_line_says_why(tables):
    job = job_of(tables, [])
    at = 0.0
    for i, size in enumerate([2**10, 2**14, 2**18]):
        for rank in (0, 1):
            tables.part(rank, "all_reduce", at, at + 50, instance=i, in_bytes=size, out_bytes=size)
        at += 100
    (row,) = calibrate.table(kineto.build(tables.frames(), "flat"))
    assert row["alpha_ns"] is None
    assert "larger ones took no longer" in row["caveat"]
    assert calibrate.table(job) == []


def test_a_recorded_tree_is_the_double_tree(tables):
    """NCCL's tree: two trees, each for half of the bytes."""
    at = 0.0
    for i, size in enumerate(2**k for k in range(20, 30, 2)):
        took = float(models.time_ns("all_reduce", "double-tree", 8, size, 0.0, 40e9)) / 1e3
        for rank in range(8):
            tables.part(
                rank, "all_reduce", at, at + took, instance=i, in_bytes=size, out_bytes=size,
                step=0, algo="tree", group_size=8,
            )  # fmt: skip
        at += took + 10
    for rank in range(8):
        tables.step(rank, 0, 0, at)
    (row,) = calibrate.table(kineto.build(tables.frames(), "trees"))
    assert row["algo"] == "double-tree"
    assert row["bandwidth_bytes_per_s"] == pytest.approx(40e9, rel=0.05)
