"""What a user says of dimensions: kept in the job, followed by what is derived, seen by views."""

from __future__ import annotations

import itertools
import os

import pytest
import retime
from retime.cli import run
from retime.ingest import clock, rooms, settings, tidying
from retime.ingest.errors import UsageError
from retime.ingest.warehouse import Warehouse


@pytest.fixture
def job(retime_traces, tmp_path):
    """The log of a job of 64 ranks: tensor parallel 4, pipeline 16, by its own words."""
    log = retime_traces / "nccl_logs/bigscience/gpt2-meg/meg_gpt2_perf_n16-1999618.out"
    warehouse = retime.open(tmp_path / "w")
    warehouse.ingest(log, job="j")
    return warehouse.job("j")


def dims_of(job):
    rows = job.dims().group_by("size", "dim", "dim_source").len()
    return sorted(rows.rows())


def test_a_log_without_operations_tells_no_dimension_and_its_degrees_do(job):
    """Known from its arguments: tp 4, dp 1, pp 16. Pairs' members are not in the log."""
    assert dims_of(job) == [
        (1, "unknown", "none", 64), (2, "unknown", "none", 128), (4, "unknown", "none", 16),
        (16, "unknown", "none", 1), (64, "world", "members", 2),
    ]  # fmt: skip
    hints = job.dims().filter(size=4)["dim_reason"].unique().to_list()
    assert hints == ["tp, cp, ep or fsdp: 4 consecutive ranks of one host"]
    job.set_dims(degrees={"tp": 4, "dp": 1, "pp": 16})
    assert dims_of(job) == [
        (1, "dp", "degrees", 64), (2, "unknown", "none", 128), (4, "tp", "degrees", 16),
        (16, "pp", "degrees", 1), (64, "world", "members", 2),
    ]  # fmt: skip
    job.set_dims({"nccl-log-2-*": "pp"})
    assert (2, "pp", "set by user", 128) in dims_of(job)
    assert (4, "tp", "degrees", 16) in dims_of(job)
    job.set_dims(clear=True)
    assert (4, "unknown", "none", 16) in dims_of(job)


def test_what_is_wrong_is_refused_and_changes_nothing(job):
    for wrong, why in (
        ({"degrees": {"tp": 4, "pp": 15}}, "tp 4 x pp 15 make 60 ranks, but the job has 64"),
        ({"degrees": {"xx": 64}}, "xx=64"),
        ({"degrees": {"tp": 0}}, "tp=0"),
        ({"rules": {"*": "tensor"}}, "no dimension 'tensor'"),
    ):
        with pytest.raises(UsageError, match=why):
            job.set_dims(**wrong)
    assert settings.read(job.warehouse.store.job_folder("j")) == settings.Settings()


def test_the_command_sets_prints_and_refuses(job, capsys, monkeypatch):
    monkeypatch.setenv("RETIME_WAREHOUSE", job.warehouse.url)
    assert run(["dims", "j", "--degrees", "tp=4,dp=1,pp=16", "--set", "*-64-0=dp"]) == 0
    out = capsys.readouterr().out
    assert "set by user" in out
    assert "0-60/4" in out
    assert run(["dims", "j", "--json"]) == 0
    assert '"dim_source": "degrees"' in capsys.readouterr().out
    for wrong in (["--degrees", "tp=4,pp"], ["--degrees", "tp=4,tp=16"], ["--set", "tp"],
                  ["--degrees", "tp=-4"]):  # fmt: skip
        assert run(["dims", "j", *wrong]) == 2
    assert "not of the form" in capsys.readouterr().err


def test_other_settings_than_those_of_derived_tables_derive_nothing_anew(job):
    store: Warehouse = job.warehouse.store
    folder = store.job_folder("j")
    before = store.snapshot("j").generation.id
    said = settings.Settings(kernels=[settings.KernelRule("x", "gemm")])
    settings.write(folder, said)
    assert store.snapshot("j").generation.id == before
    settings.write(folder, settings.replaced(said, degrees={"tp": 64}))
    assert store.snapshot("j").generation.id != before


def test_damaged_settings_are_left_aside_and_said(job):
    folder = job.warehouse.store.job_folder("j")
    (folder / settings.FILE).write_bytes(b"{")
    odd = [r for r in job.problems().to_dicts() if r["code"] == "bad_settings"]
    assert len(odd) == 1
    assert "remove it and set anew" in odd[0]["message"]
    job.set_dims({"*-64-1": "dp"}, clear=True)
    assert "bad_settings" not in job.problems()["code"].to_list()


def test_generations_of_other_settings_do_not_pile_up(job, monkeypatch):
    """The ninth stays for an hour, as somebody may read it; of very many the oldest go at once."""
    folder, n = job.warehouse.store.job_folder("j"), itertools.count()

    def standing(more):
        for _ in range(more):
            job.set_dims({f"{next(n)}": "dp"})
            job.warehouse.store.snapshot("j")
        return len(list((folder / rooms.MANIFESTS).glob("derived-*.json")))

    there = standing(tidying.GENERATIONS_KEPT + 3)
    assert there >= tidying.GENERATIONS_KEPT + 3
    now = clock.now_ns
    with monkeypatch.context() as m:
        m.setattr(clock, "now_ns", lambda folder: now(folder) + int(3601e9))
        assert standing(1) == tidying.GENERATIONS_KEPT
    monkeypatch.setattr(tidying, "MOST_GENERATIONS", 10)
    assert standing(5) == 10


