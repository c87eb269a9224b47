"""SQL tries to break out of a connection: to files, to the network, to settings, to others."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb
import polars as pl
import pytest
import retime
from retime.analysis.query import BadQuery

REFUSED = (
    r"(disabled by configuration|disabled through configuration|configuration has been locked"
    r"|nothing is written, moved or removed|Modifying .* disabled)"
)
SECRET = "what-nobody-is-to-see"


class Ground(NamedTuple):
    """What statements are tried on: a warehouse, a part of it, and things outside."""

    wh: retime.Warehouse
    part: str
    path: Path
    outside: Path
    here: Path
    port: int
    calls: list[str]

    def filled(self, sql: str) -> str:
        words = {"part": self.part, "path": self.path, "out": self.outside, "port": self.port}
        return re.sub(r"<(\w+)>", lambda m: str(words[m[1]]), sql)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, demo_job: Path) -> retime.Warehouse:
    wh = retime.open(tmp_path_factory.mktemp("confined") / "warehouse")
    wh.ingest([demo_job / "rank0.json.gz", demo_job / "rank1.json.gz"], job="two")
    return wh


@pytest.fixture(scope="module")
def listening() -> Iterator[tuple[int, list[str]]]:
    """A port at which nobody is to call, and who did."""
    calls: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    return
                calls.append("a call")
                caller.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1], calls
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.fixture(scope="module")
def part(warehouse: retime.Warehouse) -> tuple[str, Path]:
    """A part of the warehouse: as its connections name it, and where it lies."""
    allowed = warehouse.connect().execute("SELECT unnest(current_setting('allowed_paths'))")
    name = next(n for (n,) in allowed.fetchall() if "/events/" in n)
    files = warehouse.files(table="events")["file"]
    return name, next(Path(p) for p in files if Path(p).name == Path(name).name)


@pytest.fixture
def ground(
    warehouse: retime.Warehouse,
    part: tuple[str, Path],
    listening: tuple[int, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Ground:
    """In a folder with a file outside the warehouse, and one that DuckDB would spill to."""
    here = tmp_path / "here"
    (here / ".tmp").mkdir(parents=True)
    monkeypatch.chdir(here)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.csv").write_text(f"a\n{SECRET}\n")
    (outside / "schema.sql").write_text("CREATE TABLE stolen AS SELECT 1")
    (outside / "load.sql").write_text("")
    duckdb.execute(f"COPY (SELECT '{SECRET}' AS a) TO '{outside}/secret.parquet'")
    return Ground(warehouse, *part, outside, here, *listening)


def everything(folder: Path) -> dict[str, str]:
    """Each file below with a digest, and each folder."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        if p.is_file()
        else ""
        for p in sorted(folder.rglob("*"))
    }


