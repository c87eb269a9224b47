"""The made-up job on 32 ranks: what is known of it is found; its files are what tools read.

Truth and what retime says are compared by `benchmarks.scale.truth`, as the benchmark does for 64 to
1,024 ranks. Here is also looked at what those comparisons rest on: that the job is as it is said to
be, by its own files.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import retime
from click.testing import CliRunner
from retime.cli import app
from retime.ingest.kineto.header import parse_rank_list, rebuild_ranks
from retime.ingest.run import ingest

from benchmarks.scale import truth as held
from benchmarks.scale.digits import COUNT, DUR, SEQ, TS, Template, hole
from benchmarks.scale.generate import generate, host_folders
from benchmarks.scale.kernels import table
from benchmarks.scale.kineto_text import Group
from benchmarks.scale.program import program
from benchmarks.scale.shape import HOST_RANKS, shaped
from benchmarks.scale.simulate import received, splits, steps
from benchmarks.scale.table import growth, markdown

SIZE = {"steps": 2, "layers": 2, "microbatches": 2}


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """(folder, truth, warehouse) of 32 ranks, each host ingested by itself."""
    return made(tmp_path_factory.mktemp("scale"), shaped(32, seed=3, **SIZE))


def made(folder: Path, shape):
    truth = generate(folder / "traces", shape)
    for host in host_folders(folder / "traces"):
        report = ingest(
            folder / "warehouse", [str(host)], job="cluster", workers=1, derive_now=False
        )
        assert report.exit_code == 0
    return folder / "traces", truth, folder / "warehouse"


@pytest.fixture(scope="module")
def con(job):
    with retime.open(str(job[2])).connect("cluster") as con:
        yield con


@pytest.mark.parametrize("what", ["late", "rail", "expert", "clocks", "waits"])
def test_the_truth_is_found(job, con, what):
    found = getattr(held, what)(con, job[1])
    assert found.right, found


@pytest.mark.parametrize("wrong", ["late", "rail", "expert", "clocks", "waits"])
def test_another_truth_is_not(job, con, wrong):
    """The comparisons fail where the job is another one."""
    truth = json.loads(json.dumps(job[1]))
    truth["late_rank"]["rank"] ^= 1
    truth["slow_rail"]["rail"] ^= 1
    truth["hot_expert"]["expert"] ^= 1
    truth["clocks"]["node0001"]["ahead_ns"] += 5_000
    truth["wait_ns"]["tp"][3] += 2_000_000
    assert not getattr(held, wrong)(con, truth).right


def test_nothing_is_lost_and_all_of_it_matches(job, con):
    _, truth, _ = job
    assert con.sql("SELECT count(*) FROM events").fetchall() == [(truth["events"],)]
    assert con.sql("SELECT DISTINCT match FROM collectives").fetchall() == [("exact",)]
    assert con.sql("SELECT DISTINCT severity FROM problems").fetchall() == [("info",)]
    # A participation a collective and rank: all ranks take part in each of the program.
    assert con.sql("SELECT count(*) FROM collectives").fetchall() == [(truth["collectives"] * 32,)]
    dims = con.sql("SELECT dim, count(*) FROM comms WHERE comm LIKE '%@%' GROUP BY dim").fetchall()
    assert dict(dims) == {"world": 1, "tp": 4, "dp": 8, "ep": 8}


def test_show_names_the_late_rank(job):
    _, truth, warehouse = job
    late = truth["late_rank"]
    out = CliRunner().invoke(app, ["show", "cluster", "--warehouse", str(warehouse)]).output
    said = " ".join(out.split())
    assert f"The others wait for rank {late['rank']} on {late['host']}" in said


def test_who_collects_garbage_is_named_for_it(tmp_path):
    shape = shaped(16, seed=5, late_cause="gc", gc_ns=8_000_000, **SIZE)
    _, truth, warehouse = made(tmp_path, shape)
    with retime.open(str(warehouse)).connect("cluster") as con:
        found = held.late(con, truth)
    assert found.right, found
    assert found.found.endswith("garbage_collection")


def test_the_same_arguments_give_the_same_bytes(job, tmp_path):
    def digests(folder: Path) -> dict[str, str]:
        return {
            str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in folder.rglob("*")
            if p.is_file()
        }

    generate(tmp_path / "again", shaped(32, seed=3, **SIZE), processes=2)
    assert digests(tmp_path / "again") == digests(job[0])
    generate(tmp_path / "other", shaped(32, seed=4, **SIZE))
    assert digests(tmp_path / "other") != digests(job[0])


def test_traces_are_what_trace_tools_read(job):
    """Plain JSON with the fields, links and arguments of Kineto's."""
    folder, truth, _ = job
    rank = truth["slow_rail"]["rank"]
    path = folder / truth["slow_rail"]["host"] / f"rank{rank}.pt.trace.json.gz"
    with gzip.open(path) as f:
        trace = json.load(f)
    assert trace["distributedInfo"]["rank"] == rank
    assert [g["pg_size"] for g in trace["distributedInfo"]["pg_config"]] == [32, 8, 4, 4]
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert len(events) * 32 == truth["events"]
    assert all(isinstance(e["ts"], float | int) and e["dur"] >= 0 for e in events)
    kernels = {e["args"]["correlation"]: e for e in events if e["cat"] == "kernel"}
    launches = {
        e["args"]["correlation"]: e
        for e in events
        if e["cat"] == "cuda_runtime" and e["name"].startswith("cudaLaunchKernel")
    }
    assert set(kernels) == set(launches)
    assert all(launches[c]["ts"] < k["ts"] for c, k in kernels.items())
    exchange = next(e for e in kernels.values() if "SendRecv" in e["name"])
    sent = json.loads(exchange["args"]["In split size"])
    assert sum(sent) * 2048 == exchange["args"]["In msg nelems"]
    # No two kernels of a stream at once; no host operation reaches beyond the one that it is in.
    for stream in (7, 20):
        own = sorted((e["ts"], e["dur"]) for e in kernels.values() if e["tid"] == stream)
        assert all(a[0] + a[1] <= b[0] + 1e-3 for a, b in pairwise(own))
    open_until = []
    host = [e for e in events if e["cat"] in ("cpu_op", "cuda_runtime", "user_annotation")]
    for e in sorted(host, key=lambda e: (e["ts"], -e["dur"])):
        while open_until and open_until[-1] <= e["ts"] + 1e-3:
            open_until.pop()
        assert not open_until or e["ts"] + e["dur"] <= open_until[-1] + 2e-3
        open_until.append(e["ts"] + e["dur"])


