"""Computed rows in a job's folder: read as they were written, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retime.ingest import kept, rooms, settings, tidying
from retime.ingest.run import ingest
from retime.ingest.schema import TABLES
from retime.ingest.warehouse import Warehouse

SCORES = [
    {"rank": 0, "score_ns": 0, "low_ns": 0, "high_ns": 0, "step_ns": 40, "how": "never last"},
    {"rank": 1, "score_ns": 7, "low_ns": 5, "high_ns": 9, "step_ns": 40, "how": "replay"},
]


def tables(rows=SCORES):
    schema = TABLES["replay_scores"].schema
    return {"replay_scores": pa.Table.from_pylist(rows, schema=schema)}


@pytest.fixture
def warehouse(tmp_path, traces):
    """A warehouse with job `j` of one rank."""
    traces(tmp_path / "in" / "0.fake", 0)
    made = Warehouse(tmp_path / "warehouse")
    ingest(made, tmp_path / "in", job="j")
    return made


@pytest.fixture
def folder(warehouse):
    return warehouse.job_folder("j")


@pytest.fixture
def key(warehouse, folder):
    return kept.key(folder, warehouse.snapshot("j").generation)


def read(folder, key):
    """Rows of replay_scores as they are kept; None where they are to be computed."""
    found = kept.find(folder, key)
    rows = None if found is None else kept.rows(folder, found, "replay_scores")
    return None if rows is None else rows.to_pylist()


def names(folder):
    return sorted(p.name for p in (folder / "_kept").glob("*"))


def test_rows_come_back_as_they_were(folder, key):
    assert read(folder, key) is None
    assert kept.keep(folder, key, tables())
    assert read(folder, key) == SCORES
    assert names(folder) == sorted([f"{key}.json", f"{key}-replay_scores.parquet"])
    assert not [p for p in (folder / "_incoming").iterdir() if p.is_dir()]
    found = kept.find(folder, key)
    assert found is not None
    assert kept.rows(folder, found, "slack") is None


def test_why_there_are_none_is_kept_too(folder, key):
    assert kept.keep(folder, key, {}, "the clocks are wrong")
    found = kept.find(folder, key)
    assert found is not None
    assert found.reason == "the clocks are wrong"
    rows = kept.rows(folder, found, "critical_path")
    assert rows is not None
    assert rows.schema == TABLES["critical_path"].schema
    assert rows.num_rows == 0


def test_kept_rows_are_of_one_state_and_one_setting(tmp_path, traces, warehouse, folder, key):
    kept.keep(folder, key, tables())
    settings.write(folder, settings.Settings(degrees={"tp": 2}))
    other = kept.key(folder, warehouse.snapshot("j").generation)
    assert other != key
    assert read(folder, other) is None
    (folder / settings.FILE).unlink()
    assert kept.key(folder, warehouse.snapshot("j").generation) == key
    traces(tmp_path / "more" / "1.fake", 1)
    ingest(warehouse, tmp_path / "more", job="j")
    newer = kept.key(folder, warehouse.snapshot("j").generation)
    assert newer.split(".")[0] != key.split(".")[0]
    assert read(folder, newer) is None


def test_what_is_kept_anew_takes_the_place_of_the_old(folder, key):
    kept.keep(folder, key, tables())
    kept.keep(folder, key, tables(SCORES[:1]))
    assert read(folder, key) == SCORES[:1]
    other = f"{key.split('.')[0]}.00000000"
    kept.keep(folder, other, tables())
    assert names(folder) == sorted([f"{other}.json", f"{other}-replay_scores.parquet"])


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


def flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def gone(path):
    path.unlink()


def folder_there(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [cut, flipped, gone, folder_there])
def test_a_damaged_file_is_not_read_and_is_written_again(folder, key, spoil):
    kept.keep(folder, key, tables())
    spoil(folder / "_kept" / f"{key}-replay_scores.parquet")
    assert read(folder, key) is None
    if spoil is not folder_there:
        assert kept.keep(folder, key, tables())
        assert read(folder, key) == SCORES


def garbage(said):
    return b"\xff{"


def deep(said):
    return b"[" * 100_000


def huge(said):
    return b" " * (kept.MOST_BYTES + 1) + json.dumps(said).encode()


def other_layout(said):
    return json.dumps({**said, "layout": 99}).encode()


def other_key(said):
    return json.dumps({**said, "key": "0" * 16 + ".00000000"}).encode()


def path_outside(said):
    said["tables"]["replay_scores"]["file"] = "../job=other/_kept/x.parquet"
    return json.dumps(said).encode()


def a_table_that_is_no_computed_one(said):
    said["tables"]["events"] = said["tables"]["replay_scores"]
    return json.dumps(said).encode()


@pytest.mark.parametrize(
    "spoil",
    [garbage, deep, huge, other_layout, other_key, path_outside, a_table_that_is_no_computed_one],
)
def test_a_list_that_is_not_one_of_ours_is_not_believed(folder, key, spoil):
    kept.keep(folder, key, tables())
    path = folder / "_kept" / f"{key}.json"
    path.write_bytes(spoil(json.loads(path.read_text())))
    assert kept.find(folder, key) is None


def test_a_file_with_other_columns_is_not_read(folder, key):
    kept.keep(folder, key, tables())
    listed = folder / "_kept" / f"{key}.json"
    path = folder / "_kept" / f"{key}-replay_scores.parquet"
    pq.write_table(pa.table({"rank": ["x", "y"]}), path)
    said = json.loads(listed.read_text())
    said["tables"]["replay_scores"] |= {
        "bytes": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    listed.write_text(json.dumps(said))
    assert read(folder, key) is None


def test_kept_rows_stay_with_their_generation_and_go_with_it(
    tmp_path, traces, warehouse, folder, key, monkeypatch
):
    kept.keep(folder, key, tables())
    assert warehouse.remove_orphans("j") == []
    assert read(folder, key) == SCORES
    traces(tmp_path / "more" / "1.fake", 1)
    ingest(warehouse, tmp_path / "more", job="j")
    assert read(folder, key) == SCORES  # for those who read that state still
    monkeypatch.setattr(tidying, "SUPERSEDED_S", 0.0)
    time.sleep(0.01)
    removed = warehouse.remove_orphans("j")
    assert f"_kept/{key}.json" in removed
    assert names(folder) == []


def test_a_job_that_is_gone_or_cannot_be_written_keeps_nothing(tmp_path, folder, key, monkeypatch):
    assert not kept.keep(tmp_path / "warehouse" / "job=other", key, tables())
    assert not (tmp_path / "warehouse" / "job=other").exists()

    def refuse(*_):
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(rooms, "make", refuse)
    assert not kept.keep(folder, key, tables())
    assert read(folder, key) is None


def test_a_pipe_in_the_place_of_a_list_or_a_file_is_not_waited_for(folder, key):
    kept.keep(folder, key, tables())
    part = folder / "_kept" / f"{key}-replay_scores.parquet"
    part.unlink()
    os.mkfifo(part)
    assert read(folder, key) is None
    listed = folder / "_kept" / f"{key}.json"
    text = json.loads(listed.read_text())
    text["tables"]["replay_scores"]["bytes"] = 0
    listed.write_text(json.dumps(text))
    assert read(folder, key) is None
    listed.unlink()
    os.mkfifo(listed)
    assert kept.find(folder, key) is None


def test_a_rank_has_one_score(folder, key):
    kept.keep(folder, key, tables([SCORES[1], SCORES[0], SCORES[1] | {"score_ns": 99}]))
    assert read(folder, key) == [SCORES[1], SCORES[0]]
