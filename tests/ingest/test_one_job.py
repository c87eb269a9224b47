"""Files of several runs in one job: what contradicts, that it is said at every door, what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
import retime
from retime import cli
from retime.ingest import one_job
from retime.ingest.manifest import REMARKS, Manifest, Remark
from retime.ingest.schema import TABLES

HOUR = 3600 * 10**9
DAY = 1_772_409_600 * 10**9
"""2026-03-02, 00:00 UTC."""


def source(name: str, world: int | None = None, remarks: list[Remark] | None = None) -> Manifest:
    return Manifest(
        id=name, name=name, sha256="", size_bytes=1, format=REMARKS if remarks else "kineto",
        ranks=[], world_sizes=[world] if world else [], tables={}, views={}, problems={},
        tool_version="0", created_at_ns=0, remarks=remarks or [],
    )  # fmt: skip


def ranks(*windows: tuple[int, int], clock: str = "host", models: tuple[str, ...] = ()) -> pa.Table:
    n = len(windows)
    batch = TABLES["ranks"].batch(
        {
            "rank": list(range(n)),
            "start_ns": [a for a, _ in windows],
            "end_ns": [b for _, b in windows],
            "clock": [clock] * n,
            "device_name": list(models) or [None] * n,
        }
    )
    return pa.Table.from_batches([batch])


def clash(place: str) -> Manifest:
    return source(REMARKS, remarks=[Remark(place, "lost", "rank_clash", "rank 0 clashes", 1)])


TOGETHER = ranks((DAY, DAY + HOUR), (DAY + HOUR, DAY + 2 * HOUR))


def test_one_run_says_nothing() -> None:
    assert one_job.contradictions([source("a", 8), source("b", 8)], TOGETHER) == []
    hour_apart = ranks((DAY, DAY + HOUR), (DAY + 2 * HOUR, DAY + 3 * HOUR))
    assert one_job.contradictions([source("a")], hour_apart) == []


def test_times_are_compared_on_clocks_of_an_epoch_only() -> None:
    windows = (DAY, DAY + 1), (DAY + 3 * HOUR, DAY + 3 * HOUR + 1)
    (problem,) = one_job.contradictions([source("a")], ranks(*windows))
    assert problem.code == "several_jobs"
    assert "ranks 0 and 1 lie 2 hours apart (2026-03-02 00:00 and 2026-03-02 03:00 UTC)" in (
        problem.message
    )
    assert one_job.contradictions([source("a")], ranks(*windows, clock="boot")) == []


def test_a_trace_within_a_longer_one_is_not_apart() -> None:
    nested = ranks(
        (DAY, DAY + 9 * HOUR), (DAY + HOUR, DAY + 2 * HOUR), (DAY + 8 * HOUR, DAY + 9 * HOUR)
    )
    assert one_job.contradictions([source("a")], nested) == []


def test_all_that_contradicts_is_told_with_what_to_do() -> None:
    sources = [source("/t/a/0.json", 8), source("/t/b/x/1.json", 128), clash("/t/c/0.json")]
    table = ranks((DAY, DAY + 1), (DAY + 99 * 24 * HOUR, DAY + 99 * 24 * HOUR + 1),
                  models=("A100", "H100"))  # fmt: skip
    (problem,) = one_job.contradictions(sources, table)
    assert (problem.code, problem.severity, problem.count) == ("several_jobs", "warning", 4)
    assert problem.message == (
        "the files of this job look like several runs: 1 file claims a rank that another has; "
        "they say world sizes of 8, 128 ranks; the traces of ranks 0 and 1 lie 98 days apart "
        "(2026-03-02 00:00 and 2026-06-09 00:00 UTC); they ran on A100, H100. What is said of the "
        "job mixes them. Ingest each folder below /t by itself (a, b/x, c) into a job of its own: "
        "retime ingest FOLDER --job NAME"
    )


def test_a_refused_file_that_became_a_source_is_none() -> None:
    assert one_job.contradictions([source("a"), clash("a")], TOGETHER) == []


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Three one-kernel traces in two folders: two of rank 0, one of rank 1 a day later."""
    for file, rank, day in (("a/0.json", 0, 0), ("b/0.json", 0, 1), ("b/1.json", 1, 1)):
        trace = {
            "baseTimeNanoseconds": 0,
            "distributedInfo": {"rank": rank, "world_size": 2},
            "traceEvents": [
                {"ph": "X", "cat": "kernel", "name": f"k{file}" * 9 * (day + 1), "pid": 0,
                 "tid": 7, "ts": DAY // 1000 + day * 86_400_000_000, "dur": 5,
                 "args": {"device": 0, "stream": 7, "correlation": 1}}
            ],
        }  # fmt: skip
        path = tmp_path / "in" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(trace))
    return tmp_path / "in"


def test_it_is_said_at_ingest_and_by_show(mixed: Path, tmp_path: Path, capfd) -> None:
    url = str(tmp_path / "w")
    paths = [str(mixed / "a"), str(mixed / "b" / "1.json")]
    assert cli.run(["ingest", *paths, "--job", "j", "--warehouse", url]) == 0
    out = capfd.readouterr()[0]
    assert "\nwarning: the files of this job look like several runs: the traces of ranks" in out
    assert "retime ingest FOLDER --job NAME" in out
    assert cli.run(["ingest", *paths, "--job", "j", "--warehouse", url, "--json"]) == 0
    told = json.loads(capfd.readouterr()[0])["problems"]
    assert [(p["source"], p["code"]) for p in told] == [("j", "several_jobs")]
    (said,) = retime.open(url).job("j").show()["contradictions"]
    assert "lie 23 hours apart" in said
    problems = retime.open(url).job("j").problems()
    assert problems.filter(code="several_jobs").height == 1


def test_one_folder_of_many_runs_says_so_before_each_file(
    mixed: Path, tmp_path: Path, capfd
) -> None:
    assert cli.run(["ingest", str(mixed), "--job", "j", "--warehouse", str(tmp_path / "w")]) == 1
    lines = capfd.readouterr()[0].splitlines()
    (warning,) = [n for n, s in enumerate(lines) if s.startswith("warning: ")]
    (refused,) = [n for n, s in enumerate(lines) if s.startswith("refused: ")]
    assert warning < refused
    assert "1 file claims a rank that another has" in lines[warning]
