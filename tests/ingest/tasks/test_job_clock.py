"""Times on the job's clock: offset and drift, as the SQL library has them."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest
from retime.ingest.schema import TABLES
from retime.ingest.tasks.job_clock import on_job_clock
from retime.queries import loader

S = 10**9


def ranks_table(rows):
    table = TABLES["ranks"]
    frame = pl.from_arrow(
        table.batch({c.name: [r.get(c.name) for r in rows] for c in table.columns})
    )
    assert isinstance(frame, pl.DataFrame)
    return frame


RANKS = ranks_table(
    [
        {"rank": 0, "host": "a", "start_ns": 0, "end_ns": 100 * S, "clock_offset_ns": 0},
        # Host b: 10 s to 210 s over both ranks, so the offset holds at 110 s.
        {"rank": 1, "host": "b", "start_ns": 10 * S, "end_ns": 200 * S,
         "clock_offset_ns": 5_000, "clock_drift_ppm": 20.0},
        {"rank": 2, "host": "b", "start_ns": 50 * S, "end_ns": 210 * S,
         "clock_offset_ns": 5_000, "clock_drift_ppm": 20.0},
        {"rank": 3, "start_ns": 0, "end_ns": 20 * S,
         "clock_offset_ns": -7, "clock_drift_ppm": -1.0},
        {"rank": 4, "host": "c", "clock_offset_ns": 3, "clock_drift_ppm": 9.0},
        # Host b's other clock counts from when it started: 0 to 2 s, the middle is at 1 s.
        {"rank": 5, "host": "b", "start_ns": 0, "end_ns": 2 * S, "clock": "boot",
         "clock_offset_ns": 11, "clock_drift_ppm": 20.0},
        {"rank": 6, "host": "b", "start_ns": 0, "end_ns": 4 * S, "clock": "process",
         "clock_offset_ns": 12, "clock_drift_ppm": 20.0},
    ]
)  # fmt: skip

# 20 ppm of 100 s are 2 ms; -1 ppm of 10 s is -10 us.
CASES = [
    (0, 60 * S, 60 * S),
    (1, 110 * S, 110 * S + 5_000),
    (1, 210 * S, 210 * S + 5_000 - 2_000_000),
    (2, 10 * S, 10 * S + 5_000 + 2_000_000),
    (3, 20 * S, 20 * S - 7 + 10_000),
    (5, 3 * S, 3 * S + 11 - 40_000),
    (6, 3 * S, 3 * S + 12 - 20_000),
    (4, 1_000, 1_003),
    (9, 42, 42),
    (1, None, None),
]


def test_offset_and_drift_about_the_middle_of_the_host():
    frame = pl.DataFrame(
        {"rank": [r for r, _, _ in CASES], "t": [t for _, t, _ in CASES]},
        schema={"rank": pl.Int32, "t": pl.Int64},
    )
    assert on_job_clock(frame, RANKS, "t")["t"].to_list() == [there for _, _, there in CASES]


def test_the_sql_library_says_the_same(tmp_path):
    path = tmp_path / "ranks.parquet"
    RANKS.write_parquet(path)
    con: duckdb.DuckDBPyConnection = loader.connect({"j": {"ranks": [str(path)]}})
    for rank, time, there in CASES[:7]:
        found = con.sql(
            f"SELECT _aligned_ns({time}, offset_ns, drift_ppm, anchor_ns) "
            f"FROM _rank_clocks WHERE rank = {rank}"
        ).fetchall()
        assert found == [(there,)]


@pytest.mark.parametrize("columns", [(), ("t", "u")])
def test_no_rows(columns):
    empty = pl.DataFrame(schema={"rank": pl.Int32, "t": pl.Int64, "u": pl.Int64})
    assert on_job_clock(empty, RANKS, *columns).shape == (0, 3)