def test_the_simulation_keeps_to_physics():
    """Nobody ends before the last has begun, all end together, and only culprits are slow."""
    shape = shaped(32, seed=3, **SIZE)
    ops = program(shape)
    step = next(steps(shape, ops))
    for i, op in enumerate(ops):
        if not op.dim:
            continue
        for group in np.unique(shape.group_of(op.dim)):
            own = shape.group_of(op.dim) == group
            start, end = step.start_ns[own, i], step.end_ns[own, i]
            assert end.min() >= start.max()
            assert end.max() - end.min() <= 1_501
    plain = [i for i, op in enumerate(ops) if not op.dim and not op.by_tokens]
    took = (step.end_ns - step.start_ns)[:, plain].sum(1)
    others = np.delete(took, shape.late_rank)
    assert took[shape.late_rank] / np.median(others) == pytest.approx(1.4, rel=0.01)
    assert others.max() / others.min() < 1.02
    share = step.tokens[shape.hot_layer].sum((0, 1))
    assert share.argmax() == shape.hot_expert
    assert shape.late_rank // HOST_RANKS != shape.slow_host


def test_what_ranks_send_others_get():
    shape = shaped(64, **SIZE)
    sent = splits(shape, np.arange(64 * shape.experts).reshape(64, -1))
    got = received(shape, sent)
    assert sent.sum() == got.sum()
    # Rank 8 h + l is member h % 4 of the group of hosts 0 to 3 (or 4 to 7) with the same l.
    assert got[8 * 6 + 5, 1] == sent[8 * 5 + 5, 2]