OUT = [
    # reading files
    "FROM '<out>/secret.csv'",
    "FROM '<out>/secret.parquet'",
    "FROM query_table('<out>/secret.csv')",
    "FROM read_csv('<out>/secret.csv')",
    "FROM read_text('<out>/secret.csv')",
    "FROM read_blob('<out>/secret.csv')",
    "FROM read_json('<out>/secret.csv')",
    "FROM read_parquet('<out>/*.parquet')",
    "FROM read_parquet(['<part>', '<out>/secret.parquet'])",
    "FROM read_text('file://<out>/secret.csv')",
    "FROM read_text('<out>/../outside/secret.csv')",
    "FROM read_text('/proc/self/environ')",
    "FROM read_csv('/dev/stdin')",
    "FROM read_text('~/.bashrc')",
    "FROM read_text('.tmp/x')",
    "FROM glob('*')",
    "FROM glob('<out>/*')",
    "FROM sniff_csv('<out>/secret.csv')",
    "FROM parquet_metadata('<out>/secret.parquet')",
    "FROM parquet_schema('<out>/secret.parquet')",
    "FROM parquet_kv_metadata('<out>/secret.parquet')",
    "FROM parquet_file_metadata('<out>/secret.parquet')",
    "FROM query('FROM read_text(''<out>/secret.csv'')')",
    "SELECT (SELECT a FROM read_csv('<out>/secret.csv'))",
    "EXPLAIN ANALYZE FROM read_csv('<out>/secret.csv')",
    "CREATE VIEW mine AS FROM read_csv('<out>/secret.csv')",
    "CREATE MACRO mine() AS TABLE FROM read_csv('<out>/secret.csv'); FROM mine()",
    "PREPARE mine AS FROM read_csv('<out>/secret.csv')",
    "PREPARE mine AS FROM read_csv($1); EXECUTE mine('<out>/secret.csv')",
    "SELECT 1; FROM read_csv('<out>/secret.csv')",
    "COPY (SELECT 1) TO '<out>/x.csv'; SELECT 1",
    # the warehouse's own files by their paths, and others beside them
    "FROM '<path>'",
    "FROM read_blob('<path>')",
    "FROM glob('retime://*')",
    "FROM read_blob('retime://two/events/*')",
    "FROM read_blob('<part>/../../x')",
    "FROM read_blob('retime://two/_manifests/x.json')",
    # writing
    "COPY (SELECT 1) TO '<out>/x.csv'",
    "COPY (SELECT 1) TO '<out>/secret.csv' (USE_TMP_FILE false)",
    "COPY (SELECT 1) TO 'x.csv'",
    "COPY (SELECT 1) TO '.tmp/x.csv'",
    "COPY (SELECT 1) TO '.tmp/x.csv' (USE_TMP_FILE false)",
    "COPY (SELECT 1) TO '/dev/stdout' (USE_TMP_FILE false)",
    "COPY (SELECT 1 a) TO '<path>' (FORMAT parquet, USE_TMP_FILE false)",
    "COPY (SELECT 1 a) TO '<part>' (FORMAT parquet)",
    "COPY (SELECT 1 a) TO '<part>' (FORMAT parquet, USE_TMP_FILE false)",
    "COPY (SELECT 1 a) TO '<part>' (FORMAT csv, USE_TMP_FILE false)",
    "COPY (SELECT 1 a) TO '<part>' (FORMAT json, USE_TMP_FILE false)",
    "COPY (SELECT 1 a, 2 b) TO '<part>' (FORMAT parquet, PARTITION_BY (a), OVERWRITE true)",
    "COPY (SELECT 1 a) TO '<part>' (FORMAT parquet, PER_THREAD_OUTPUT true, OVERWRITE true)",
    "COPY (SELECT 1 a) TO 'retime://two/events/new.parquet' (USE_TMP_FILE false)",
    "EXPLAIN ANALYZE COPY (SELECT 1 a) TO '<part>' (FORMAT csv, USE_TMP_FILE false)",
    "PREPARE mine AS COPY (SELECT 1) TO '<part>' (FORMAT csv, USE_TMP_FILE false); EXECUTE mine",
    "EXPORT DATABASE '<out>/exported'",
    "EXPORT DATABASE '<part>'",
    "EXPORT DATABASE 'retime://two'",
    "IMPORT DATABASE '<out>'",
    # databases
    "ATTACH '<out>/new.db'",
    "ATTACH '.tmp/new.db'",
    "ATTACH '<part>' AS mine (TYPE duckdb)",
    "ATTACH '<part>' AS mine (TYPE sqlite)",
    "FROM read_duckdb('<out>/new.db')",
    # the network
    "FROM 'http://127.0.0.1:<port>/x.csv'",
    "FROM read_csv('http://127.0.0.1:<port>/x.csv')",
    "FROM read_parquet('https://127.0.0.1:<port>/x.parquet')",
    "FROM read_parquet('s3://bucket/x.parquet')",
    "FROM read_parquet('gs://bucket/x.parquet')",
    "FROM read_parquet('az://bucket/x.parquet')",
    "FROM read_parquet('hf://datasets/x/y.parquet')",
    "COPY (SELECT 1) TO 'http://127.0.0.1:<port>/x.csv' (USE_TMP_FILE false)",
    # extensions
    "INSTALL httpfs",
    "INSTALL spatial FROM community",
    "FORCE INSTALL httpfs FROM 'http://127.0.0.1:<port>'",
    "LOAD httpfs",
    "LOAD '<out>/x.duckdb_extension'",
    "UPDATE EXTENSIONS",
    # settings
    "SET memory_limit = '1TB'",
    "RESET memory_limit",
    "PRAGMA memory_limit = '1TB'",
    "SET threads = 64",
    "RESET threads",
    "SET temp_directory = '<out>'",
    "SET allowed_paths = ['<out>/secret.csv']",
    "SET allowed_directories = ['/']",
    "SET allowed_configs = ['allowed_directories']",
    "SET enable_external_access = true",
    "RESET enable_external_access",
    "SET lock_configuration = false",
    "SET GLOBAL lock_configuration = false",
    "RESET lock_configuration",
    "SET python_enable_replacements = true",
    "SET allow_persistent_secrets = true",
    "SET secret_directory = '<out>'",
    "SET extension_directory = '<out>'",
    "SET custom_user_agent = 'x'",
    "SET http_proxy = 'http://127.0.0.1:<port>'",
    "PRAGMA enable_profiling",
    "PRAGMA profiling_output = '<out>/profile.txt'",
    "SET profiling_output = '<out>/profile.txt'",
    "SET log_query_path = '<out>/log'",
    "CALL enable_logging(storage = 'file', storage_config = {'path': '<out>/log'})",
    "PRAGMA disable_checkpoint_on_shutdown",
]


