"""The library's file: made once, copied from then on, and missed by nobody where it cannot be."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from retime.queries import loader, prepared


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of caches."""
    monkeypatch.setattr(prepared, "folder", lambda: tmp_path / "caches")
    return tmp_path / "caches"


def made(texts: list[str], asked: list[str]) -> list[tuple]:
    """A view over a macro from `prepared.create`; `asked` grows where it had to be made."""

    def make(con: duckdb.DuckDBPyConnection) -> None:
        asked.append(texts[0])
        con.execute("CREATE MACRO _twice(x) AS 2 * x")
        con.execute(f"CREATE VIEW v AS SELECT _twice({texts[0]}) AS n")

    with duckdb.connect() as con:
        prepared.create(con, texts, make)
        names = con.execute("SELECT database_name FROM duckdb_databases() WHERE NOT internal")
        assert names.fetchall() == [("memory",)]
        return con.execute("FROM v").fetchall()


def test_views_are_made_once_for_each_text_that_they_come_from(caches: Path):
    asked: list[str] = []
    assert [made(["1"], asked), made(["1"], asked), made(["2"], asked)] == [[(2,)], [(2,)], [(4,)]]
    assert asked == ["1", "2"]
    assert len(list(caches.glob("library-*.duckdb"))) == len(list(caches.iterdir())) == 2


def test_a_file_that_is_no_database_is_replaced(caches: Path):
    asked: list[str] = []
    made(["1"], asked)
    (file,) = caches.iterdir()
    file.write_bytes(file.read_bytes()[:5000])
    assert made(["1"], asked) == [(2,)]
    assert made(["1"], asked) == [(2,)]
    assert asked == ["1", "1"]


def test_without_a_folder_views_are_made_each_time(caches: Path):
    caches.write_text("a file where the folder would be")
    asked: list[str] = []
    assert made(["1"], asked) == made(["1"], asked) == [(2,)]
    assert asked == ["1", "1"]


def test_a_copied_library_has_the_same_columns_and_macros():
    def catalogue() -> list[list[tuple]]:
        con = loader.connect({})
        return [
            con.execute(query).fetchall()
            for query in (
                "SELECT table_name, column_name, column_index, data_type FROM duckdb_columns() "
                "WHERE NOT internal ORDER BY ALL",
                "SELECT function_name, parameters, macro_definition FROM duckdb_functions() "
                "WHERE NOT internal ORDER BY ALL",
            )
        ]

    first = catalogue()
    assert catalogue() == first
    assert len(first[0]) > 500


def test_a_copied_view_reads_the_tables_of_its_own_connection(tmp_path: Path):
    loader.connect({})
    path = str(tmp_path / "ranks.parquet")
    missing = [c.name for c in loader.TABLES["ranks"].columns if c.name not in ("rank", "host")]
    nulls = "".join(f", NULL::INTEGER AS {name}" for name in missing)
    duckdb.execute(f"COPY (SELECT 7 AS rank, 'h' AS host{nulls}) TO '{path}'")
    with loader.connect({"a": {"ranks": [path]}}) as con:
        assert con.execute("SELECT job, rank FROM _rank_clocks").fetchall() == [("a", 7)]
    with loader.connect({}) as con:
        assert con.execute("SELECT job, rank FROM _rank_clocks").fetchall() == []
