"""The frames of a report, on a step whose answer is worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import polars as pl
import pytest
from retime.analysis import frames

Open = Callable[..., duckdb.DuckDBPyConnection]


def test_split_is_the_mean_over_ranks_and_adds_up_to_the_step(
    small: duckdb.DuckDBPyConnection,
) -> None:
    rows = {r["class"]: (r["mean_ns"], r["group"]) for r in frames.split(small).to_dicts()}
    idle = {k: rows.pop(k) for k in list(rows) if k.startswith("idle")}
    assert rows == {
        "compute": (550.0, "compute"),
        "compute_with_comm": (50.0, "compute"),
        "exposed_wait": (150.0, "wait"),
        "exposed_transfer": (150.0, "transfer"),
        "exposed_memcpy": (50.0, "memcpy"),
    }
    assert sum(ns for ns, _ in idle.values()) == 50.0
    assert frames.split(small)["share"].sum() == pytest.approx(1.0)


def test_split_by_rank(small: duckdb.DuckDBPyConnection) -> None:
    rows = {(r["rank"], r["class"]): r["mean_ns"] for r in frames.split(small, "rank").to_dicts()}
    assert rows[0, "exposed_wait"] == 300.0
    assert rows[0, "exposed_transfer"] == 200.0
    assert (1, "exposed_wait") not in rows
    assert rows[1, "compute_with_comm"] == 100.0


def test_headline(small: duckdb.DuckDBPyConnection) -> None:
    found = frames.headline(small)
    groups = {g: found[f"{g}_ns"] for g in frames.GROUPS}
    assert groups.pop("unsplit") == 0
    assert groups == {"compute": 600, "wait": 150, "transfer": 150, "memcpy": 50, "idle": 50}
    assert (found["scope"], found["step_ns"]) == ("step", 1000)
    last = found["waited_for"]
    assert (last["rank"], last["times_last"], last["wait_caused_ns"]) == (1, 1, 300)
    assert found["paired_wait_share"] == 0


def test_the_share_of_wait_at_sends_and_receives() -> None:
    waits = pl.DataFrame({"op": ["recv", "all_reduce", "send", None], "wait_ns": [50, 30, 10, 10]})
    assert frames.paired_wait_share(waits) == 0.6
    assert frames.paired_wait_share(waits.clear()) == 0


def test_waits(small: duckdb.DuckDBPyConnection) -> None:
    by_dim = frames.waits_by_dim_and_op(small).rows()
    assert by_dim == [("dp", "all_reduce", 2, 300, 400, 0, pytest.approx(3 / 7))]


def test_overlap(small: duckdb.DuckDBPyConnection) -> None:
    assert frames.overlap_by_rank(small).rows() == [(0, 500, 0, 500, 0.0), (1, 200, 100, 100, 0.5)]


def test_facts(small: duckdb.DuckDBPyConnection) -> None:
    found = frames.facts(small)
    expected = {
        "job": "small",
        "world_size": 2,
        "ranks_seen": 2,
        "hosts": 1,
        "clocks": "one-host",
        "steps": 1,
        "first_step": 5,
        "comms": 1,
        "participations": 2,
        "collectives": 1,
        "exact": 1,
        "order": 0,
        "partial": 0,
        "problems_lost": 1,
        "problems_warning": 1,
        "problems_info": 1,
        "device_name": "H100",
    }
    assert {k: found[k] for k in expected} == expected


def test_jobs_has_a_row_a_job(small: duckdb.DuckDBPyConnection) -> None:
    row = frames.jobs(small).to_dicts()
    assert len(row) == 1
    assert row[0]["created_utc"] == "2023-11-14 22:13:20"
    assert (row[0]["steps"], row[0]["participations"], row[0]["lost"]) == (1, 2, 1)


def test_problems_begin_with_lost_input(small: duckdb.DuckDBPyConnection) -> None:
    assert frames.problems(small)["severity"].to_list() == ["lost", "warning", "info"]


def test_a_job_without_steps_is_split_over_its_whole_trace(open_rows: Open, rows: dict) -> None:
    del rows["steps"]
    found = frames.headline(open_rows(rows))
    assert found["scope"] == "trace"
    assert (found["compute_ns"], found["wait_ns"], found["transfer_ns"]) == (600, 150, 150)


def test_a_job_without_collectives_waits_for_nobody(open_rows: Open, rows: dict) -> None:
    del rows["collectives"]
    rows["events"] = [e for e in rows["events"] if e["category"] != "comm"]
    con = open_rows(rows)
    assert frames.headline(con)["waited_for"] is None
    assert frames.waits_by_dim_and_op(con).is_empty()
    assert frames.overlap_by_rank(con).is_empty()


def test_a_job_without_events(open_rows: Open, rows: dict) -> None:
    kept = {k: v for k, v in rows.items() if k in ("jobs", "ranks")}
    found = frames.headline(open_rows(kept))
    assert (found["scope"], found["step_ns"], found["waited_for"]) == ("nothing", 0, None)