OTHERWISE = [
    ("SELECT getenv('HOME')", "getenv does not exist"),
    ("FROM query('COPY (SELECT 1) TO ''x.csv''')", "single SELECT"),
    ("ATTACH 'http://127.0.0.1:<port>/x.db'", "requires the extension httpfs"),
    ("FROM read_xlsx('<out>/secret.csv')", "exists in the excel extension"),
    ("FROM sqlite_scan('<out>/secret.csv', 'x')", "exists in the sqlite_scanner extension"),
    ("CREATE PERSISTENT SECRET mine (TYPE http, BEARER_TOKEN 'x')", "[Pp]ersistent secrets are"),
    ("COPY (SELECT 1) TO PROGRAM 'touch x'", "syntax error"),
]
"""Refused for want of what they name."""


@pytest.mark.parametrize(("statement", "said"), [*((s, REFUSED) for s in OUT), *OTHERWISE])
def test_there_is_no_way_out(ground: Ground, statement: str, said: str) -> None:
    warehouse = Path(ground.wh.url)
    before = everything(warehouse), everything(ground.outside), everything(ground.here)
    con = ground.wh.connect()
    with pytest.raises(duckdb.Error, match=said) as refused:
        con.execute(ground.filled(statement)).fetchall()
    assert SECRET not in str(refused.value)
    after = everything(warehouse), everything(ground.outside), everything(ground.here)
    assert after == before
    assert ground.calls == []
    # The connection is as good as before.
    assert con.execute("SELECT count(*) > 0 FROM events").fetchall() == [(True,)]


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1 a) TO '<path>' (FORMAT parquet, USE_TMP_FILE false)",
        "COPY (SELECT 1) TO '.tmp/x.csv' (USE_TMP_FILE false)",
        "COPY (SELECT 1) TO 'x.csv'",
        "ATTACH '<out>/new.db'",
        "EXPORT DATABASE '<out>/exported'",
        "IMPORT DATABASE '<out>'",
        "FROM sniff_csv('<out>/secret.csv')",
        "CREATE MACRO mine() AS TABLE FROM read_csv('<out>/secret.csv'); FROM mine()",
        "PREPARE mine AS FROM read_csv($1); EXECUTE mine('<out>/secret.csv')",
        "SET memory_limit = '1TB'",
        "SET profiling_output = '<out>/profile.txt'",
    ],
)
def test_the_same_statement_does_what_it_says_elsewhere(
    ground: Ground, tmp_path: Path, statement: str
) -> None:
    """What is refused above is refused for want of leave, not for a mistake in its text."""
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(ground.path.read_bytes())
    with duckdb.connect() as con:
        con.execute(ground._replace(path=copy).filled(statement)).fetchall()
    if "<path>" in statement:
        assert duckdb.execute(f"FROM '{copy}'").fetchall() == [(1,)]


