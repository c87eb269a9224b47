"""The notebooks: every form runs from top to bottom, and says in words what the rows say."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import retime
from retime import cli
from retime.analysis.notebooks import build, opening, page, session, source, verdicts, words
from retime.analysis.notebooks.source import NAMES, Cell
from retime.ingest.errors import UsageError
from retime.queries.loader import connect

from .conftest import connection, two_ranks

JOBS = ("demo", "bare", "experts")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, demo_job: Path) -> str:
    """Three jobs: the bundled one, one of topology alone, and one with routing alone."""
    folder = tmp_path_factory.mktemp("notebooks")
    wh = retime.open(folder / "warehouse")
    wh.ingest([demo_job], job="demo")
    (folder / "topo.xml").write_text(
        '<system version="1"><cpu numaid="0"><pci busid="0000:07:00.0" class="0x030200" '
        'link_speed="16 GT/s" link_width="16"><gpu dev="0" sm="80" rank="0"/></pci></cpu></system>'
    )
    wh.ingest([folder / "topo.xml"], job="bare")
    lines = ["step,layer,expert,tokens"]
    lines += [f"{s},{layer},{e},{10 + 30 * (e == layer)}"
              for s in range(3) for layer in range(2) for e in range(4)]  # fmt: skip
    (folder / "routing.csv").write_text("\n".join(lines) + "\n")
    wh.ingest([folder / "routing.csv"], job="experts")
    return wh.url


@pytest.fixture(scope="module")
def known(warehouse: str) -> dict[str, Any]:
    """Jobs that are open already: a notebook that begins with one takes it from here."""
    keep = "rail_load", "rail_imbalance", "expert_load", "expert_imbalance"
    return {job: session.begin(warehouse, job, *keep) for job in JOBS}


@pytest.fixture(autouse=True)
def _environment(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("RETIME_WAREHOUSE", "RETIME_JOB", "RETIME_BASELINE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch, warehouse: str, known: dict[str, Any]) -> Callable:
    """Sets the environment for a job as `retime notebook` would, with its connection shared."""

    def point(job: str) -> None:
        monkeypatch.setenv("RETIME_WAREHOUSE", warehouse)
        monkeypatch.setenv("RETIME_JOB", job)

    def begin(_warehouse: str | None = None, job: str | None = None, *_keep: str) -> Any:
        session.look()
        return known[job or os.environ["RETIME_JOB"]]

    monkeypatch.setattr(session, "begin", begin)
    return point


def charts(values: list[Any]) -> list[dict[str, Any]]:
    """The Vega-Lite specifications among what cells show."""
    return [json.loads(v.to_json()) for v in values if hasattr(v, "mark") or hasattr(v, "layer")]


def rows_of(chart: dict[str, Any]) -> int:
    return sum(len(rows) for rows in chart["datasets"].values())


def run_marimo(name: str) -> list[Any]:
    """What the cells of the shipped marimo file show; raises where one fails."""
    pytest.importorskip("marimo", reason="the extra `notebook` brings marimo")
    path = build.READY / f"{name}.py"
    spec = importlib.util.spec_from_file_location("shipped", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shown, _ = module.app.run()
    return list(shown)


@pytest.fixture
def shell() -> Iterator[Any]:
    """A shell that runs Jupyter's cells in this process."""
    interactive = pytest.importorskip(
        "IPython.core.interactiveshell", reason="Jupyter (the extra `peers` brings it)"
    )
    import altair as alt

    before = alt.renderers.active
    shell = interactive.InteractiveShell()
    yield shell
    shell.history_manager.end_session()
    alt.renderers.enable(before)


def run_jupyter(shell: Any, name: str) -> list[Any]:
    """What the cells of the shipped Jupyter file show; raises where one fails."""
    document = json.loads((build.READY / f"{name}.ipynb").read_text(encoding="utf-8"))
    shown = []
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            done = shell.run_cell("".join(cell["source"]), store_history=False)
            done.raise_error()
            shown.append(done.result)
    return shown


