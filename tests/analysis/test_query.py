"""The rows of a query: as its frame has them, whether Polars is asked for them or not."""

from __future__ import annotations

import duckdb
import pytest
from retime.analysis import query
from retime.analysis.limits import OutOfMemory

QUERIES = (
    "SELECT 1 AS a, 2 AS a, 'x' AS b, NULL AS c, true AS d, 0.1::FLOAT AS e, 'nan'::DOUBLE AS f",
    "SELECT [1, 2, NULL] AS g, ['a'] AS h, 3::UBIGINT AS u, -4::TINYINT AS t",
    "SELECT sum(i) AS s FROM range(5) AS r (i)",
    "SELECT sum(9223372036854775807::HUGEINT * 3) AS s, 1 AS x",
    "SELECT x FROM (VALUES (1::HUGEINT), (NULL), (9223372036854775807)) AS t (x)",
    "SELECT 'a'::ENUM ('a', 'b') AS e, DATE '2020-01-01' AS d, 1.25 AS n, {'a': [1]} AS s",
    "SELECT INTERVAL 1 DAY AS i, '{}'::JSON AS j",
    "DESCRIBE SELECT 1",
    "EXPLAIN SELECT 1",
    "FROM range(3) ORDER BY 1 DESC",
    "SELECT 1 AS a WHERE false",
    "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a",
    "SELECT ['a'::ENUM ('a', 'b')] AS e",
)


@pytest.mark.parametrize("text", QUERIES)
def test_rows_are_those_of_the_frame(text: str) -> None:
    with duckdb.connect() as con:
        frame = query.run(con, text)
        names, rows = query.rows(con, text)
    assert names == frame.columns
    assert repr(rows) == repr(frame.to_dicts())  # nan is not equal to itself


def test_no_column_goes_for_another_of_its_name() -> None:
    with duckdb.connect() as con:
        names, rows = query.rows(con, "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a")
    assert list(rows[0].values()) == [1, 2, 3, 4]
    assert names == ["a", "a_2", "a_1", "a_3"]


@pytest.mark.parametrize("text", ["SELEC 1", "SELECT nothing", "SELECT 1; SELECT 2", "SET x = 1"])
def test_rows_refuse_what_a_frame_refuses(text: str) -> None:
    with duckdb.connect() as con:
        with pytest.raises(query.BadQuery) as of_frame:
            query.run(con, text)
        with pytest.raises(query.BadQuery) as of_rows:
            query.rows(con, text)
    assert str(of_rows.value) == str(of_frame.value)


def test_rows_that_need_too_much_memory_are_refused() -> None:
    with duckdb.connect() as con:
        con.execute("SET memory_limit = '20MB'; SET temp_directory = ''")
        with pytest.raises(OutOfMemory):
            query.rows(con, "SELECT list(i) AS l FROM range(100_000_000) AS r (i)")