def test_a_path_that_may_be_read_may_be_written(ground: Ground, tmp_path: Path) -> None:
    """Why files are not simply allowed by their paths: if this fails, DuckDB has changed."""
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(ground.path.read_bytes())
    with duckdb.connect() as con:
        con.execute(f"SET allowed_paths = ['{copy}']")
        con.execute("SET enable_external_access = false")
        con.execute(f"COPY (SELECT 1 a) TO '{copy}' (FORMAT parquet, USE_TMP_FILE false)")
    assert duckdb.execute(f"FROM '{copy}'").fetchall() == [(1,)]


def test_what_there_is_to_see(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """No password, no path of this machine, no secret: in settings, catalogues and errors."""
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://user:{SECRET}@127.0.0.1:1")
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID"):
        monkeypatch.setenv(name, SECRET)
    with duckdb.connect() as other:  # it would be seen: this test can fail
        assert SECRET in str(other.execute("FROM duckdb_settings()").fetchall())
    con = ground.wh.connect()
    home = str(Path.home())
    for source in ("duckdb_settings()", "duckdb_databases()", "duckdb_views()", "pg_settings",
                   "duckdb_external_file_cache()", "duckdb_secrets()", "duckdb_variables()",
                   "duckdb_logs", "duckdb_temporary_files()"):  # fmt: skip
        seen = str(con.execute(f"FROM {source}").fetchall())
        assert SECRET not in seen
        assert ground.wh.url not in seen
        assert f"'{home}/" not in seen
    for name in ("getenv('AWS_SECRET_ACCESS_KEY')", "current_setting('s3_secret_access_key')"):
        with pytest.raises(duckdb.Error) as refused:
            con.execute(f"SELECT {name}").fetchall()
        assert SECRET not in str(refused.value)


def test_just_the_files_of_the_snapshot_are_allowed(ground: Ground) -> None:
    con = ground.wh.connect()
    settings = dict(con.execute("SELECT name, value FROM duckdb_settings()").fetchall())
    allowed = con.execute("SELECT unnest(current_setting('allowed_paths'))").fetchall()
    # Those too that no other engine is told of.
    files = ground.wh.store.snapshot("two").files.values()
    names = {"/".join(Path(p).parts[-2:]) for paths in files for p in paths}
    assert {"/".join(Path(p).parts[-2:]) for p in ground.wh.files()["file"]} <= names
    assert {a.removeprefix("retime://two/") for (a,) in allowed} == names
    assert settings["allowed_directories"] == "[]"
    assert settings["temp_directory"] == ""
    assert settings["enable_external_access"] == "false"
    assert settings["lock_configuration"] == "true"


def test_a_connection_over_one_job_does_not_read_another(
    ground: Ground, tmp_path: Path, demo_job: Path
) -> None:
    wh = retime.open(tmp_path / "w")
    for job in ("mine", "theirs"):
        wh.ingest([demo_job / "rank0.json.gz"], job=job)
    both = wh.connect().execute("SELECT unnest(current_setting('allowed_paths'))").fetchall()
    theirs = next(a for (a,) in both if a.startswith("retime://theirs/"))
    con = wh.connect("mine")
    assert con.execute("SELECT DISTINCT job FROM events").fetchall() == [("mine",)]
    with pytest.raises(duckdb.Error, match=REFUSED):
        con.execute(f"FROM read_parquet('{theirs}')")


def test_python_variables_are_not_tables(ground: Ground) -> None:
    hidden = pl.DataFrame({"a": [SECRET]})
    con = ground.wh.connect()
    for ask in (con.execute, con.sql, con.query):
        with pytest.raises(duckdb.Error, match="hidden does not exist"):
            ask("FROM hidden")
    assert hidden.height == 1


def test_what_one_connection_defines_another_does_not_see(ground: Ground) -> None:
    true = ground.wh.connect().execute("SELECT count(*) FROM waits").fetchall()
    con = ground.wh.connect()
    con.execute("DROP VIEW waits")
    con.execute("CREATE VIEW waits AS SELECT 1 AS wait_ns")
    con.execute("CREATE OR REPLACE MACRO message_bytes(op, i, o, n) AS 0")
    con.execute("ATTACH ':memory:' AS other")
    con.execute("USE other")
    con.execute("SET VARIABLE x = 1")
    con.execute("CHECKPOINT")
    assert con.execute("SELECT count(*) FROM memory.waits").fetchall() == [(1,)]
    after = ground.wh.connect()
    assert after.execute("SELECT count(*) FROM waits").fetchall() == true != [(1,)]
    assert after.execute("SELECT getvariable('x')").fetchall() == [(None,)]


def test_memory_and_threads_are_bounded(ground: Ground) -> None:
    con = ground.wh.connect(memory="300MB", threads=1)
    assert con.execute("SELECT current_setting('threads')").fetchall() == [(1,)]
    assert con.execute("SELECT current_setting('memory_limit')").fetchall() == [("286.1 MiB",)]
    # Neither in one database nor in many is there more, and nothing is spilled.
    for target in ("mine", "other.mine"):
        con.execute("ATTACH IF NOT EXISTS ':memory:' AS other")
        with pytest.raises(duckdb.OutOfMemoryException):
            con.execute(f"CREATE TABLE {target} AS SELECT hash(range) h FROM range(100_000_000)")
    assert everything(ground.here) == {".tmp": ""}
    assert con.execute("SELECT count(*) > 0 FROM events").fetchall() == [(True,)]


def copied(ground: Ground, tmp_path: Path) -> tuple[retime.Warehouse, Path]:
    """A warehouse to spoil, and a part of its events."""
    subprocess.run(["cp", "-r", ground.wh.url, str(tmp_path / "copy")], check=True)
    wh = retime.open(tmp_path / "copy")
    return wh, Path(wh.files(table="events")["file"][0])


def link(part: Path, outside: Path) -> None:
    part.symlink_to(outside / "secret.parquet")


def pipe(part: Path, _: Path) -> None:
    os.mkfifo(part)


def nothing(part: Path, _: Path) -> None:
    assert not part.exists()


@pytest.mark.parametrize(
    ("put", "said"),
    [
        (link, r"retime://two/events/.*: Too many levels of symbolic links"),
        (pipe, r"retime://two/events/.*: not a file"),
        (nothing, r"retime://two/events/.* is no longer there: the job has changed since"),
    ],
)
def test_what_took_a_files_place_is_not_read(
    ground: Ground, tmp_path: Path, put: Callable[[Path, Path], None], said: str
) -> None:
    wh, part = copied(ground, tmp_path)
    con = wh.connect()
    part.unlink()
    put(part, ground.outside)
    from retime.analysis import query

    with pytest.raises(BadQuery, match=said) as refused:
        query.run(con, "SELECT count(DISTINCT name) FROM events")
    assert "\n" not in str(refused.value)
    assert str(tmp_path) not in str(refused.value)


def test_many_threads_read_the_same(ground: Ground) -> None:
    con = ground.wh.connect(threads=4)
    ask = "SELECT count(*), sum(hash(e)) FROM events e"
    expected = ground.wh.connect(threads=1).execute(ask).fetchall()
    found: list[list[tuple]] = []
    threads = [
        threading.Thread(target=lambda c: found.append(c.execute(ask).fetchall()), args=[cursor])
        for cursor in [con.cursor() for _ in range(4)]
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert found == [expected] * 4


def test_a_process_ends_while_a_result_is_open(ground: Ground) -> None:
    code = (
        "import sys, retime; con = retime.open(sys.argv[1]).connect(); "
        "rows = con.execute('FROM events'); rows.fetchone(); other = con.sql('FROM waits')"
    )
    done = subprocess.run([sys.executable, "-c", code, ground.wh.url], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