CHARTS = {
    "why-is-this-step-slow": 3,
    "who-is-late": 3,
    "is-it-the-network": 2,
    "rails-and-experts": 0,
    "before-and-after": 3,
    "fleet": 2,
}
"""Charts that the bundled job has the data for: one host, no routing, one job."""


def check_bundled(name: str, shown: list[Any]) -> None:
    drawn = charts(shown)
    assert len(drawn) == CHARTS[name]
    assert all(rows_of(c) for c in drawn)
    said = shown[-1].text
    if name in ("why-is-this-step-slow", "who-is-late", "is-it-the-network"):
        assert "**Rank 1: late launches, 7.54 ms a step.**" in said
        assert "retime replay demo --policy align-arrivals" in said
    if name in ("why-is-this-step-slow", "is-it-the-network"):
        assert "at most 5.6 % of the step" in said
    if name == "before-and-after":
        assert "The mean step took 42.0 ms before and 42.1 ms after" in said


@pytest.mark.parametrize("name", NAMES)
def test_a_marimo_notebook_answers_for_the_bundled_job(name: str, at: Callable) -> None:
    at("demo")
    check_bundled(name, run_marimo(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_jupyter_notebook_answers_for_the_bundled_job(
    name: str, at: Callable, shell: Any
) -> None:
    at("demo")
    shown = run_jupyter(shell, name)
    check_bundled(name, shown)
    pictures = [shell.display_formatter.format(v)[0] for v in shown if hasattr(v, "mark")]
    assert all("<svg" in p["image/svg+xml"] for p in pictures)


def test_a_kernel_of_its_own_runs_a_notebook(
    at: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a user's Jupyter does: other settings of DuckDB and IPython hold in a kernel."""
    nbclient = pytest.importorskip("nbclient", reason="Jupyter (the extra `peers` brings it)")
    nbformat = pytest.importorskip("nbformat", reason="Jupyter (the extra `peers` brings it)")
    at("bare")
    for name in ("IPYTHONDIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    document = nbformat.read(build.READY / "is-it-the-network.ipynb", as_version=4)
    nbformat.validate(document)
    nbclient.NotebookClient(document, timeout=120, kernel_name="python3").execute()
    (last,) = document.cells[-1].outputs
    assert "Nothing can be said" in last.data["text/markdown"]


@pytest.mark.parametrize("job", ["bare", "experts"])
@pytest.mark.parametrize("name", [n for n in NAMES if n != "fleet"])
def test_a_notebook_of_a_job_without_steps_says_what_is_missing(
    name: str, job: str, at: Callable
) -> None:
    at(job)
    shown = page.run(source.cells(name))
    assert page.errors(shown) == []
    said = shown[-1].value.text
    missing = {
        "why-is-this-step-slow": "Nothing can be split",
        "who-is-late": "No rank stands out",
        "is-it-the-network": "Nothing can be said",
        "rails-and-experts": "this job has no routing" if job == "bare" else "layer 0 is the most",
        "before-and-after": "There is nothing to compare",
    }
    assert missing[name] in said


def test_a_marimo_notebook_survives_a_job_without_steps(at: Callable) -> None:
    at("bare")
    assert "Nothing can be split" in run_marimo("why-is-this-step-slow")[-1].text


def test_experts_are_drawn_and_the_busiest_is_named(at: Callable) -> None:
    """Of each layer's 70 tokens one expert gets 40: 40 over a mean of 17.5."""
    at("experts")
    shown = page.run(source.cells("rails-and-experts"))
    assert [rows_of(c) for c in charts([s.value for s in shown])] == [8, 2]
    assert "its busiest expert gets 2.29 times the mean" in shown[-1].value.text


def test_rails_of_two_hosts_are_drawn_and_the_busiest_is_named(
    known: dict[str, Any], open_rows: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A NIC a rank; rail 0 of each host moves 3 MB in the step, rail 1 only 1: max/mean 1.5."""
    con = open_rows(
        {
            "ranks": [
                {"rank": r, "host": "ab"[r // 2], "local_rank": r % 2, "start_ns": 0,
                 "end_ns": 1000, "clock_offset_ns": 0, "clock_error_ns": 0}
                for r in range(4)
            ],
            "steps": [{"rank": r, "step": 7, "start_ns": 0, "end_ns": 1000} for r in range(4)],
            "transfers": [
                {"rank": r, "host": "ab"[r // 2], "nic": f"mlx5_{r % 2}", "rail": r % 2,
                 "bytes": (3, 1)[r % 2] * 1_000_000, "start_ns": 100, "end_ns": 400,
                 "direction": "send", "via": "NET", "traffic_class": "collective",
                 "measured": True}
                for r in range(4)
            ],
        }
    )  # fmt: skip
    monkeypatch.setattr(session, "begin", lambda *_: _Stub(known["bare"], con))
    shown = page.run(source.cells("rails-and-experts"))
    assert page.errors(shown) == []
    (chart,) = charts([s.value for s in shown])
    (rows,) = chart["datasets"].values()
    assert sorted((r["host"], r["rail"], r["source"], r["gb"]) for r in rows) == [
        ("a", "0", "measured", 0.003),
        ("a", "1", "measured", 0.001),
        ("b", "0", "measured", 0.003),
        ("b", "1", "measured", 0.001),
    ]
    assert "the busiest carries 1.5 times the mean" in shown[-1].value.text


class _Stub:
    """A job of which only the connection is another."""

    def __init__(self, job: Any, con: Any):
        self.id, self.warehouse, self.show, self.con = job.id, job.warehouse, job.show, con


def test_a_host_that_is_late_in_every_job_is_found(
    tmp_path: Path, known: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight jobs a week apart: rank 1 on host b always comes last; the last job's transfer of
    200 ns takes 400, so that its bandwidth is halved."""
    files: dict[str, dict[str, list[str]]] = {}
    for n in range(8):
        rows = two_ranks()
        rows["ranks"][1]["host"] = "b"
        rows["jobs"][0]["created_at_ns"] += n * 7 * 24 * 3600 * 10**9
        if n == 7:
            for r in rows["collectives"]:
                r["end_ns"] = 1100
        files |= write_rows(tmp_path, rows, f"job-{n}")
    con = connect(files)
    monkeypatch.setattr(session, "begin_fleet", lambda *_: (known["bare"].warehouse, con))
    shown = page.run(source.cells("fleet"))
    assert page.errors(shown) == []
    assert [c["mark"]["type"] for c in charts([s.value for s in shown]) if "mark" in c] == [
        "bar",
        "circle",
        "line",
    ]
    said = shown[-1].value.text
    assert "`b` is late again and again: the latest of 8 of 8 jobs** (equal hosts: 4.0;" in said
    assert "over 2 ranks is 50 % slower than before" in said


def write_rows(folder: Path, rows: dict[str, Any], job: str) -> dict[str, dict[str, list[str]]]:
    """Rows by table as Parquet files, as the loader takes them."""
    connection(folder, rows, job).close()
    return {job: {t: [str(folder / f"{job}-{t}.parquet")] for t in rows}}


def test_two_jobs_are_compared_by_name(warehouse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETIME_BASELINE", "bare")
    sides = session.pair(warehouse, None, "demo")
    rows = sides.con.sql("SELECT side, job, step FROM sides ORDER BY ALL").fetchall()
    assert rows == [
        *(("after", "demo", step) for step in (10, 11, 12, 13)),
        ("before", "bare", None),
    ]
    change, why_not = sides.diff()
    assert change is None
    assert why_not == "job 'bare' has no work with times: there is nothing to compare."
    foreseen, why_not_foreseen = sides.foreseen("align-arrivals")
    assert foreseen.height == 0
    said = verdicts.changed(sides, change, foreseen, "align-arrivals", why_not, why_not_foreseen)
    assert f"**There is nothing to compare:** {why_not}" in said.text


def test_a_job_without_steps_is_the_reason_that_is_told(
    tmp_path: Path, demo_job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A baseline of which one step alone is known: no ProfilerStep, nothing that recurs."""
    wh = retime.open(tmp_path / "w")
    wh.ingest([demo_job / "rank0.json.gz"], job="with")
    trace = {
        "distributedInfo": {"rank": 0, "world_size": 1},
        "traceEvents": [
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10, "dur": 5,
             "args": {"device": 0, "stream": 7, "correlation": 1}}
        ],
    }  # fmt: skip
    (tmp_path / "none.json").write_text(json.dumps(trace))
    wh.ingest([tmp_path / "none.json"], job="without_steps")
    sides = session.pair(wh.url, "without_steps", "with")
    change, why_not = sides.diff()
    assert change is None
    assert why_not.startswith("job 'without&#95;steps' has no steps and the other has")
    assert "retime ingest --step-annotation NAME says what its steps are" in why_not
    foreseen, reason = sides.foreseen("align-arrivals")
    said = verdicts.changed(sides, change, foreseen, "align-arrivals", why_not, reason).text
    assert why_not in said
    alone = session.pair(wh.url, None, "without_steps")
    assert "job without&#95;steps has fewer than two steps" in alone.diff()[1]
    monkeypatch.setenv("RETIME_WAREHOUSE", wh.url)
    monkeypatch.setenv("RETIME_JOB", "with")
    monkeypatch.setenv("RETIME_BASELINE", "without_steps")
    shown = page.run(source.cells("before-and-after"))
    assert page.errors(shown) == []
    told = [s.value.text for s in shown if isinstance(s.value, session.Said)]
    assert sum("has no steps and the other has" in text for text in told) == 2


def test_what_cannot_be_re_timed_is_told_with_its_reason(warehouse: str) -> None:
    sides = session.pair(warehouse, None, "demo")
    change, _ = sides.diff()
    foreseen, why_not = sides.foreseen("no-such-policy")
    assert "no-such-policy" in why_not
    said = verdicts.changed(sides, change, foreseen, "no-such-policy", "", why_not).text
    assert f"The job before cannot be re-timed under `no-such-policy`: {why_not}." in said


def test_halves_of_a_job_are_compared(warehouse: str) -> None:
    sides = session.pair(warehouse, None, "demo")
    assert (sides.steps_before, sides.steps_after) == ("10,11", "12,13")
    change, why_not = sides.diff()
    assert why_not == ""
    assert change is not None
    assert (change["a"]["steps"], change["b"]["steps"]) == ([10, 11], [12, 13])


def test_the_shipped_files_are_what_the_builder_gives() -> None:
    wanted = {f: t for n in NAMES for f, t in build.files(source.cells(n), n).items()}
    shipped = {p.name: p.read_text(encoding="utf-8") for p in build.READY.iterdir() if p.is_file()}
    assert shipped == wanted, "run `python -m retime.analysis.notebooks.build`"


def test_queries_ask_the_library_and_no_result_hides_a_view() -> None:
    public = {t["name"] for t in retime.tables()}
    for name in NAMES:
        queries = [c for c in source.cells(name) if c.kind == "sql"]
        assert 4 <= len(queries) <= 8
        assert not {c.name for c in queries} & public
        assert not any(" _" in c.text for c in queries), "a private view"


def test_a_source_becomes_cells_of_both_forms() -> None:
    text = "# T\n\n```python settings\nJOB = None  # which\n```\n\n```sql a\nFROM waits\n```\nend\n"
    cells = source.parse(text)
    assert cells == [
        Cell("text", "# T"),
        Cell("python", "JOB = None  # which", "settings"),
        Cell("sql", "FROM waits", "a"),
        Cell("text", "end"),
    ]
    (_, settings, *_) = source.pointed(tuple(cells), {"JOB": "it's\\1", "WAREHOUSE": "x"})
    assert settings.text == 'JOB = "it\'s\\\\1"  # which'
    document = json.loads(build.jupyter(cells))
    assert ["".join(c["source"]) for c in document["cells"]] == [
        "# T",
        "JOB = None  # which",
        "%load_ext retime.analysis.notebooks.magic",
        "%%sql a\nFROM waits",
        "end",
    ]
    assert (
        '@app.cell\ndef _(con, mo):\n    a = mo.sql(\n        f"""\n        FROM waits\n'
        '        """,\n        engine=con\n    )\n    return (a,)\n'
    ) in build.marimo([Cell("python", "con = 1"), *cells])


@pytest.mark.parametrize("text", ["```sql\nFROM waits\n```\n", "```r x\n1\n```\n", "```sql a\n"])
def test_a_source_that_is_wrong_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="fence"):
        source.parse(text)


def test_braces_in_a_query_are_refused() -> None:
    with pytest.raises(ValueError, match="braces"):
        build.marimo([Cell("sql", "SELECT {'a': 1}", "a")])


def test_names_that_a_cell_reads_and_makes() -> None:
    code = "import a.b as c\n_x = [i for i in y]\nz = c(lambda q: q + _x)\nlen(w)"
    assert build.names(code) == ({"y", "_x", "w"}, {"c", "z"})


def test_sql_cells_in_jupyter(shell: Any, known: dict[str, Any]) -> None:
    shell.run_cell("%load_ext retime.analysis.notebooks.magic").raise_error()
    none = shell.run_cell_magic
    with pytest.raises(UsageError, match="no connection"):
        none("sql", "a", "SELECT 1 AS n")
    shell.user_ns["con"] = known["bare"].con
    assert shell.run_cell_magic("sql", "a", "SELECT 1 AS n").to_dicts() == [{"n": 1}]
    assert shell.user_ns["a"].to_dicts() == [{"n": 1}]
    with pytest.raises(UsageError, match="cannot name"):
        shell.run_cell_magic("sql", "a b", "SELECT 1 AS n")


def test_long_names_stay_apart_on_the_page_and_in_sentences() -> None:
    names = [f"{'k' * 300}{n}{'z' * 300}" for n in range(3)]
    html = page.page([page.Shown(Cell("python", "x"), pl.DataFrame({"name": names}), None)], "t")
    cells = html.split("<td>")[1:]
    assert len(cells) == len({c.split("</td>")[0] for c in cells}) == 3
    assert len(set(words.codes(names))) == 3
    assert max(map(len, words.codes(names))) <= 82


def test_the_page_escapes_names_of_traces_and_shows_errors() -> None:
    hostile = "</pre><script>alert(1)</script>`**x**\x1b[31m"
    shown = page.run(
        [
            Cell("python", "import polars as pl\nfrom retime.analysis.notebooks import words\n"
                 f"from retime.analysis.notebooks.session import say\nh = {hostile!r}"),
            Cell("python", "pl.DataFrame({h: [h]})"),
            Cell("python", "say('Rank 1 ' + words.plain(h) + ' and ' + words.code(h))"),
            Cell("python", "raise ValueError(h)"),
            Cell("sql", "SELECT 1", "a"),
        ]
    )  # fmt: skip
    text = page.page(shown, hostile)
    assert "<script" not in text
    assert "<strong>" not in text
    assert "\x1b" not in text
    assert page.errors(shown)[0].startswith("cell 4: ValueError: </pre>")
    assert page.errors(shown)[1] == "cell 5: KeyError: 'con'"


def test_copies_are_pointed_and_never_overwritten_unasked(
    warehouse: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["notebook", "demo", "--name", "Who is late", "--to", "out", "--warehouse", warehouse]
    assert cli.run(line) == 0
    file = tmp_path / "out" / "who-is-late.py"
    text = file.read_text()
    assert f"    WAREHOUSE = {warehouse!r}  #" in text
    assert "    JOB = 'demo'  #" in text
    assert cli.run(line) == 0, "the same again changes nothing"
    file.write_text("mine")
    assert cli.run(line) == 2
    assert "--force" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert cli.run([*line, "--force"]) == 0
    assert file.read_text() == text


def test_copies_from_python(warehouse: str, tmp_path: Path) -> None:
    paths = retime.open(warehouse).notebook("demo", "before-and-after", to="x", against="bare")
    assert [p.name for p in paths] == ["before-and-after.py", "before-and-after.ipynb"]
    assert "    BASELINE = 'bare'  #" in (tmp_path / paths[0]).read_text()
    with pytest.raises(UsageError, match="no notebook 'x'; there are why-is-this-step-slow"):
        retime.open(warehouse).notebook("demo", "x")


def test_without_a_tool_the_message_names_the_one_command(
    warehouse: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda _: None)
    assert cli.run(["notebook", "demo", "--warehouse", warehouse]) == 2
    assert "marimo is not installed: pip install marimo." in capsys.readouterr().err


def test_opening_keeps_what_the_user_changed(
    warehouse: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(opening, "find_spec", lambda _: object())
    monkeypatch.setattr(opening.subprocess, "call", lambda line: called.append(line) or 0)
    line = ["notebook", "demo", "-n", "fleet", "--warehouse", warehouse, "--no-browser"]
    assert cli.run([*line, "--port", "8001"]) == 0
    file = Path("retime-notebooks/all/fleet.py")
    assert called[0][1:] == ["-m", "marimo", "edit", str(file), "--port=8001", "--headless"]
    file.write_text("mine")
    assert cli.run(line) == 0
    assert file.read_text() == "mine"
    assert "opened as it is" in capsys.readouterr().err
    assert cli.run([*line, "--jupyter"]) == 0
    assert called[2][1:] == ["-m", "jupyterlab", str(file.with_suffix(".ipynb")), "--no-browser"]


def test_a_page_is_written_without_a_server(
    warehouse: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["notebook", "-n", "fleet", "--html", "--json", "--warehouse", warehouse]
    assert cli.run(line) == 0
    (written,) = json.loads(capsys.readouterr().out)
    text = (tmp_path / written["path"]).read_text()
    assert written["path"] == "retime-notebooks/all/all-fleet.html"
    assert text.count("<svg") == 2
    assert "http://" not in text.replace("http://www.w3.org/", "")
    assert cli.run(line) == 2, "it is there already"
    assert cli.run([*line, "--to", "elsewhere"]) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["elsewhere", "retime-notebooks"]


def test_the_fleet_verdict_names_hosts_weeks_and_kernels() -> None:
    hosts = pl.DataFrame(
        {
            "host": ["bad", "good"],
            "compared": [9, 9],
            "latest": [8, 1],
            "expected": [1.0, 1.0],
            "p_any": [0.0001, 1.0],
            "wait_caused_ms": [120.0, 1.0],
        }
    )
    weeks = pl.DataFrame(
        {
            "week": ["2026-01-12", "2026-01-05"],
            "op": ["all_reduce"] * 2,
            "size_class": ["16MiB-256MiB"] * 2,
            "n_ranks": [16] * 2,
            "gbps": [80.0, 100.0],
            "earlier": [100.0, None],
            "earlier_lowest": [95.0, None],
            "change_percent": [-20.0, None],
        }
    )
    kernels = pl.DataFrame(
        {
            "host": ["hot"], "name": ["gemm"], "ratio": [1.25], "jobs": [9], "jobs_slowest": [9],
            "p_value": [0.001],
        }
    )  # fmt: skip
    text = verdicts.fleet(hosts, weeks, kernels).text
    assert "`bad` is late again and again: the latest of 8 of 9 jobs" in text
    assert "good" not in text
    assert "all_reduce` of `16MiB-256MiB` over 16 ranks is 20 % slower than before" in text
    assert "`hot` runs `gemm` 25 % slower than the others, the slowest in 9 of 9 jobs." in text
    quiet = verdicts.fleet(hosts.tail(1), weeks.tail(1), kernels.head(0)).text
    assert "No host is late more often than chance has it" in quiet
    assert "one week only" in quiet


def test_every_notebook_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["notebook", "--list", "--json"]) == 0
    assert [r["name"] for r in json.loads(capsys.readouterr().out)] == list(NAMES)
