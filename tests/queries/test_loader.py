"""A connection has every table, of every job asked for, typed even where there are no rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retime.ingest.schema import TABLES
from retime.queries import loader


def steps_file(path, *steps: int) -> str:
    batch = TABLES["steps"].batch({"rank": [0] * len(steps), "step": list(steps)})
    pq.write_table(pa.Table.from_batches([batch]), path)
    return str(path)


@pytest.fixture
def files(tmp_path):
    return {
        "it's a": {"steps": [steps_file(tmp_path / "1.parquet", 1, 2)]},
        "b": {
            "steps": [
                steps_file(tmp_path / "2.parquet", 3),
                steps_file(tmp_path / "job=other.parquet", 4),
            ]
        },
        "empty": {},
    }


def test_tables_hold_the_rows_of_every_job(files):
    con = loader.connect(files)
    assert con.execute("SELECT job, step FROM steps ORDER BY step").fetchall() == [
        ("it's a", 1), ("it's a", 2), ("b", 3), ("b", 4),
    ]  # fmt: skip


def test_jobs_chooses(files):
    con = loader.connect(files, jobs=["b"])
    assert con.execute("SELECT step FROM steps ORDER BY step").fetchall() == [(3,), (4,)]
    with pytest.raises(KeyError, match="no job"):
        loader.connect(files, jobs=["c"])


def test_an_unknown_table_is_refused():
    with pytest.raises(KeyError, match="stepz"):
        loader.connect({"j": {"stepz": []}})


def test_empty_tables_are_typed():
    con = loader.connect({})
    for table in TABLES.values():
        described = {d[0]: d[1] for d in con.execute(f"DESCRIBE {table.name}").fetchall()}
        assert list(described) == ["job", *table.schema.names]
    assert con.execute("DESCRIBE comms").fetchall()[4][:2] == ("ranks", "INTEGER[]")
    assert con.execute("FROM step_breakdown").fetchall() == []


def test_limits_reach_duckdb():
    con = loader.connect({}, threads=1, memory_limit="512MB")
    got = con.execute("SELECT current_setting('threads'), current_setting('memory_limit')")
    assert got.fetchone() == (1, "488.2 MiB")


def test_views_work_from_a_cursor_and_after_materialising(files):
    con = loader.connect(files)
    before = con.cursor().execute("FROM step_breakdown ORDER BY ALL").fetchall()
    loader.materialise(con)
    assert con.cursor().execute("FROM step_breakdown ORDER BY ALL").fetchall() == before
    loader.materialise(con, "steps")
    assert con.execute("SELECT count(*) FROM steps").fetchone() == (4,)


def test_object_stores_are_read_through_fsspec():
    import fsspec

    table = pa.Table.from_batches([TABLES["steps"].batch({"rank": [0], "step": [5]})])
    with fsspec.open("memory://retime-test/steps.parquet", "wb") as f:
        pq.write_table(table, f)
    con = loader.connect({"j": {"steps": ["memory://retime-test/steps.parquet"]}})
    assert con.execute("SELECT step FROM steps").fetchall() == [(5,)]


def test_modules_come_after_what_they_require(monkeypatch, tmp_path):
    for name, text in {
        "a": "-- A.\n-- requires: b, c\n", "b": "-- B.\n-- requires: c\n", "c": "-- C.\n",
    }.items():  # fmt: skip
        (tmp_path / f"{name}.sql").write_text(text)
    monkeypatch.setattr(loader, "LIBRARY", (tmp_path,))
    assert [t[3] for t in loader.library.__wrapped__()] == ["C", "B", "A"]
    (tmp_path / "c.sql").write_text("-- requires: a\n")
    with pytest.raises(ValueError, match="a -> b -> c -> a"):
        loader.library.__wrapped__()
    (tmp_path / "c.sql").write_text("-- requires: nothing\n")
    with pytest.raises(ValueError, match="'nothing', which does not exist"):
        loader.library.__wrapped__()
