"""`retime jobs` and `retime files` on a screen: conditions, pruned events, whole paths."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
import retime
from retime import cli
from retime.analysis import files_screen, jobs, query
from retime.ingest.errors import UsageError
from rich.console import Console


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, demo_job: Path) -> Path:
    folder = tmp_path_factory.mktemp("jobs") / "warehouse"
    retime.open(folder).ingest([demo_job / "rank0.json.gz"], job="a")
    return folder


@pytest.fixture
def wh(made: Path, tmp_path: Path) -> retime.Warehouse:
    for job in ("a", "b"):
        shutil.copytree(made / "job=a", tmp_path / "warehouse" / f"job={job}")
    return retime.open(tmp_path / "warehouse")


def screen(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert cli.run([*args]) == 0
    return capsys.readouterr().out


def test_where_no_job_fits_the_tags_in_use_are_named(wh, capsys) -> None:
    ask = ("jobs", "--where", "tags['clutser'] = 'a'", "--warehouse", wh.url)
    assert screen(capsys, *ask) == "no job fits; no job has a tag\n"
    wh.job("a").tag({"cluster": "a", "keep": ""})
    wh.job("b").tag({"cluster": "b"})
    assert screen(capsys, *ask) == "no job fits; tags in use: cluster=a|b, keep\n"
    assert screen(capsys, *ask, "--json").strip() == "[]"
    other = ("jobs", "--where", "ranks_seen > 7", "--warehouse", wh.url)
    assert screen(capsys, *other) == "no job fits\n"


def test_the_hint_is_bounded() -> None:
    rows = [{"tags": {f"k{n:02}": "v" * 99}} for n in range(30)]
    rows += [{"tags": {"k00": f"{n}"}} for n in range(9)]
    said = jobs.tags_in_use(rows)
    assert said.startswith("k00=0|1|2|3|4|…, k01=" + "v" * 40 + ", ")
    assert said.count("=") == 12
    assert said.endswith(", …")


@pytest.mark.parametrize(
    ("where", "kind"),
    [("ranks_seen", "BIGINT"), ("job", "VARCHAR"), ("1", "INTEGER"), ("tags", "MAP")],
)
def test_what_is_neither_true_nor_false_is_no_condition(wh, where, kind) -> None:
    with pytest.raises(UsageError, match=rf"--where '{where}': it is {kind}.*columns: job, "):
        wh.jobs(where)
    assert wh.jobs("true").height == 2
    assert wh.jobs("ranks_seen > 0 AND tags['x'] IS NULL").height == 2
    assert wh.jobs("NULL").height == 0


def test_pruned_events_are_seen(wh, capsys) -> None:
    assert "pruned" not in screen(capsys, "jobs", "--warehouse", wh.url)
    wh.prune(["b"], raw_events=True, dry_run=False)
    titles, a, b = screen(capsys, "jobs", "--warehouse", wh.url).splitlines()
    at = titles.index("pruned")
    assert [a[at : at + 6].strip(), b[at : at + 6]] == ["", "events"]


def test_paths_of_files_are_whole_and_alone_on_a_narrow_screen() -> None:
    long = [f"/data/{'x' * 100}/events-{n}.parquet" for n in range(3)]
    rows = [
        {"job": "a", "table": "events", "file": file, "rows": 7, "bytes": 2000} for file in long
    ]
    narrow = Console(file=io.StringIO(), width=80, highlight=False, markup=False)
    files_screen.show_files(narrow, rows, 2)
    lines = narrow.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines == ["a events: 14 rows, 3.91 KiB", *long[:2],
                     "(2 of 3 files; --limit N or --json for more)"]  # fmt: skip
    wide = Console(file=io.StringIO(), width=500, highlight=False, markup=False)
    files_screen.show_files(wide, rows, 9)
    titles, *lines = wide.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert titles.split() == ["job", "table", "file", "rows", "bytes"]
    assert [line.split()[2] for line in lines] == long


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ('Did you mean "_lateness"?', "there is none"),
        ('Did you mean "waits"?', 'there is none. Did you mean "waits"?'),
        ('Candidate bindings: "_place", "job"', 'there is none. Candidate bindings: "job"'),
        ('Did you mean "_a or late"?', 'there is none. Did you mean "late"?'),
    ],
)
def test_internal_names_are_not_proposed(said, shown) -> None:
    error = RuntimeError(f"there is none!\n{said}\n\nLINE 1: FROM wiats")
    text = query.sentence(error).removeprefix("the query cannot run: ")
    assert text.rstrip("!") == shown
