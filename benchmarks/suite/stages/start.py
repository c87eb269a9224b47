"""Start-up: what a person waits for before anything of the job is done."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from benchmarks.suite.case import LIMIT, OURS, OUT, PEER, Bound, Case, Ratio, Way, cli, stage
from benchmarks.suite.inputs import Inputs, without


def _python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


@stage("start")
def helped(inputs: Inputs) -> Iterator[Case]:
    """`retime --help`."""
    yield Case(
        "start, --help", "start", 1, "calls",
        (Way("retime --help", OURS, cli("--help")),
         Way("python -c pass", LIMIT, _python("pass")),
         Way("importing click", LIMIT, _python("import click")),
         Way("importing HolisticTraceAnalysis", PEER,
             _python("import hta.trace_analysis"), missing=without("hta"), rounds=1)),
        (Ratio("retime --help", "importing HolisticTraceAnalysis"),
         Ratio("retime --help", "python -c pass")),
        (Bound("retime --help", "seconds", 0.2, "retime --help under 200 ms"),),
    )  # fmt: skip


SQL = "SELECT count(*) FROM events"
VIEW = "SELECT rank, sum(wait_ns) FROM waits GROUP BY rank"


@stage("start")
def asked(inputs: Inputs) -> Iterator[Case]:
    """`retime sql` on the bundled job of 8 ranks."""
    warehouse = inputs.ingested(inputs.demo, "demo")
    files = f"{warehouse}/job=cluster/events/*.parquet"
    names = {"a table": SQL, "a view": VIEW}
    ways = [
        Way(
            f"retime sql, {k}", OURS, cli("sql", q, "--job", "cluster", "--warehouse", warehouse), 2
        )
        for k, q in names.items()
    ]
    plain = f"import duckdb; duckdb.sql(\"SELECT count(*) FROM '{files}'\").fetchall()"
    yield Case(
        "start, sql on a job of 8 ranks", "start", 1, "calls",
        (*ways, Way("plain DuckDB, the table", LIMIT, _python(plain), 2)),
        tuple(Ratio(w.name, "plain DuckDB, the table") for w in ways),
        tuple(Bound(w.name, "seconds", 1.0, "retime sql on a small job under 1 s") for w in ways),
    )  # fmt: skip


@stage("start")
def first(inputs: Inputs) -> Iterator[Case]:
    """The first ingest of all on a machine, which compiles, and the ones after it."""
    path = inputs.tiled(0.5 if inputs.tiny else 30)
    words = cli("ingest", path, "--job", "one", "--warehouse", f"{OUT}/warehouse")
    empty = ("env", f"XDG_CACHE_HOME={OUT}/cache", f"NUMBA_CACHE_DIR={OUT}/numba")
    names = "the first ingest on a machine", "the next ones"
    yield Case(
        "start, ingest of 30 MB with empty caches", "start", 1, "calls",
        (Way(names[0], OURS, (*empty, *words), 2, rounds=1), Way(names[1], OURS, words, 2)),
        (Ratio(*names),),
        note="What is compiled is kept; the command says that it compiles.",
    )  # fmt: skip