def bad_settings(job):
    return [r["message"] for r in job.problems().to_dicts() if r["code"] == "bad_settings"]


@pytest.mark.parametrize(
    "pattern", ["(", "((a{1,1000}){1,1000}){1,1000}", "", "x" * 1001]
)  # fmt: skip
def test_a_bad_rule_for_kernels_is_left_out_and_said(job, pattern):
    folder = job.warehouse.store.job_folder("j")
    good = settings.KernelRule("k", "gemm")
    rules = [settings.KernelRule(pattern, "gemm"), good, settings.KernelRule("k", "no such")]
    settings.write(folder, settings.Settings(kernels=rules))
    assert job.warehouse.store.snapshot("j").kernels == (good,)
    assert job.kernels()["rules"] == [{"pattern": "k", "category": "gemm"}]
    told = bad_settings(job)
    assert len(told) == 2
    assert "rule 1 for kernels" in told[0]
    assert "rule 3 for kernels: no class 'no such'" in told[1]


def test_too_many_rules_and_degrees_below_one_are_left_out_and_said(job):
    folder = job.warehouse.store.job_folder("j")
    dims = [settings.DimRule(f"{n}", "dp") for n in range(1001)]
    kernels = [settings.KernelRule(f"{n}", "gemm") for n in range(1001)]
    settings.write(folder, settings.Settings(dims, {"tp": 64, "pp": 0, "dp": -1}, kernels))
    found = settings.usable(folder)
    assert (found.said.dims, found.said.degrees, found.said.kernels) == (
        dims[:1000], {}, kernels[:1000],
    )  # fmt: skip
    told = "\n".join(bad_settings(job))
    for said in ("1001 rules for dimensions", "1001 rules for kernels", "pp=0, dp=-1"):
        assert said in told
    with pytest.raises(UsageError, match="1002 rules for dimensions"):
        job.set_dims({"one more": "dp"})


def test_a_pipe_is_no_settings_and_is_not_waited_for(job):
    folder = job.warehouse.store.job_folder("j")
    os.mkfifo(folder / settings.FILE)
    assert "not a file" in bad_settings(job)[0]
    (folder / settings.FILE).unlink()
    (folder / settings.FILE).symlink_to("/dev/zero")
    assert "not a file" in settings.usable(folder).problems[0].message


def test_what_is_wrong_is_said_anew_when_it_is_wrong_otherwise(job):
    folder = job.warehouse.store.job_folder("j")
    said = []
    for text in (b"{", b'{"dims": 1}', b'{"degrees": {"tp": 0}}'):
        (folder / settings.FILE).write_bytes(text)
        said += bad_settings(job.warehouse.job("j"))
    assert len(said) == 3
    assert len(set(said)) == 3


@pytest.mark.parametrize("command", ["dims", "kernels"])
@pytest.mark.parametrize("json", [[], ["--json"]])
def test_commands_that_follow_settings_say_what_is_wrong_with_them(
    job, capsys, monkeypatch, command, json
):
    monkeypatch.setenv("RETIME_WAREHOUSE", job.warehouse.url)
    (job.warehouse.store.job_folder("j") / settings.FILE).write_bytes(b"{")
    assert run([command, "j", *json]) == 0
    assert "note: left aside:" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--step-annotation", "--kernel-patterns"])
def test_what_cannot_be_kept_is_said_before_anything_is_ingested(
    job, capsys, monkeypatch, tmp_path, demo_job, option
):
    monkeypatch.setenv("RETIME_WAREHOUSE", job.warehouse.url)
    folder = job.warehouse.store.job_folder("j")
    (folder / settings.FILE).write_bytes(b"{")
    (tmp_path / "ours.csv").write_text("mine,gemm\n")
    before = sorted(p for p in folder.rglob("*") if p.is_file())
    value = {"--step-annotation": "it *", "--kernel-patterns": str(tmp_path / "ours.csv")}[option]
    line = ["ingest", str(demo_job / "rank1.json.gz"), "--job", "j"]
    assert run([*line, option, value]) == 3
    told = capsys.readouterr().err
    assert f"{folder / settings.FILE}: not settings" in told
    assert "remove it and set anew" in told
    assert sorted(p for p in folder.rglob("*") if p.is_file()) == before


def test_default_patterns_leave_damaged_settings_to_the_problems(
    job, monkeypatch, tmp_path, demo_job
):
    (tmp_path / "ours.csv").write_text("mine,gemm\n")
    monkeypatch.setenv("RETIME_KERNEL_PATTERNS", str(tmp_path / "ours.csv"))
    folder = job.warehouse.store.job_folder("j")
    (folder / settings.FILE).write_bytes(b"{")
    assert job.warehouse.ingest(demo_job / "rank1.json.gz", job="j").exit_code == 0
    assert (folder / settings.FILE).read_bytes() == b"{"
    assert len(bad_settings(job)) == 1


def test_too_many_rules_are_said_before_anything_is_ingested(job, tmp_path, demo_job):
    (tmp_path / "ours.csv").write_text("mine,gemm\n")
    folder = job.warehouse.store.job_folder("j")
    kernels = [settings.KernelRule(f"{n}", "gemm") for n in range(1000)]
    settings.write(folder, settings.Settings(kernels=kernels))
    sources = job.ranks().height
    with pytest.raises(UsageError, match="1001 rules for kernels"):
        job.warehouse.ingest(
            demo_job / "rank1.json.gz", job="j", kernel_patterns=tmp_path / "ours.csv"
        )
    assert job.warehouse.job("j").ranks().height == sources
