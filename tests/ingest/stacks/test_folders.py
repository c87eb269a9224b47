"""Whole folders: what is of these stacks is taken, what is no trace is told plainly."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from retime.ingest.clashes import RankClash
from retime.ingest.run import ingest


@pytest.fixture
def made(monkeypatch):
    """The made-up profiles of this folder's other tests: (ascend, rocprof)."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import test_ascend
    import test_rocprof

    return test_ascend, test_rocprof


def test_ranks_of_several_profilers_in_one_folder(tmp_path, made):
    test_ascend, test_rocprof = made
    job = tmp_path / "job"
    job.mkdir()
    test_ascend.profile(job, rank=0)
    test_rocprof.write(job, test_rocprof.process(), name="rank1_results.json")
    for kind, text in test_rocprof.CSV.items():
        (job / f"rank2_{kind}.csv").write_text(text)
    with sqlite3.connect(job / "rank3_results.db") as db:
        db.execute("CREATE TABLE rocpd_kernel_dispatch_0 (id INTEGER)")
    report = ingest(tmp_path / "wh", str(job), workers=1)
    assert sorted((s.format, s.status, s.ranks) for s in report.sources) == [
        ("ascend", "new", [0]),
        ("rocprof", "failed", []),
        ("rocprof", "new", [1]),
        ("rocprof", "new", [2]),
    ]
    (failed,) = [s for s in report.sources if s.status == "failed"]
    assert "--output-format json" in str(failed.error)


def test_answers_beside_traces_are_no_traces_and_the_rest_goes_on(tmp_path, retime_traces, made):
    _, test_rocprof = made
    study = retime_traces / "straggler" / "StragglerAnalysis"
    job = tmp_path / "job"
    job.mkdir()
    answers = [p for n in ("result", "mw", "ms") for p in study.glob(f"{n}-*.json")]
    assert len(answers) == 6
    for path in answers:
        shutil.copy(path, job)
    test_rocprof.write(job, test_rocprof.process(), name="rank0_results.json")
    report = ingest(tmp_path / "wh", str(job), workers=1)
    assert [(s.format, s.status) for s in report.sources] == [("rocprof", "new")]
    told = {name.rpartition("/")[2]: (p.code, p.severity) for name, p in report.problems}
    assert told == {p.name: ("not_a_trace", "warning") for p in answers}
    assert "not a trace" in report.problems[0][1].message


def test_kineto_of_the_same_rank_stays_and_the_rest_goes_on(tmp_path, made):
    _, test_rocprof = made
    job = tmp_path / "job"
    job.mkdir()
    test_rocprof.write(job, test_rocprof.process(), name="rank0_results.json")
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1}
    (job / "rank0.pt.trace.json").write_text(json.dumps({"traceEvents": [kernel]}))
    test_rocprof.write(job, test_rocprof.process(), name="rank1_results.json")
    report = ingest(tmp_path / "wh", str(job), workers=1)
    assert [(s.format, s.ranks, s.status) for s in report.sources] == [
        ("kineto", [0], "new"),
        ("rocprof", [], "refused"),
        ("rocprof", [1], "new"),
    ]
    assert isinstance(report.sources[1].error, RankClash)
    assert report.exit_code == 1
