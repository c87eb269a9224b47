"""Storage beside collectives and stalls of the loader: two terms, removed separately."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retime.ingest.schema import TABLES
from retime.queries.loader import connect
from retime.replay import engine, run
from retime.replay.calibration import calibrate
from retime.replay.costs import storage
from retime.replay.fabric import load
from retime.replay.graph import Kind
from retime.replay.policies import resolve
from retime.replay.policy import BadParam
from retime.replay.traced import build as kineto

MS = 1_000_000


def test_only_the_slow_read_stalls():
    read = np.array([100, 100, 900, 100])
    assert storage.stalls(read, 400, 1).tolist() == [0, 0, 500, 0]
    assert storage.stalls(np.full(4, 50), 400, 1).tolist() == [0, 0, 0, 0]


def test_eight_beside_eight():
    assert 20 * storage.shared_factor(8, 8) == 40
    assert 20 * storage.shared_factor(8, 8, guarantee=1.0) == 20
    assert storage.shared_factor(8, 8, guarantee=0.8) == 1.25


def test_what_145_times_would_take():
    """145x of a 10 us operation is a queue of 72 MB at 50 GB/s, not a share of bandwidth."""
    assert (10e3 + storage.queue_ns(72e6, 50e9)) / 10e3 == pytest.approx(145, abs=0.1)
    assert storage.shared_factor(144, 1) == 145


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)


@given(SPANS, SPANS)
def test_covered_time_counted_moment_by_moment(spans, asked):
    start = np.array([a for a, _ in spans], np.int64)
    end = start + np.array([n for _, n in spans], np.int64)
    busy = {t for a, b in zip(start, end, strict=True) for t in range(a, b)}
    at = np.array([a for a, _ in asked], np.int64)
    until = at + np.array([n for _, n in asked], np.int64)
    found = storage.covered(at, until, storage.union(start, end))
    assert found.tolist() == [len(busy & set(range(a, b))) for a, b in zip(at, until, strict=True)]


NAMES = [
    ("annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
    ("host_op", "enumerate(DataLoader)#x"), ("annotation", "get_batch"), ("annotation", "forward"),
    ("annotation", "train_dataloader_next"), ("annotation", "Data Loading"), ("host_op", "data"),
    ("python", "torch/utils/data/dataloader.py(729): __next__"), ("python", "x.py(1): __next__"),
    ("annotation", "metadata_loader"), ("annotation", "batch-generator"), ("kernel", "get_batch"),
    ("annotation", None), (None, "get_batch"), ("annotation", "data_wait"),
    ("annotation", "GET_BATCH"),
]  # fmt: skip


def test_loading_is_what_the_sql_library_says():
    con: duckdb.DuckDBPyConnection = connect({})
    frame = pl.DataFrame(NAMES, schema=["kind", "name"], orient="row")
    ours = frame.select(storage.is_data_loading()).to_series().to_list()
    theirs = [
        bool(con.execute("SELECT coalesce(is_data_loading(?, ?), false)", row).fetchone()[0])
        for row in NAMES
    ]
    assert ours == theirs
    assert 5 < sum(ours) < len(ours)


def job(tables, *, traffic=(), loads=(), slow=(), steps=6):
    """Two ranks of a host; an all-reduce of 1 ms a step, 2.5 ms in `slow` steps; 8 ms steps."""
    for step in range(steps):
        at = step * 8000.0
        took = 2500.0 if step in slow else 1000.0
        for rank in (0, 1):
            load = 3000.0 if (step, rank) in loads else 0.0
            if load:
                tables.host(
                    rank, "enumerate(DataLoader)#x", at, at + load, kind="annotation", step=step
                )
            tables.call(rank, "cudaLaunchKernel", at + load, at + load + 5, correlation=step * 10)
            tables.kernel(rank, "work", at + load + 5, at + 4000, step=step, correlation=step * 10)
            tables.part(
                rank, "all_reduce", at + 4000, at + 4000 + took, instance=step, stream=7,
                step=step, in_bytes=1 << 20, out_bytes=1 << 20, group_size=2,
            )  # fmt: skip
            tables.step(rank, step, at, at + 8000)
    frames = tables.frames()
    built = kineto.build(frames, "stored")
    ranks = frames["ranks"].with_columns(host=pl.lit("h").cast(frames["ranks"].schema["host"]))
    rows = [
        {"host": "h", "rank": 0, "start_ns": a, "end_ns": b, "bytes": 1, "traffic_class": "storage"}
        for a, b in traffic
    ]
    given_ = {
        "transfers": pl.from_arrow(TABLES["transfers"].batch(
            {k: [r[k] for r in rows] for k in (rows[0] if rows else {})}
        )),
        "events": frames["events"],
    }  # fmt: skip

    def table(name):
        return given_.get(name, pl.from_arrow(TABLES[name].schema.empty_table()))

    facts = {**built.facts, "ranks": ranks, "tables": table}
    return run.baseline(replace(built, facts=facts)).job


def under(job, spec):
    policy, values = resolve(spec)
    return policy.apply(job, **values)


def transfers(job):
    graph = job.graph
    return sorted(set(graph.dur_ns[graph.kind == Kind.TRANSFER].tolist()))


BESIDE = [(2 * 8 * MS, 3 * 8 * MS)]


def test_a_collective_beside_storage_takes_what_its_like_do(tables):
    before = job(tables, traffic=BESIDE, slow=(2,))
    assert transfers(before) == [MS, 2.5 * MS]
    after = under(before, "isolate-storage")
    assert transfers(after) == [MS]
    assert any("2.5 times as long (fitted" in a for a in after.assumptions)


def test_a_guarantee_takes_part_of_it(tables):
    before = job(tables, traffic=BESIDE, slow=(2,))
    after = under(before, "isolate-storage:guarantee=0.5")
    assert transfers(after) == [MS, 2 * MS]


def test_flows_that_share_a_link_say_the_factor(tables):
    # 8 of storage beside 8 of collectives: twice as long; with half of the link sure, not less.
    before = job(tables, traffic=[(0, 60 * MS)], slow=range(6))
    assert transfers(before) == [2.5 * MS]
    after = under(before, "isolate-storage:flows=8+8")
    assert transfers(after) == [1.25 * MS]
    assert transfers(under(before, "isolate-storage:flows=8+8,guarantee=0.5")) == [2.5 * MS]
    assert transfers(under(before, "isolate-storage:flows=2+8")) == [2 * MS]


def test_small_operations_stand_behind_buffers(tables):
    # An all-reduce of two sends 2 messages of 1 MiB in 2.5 ms, half each: what is left of the time
    # when 0.2 ms of each message's was a queue.
    before = job(tables, traffic=[(0, 60 * MS)], slow=range(6))
    rate = calibrate.link(before, "0", "all_reduce").bandwidth_bytes_per_s
    after = under(before, f"isolate-storage:factor=1,buffer={round(rate * 0.2e-3)}B")
    assert transfers(after) == [pytest.approx(2.1 * MS, rel=1e-3)]
    assert any("in a switch's buffer" in a for a in after.assumptions)
    far = under(before, f"isolate-storage:factor=1,buffer={round(rate * 2e-3)}B")
    assert any("buffer is too large" in w for w in far.warnings)


def test_a_factor_of_one_changes_nothing(tables):
    before = job(tables, traffic=BESIDE, slow=(2,))
    after = under(before, "isolate-storage:factor=1")
    assert np.array_equal(after.graph.dur_ns, before.graph.dur_ns)


def test_no_like_without_storage(tables):
    before = job(tables, traffic=[(0, 60 * MS)], slow=(2,))
    after = under(before, "isolate-storage")
    assert np.array_equal(after.graph.dur_ns, before.graph.dur_ns)
    assert any("not known (give factor)" in w for w in after.warnings)


def test_no_traffic_recorded(tables):
    before = job(tables)
    after = under(before, "isolate-storage")
    assert np.array_equal(after.graph.dur_ns, before.graph.dur_ns)
    assert "no storage traffic" in after.warnings[0]


def test_staging_takes_away_stalls_too_and_isolating_does_not(tables):
    before = job(tables, traffic=BESIDE, slow=(2,), loads=((2, 0), (2, 1)))

    def ends(of):
        return int(engine.replay(of.graph)[1].max())

    isolated = under(before, "isolate-storage")
    staged = under(before, "isolate-storage:what=stage,bandwidth=5GB/s,read=5MB")
    # 1.5 ms of sharing, and 2 of the 3 ms of loading: 5 MB at 5 GB/s is 1 ms.
    saved = [ends(before) - ends(x) for x in (isolated, staged)]
    host = before.graph.kind == Kind.HOST
    assert np.array_equal(isolated.graph.dur_ns[host], before.graph.dur_ns[host])
    assert (before.graph.dur_ns - staged.graph.dur_ns)[host].sum() == 2 * 2 * MS
    assert saved[1] >= saved[0]


@pytest.mark.parametrize(
    "spec",
    [
        "factor=0.5",
        "flows=8",
        "flows=8+8,factor=2",
        "buffer=-1",
        "guarantee=0",
        "guarantee=2",
        "what=stage",
        "bandwidth=0GB/s",
        "depth=-1",
    ],
)
def test_out_of_range(tables, spec):
    with pytest.raises(BadParam):
        under(job(tables), f"isolate-storage:{spec}")


def test_what_prefetching_does_not_hide_stalls(tables):
    """Compute 5 ms a step, reads of 9 ms one step ahead: 4 ms stay; two ahead hide all of it.

    The shape of 400 ms of compute and reads of 100, 100, 900, 100 ms: stalls of 0, 0, 500, 0.
    """
    # Steps of 8 ms, one in six with a wait of 3 ms: 7.5 ms of compute a step.
    before = job(tables, loads=((2, 0), (2, 1)))
    host = before.graph.kind == Kind.HOST

    def saved(spec):
        staged = under(before, f"isolate-storage:what=stage,bandwidth=1GB/s,{spec}")
        return (before.graph.dur_ns - staged.graph.dur_ns)[host].sum()

    assert saved("read=9MB") == 0
    assert saved("read=9MB,depth=1") == 2 * 1.5 * MS
    assert saved("read=9MB,depth=2") == 2 * 3 * MS


def late_batch(tables):
    """Steps of 400 ms of compute and an all-reduce of 40 beside storage; in the third a batch comes
    500 ms late: reads of 100, 100, 900 and 100 ms one step ahead."""
    at = 0.0
    for step, wait in enumerate((0.0, 0.0, 500e3, 0.0)):
        end = at + wait + 440e3
        for rank in (0, 1):
            if wait:
                tables.host(rank, "enumerate(DataLoader)#x", at, at + wait, kind="annotation",
                            step=step)  # fmt: skip
            tables.call(rank, "cudaLaunchKernel", at + wait, at + wait + 5, correlation=step * 10)
            tables.kernel(rank, "work", at + wait + 5, at + wait + 400e3, step=step,
                          correlation=step * 10)  # fmt: skip
            tables.part(rank, "all_reduce", at + wait + 400e3, end, instance=step, stream=7,
                        step=step, in_bytes=1 << 20, out_bytes=1 << 20)  # fmt: skip
            tables.call(rank, "cudaDeviceSynchronize", at + wait + 10, end)
            tables.step(rank, step, at, end)
        at = end
    frames = tables.frames()
    built = kineto.build(frames, "late")
    ranks = frames["ranks"].with_columns(host=pl.lit("h").cast(frames["ranks"].schema["host"]))
    columns = {"host": ["h"], "rank": [0], "start_ns": [0], "end_ns": [round(at * 1e3)],
               "bytes": [1], "traffic_class": ["storage"]}  # fmt: skip
    given_ = {"events": frames["events"],
              "transfers": pl.from_arrow(TABLES["transfers"].batch(columns))}  # fmt: skip

    def table(name):
        return given_.get(name, pl.from_arrow(TABLES[name].schema.empty_table()))

    return run.baseline(replace(built, facts={**built.facts, "ranks": ranks, "tables": table})).job


def test_stalls_and_contention_are_removed_separately(tables):
    """Eight flows of storage beside eight of collectives: 20 ms that took 40.

    Isolated 20 ms, and the stall of 500 ms stays; staged on drives that read a batch in 50 ms both
    are gone: 4 x 420 ms are left of 2,260.
    """
    before = late_batch(tables)
    assert transfers(before) == [40 * MS]

    def ends_ms(of):
        return int(engine.replay(of.graph)[1].max()) / MS

    assert ends_ms(before) == pytest.approx(2_260, abs=0.1)
    isolated = under(before, "isolate-storage:flows=8+8")
    assert transfers(isolated) == [20 * MS]
    assert ends_ms(isolated) == pytest.approx(2_260 - 4 * 20, abs=0.1)
    assert any("500 ms for the slowest: such stalls stay" in a for a in isolated.assumptions)
    spec = "isolate-storage:what=stage,bandwidth=5GB/s,read=250MB,depth=1"
    # The reads from afar took 900 ms; of the drives 50, which a step's compute hides.
    assert ends_ms(under(before, f"{spec},flows=8+8")) == pytest.approx(4 * 420, abs=0.1)
    stalls = under(before, f"{spec},factor=1")
    assert transfers(stalls) == [40 * MS]
    assert ends_ms(stalls) == pytest.approx(2_260 - 500, abs=0.1)


def test_isolating_says_which_stalls_stay(tables):
    before = job(tables, traffic=BESIDE, slow=(2,), loads=((2, 0), (2, 1), (4, 0)))
    after = under(before, "isolate-storage")
    assert any("wait 9 ms for 3 batches, 3 ms for the slowest" in a for a in after.assumptions)


TWO = """
name = "two"
gpus_per_host = 1
hosts = 2
[nic]
bandwidth = "400Gb/s"
[network]
wiring = "rail"
hosts_per_leaf = 2
uplinks = 2
[storage]
attach = "shared"
"""


def test_a_fabric_says_the_factor_where_nothing_compares(tables):
    # Two hosts of a GPU: the ring enters each host by the NIC by which it reads: half is left.
    fabric = load(TWO)
    before = job(tables, traffic=[(0, 60 * MS)])
    apart = before.facts["ranks"].with_columns(host=pl.Series(["a", "b"]))
    before = replace(before, facts={**before.facts, "ranks": apart, "fabric": fabric})
    after = under(before, "isolate-storage")
    assert transfers(after) == [MS / 2]
    assert any("by the links of fabric two" in a for a in after.assumptions)
    own = load(TWO.replace('"shared"', '"own"\nbandwidth = "200Gb/s"'))
    kept = under(replace(before, facts={**before.facts, "fabric": own}), "isolate-storage")
    assert transfers(kept) == [MS]


def test_staging_needs_the_bytes_of_a_load(tables):
    before = job(tables, loads=((2, 0),))
    after = under(before, "isolate-storage:what=stage,bandwidth=5GB/s")
    assert any("give read=" in w for w in after.warnings)
