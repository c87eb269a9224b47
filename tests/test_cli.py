"""The command line on real input: what it prints, its exit codes, its one-sentence errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from retime import cli

COMMANDS = (
    "demo", "ingest", "upload", "jobs", "show", "dims", "kernels", "problems", "sql", "tables",
    "files", "replay", "policies", "model", "plan", "fabric", "stragglers", "diff", "fleet",
    "analyse", "report", "notebook", "tag", "note", "verify", "prune", "compact", "export",
)  # fmt: skip


class Ran:
    """What one command line left: exit code, stdout, stderr."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory, demo_job: Path) -> Path:
    """Two of the demo's ranks, ingested once for all tests here."""
    folder = tmp_path_factory.mktemp("cli") / "warehouse"
    paths = [str(demo_job / f"rank{r}.json.gz") for r in (0, 1)]
    assert cli.run(["ingest", *paths, "--job", "two", "--warehouse", str(folder)]) == 0
    return folder


@pytest.fixture
def retime(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Runs a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETIME_WAREHOUSE", raising=False)
    monkeypatch.delenv("RETIME_DEBUG", raising=False)

    def run(*args: str) -> Ran:
        capfd.readouterr()
        code = cli.run([str(a) for a in args])
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return run


def test_help_is_the_map(retime) -> None:
    ran = retime("--help")
    assert ran.code == 0
    listed = ran.out.split("Commands:\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert "..." not in ran.out.replace("[ARGS]...", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(retime, command: str) -> None:
    ran = retime(command, "--help")
    assert ran.code == 0
    assert f"retime {command}" in ran.out.split("Examples:")[1]
    assert "--json" in ran.out


def test_the_script_ingests_without_pandas(demo_job: Path, tmp_path: Path) -> None:
    """In a process of its own: the entry point hides pandas, which pyarrow asks for."""
    code = (
        "import atexit, sys; from retime import cli; "
        "atexit.register(lambda: print('pandas:', 'pandas' in sys.modules)); cli.main()"
    )
    command = ["ingest", str(demo_job / "rank0.json.gz"), "--job", "one", "--warehouse", "w"]
    ran = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, cwd=tmp_path
    )
    assert ran.returncode == 0
    assert "pandas: False" in ran.stdout


def imported(args: list[str], folder: Path) -> set[str]:
    """The modules that a process has which was the script with these arguments."""
    code = (
        "import atexit, json, sys; from retime import cli; "
        "atexit.register(lambda: open('modules.json', 'w').write(json.dumps(list(sys.modules)))); "
        "cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads((folder / "modules.json").read_text()))


NEVER = {
    "altair", "fsspec", "pandas", "pydantic", "ray", "s3fs", "scipy", "typer", "vl_convert",
}  # fmt: skip


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    heavy = {*NEVER, "asyncio", "duckdb", "llvmlite", "numba", "numpy", "polars", "pyarrow", "rich"}
    for args in (["--help"], ["--version"]):
        modules = imported(args, tmp_path)
        assert not heavy & modules
        assert not [m for m in modules if m.startswith("retime.ingest.kineto")]
    assert not (heavy - {"numpy"}) & imported(["ingest", "--help"], tmp_path)


def test_a_query_imports_no_compiler_and_no_store(warehouse: Path, tmp_path: Path) -> None:
    query = ["sql", "SELECT count(*) FROM waits", "--warehouse", str(warehouse)]
    imported(query, tmp_path)  # what is computed once is kept
    modules = imported(query, tmp_path)
    assert not (NEVER - {"fsspec"}) & modules  # DuckDB reads the files through one of its own
    assert not {"llvmlite", "numba", "polars"} & modules


def test_a_small_ingest_imports_no_engine(demo_job: Path, tmp_path: Path) -> None:
    trace = str(demo_job / "rank0.json.gz")
    modules = imported(["ingest", trace, "--job", "one", "--warehouse", "w"], tmp_path)
    assert not {*NEVER, "asyncio", "duckdb", "numba", "polars", "pyarrow.dataset", "rich"} & modules


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["shwo"], "No such command 'shwo'"),
        (["jobs", "--nope"], "No such option"),
        (["sql"], "Missing argument"),
        (["ingest", "x", "--workers", "0"], "workers"),
        (["policies", "align-arival"], "did you mean align-arrivals"),
        (["tables", "wait"], "did you mean waits?"),
    ],
)
def test_usage_is_one_sentence_and_2(retime, args: list[str], words: str) -> None:
    ran = retime(*args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("retime: ")
    assert words in ran.err
    assert len(ran.err.splitlines()) == 1


def test_no_command_shows_the_map_and_is_usage(retime) -> None:
    ran = retime()
    assert (ran.code, ran.out) == (2, "")
    assert "Commands:" in ran.err


@pytest.mark.parametrize("command", ["jobs", "show", "problems", "replay", "report", "stragglers"])
def test_no_warehouse_is_3(retime, command: str) -> None:
    ran = retime(command)
    assert (ran.code, ran.out) == (3, "")
    assert "no warehouse at" in ran.err


@pytest.mark.parametrize("command", ["show", "problems", "replay", "report", "stragglers"])
def test_no_such_job_names_those_there_are(retime, warehouse: Path, command: str) -> None:
    ran = retime(command, "three", "--warehouse", warehouse)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == f"retime: no job 'three' in warehouse {warehouse}; it holds two\n"


def test_warehouse_from_the_environment(
    retime, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETIME_WAREHOUSE", str(warehouse))
    assert [r["job"] for r in retime("jobs", "--json").json] == ["two"]


def test_jobs(retime, warehouse: Path) -> None:
    row = retime("jobs", "--warehouse", warehouse, "--json").json[0]
    assert (row["ranks_seen"], row["world_size"], row["steps"]) == (2, 8, 4)
    text = retime("jobs", "--warehouse", warehouse).out.splitlines()
    assert text[0].split()[:4] == ["job", "ranks", "of", "steps"]
    assert text[1].split()[:4] == ["two", "2", "8", "4"]


def test_show(retime, warehouse: Path) -> None:
    facts = retime("show", "two", "--warehouse", warehouse, "--json").json
    assert (facts["job"], facts["ranks_seen"], facts["steps"]) == ("two", 2, 4)
    groups = ("compute", "wait", "transfer", "unsplit", "memcpy", "idle")
    assert abs(sum(facts[f"{g}_ns"] for g in groups) - facts["step_ns"]) <= len(groups)
    text = retime("show", "--warehouse", warehouse).out
    assert "2 of 8 on 1 host" in text
    assert "The others wait for rank" in text
    assert "\x1b" not in text


def test_show_is_lines_of_at_most_80_columns_on_a_terminal(
    retime, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from retime.analysis import terminal
    from rich.console import Console

    monkeypatch.setattr(terminal, "console", lambda: Console(width=80, highlight=False))
    for command in (["show"], ["jobs"], ["problems"], ["sql", "FROM waits", "--limit", "3"]):
        ran = retime(*command, "--warehouse", warehouse)
        assert ran.code == 0
        lines = [line for line in ran.out.splitlines() if str(warehouse) not in line]
        assert max(map(len, lines)) <= 80  # but for commands to be pasted, one a line


def test_problems(retime, warehouse: Path) -> None:
    rows = retime("problems", "two", "--warehouse", warehouse, "--json").json
    assert all(r["severity"] in ("lost", "warning", "info") for r in rows)
    assert len(retime("problems", "--warehouse", warehouse, "--limit", "1").out.splitlines()) == 3


def test_sql(retime, warehouse: Path) -> None:
    query = "SELECT rank, count(*) AS n FROM ranks GROUP BY rank ORDER BY rank"
    ran = retime("sql", query, "--warehouse", warehouse, "--json")
    assert ran.json == [{"rank": 0, "n": 1}, {"rank": 1, "n": 1}]
    assert retime("sql", query, "--warehouse", warehouse, "--job", "two").out == (
        "rank  n\n   0  1\n   1  1\n"
    )


def test_sql_says_how_many_rows_it_left_out(retime, warehouse: Path) -> None:
    ran = retime("sql", "FROM range(70)", "--warehouse", warehouse)
    assert ran.out.splitlines()[-1] == "(50 of 70 rows; --limit N or --json for more)"
    assert len(retime("sql", "FROM range(70)", "--warehouse", warehouse, "--json").json) == 70


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT wait FROM waits", 'column "wait" not found'),
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("FROM waitz", 'Did you mean "waits"?'),
        ("", "the query is empty"),
        ("SELECT 1; SELECT 2", "one query at a time"),
        ("CREATE TABLE x (a INT)", "only queries may run here"),
        ("COPY (SELECT 1) TO 'x.csv'", "only queries may run here"),
        ("ATTACH 'x.db'", "only queries may run here"),
        ("SET threads = 1", "only queries may run here"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'", "this is COPY"),
        ("/* a */ explain (ANALYZE) CREATE TABLE x (a INT)", "this is CREATE"),
        ("FROM read_csv('/etc/passwd')", "disabled by configuration"),
        ("SELECT 1/0 + 'a'", "cannot run"),
    ],
)
def test_bad_sql_is_one_sentence_and_2(
    retime, warehouse: Path, tmp_path: Path, query: str, words: str
) -> None:
    ran = retime("sql", query, "--warehouse", warehouse)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert len(ran.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_tables_and_policies(retime) -> None:
    names = {r["name"] for r in retime("tables", "--json").json}
    assert {"waits", "collective_instances", "step_breakdown", "events", "ranks"} <= names
    (waits,) = retime("tables", "waits", "--json").json
    assert {"name": "wait_ns", "unit": "ns"}.items() <= {
        k: v for c in waits["columns"] if c["name"] == "wait_ns" for k, v in c.items()
    }.items()
    assert "wait_ns" in retime("tables", "waits").out
    rows = retime("policies", "--json").json
    assert [r["name"] for r in rows] == sorted(r["name"] for r in rows)
    assert {"align-arrivals", "algorithm"} <= {r["name"] for r in rows}
    assert "factor" in retime("policies", "align-arrivals").out


def test_replay(retime, warehouse: Path) -> None:
    args = ["two", "--warehouse", str(warehouse), "--policy", "align-arrivals"]
    result = retime("replay", *args, "--json").json
    assert result["job"] == "two"
    assert result["steps"] == [10, 11, 12, 13]
    (entry,) = result["policies"]
    assert entry["low_ns"] <= entry["step_ns"] <= entry["high_ns"]
    assert set(entry["recovered"]) == {"wait_ns", "transfer_ns", "exposed_ns"}
    text = retime("replay", *args, "--step", "11").out
    assert "align-arrivals" in text
    swept = retime("replay", *args, "--sweep", "factor=0,1", "--json").json
    assert [p["params"]["factor"] for p in swept["policies"]] == [0.0, 1.0]
    for floors, step in ((result["floors"], "measured_ns"), (entry["floors"], "step_ns")):
        highest = max(floors["free_communication_ns"], floors["busiest_link_ns"])
        assert 0 < highest <= {**result, **entry}[step]
    assert "calibration" not in result
    found = retime("replay", *args, "--calibration", "--strict", "--fabric", "h100", "--json").json
    # Two of eight ranks: no collective was seen on all of its ranks.
    assert found["calibration"]
    assert all(row["alpha_ns"] is None for row in found["calibration"])
    assert all("seen on 2 of 8 ranks" in row["caveat"] for row in found["calibration"])
    assert found["calibration_levels"] == found["lateness"] == []
    assert "450 GB/s (fabric h100)" in found["floors"]["link"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--policy", "nope"], "no policy 'nope'"),
        (["--policy", "align-arrivals:speed=2"], "has no parameter 'speed'"),
        (["--policy", "align-arrivals:factor=fast"], "factor='fast'"),
        (["--policy", "align-arrivals:factor"], "not of the form"),
        (["--policy", "align-arrivals", "--step", "99"], "has no step 99"),
        (["--sweep", "factor"], "not of the form k=v1,v2"),
        (["--sweep", "factor=0,1", "--sweep", "factor=2"], "--sweep factor is given twice"),
        (["--policy", "x" * 100_000], "': there are algorithm, align-arrivals"),
        (["--fabric", "h101"], "no fabric preset is called 'h101': h100"),
        (["--fabric", "nowhere/fabric.toml"], "nowhere/fabric.toml: No such file"),
    ],
)
def test_bad_policies_are_one_sentence_and_2(
    retime, warehouse: Path, args: list[str], words: str
) -> None:
    ran = retime("replay", "two", "--warehouse", warehouse, *args)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert len(ran.err.splitlines()) == 1
    assert len(ran.err) < 2100


def test_report(retime, warehouse: Path, tmp_path: Path) -> None:
    ran = retime("report", "two", "--warehouse", warehouse)
    assert (ran.code, ran.out) == (0, "two.html\n")
    text = (tmp_path / "two.html").read_text()
    assert "The others wait for rank" in text
    assert "What if" in text
    made = retime("report", "--warehouse", warehouse, "-o", tmp_path / "b.html", "--json").json
    assert made["path"] == str(tmp_path / "b.html")
    assert retime("report", "--warehouse", warehouse, "-o", tmp_path).code == 2


@pytest.mark.parametrize("option", ["--ranks", "--step"])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("1-0", "'1-0' ends before it begins"),
        ("-1", "'-1' is neither a number nor FIRST-LAST"),
        ("0-", "'0-' is neither a number nor FIRST-LAST"),
        ("", "'' is neither a number nor FIRST-LAST"),
        ("0,", "'' is neither a number nor FIRST-LAST"),
        ("0-1-2", "'0-1-2' is neither a number nor FIRST-LAST"),
        ("0-99999999", "more than"),
        ("9" * 5000, "neither"),
        ("\udcff", "neither"),
    ],
)
def test_numbers_to_export_are_checked(
    retime, warehouse: Path, tmp_path: Path, option: str, value: str, words: str
) -> None:
    ran = retime("export", "two", "--warehouse", warehouse, f"{option}={value}")
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert "int()" not in ran.err
    assert len(ran.err.splitlines()) == 1
    assert len(ran.err) < 400
    assert list(tmp_path.iterdir()) == []


