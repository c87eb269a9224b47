"""Jobs made ready for every query, on this machine: what is kept, what is said, exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import retime
from retime import cli
from retime.analysis import analysing
from retime.ingest.errors import UsageError, WarehouseError
from retime.ingest.workers import WorkerDied


@pytest.fixture(scope="module")
def once(tmp_path_factory, demo_job: Path) -> Path:
    folder = tmp_path_factory.mktemp("analysing") / "warehouse"
    paths = [demo_job / "rank0.json.gz", demo_job / "rank1.json.gz"]
    assert retime.open(folder).ingest(paths, job="a").exit_code == 0
    shutil.copytree(folder / "job=a", folder / "job=b")
    return folder


@pytest.fixture
def warehouse(once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(once, tmp_path / "w"))


def scored(warehouse: Path) -> list[tuple]:
    """What a query over all jobs finds: it reads what is kept and computes nothing."""
    query = "SELECT job, count(*) FROM replay_scores GROUP BY job ORDER BY job"
    return retime.open(warehouse).sql(query).rows()


def test_what_is_missing_is_computed_and_kept(warehouse: Path) -> None:
    opened = retime.open(warehouse)
    assert scored(warehouse) == []
    told: list[tuple[int, int]] = []
    (row,) = opened.analyse("b", workers=1, progress=lambda n, of: told.append((n, of)))
    assert (row["job"], row["status"], row["reason"], row["report"]) == (
        "b",
        "computed",
        None,
        None,
    )
    assert row["replay_scores"] == 2
    for table in ("critical_path", "slack"):
        ((rows,),) = opened.sql(f"SELECT count(*) FROM {table}", job="b").rows()
        assert row[table] == rows > 0
    assert told == [(1, 1)]
    assert scored(warehouse) == [("b", 2)]
    rows = opened.analyse(workers=2)
    assert [(r["job"], r["status"]) for r in rows] == [("a", "computed"), ("b", "already")]
    assert rows[1] == {**row, "status": "already"}
    assert scored(warehouse) == [("a", 2), ("b", 2)]


def test_a_job_that_cannot_be_replayed_says_why(warehouse: Path) -> None:
    for path in (warehouse / "job=a").glob("events/*.parquet"):
        path.write_bytes(bytes(path.stat().st_size))
    rows = retime.open(warehouse).analyse(["a", "b"])
    assert [(r["job"], r["status"], r["replay_scores"]) for r in rows] == [
        ("a", "no rows", 0),
        ("b", "computed", 2),
    ]
    assert "the job cannot be replayed" in rows[0]["reason"]
    assert analysing.exit_code(rows) == 0


def test_pages_are_written_beside(warehouse: Path, tmp_path: Path, capfd) -> None:
    command = ["analyse", "a", "--warehouse", str(warehouse), "--json"]
    assert cli.run([*command, "--reports", str(tmp_path / "new" / "pages")]) == 0
    (row,) = json.loads(capfd.readouterr().out)
    page = tmp_path / "new" / "pages" / "a.html"
    assert row["report"] == str(page)
    assert page.read_bytes().startswith(b"<!doctype html>")
    assert [p.name for p in page.parent.iterdir()] == ["a.html"]


def test_failures_are_rows_and_the_exit_code() -> None:
    died = analysing._failed("a", WorkerDied("it was killed"))
    assert died["reason"] == "the process that worked on it ended early: it was killed"
    refused = analysing._failed("b", WarehouseError("no rights"))
    assert (refused["status"], refused["reason"]) == ("failed", "no rights")
    bug = analysing._failed("c", KeyError("x"))
    assert bug["reason"] == "KeyError: 'x' (please report this)"
    done = {**died, "status": "already"}
    assert [analysing.exit_code(r) for r in ([done], [done, died], [died, bug])] == [0, 1, 3]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "name the jobs to analyse, or --all"),
        (["a", "--all"], "name the jobs to analyse, or --all"),
        (["nowhere"], "no job 'nowhere'"),
        (["a", "--ray", "here"], "an address is auto, local, HOST:PORT or ray://HOST:PORT"),
        (["a", "--reports", "/dev/null/pages"], "cannot be made"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(once: Path, args, words, capfd) -> None:
    assert cli.run(["analyse", *args, "--warehouse", str(once)]) in (2, 3)
    out, err = capfd.readouterr()
    assert out == ""
    assert words in err
    assert len(err.splitlines()) == 1


def test_workers_are_one_or_more(once: Path) -> None:
    with pytest.raises(UsageError, match="workers must be 1 or more"):
        retime.open(once).analyse(workers=0)
