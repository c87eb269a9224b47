"""Kernels of a job by class, and rules for them: from ingest to replay, with no second ingest."""

import gzip
import json

import numpy as np
import pytest
import retime
from retime.cli import run
from retime.ingest import kernel_rules
from retime.ingest.errors import UsageError
from retime.ingest.store import reading
from retime.ingest.tasks import events
from retime.replay import load


def trace(folder, rank=0):
    """One step of 1000 us on one GPU: a gemm of 300, an unknown name of 200, a copy of 100."""
    made = [
        ("kernel", "nvjet_tst_192x192_64x3_2x1_v_bz_coopB_NNN", 0, 300),
        ("kernel", "void hydro::sweep<float>(float*)", 300, 200),
        ("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 500, 100),
    ]
    rows = [
        {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": 1000 + start, "dur": dur,
         "args": {"device": 0, "stream": 7, "correlation": i}}
        for i, (cat, name, start, dur) in enumerate(made)
    ]  # fmt: skip
    rows += [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1,
         "ts": 1000, "dur": 1000, "args": {}},
        *({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
           "ts": 1000 + i, "dur": 1, "args": {"correlation": i}} for i in range(3)),
    ]  # fmt: skip
    path = folder / f"rank{rank}.json.gz"
    info = {"distributedInfo": {"rank": rank, "world_size": 1, "backend": "nccl"}}
    path.write_bytes(gzip.compress(json.dumps({**info, "traceEvents": rows}).encode()))
    return path


@pytest.fixture
def job(tmp_path):
    wh = retime.open(tmp_path / "warehouse")
    wh.ingest([trace(tmp_path)], job="k", workers=1)
    return wh.job("k")


def classes(job):
    return {r["class"]: r["total_ns"] for r in job.kernel_classes().to_dicts()}


def test_a_rule_holds_at_once_and_is_forgotten_at_once(job):
    assert classes(job) == {"gemm": 300_000, "unknown": 200_000, "copy": 100_000}
    assert job.unknown_kernels().rows() == [
        ("k", "void hydro::sweep<float>(float*)", 1, 200_000, pytest.approx(1 / 3), 1)
    ]
    job.set_kernels(["hydro::=elementwise"])
    assert classes(job) == {"gemm": 300_000, "elementwise": 200_000, "copy": 100_000}
    assert job.unknown_kernels().is_empty()
    assert job.kernels()["rules"] == [{"pattern": "hydro::", "category": "elementwise"}]
    # A later rule comes before an earlier one; the same pattern again takes its place.
    job.set_kernels(["sweep=reduction", "nvjet=attention"]).set_kernels(["nvjet=gemm"])
    assert classes(job) == {"gemm": 300_000, "reduction": 200_000, "copy": 100_000}
    job.set_kernels(clear=True)
    assert classes(job) == {"gemm": 300_000, "unknown": 200_000, "copy": 100_000}


def test_a_kernel_said_to_be_communication_is_no_compute_and_no_collective(job):
    query = "SELECT sum(compute_ns), sum(comm_ns) FROM overlap"
    assert job.sql(query).rows() == [(500_000, 0)]
    job.set_kernels(["hydro=communication"])
    assert job.sql(query).rows() == [(300_000, 200_000)]
    assert job.collectives().is_empty()


def test_replay_reads_what_sql_reads(job):
    job.set_kernels(["hydro=comm"])
    snapshot = job.snapshot
    said = kernel_rules.categories(snapshot.files, snapshot.kernels)
    words = events.Words()
    files = [(f, reading.parquet(f).metadata) for f in snapshot.files["events"]]
    everything = events.of_files(files, words, lambda kind, *_: np.arange(len(kind)), said)
    read = everything.take(everything.of("kernel", "memcpy", "runtime"))
    query = (
        "SELECT event_id, name, coalesce(category = 'comm', false) FROM events "
        "WHERE kind IN ('kernel', 'memcpy', 'runtime')"
    )
    texts = words.texts
    rows = [
        (e, texts[n], c)
        for e, n, c in zip(read.event_id, read.name, read.is_comm.tolist(), strict=True)
    ]
    assert sorted(rows) == sorted(job.sql(query).rows())
    assert any(c for _, _, c in rows)
    assert load.load(snapshot).graph is not None


def test_a_wrong_rule_changes_nothing(job):
    job.set_kernels(["hydro=other"])
    with pytest.raises(UsageError, match="no class 'gem'"):
        job.set_kernels(["a=gemm", "b=gem"], clear=True)
    assert classes(job)["other"] == 200_000


def test_a_file_of_patterns_at_ingest(tmp_path, monkeypatch):
    ours = tmp_path / "ours.csv"
    ours.write_text("hydro,reduction\n")
    theirs = tmp_path / "theirs.toml"
    theirs.write_text('hydro = "optimizer"\n')
    wh = retime.open(tmp_path / "w")
    monkeypatch.setenv("RETIME_KERNEL_PATTERNS", str(ours))
    source = trace(tmp_path)
    wh.ingest([source], job="a", workers=1)
    assert classes(wh.job("a"))["reduction"] == 200_000
    wh.ingest([source], job="a", workers=1, kernel_patterns=theirs)
    assert classes(wh.job("a"))["optimizer"] == 200_000
    # The default is for jobs of which nothing was said.
    wh.ingest([source], job="a", workers=1)
    assert classes(wh.job("a"))["optimizer"] == 200_000
    ours.write_text("hydro,nothing\n")
    with pytest.raises(UsageError, match=r"ours\.csv:1: no class 'nothing'"):
        wh.ingest([source], job="b", workers=1)
    assert wh.job_ids() == ["a"]


def test_the_command_prints_classes_and_unknown_names(job, capsys):
    where = ["--warehouse", job.warehouse.url]
    assert run(["kernels", "k", *where]) == 0
    out = capsys.readouterr().out
    assert "gemm" in out
    assert "hydro::sweep" in out
    assert run(["kernels", "k", "--set", "hydro=conv", "--json", *where]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(r["class"], r["kernels"], r["total_ns"]) for r in found["classes"]] == [
        ("gemm", 2, 500_000),
        ("copy", 1, 100_000),
    ]
    assert found["unknown"] == []
    assert found["rules"] == [{"pattern": "hydro", "category": "conv"}]
    assert run(["kernels", "k", "--set", "hydro", *where]) == 2
    assert "not of the form PATTERN=CLASS" in capsys.readouterr().err
    assert run(["kernels", "k", "--clear", *where]) == 0
    assert "No pattern knows" in capsys.readouterr().out
