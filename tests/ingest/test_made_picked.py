"""Rows that are picked while events are written are those that reading the files would give."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from retime.analysis import doors
from retime.ingest.made import events, picked
from retime.ingest.run import ingest
from retime.ingest.schema import TABLES
from retime.ingest.warehouse import Warehouse

DEMO = Path(doors.__file__).parent / "demo_job"
RANKS = [str(DEMO / f"rank{r}.json.gz") for r in (0, 1)]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The ranks of each group of files that is read."""
    asked: list[list[int]] = []
    real = events._read

    def told(opened, parts, ranks, words):
        asked.append(ranks)
        return real(opened, parts, ranks, words)

    monkeypatch.setattr(events, "_read", told)
    return asked


def derived(wh: Path) -> dict[str, bytes]:
    """Of each derived table the last file; but for `jobs`, which has the time of the ingest."""
    files = sorted(wh.rglob("derived-*.parquet"), key=lambda p: p.stat().st_mtime_ns)
    found = {p.parent.name: p.read_bytes() for p in files}
    return {table: content for table, content in found.items() if table != "jobs"}


def derived_again(wh: Path) -> dict[str, bytes]:
    for path in wh.rglob("derived-*"):
        path.unlink()
    assert Warehouse(wh).snapshot("j").files
    return derived(wh)


def test_no_file_is_read_again_and_the_same_is_made(tmp_path: Path, read) -> None:
    ingest(str(tmp_path), RANKS, job="j", workers=1)
    assert not read
    before = derived(tmp_path)
    assert {"_made_gaps", "_made_kernels", "_made_composition"} <= before.keys()
    assert derived_again(tmp_path) == before
    assert read == [[0], [1]]


def test_row_groups_make_no_difference(tmp_path: Path, read, monkeypatch) -> None:
    monkeypatch.setattr("retime.ingest.writer.ROW_GROUP_ROWS", 1000)
    monkeypatch.setattr("retime.ingest.kineto.blocks.BATCH_ROWS", 700)
    monkeypatch.setattr("retime.ingest.kineto.parser.GIVEN_ROWS", 300)
    ingest(str(tmp_path), RANKS, job="j", workers=2)
    assert not read
    before = derived(tmp_path)
    assert derived_again(tmp_path) == before
    assert read == [[0], [1]]


def test_a_rank_that_comes_later_is_at_hand_and_the_others_are_read(tmp_path: Path, read) -> None:
    for rank in RANKS:
        ingest(str(tmp_path / "one"), rank, job="j", workers=1)
    assert read == [[0]]
    ingest(str(tmp_path / "both"), RANKS, job="j", workers=1)
    assert read == [[0]]
    one, both = derived(tmp_path / "one"), derived(tmp_path / "both")
    assert {t: b for t, b in one.items() if t.startswith("_made_")} == {
        t: b for t, b in both.items() if t.startswith("_made_")
    }


def test_beyond_what_may_be_held_files_are_read(tmp_path: Path, read, monkeypatch) -> None:
    ingest(str(tmp_path / "whole"), RANKS, job="j", workers=1)
    monkeypatch.setattr(picked, "MOST_ROWS", 5_000)
    ingest(str(tmp_path / "some"), RANKS, job="j", workers=1)
    assert read
    assert derived(tmp_path / "some") == derived(tmp_path / "whole")


@pytest.mark.parametrize("kernel", [False, True])
def test_a_rank_without_a_device_is_read(tmp_path: Path, read, kernel: bool) -> None:
    kinds = [("cpu_op", "aten::mm", 1), ("cuda_runtime", "cudaLaunchKernel", 1)]
    kinds += [("kernel", "gemm", 7)] * kernel
    rows = [
        {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": 10 * at, "dur": 5,
         "args": {"correlation": 7}}
        for at, (cat, name, tid) in enumerate(kinds, 1)
    ]  # fmt: skip
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": rows}))
    ingest(str(tmp_path / "wh"), str(path), job="j", rank=0)
    assert read == ([] if kernel else [[0]])
    before = derived(tmp_path / "wh")
    assert derived_again(tmp_path / "wh") == before


def test_room_goes_back_with_a_source_that_is_not_held() -> None:
    room = picked.Room()
    one = picked.Picked(room)
    rows = _rows([0, 0], ["kernel", "kernel"])
    one.take("events", rows)
    one.take("ranks", rows)
    assert room.rows == picked.MOST_ROWS - 2
    one.take("events", _rows([1], ["kernel"]))  # of several ranks nothing is held
    assert room.rows == picked.MOST_ROWS
    one.take("events", rows)
    assert room.rows == picked.MOST_ROWS


def _rows(ranks: list[int], kinds: list[str]):
    n = len(ranks)
    batch = TABLES["events"].batch(
        {"rank": ranks, "kind": kinds, "name": ["k"] * n, "event_id": list(range(n)),
         "start_ns": list(range(n)), "dur_ns": [1] * n}
    )  # fmt: skip
    return pa.Table.from_batches([batch])
