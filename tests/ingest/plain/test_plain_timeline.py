"""The plain form of a rank's timeline: what its lines become, and what odd ones are."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
import retime
from retime.ingest.detect import detect
from retime.ingest.errors import UsageError
from retime.ingest.plain import parse
from retime.ingest.sources import find_sources

MS = 1_000_000
ABOUT = {"table": "ranks", "rank": 0, "world_size": 2, "host": "a", "local_rank": 0, "rail": 1}
COMM = {"table": "comms", "comm": "w", "name": "w", "ranks": [0, 1], "size": 2, "dim": "dp"}
STEP = {"table": "steps", "step": 0, "start_ns": 0, "end_ns": 9 * MS}
WORK = {"table": "events", "name": "forward", "start_ns": 0, "dur_ns": 3 * MS, "step": 0}
REDUCE = {
    "table": "collectives", "comm": "w", "seq": 0, "op": "all_reduce", "algo": "ring",
    "in_bytes": 800, "out_bytes": 800, "group_size": 2, "start_ns": 3 * MS, "end_ns": 8 * MS,
    "step": 0,
}  # fmt: skip
MOVED = {"table": "transfers", "peer_rank": 1, "rail": 1, "bytes": 800, "direction": "send",
         "start_ns": 3 * MS, "end_ns": 8 * MS}  # fmt: skip
READ = {"table": "transfers", "bytes": 50, "traffic_class": "storage", "start_ns": 1, "end_ns": 2}
LINES = (ABOUT, COMM, WORK, REDUCE, MOVED, READ, STEP)
OTHER = {"host": "b", "rank": 1}


def written(path: Path, *rows: object) -> Path:
    """A file with the rows as lines; a text stands as it is."""
    path.write_text("".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in rows))
    return path


def rows(path: Path, rank: int | None = None) -> dict[str, list[dict]]:
    """All rows that parsing gives, by table."""
    source = next(iter(find_sources([str(path)], lambda *_: None)))
    assert detect(source) == "plain"
    out: dict[str, list[dict]] = {}
    for table, batch in parse(source, rank=rank):
        out.setdefault(table, []).extend(batch.to_pylist())
    return out


def test_a_line_is_a_row_of_its_table(tmp_path: Path):
    found = rows(written(tmp_path / "r0.jsonl", *LINES))
    (about,) = found["ranks"]
    assert (about["rank"], about["host"], about["rail"], about["clock"]) == (0, "a", 1, "host")
    assert (about["start_ns"], about["end_ns"]) == (0, 9 * MS)
    (reduce,) = found["collectives"]
    assert (reduce["in_bytes"], reduce["algo"], reduce["source"]) == (800, "ring", "plain")
    assert [(e["name"], e["dur_ns"]) for e in found["events"]] == [
        ("forward", 3 * MS), ("all_reduce", 5 * MS),
    ]  # fmt: skip
    assert "problems" not in found


def test_transfers_are_of_the_collective_before_them(tmp_path: Path):
    found = rows(written(tmp_path / "r0.jsonl", *LINES))
    read, moved = found["transfers"]  # by start
    assert moved["event_id"] == found["collectives"][0]["event_id"]
    assert (moved["rail"], moved["traffic_class"], moved["measured"]) == (1, "collective", True)
    assert (read["traffic_class"], read["event_id"]) == ("storage", None)


def test_ranks_are_matched_and_replayed(tmp_path: Path):
    """Rank 1's host is 7 ms ahead, and its rank 2 ms later at the all-reduce."""
    ahead, late = 7 * MS, 2 * MS
    other = [
        {**ABOUT, **OTHER}, COMM,
        {**WORK, "start_ns": ahead, "dur_ns": 3 * MS + late},
        {**REDUCE, "start_ns": 3 * MS + late + ahead, "end_ns": 8 * MS + ahead},
        {**STEP, "start_ns": ahead, "end_ns": 9 * MS + ahead},
    ]  # fmt: skip
    written(tmp_path / "r0.jsonl", *LINES)
    written(tmp_path / "r1.jsonl", *other)
    wh = retime.open(tmp_path / "warehouse")
    assert (
        wh.ingest([str(tmp_path / "r0.jsonl"), str(tmp_path / "r1.jsonl")], job="j").exit_code == 0
    )
    waits = wh.job("j").waits().sort("rank")
    assert waits["wait_ns"].to_list() == [late, 0]
    assert waits["transfer_ns"].to_list() == [3 * MS, 3 * MS]
    moved = pl.read_parquet(wh.job("j").snapshot.files["transfers"])
    assert moved["collective_id"].null_count() == 1
    assert retime.replay(wh.job("j"))["fidelity_pct"] < 0.01


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("no json", "not_a_row"),
        ({"table": "routing", "layer": 1}, "not_a_row"),
        ({**WORK, "rank": 5}, "other_rank"),
        ({**WORK, "colour": "red"}, "unknown_column"),
        ({**WORK, "event_id": 7}, "unknown_column"),
        ({**WORK, "dur_ns": "long"}, "wrong_type"),
    ],
)
def test_odd_lines_are_told_and_the_rest_is_read(tmp_path: Path, line, code: str):
    found = rows(written(tmp_path / "r0.jsonl", ABOUT, WORK, line, REDUCE))
    assert [p["code"] for p in found["problems"]] == [code]
    assert len(found["collectives"]) == 1


def test_a_very_long_line_is_one_problem(tmp_path: Path):
    found = rows(written(tmp_path / "r0.jsonl", ABOUT, json.dumps({"x": "y" * 3_000_000}), REDUCE))
    assert [(p["code"], p["count"]) for p in found["problems"]] == [("line_too_long", 1)]
    assert len(found["collectives"]) == 1


def test_another_rank_asked_for_is_refused(tmp_path: Path):
    path = written(tmp_path / "r0.jsonl", *LINES)
    with pytest.raises(UsageError, match="says rank 0, not 3"):
        rows(path, rank=3)
