"""Other engines over a warehouse's folders: the same rows and values as the views give."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import retime
from retime import cli
from retime.ingest.errors import UsageError, WarehouseError
from retime.ingest.schema import TABLES
from retime.ingest.warehouse import Snapshot

Rows = list[tuple[Any, ...]]
STORED = [t.name for t in TABLES.values() if not t.computed and not t.made]
"""Tables that an ingest writes for everybody; what a replay gives is kept elsewhere."""

OF_SOURCES = ("events", "problems")
"""Of the tables with rows here those that sources bring: nothing supersedes their files."""

SQL = {
    "steps": """
        SELECT job, rank, count(*), min(start_ns), max(end_ns), sum(end_ns - start_ns)
        FROM steps GROUP BY job, rank""",
    "bytes by operation and rank": """
        SELECT job, rank, op, count(*), sum(in_bytes), sum(out_bytes)
        FROM collectives GROUP BY job, rank, op""",
    "kernel time by category": """
        SELECT job, category, count(*), sum(dur_ns) FROM events
        WHERE kind IN ('kernel', 'memcpy', 'memset') GROUP BY job, category""",
}
WAITS = """
    WITH placed AS (
        SELECT c.job, c.collective_id, c.rank,
               c.start_ns + coalesce(r.clock_offset_ns, 0) AS starts,
               c.end_ns + coalesce(r.clock_offset_ns, 0) AS ends
        FROM collectives c JOIN ranks r ON r.job = c.job AND r.rank = c.rank
    ), ready AS (
        SELECT *, max(starts) OVER (PARTITION BY job, collective_id) AS last FROM placed
    ), split AS (
        SELECT job, collective_id, rank, ends - starts AS dur,
               CASE WHEN last < ends THEN last ELSE ends END - starts AS wait FROM ready
    )
    SELECT job, collective_id, rank, wait, dur - wait FROM split"""
"""Wait and transfer of operations that wait for the last rank, on clocks that do not drift."""

VIEWS = {
    **SQL,
    "kernel time by category": """
        SELECT job, category, sum(count), sum(total_ns) FROM kernel_stats GROUP BY job, category""",
    "waits": "SELECT job, collective_id, rank, wait_ns, transfer_ns FROM waits",
}


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory, demo_job: Path) -> retime.Warehouse:
    """Two jobs; the derived tables of the first were made twice, and the second's id is digits."""
    warehouse = retime.open(tmp_path_factory.mktemp("engines") / "warehouse")
    trace = "rank{}.json.gz".format
    warehouse.ingest([demo_job / trace(0), demo_job / trace(1)], job="two")
    warehouse.ingest([demo_job / trace(2)], job="two")
    warehouse.ingest([demo_job / trace(3), demo_job / trace(4)], job="007")
    return warehouse


@pytest.fixture(scope="module")
def views(wh: retime.Warehouse) -> Callable[[str], Rows]:
    """The answer of this package's own connection."""
    con = wh.connect()
    return lambda sql: con.execute(sql).fetchall()


def files_of(wh: retime.Warehouse) -> dict[str, list[str]]:
    listed = wh.files()
    return {t: listed.filter(pl.col("table") == t)["file"].to_list() for t in STORED}


def pattern_of(wh: retime.Warehouse) -> dict[str, str]:
    return {t: f"{wh.url}/job=*/{t}/*.parquet" for t in STORED}


def polars_over(sources: dict[str, Any]) -> Callable[[str], Rows]:
    frames = {}
    for table, source in sources.items():
        if not source:
            continue
        found = pl.scan_parquet(source, hive_partitioning=True, hive_schema={"job": pl.String})
        frames[table] = found.with_columns(pl.col(pl.Categorical).cast(pl.String))
    context = pl.SQLContext(frames)
    return lambda sql: context.execute(sql, eager=True).rows()


JOB = pa.schema([("job", pa.string())])


def datafusion_session() -> Any:
    datafusion = pytest.importorskip("datafusion")
    # Into folders that are no partitions it looks only if told to.
    told = {"datafusion.execution.listing_table_ignore_subdirectory": "false"}
    return datafusion.SessionContext(datafusion.SessionConfig(told))


def asked_of(session: Any) -> Callable[[str], Rows]:
    def ask(sql: str) -> Rows:
        batches = session.sql(sql).collect()
        return [tuple(r.values()) for b in batches for r in renamed(b).to_pylist()]

    return ask


def renamed(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.rename_columns([str(i) for i in range(batch.num_columns)])


def datafusion_over(wh: retime.Warehouse) -> Callable[[str], Rows]:
    session = datafusion_session()
    for table, files in files_of(wh).items():
        if files:
            hive = ds.partitioning(JOB, flavor="hive")
            session.register_dataset(table, ds.dataset(files, partitioning=hive))
    return asked_of(session)


@pytest.fixture(params=["polars", "datafusion"])
def engine(request: pytest.FixtureRequest, wh: retime.Warehouse) -> Callable[[str], Rows]:
    """An engine over exactly the files that `Warehouse.files` lists."""
    return polars_over(files_of(wh)) if request.param == "polars" else datafusion_over(wh)


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=repr)


@pytest.mark.parametrize("question", VIEWS)
def test_the_same_rows_and_values(engine, views, question: str) -> None:
    expected = views(VIEWS[question])
    assert {row[0] for row in expected} == {"two", "007"}
    found = engine(WAITS if question == "waits" else SQL[question])
    assert in_order(found) == in_order(expected)


def test_waits_are_not_all_nothing(views) -> None:
    assert views("SELECT count(*) > 50, min(wait_ns) FROM waits WHERE wait_ns > 0")[0][0]


