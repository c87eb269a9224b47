"""Fits pooled by fabric level: who lends to whom, against synthetic jobs of known truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from retime.replay import models
from retime.replay.calibration import calibrate, fits, levels
from retime.replay.fabric import named
from retime.replay.retiming import recost
from retime.replay.traced import build

INSIDE = (2_000.0, 300e9)
RAIL = (6_000.0, 45e9)
WIDE = [2**k for k in range(12, 28, 2)]


def job_of(tables, calls, hosts=2, per_host=4, late_us=0.0):
    """Ranks of hosts; `calls` are (comm, ranks, op, size, (alpha, bandwidth))."""
    at = 0.0
    comms = {}
    for i, (comm, ranks, op, size, truth) in enumerate(calls):
        comms[comm] = list(ranks)
        algo = {"all_to_all": "pairwise"}.get(op, "ring")
        took = float(models.time_ns(op, algo, len(ranks), size, *truth)) / 1e3
        for rank in ranks:
            late = late_us if rank == ranks[-1] else 0.0
            tables.part(
                rank, op, at + late, at + late_us + took, instance=i, comm=comm,
                in_bytes=size, out_bytes=size, step=0, group_size=len(ranks),
            )  # fmt: skip
        at += late_us + took + 10
    for rank in range(hosts * per_host):
        tables.step(rank, 0, 0, at)
    frames = tables.frames()
    rank = pl.col("rank")
    frames["ranks"] = frames["ranks"].with_columns(
        host=(rank // per_host).cast(pl.String), host_source=pl.lit("recorded"),
        local_rank=(rank % per_host).cast(pl.Int32),
    )  # fmt: skip
    frames["comms"] = pl.DataFrame(
        {
            "comm": list(comms),
            "dim": ["dp"] * len(comms),
            "backend": ["nccl"] * len(comms),
            "ranks": list(comms.values()),
        }
    )
    return build.build(frames, "pooled")


def every(comm, ranks, op, sizes, truth):
    return [(comm, ranks, op, size, truth) for size in sizes]


def test_levels_by_hosts_and_local_ranks(tables):
    job = job_of(
        tables,
        [
            ("tp", (0, 1, 2, 3), "all_reduce", 1000, INSIDE),
            ("dp", (1, 5), "all_reduce", 1000, RAIL),
            ("pp", (0, 5), "all_reduce", 1000, RAIL),
            ("world", range(8), "all_reduce", 1000, RAIL),
            ("odd", (0, 1, 4), "all_reduce", 1000, RAIL),
        ],
    )
    known = fits.of(job)
    assert {c: known.level(c) for c in known.members} == {
        "tp": levels.Level("intra host", 4),
        "dp": levels.Level("on a rail", 1),
        "pp": levels.Level("inter host", 1),
        "world": levels.Level("inter host", 4),
        "odd": levels.Level("inter host", 0),
    }
    assert known.level("world").words() == "inter host, 4 a host"
    assert known.level("no such") == levels.UNKNOWN
    hostless = job.facts["ranks"].with_columns(host=pl.lit(None, pl.String))
    blind = replace(job, facts={**job.facts, "ranks": hostless})
    assert fits.of(blind).level("tp") == levels.UNKNOWN


def test_levels_by_the_fabric(tables):
    # h100: 32 hosts a leaf of each rail (see the preset); GPU i of each host is on rail i.
    fabric = named.preset("h100", 8 * 64)
    assert fabric.network.hosts_per_leaf == 32
    comms = {"near": (0, 8), "crossed": (0, 9), "far": (0, 8 * 33), "in": (0, 1)}
    job = job_of(tables, [(c, r, "all_reduce", 1000, RAIL) for c, r in comms.items()], 64, 8)
    job = replace(job, facts={**job.facts, "fabric": fabric})
    ranks = pl.DataFrame({"rank": np.arange(512), "host": np.arange(512) // 8})
    ranks = ranks.with_columns(pl.col("host").cast(pl.String).str.zfill(2), local_rank="rank")
    ranks = ranks.with_columns(pl.col("local_rank") % 8)
    job = replace(job, facts={**job.facts, "ranks": ranks})
    known = fits.of(job)
    assert {c: known.level(c).name for c in comms} == {
        "near": "on a rail", "crossed": "inter host", "far": "inter leaf", "in": "intra host",
    }  # fmt: skip


def test_a_domain_of_many_hosts_is_one_level(tables):
    # A rack of 18 hosts of 4 GPUs, all on one NVLink switch.
    fabric = named.preset("gb200-nvl72", 72)
    calls = [("x", (0, 1, 4, 5), "all_reduce", 1000, INSIDE)]
    job = job_of(tables, calls)
    job = replace(job, facts={**job.facts, "fabric": fabric})
    assert fits.of(job).level("x") == levels.Level("intra domain", 2)
    assert fits.of(job).level("x").coarse == "inter host"


def test_one_size_borrows_alpha_of_its_level(tables):
    # Eight communicators on rails, each of one size: together they are a line.
    calls = [
        call
        for i in range(4)
        for call in every(f"dp{i}", (i, 4 + i), "all_reduce", [WIDE[2 * i]] * 4, RAIL)
    ]
    calls += every("tp", (0, 1, 2, 3), "all_reduce", WIDE, INSIDE)
    job = job_of(tables, calls)
    for i in range(4):
        found = calibrate.link(job, f"dp{i}", "all_reduce")
        assert (found.source, found.alpha_from, found.level) == ("fitted", "lent", "inter host")
        assert found.alpha_ns == pytest.approx(RAIL[0], rel=0.02)
        assert found.bandwidth_bytes_per_s == pytest.approx(RAIL[1], rel=0.02)
        assert "on a rail" in found.words
    # Of other sizes the estimate is still an extrapolation: it was one size that was seen.
    assert calibrate.link(job, "dp0", "all_reduce").outside(WIDE[-1])
    rows = {row["comm"]: row for row in calibrate.table(job)}
    assert rows["dp0"]["level"] == "on a rail"
    assert rows["dp0"]["alpha_from"] == "lent"
    assert "4 communicators (on a rail)" in rows["dp0"]["lender"]
    assert rows["tp"]["alpha_from"] == "own"


def test_levels_do_not_lend_to_each_other(tables):
    calls = every("tp", (0, 1, 2, 3), "all_reduce", WIDE, INSIDE)
    calls += every("dp", (0, 4), "all_reduce", [2**20] * 4, RAIL)
    found = calibrate.link(job_of(tables, calls), "dp", "all_reduce")
    assert found.alpha_from == "assumed"
    assert found.alpha_ns == calibrate.DEFAULT_ALPHA_NS


def test_the_order_of_those_that_stand_in(tables):
    other = (4_000.0, 100e9)
    calls = every("a", (0, 4), "all_reduce", WIDE, RAIL)
    calls += every("b", (1, 5), "all_to_all", WIDE, other)
    calls += every("c", (2, 6), "reduce_scatter", [2**20] * 3, RAIL)
    calls += every("d", (3, 7), "broadcast", [1] * 3, RAIL)
    job = job_of(tables, calls)
    own = calibrate.link(job, "a", "all_reduce")
    assert (own.alpha_from, own.bandwidth_bytes_per_s) == ("own", pytest.approx(RAIL[1], rel=0.01))
    # Another operation on the communicator comes before the level's of the same operation.
    assert calibrate.link(job, "b", "all_reduce").bandwidth_bytes_per_s == pytest.approx(
        other[1], rel=0.01
    )
    # The level's of the operation before the level's of all.
    level = calibrate.link(job, "c", "all_to_all")
    assert level.bandwidth_bytes_per_s == pytest.approx(other[1], rel=0.01)
    assert "all_to_all on 1 communicator (on a rail)" in level.words
    every_op = calibrate.link(job, "c", "all_gather")
    assert "all operations on 4 communicators (on a rail)" in every_op.words
    assert RAIL[1] * 0.9 < every_op.bandwidth_bytes_per_s < other[1] * 1.1


def test_pools_count_what_communicators_differ_by(tables):
    # Two rails at 40 GB/s and two at 60: each fit is exact, the level's is not.
    calls = [
        call
        for i in range(4)
        for call in every(f"dp{i}", (i, 4 + i), "all_reduce", WIDE, (6_000.0, (40e9, 60e9)[i % 2]))
    ]
    job = job_of(tables, calls)
    assert all(r["bandwidth_error_bytes_per_s"] < 1e7 for r in calibrate.table(job))
    (pool,) = calibrate.pools(job)
    assert (pool["level"], pool["op"], pool["comms"]) == ("on a rail", "all_reduce", 4)
    assert pool["bandwidth_error_bytes_per_s"] > 2e9
    assert pool["collectives"] == 4 * len(WIDE)


def test_pools_take_each_number_of_ranks_by_its_form(tables):
    calls = every("four", (0, 1, 2, 3), "all_reduce", [2**14, 2**16] * 3, INSIDE)
    calls += every("two", (4, 5), "all_gather", [2**24, 2**26] * 3, INSIDE)
    job = job_of(tables, calls)
    pools = {p["op"]: p for p in calibrate.pools(job)}
    assert list(pools) == []  # 4 and 2 a host: other shares of the host's links
    calls = every("four", (0, 1, 2, 3), "all_reduce", [2**14, 2**15] * 3, INSIDE)
    calls += every("more", (4, 5, 6, 7), "all_gather", [2**24, 2**25] * 3, INSIDE)
    (pool,) = calibrate.pools(job_of(type(tables)(), calls))
    assert pool["op"] == "all operations"
    assert pool["alpha_ns"] == pytest.approx(INSIDE[0], rel=0.01)
    assert pool["bandwidth_bytes_per_s"] == pytest.approx(INSIDE[1], rel=0.01)


def test_collectives_of_some_ranks_only_say_so(tables):
    calls = every("world", range(8), "all_reduce", WIDE, RAIL)
    frames_job = job_of(tables, calls)
    keep = frames_job.graph.rank != 7
    assert not keep.all()
    tables.rows["collectives"] = [r for r in tables.rows["collectives"] if r["rank"] != 7]
    (row,) = calibrate.table(build.build(tables.frames(), "seven of eight"))
    assert row["alpha_ns"] is None
    assert row["caveat"].startswith("seen on 7 of 8 ranks")


def test_policies_price_each_size_by_its_class(tables):
    # LL at 1 us and 40 GB/s, Simple at 5 us and 300 GB/s: see test_size_classes.
    ll, simple = (1_000.0, 40e9), (5_000.0, 300e9)
    sizes = [2**k for k in range(12, 28)] * 2
    calls = []
    for size in sizes:
        took = [models.time_ns("all_reduce", "ring", 8, size, *p) for p in (ll, simple)]
        calls.append(("world", range(8), "all_reduce", size, (ll, simple)[int(np.argmin(took))]))
    job = job_of(tables, calls)
    found = calibrate.link(job, "world", "all_reduce")
    assert len(found.classes) == 2
    rows = calibrate.instances(job.graph)
    ratio = recost.by_form(job, rows, "ring", "double-tree", recost.Given()).ratio
    for size, got in zip(rows["bytes"], ratio, strict=True):
        truth = ll if size <= found.classes[0].up_to_bytes else simple
        new, old = (models.time_ns("all_reduce", a, 8, size, *truth)
                    for a in ("double-tree", "ring"))  # fmt: skip
        assert got == pytest.approx(float(new / old), rel=0.02)