@pytest.mark.parametrize("dim", ["world", "dp", "ep", "tp"])
def test_groups_of_many_hosts_are_listed_as_profilers_do(dim):
    """More than 30 members are cut in the middle; spacing and size tell the others."""
    shape = shaped(1024, **SIZE)
    rank = 8 * 77 + 5
    group = Group(shape, dim, rank)
    shown, whole = parse_rank_list(group.text())
    assert whole == (dim in ("ep", "tp"))
    if not whole:
        assert len(shown) == 30
        assert rebuild_ranks(shown, len(group.members)) == tuple(shape.members(dim, rank))
    assert (dim, len(group.members)) in {"world": 1024, "dp": 128, "ep": 4, "tp": 8}.items()


@pytest.mark.parametrize("ranks", [8, 20, 40, 0])
def test_a_number_of_ranks_that_makes_no_groups_is_refused(ranks):
    with pytest.raises(ValueError, match="give 16, 24 or a multiple of 32"):
        shaped(ranks)


def test_numbers_stand_in_their_holes():
    text = Template(b"[" + b"; ".join([hole(TS), hole(DUR), hole(SEQ), hole(COUNT)] * 2) + b"]")
    text.fill(TS, np.array([6_322_354_302_759_843, 1_000_000_000_000_001]))
    text.fill(DUR, np.array([0, 12_345]))
    text.fill(SEQ, np.array([0, 1_000_000]))
    text.fill(COUNT, np.array([9, 1_234_567_890]))
    assert json.loads(text.bytes().replace(b";", b",")) == [
        6322354302759.843, 0.0, 0, 9, 1000000000000.001, 12.345, 1000000, 1234567890
    ]  # fmt: skip
    with pytest.raises(ValueError, match="7 digits"):
        text.fill(SEQ, np.array([0, 10_000_000]))
    with pytest.raises(ValueError, match="1 values for 2 holes"):
        text.fill(SEQ, np.array([0]))


def test_kernels_have_the_measured_durations():
    kernels = table()
    assert len(kernels) == 20
    for k in kernels.values():
        assert k.count > 50
        assert list(k.quantiles_ns) == sorted(k.quantiles_ns)
        assert k.at(0.5) == k.quantiles_ns[3]


def test_growth_is_the_power_that_fits():
    assert growth([1, 4, 16], [3, 12, 48]) == pytest.approx(1)
    assert growth([1, 4, 16], [1, 16, 256]) == pytest.approx(2)
    assert growth([1], [3]) is None


def test_the_table_has_a_column_a_size_and_says_what_is_wrong():
    def size(ranks, right):
        stage = {"seconds": 2.0 * ranks, "cpu_s": 1.0 * ranks, "peak_bytes": 3e6 * ranks}
        view = {"view": "waits", "seconds": 0.5, "cpu_s": 0.25, "peak_mb": 70.0}
        found = {"what": "late rank", "truth": "3", "found": "3" if right else "4", "right": right}
        return {"ranks": ranks, "events": ranks * 1000, "trace_bytes": 5e7, "views": [view],
                "warehouse_bytes": 1e7, "stages": {"ingest": stage}, "found": [found]}  # fmt: skip

    text = markdown([size(64, True), size(1024, False)])
    assert "| ingest | 128.0 (64.0) | 2048.0 (1024.0) | n^1.00 |" in text
    assert "| largest view (waits) | 70 MB | 70 MB | n^0.00 |" in text
    assert "| late rank | 3 | WRONG: 4 for 3 |" in text
    three = markdown([size(64, True), size(256, True), size(1024, True)])
    assert "| ingest | 128.0 (64.0) | 512.0 (256.0) | 2048.0 (1024.0) | n^1.00 (n^1.00) |" in three