def test_an_empty_list_of_numbers_from_python_is_all() -> None:
    from retime.analysis.export.chosen import choose

    assert choose([], []).ranks is None
    assert choose("0-2,1", [10, "12-13"])[:2] == ((0, 1, 2), (10, 12, 13))


@pytest.mark.parametrize(
    "args",
    [
        ["dims", "two", "--set", "\udcff=tp"],
        ["dims", "two", "--set", "x=\udcff"],
        ["sql", "SELECT '\udcff'"],
        ["dims", "two", "--degrees", "\udcff=2"],
        ["kernels", "two", "--set", "\udcff=gemm"],
        ["kernels", "two", "--set", "x=\udcff"],
        ["ingest", "absent", "--job", "two", "--step-annotation", "\udcff"],
    ],
)
def test_bytes_that_are_no_text_are_usage(retime, warehouse: Path, args: list[str]) -> None:
    ran = retime(*args, "--warehouse", warehouse)
    assert (ran.code, ran.out) == (2, "")
    assert "unexpected" not in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not (warehouse / "two" / "_settings.json").exists()


@pytest.mark.parametrize(
    "command", [["report"], ["export"], ["export", "--to", "chakra"]], ids="-".join
)
def test_output_goes_to_files_alone(
    retime, warehouse: Path, tmp_path: Path, command: list[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    args = [*command, "two", "--warehouse", str(warehouse), "-o"]
    a_file = ["made/"] if "chakra" not in command else []
    for name in ("pipe", "", "x" * 300, *a_file):
        ran = retime(*args, name)
        assert (ran.code, ran.out) == (2, "")
        assert len(ran.err.splitlines()) == 1
        assert "unexpected" not in ran.err
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]
    assert (tmp_path / "pipe").is_fifo()
    assert retime(*args, "c/d").code == 0
    if a_file:
        # A link whose name is no text, to where there is no folder yet.
        link = tmp_path / os.fsdecode(b"\xff")
        link.symlink_to(tmp_path / "a" / "b")
        assert retime(*args, link.name).out == "\\udcff\n"
        assert link.is_symlink()
        assert (tmp_path / "a" / "b").stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [("empty.json", b"", 3), ("text.json", b"not a trace at all", 3), ("absent", None, 2)],
)
def test_what_cannot_be_ingested_leaves_no_warehouse(
    retime, tmp_path: Path, name: str, content: bytes | None, code: int
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    ran = retime("ingest", tmp_path / name, "--job", "x")
    assert ran.code in (code, 3)
    assert ran.out == ""
    assert len(ran.err.splitlines()) == 1
    assert not (tmp_path / "warehouse").exists()


def test_ingest_json_and_again(retime, demo_job: Path, tmp_path: Path) -> None:
    path = str(demo_job / "rank3.json.gz")
    first = retime("ingest", path, "--job", "one", "--json")
    assert first.code == 0
    assert [s["status"] for s in first.json["sources"]] == ["new"]
    assert first.json["sources"][0]["ranks"] == [3]
    again = retime("ingest", path, "--job", "one", "--json")
    assert [s["status"] for s in again.json["sources"]] == ["already"]
    assert "1 already there" in retime("ingest", path, "--job", "one").out


def test_a_new_warehouse_is_announced_on_stderr(retime, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"traceEvents": []}')
    (tmp_path / "made").mkdir()
    for name, more in (("slip", ()), ("made", ("--json",))):
        words = ["ingest", "t.json", "--rank", "0", "--warehouse", name, *more]
        first = retime(*words, "--job", "one")
        place = str(tmp_path / name)
        assert first.err == f"new warehouse at {place} (no job was there before)\n"
        assert "new warehouse" not in first.out
        if more:
            assert first.json["new_warehouse"] == place
        again = retime(*words, "--job", "two")
        assert again.err == ""
        if more:
            assert again.json["new_warehouse"] is None


def test_lost_input_is_exit_1(retime, demo_job: Path, tmp_path: Path) -> None:
    import gzip

    whole = gzip.decompress((demo_job / "rank0.json.gz").read_bytes())
    (tmp_path / "cut.json").write_bytes(whole[: len(whole) // 2])
    ran = retime("ingest", tmp_path / "cut.json", "--job", "cut", "--rank", "0")
    assert ran.code == 1
    assert "lost" in ran.out
    assert retime("problems", "cut", "--json").json[0]["severity"] == "lost"


def test_unexpected_errors_are_one_sentence(retime, monkeypatch: pytest.MonkeyPatch) -> None:
    from retime.analysis import doors

    def broken(url: str | None = None) -> None:
        raise ValueError("two\nlines \x1b[31m")

    monkeypatch.setattr(doors, "open", broken)
    ran = retime("jobs")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == (
        "retime: ValueError: two lines \\x1b[31m "
        "(unexpected: RETIME_DEBUG=1 shows where; please report it)\n"
    )
    monkeypatch.setenv("RETIME_DEBUG", "1")
    with pytest.raises(ValueError, match="two"):
        cli.run(["jobs"])


def test_ctrl_c_is_130(retime, monkeypatch: pytest.MonkeyPatch) -> None:
    from retime.analysis import doors

    def stopped(url: str | None = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(doors, "open", stopped)
    ran = retime("jobs")
    # The line that a terminal shows ^C on is ended.
    assert (ran.code, ran.out, ran.err) == (130, "", "\n")


def test_a_closed_pipe_is_quiet(warehouse: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", "from retime.cli import main; main()"]
    args = ["sql", "FROM range(100000)", "--json", "--warehouse", str(warehouse)]
    done = subprocess.run([*command, *args], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_is_suggested_next_names_the_warehouse(warehouse, capsys):
    assert cli.run(["show", "two", "--warehouse", str(warehouse)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"next: retime report two --warehouse {warehouse} (what to fix first)" in shown
    assert shown.endswith(f"retime notebook two --warehouse {warehouse}")