def test_every_table_has_as_many_rows(wh: retime.Warehouse, engine, views) -> None:
    filled = [t for t, files in files_of(wh).items() if files]
    assert {"jobs", "ranks", "steps", "events", "comms", "collectives", "problems"} <= set(filled)
    for table in STORED:
        count = f"SELECT job, count(*) FROM {table} GROUP BY job"
        expected = in_order(views(count))
        assert (in_order(engine(count)) if table in filled else []) == expected


def test_columns_are_named_and_typed_as_in_the_views(engine, views) -> None:
    columns = ", ".join(c.name for c in TABLES["collectives"].columns)
    rows = f"SELECT job, {columns} FROM collectives"
    assert in_order(engine(rows)) == in_order(views(rows))


@pytest.mark.parametrize("table", OF_SOURCES)
def test_a_pattern_over_the_folders_is_enough_for_what_sources_bring(
    wh: retime.Warehouse, views, table: str
) -> None:
    own = f"SELECT job, rank, count(*) FROM {table} WHERE rank IS NOT NULL GROUP BY job, rank"
    expected = in_order(views(own))
    pattern = pattern_of(wh)[table]
    assert in_order(polars_over({table: pattern})(own)) == expected
    plain = duckdb.connect()
    plain.execute(
        f"CREATE VIEW {table} AS FROM read_parquet('{pattern}', hive_partitioning = true, "
        "hive_types = {job: VARCHAR}, union_by_name = true)"
    )
    assert in_order(plain.execute(own).fetchall()) == expected
    session = datafusion_session()
    # It matches patterns without the partitions' folders, and reads what has none as one folder.
    listed = f"{wh.url}/[{table[0]}]{table[1:]}/*.parquet"
    session.register_parquet(table, listed, table_partition_cols=[("job", pa.string())])
    assert in_order(asked_of(session)(own)) == expected


def test_a_pattern_takes_in_what_was_superseded(wh: retime.Warehouse, views) -> None:
    count = "SELECT count(*) FROM collectives WHERE job = 'two'"
    standing = views(count)
    assert polars_over(files_of(wh))(count) == standing == [(228,)]
    assert polars_over(pattern_of(wh))(count) == [(228 + 152,)]
    # What separates the generations is in the files' names.
    generation = wh.store.snapshot("two").generation.id
    current = f"{wh.url}/job=two/collectives/derived-{generation}.parquet"
    assert polars_over({"collectives": current})(count) == standing


def test_what_no_manifest_names_is_not_listed(wh: retime.Warehouse, tmp_path: Path) -> None:
    copy = retime.open(tmp_path / "copy")
    shutil.copytree(wh.url, copy.url)
    part = Path(copy.files("007", table="events")["file"][0])
    before = copy.files("007")
    shutil.copy(part, part.with_name("0123456789abcdef-000.parquet"))
    assert copy.files("007").equals(before)
    count = "SELECT count(*) FROM events WHERE job = '007'"
    assert polars_over(files_of(copy))(count) < polars_over(pattern_of(copy))(count)


def test_files_are_rows_and_bytes_of_what_is_there(wh: retime.Warehouse, views) -> None:
    listed = wh.files("two")
    assert listed.columns == ["job", "table", "file", "rows", "bytes"]
    assert listed["job"].unique().to_list() == ["two"]
    for _, table, file, rows, size in listed.rows():
        assert Path(file).stat().st_size == size
        assert pl.scan_parquet(file).select(pl.len()).collect().item() == rows
        assert Path(file).parent.name == table
    assert (
        listed.filter(table="events")["rows"].sum()
        == views("SELECT count(*) FROM events WHERE job = 'two'")[0][0]
    )
    assert wh.files().height == listed.height + wh.files(["007"]).height


def test_what_a_replay_gave_is_listed_where_it_is_kept(
    wh: retime.Warehouse, tmp_path: Path
) -> None:
    copy = retime.open(tmp_path / "copy")
    shutil.copytree(wh.url, copy.url)
    assert copy.files("007", table="critical_path").is_empty()
    rows = copy.connect("007").execute("SELECT count(*) FROM critical_path").fetchall()[0][0]
    listed = copy.files("007", table="critical_path")
    assert listed["rows"].to_list() == [rows]
    assert pl.scan_parquet(listed["file"].to_list()).select(pl.len()).collect().item() == rows


def test_a_view_has_no_files(wh: retime.Warehouse) -> None:
    with pytest.raises(UsageError, match="no table 'waits' has files; there are jobs, ranks"):
        wh.files(table="waits")


def test_files_that_would_vanish_are_not_listed(
    wh: retime.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Derived apart, in a folder that goes with the process."""
    snapshot = wh.store.snapshot("007")
    apart = Snapshot(
        snapshot.job, snapshot.files, snapshot.manifests, snapshot.generation, keep=object()
    )
    monkeypatch.setattr(type(wh.store), "snapshot", lambda self, job: apart)
    with pytest.raises(WarehouseError, match="job 007: its derived tables are not made yet"):
        wh.files("007")


@pytest.fixture
def out(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(*args: str) -> tuple[int, str]:
        capfd.readouterr()
        return cli.run(list(args)), capfd.readouterr().out

    return run


def test_the_command_is_the_call(wh: retime.Warehouse, out) -> None:
    code, text = out("files", "two", "--table", "steps", "--json", "--warehouse", wh.url)
    assert (code, pl.read_json(text.encode()).rows()) == (0, wh.files("two", table="steps").rows())
    code, text = out("files", "--all", "--json", "--warehouse", wh.url)
    assert pl.read_json(text.encode()).height == wh.files().height
    code, text = out("files", "two", "--warehouse", wh.url)
    assert code == 0
    assert "collectives" in text
    assert out("files", "--warehouse", wh.url)[0] == 2  # several jobs, and none was named
