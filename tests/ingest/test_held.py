"""What is held of a trace while it is read: bounded, in memory once, the same as held apart."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retime.ingest import ahead, memory
from retime.ingest.kineto import events, parser, scanner
from retime.ingest.kineto.launches import Columns, launches, launches_of
from retime.ingest.kineto.rawbatch import NULL, Envelope
from retime.ingest.made import events as made_events
from retime.ingest.made import make, ranks
from retime.ingest.run import ingest
from retime.ingest.schema import TABLES, TEXT
from retime.ingest.sources import find_sources
from retime.ingest.writer import PartWriter

EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": f"op{i % 7}", "pid": 1, "tid": i % 3, "ts": i, "dur": 1,
     "args": {"External id": i, **({"Group size": i} if i % 5 == 0 else {})}}
    for i in range(2000)
]  # fmt: skip


def columns_of(batch) -> list[list]:
    names = ("ts_ns", "tid", "external_id", "group_size", "offset", "name")
    return [batch.cols[c][np.arange(batch.n)].tolist() for c in names]


def test_a_batch_that_is_used_up_makes_room_for_another() -> None:
    text = json.dumps(EVENTS).encode()
    kept = list(scanner.read_events(text, Envelope(), print, batch_rows=100))
    found, places = [], set()
    for batch in scanner.read_events(text, Envelope(), print, batch_rows=100):
        found.append(columns_of(batch))
        places.add(batch.cols["ts_ns"].__array_interface__["data"][0])
        batch.used_up()
    assert len(kept) == 20
    assert len(places) == 1
    # Who says nothing keeps every batch as it was.
    assert found == [columns_of(batch) for batch in kept]
    assert found[0][0][:3] == [0, 1000, 2000]


@pytest.mark.parametrize("threads", [1, 2])
def test_no_more_device_rows_are_held_than_may_be(
    demo_job: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    (source,) = find_sources([str(demo_job / "rank0.json.gz")], lambda name, problem: None)
    most, rows = [], 0
    add = events.Held.add

    def counted(held: events.Held, more: events.DeviceRows) -> None:
        add(held, more)
        most.append(len(held))

    def small(*given, **wanted):
        return scanner.read_events(*given, **wanted, batch_rows=500)

    monkeypatch.setattr(events.Held, "add", counted)
    monkeypatch.setattr(parser, "HELD_ROWS", 1000)
    monkeypatch.setattr(parser, "reader", lambda source: (small, True))
    for table, batch in parser.parse(source, threads=threads):
        if table == "events":
            rows += batch.num_rows - batch["stream"].null_count
    assert rows > 3000
    assert 1000 <= max(most) < 1500


def device_rows(rng: np.random.Generator, n: int, some: bool) -> events.DeviceRows:
    def whole(null: bool) -> np.ndarray:
        return np.full(n, NULL) if null else rng.integers(0, 1 << 40, n)

    kinds = {"kind": np.int8, "name": np.int32, "category": np.int32}
    return events.DeviceRows(
        *(
            rng.integers(0, 5, n).astype(kinds[c]) if c in kinds else whole(c == "bytes" and some)
            for c in events.DeviceRows._fields
        )
    )


def test_rows_that_are_held_are_those_that_were_added() -> None:
    rng = np.random.default_rng(3)
    held = events.Held(10)
    for again in range(2):
        parts = [device_rows(rng, n, some) for n, some in ((4, True), (5, True), (30, again > 0))]
        for part in parts:
            held.add(part)
        for one, of in zip(held.rows(), zip(*parts, strict=True), strict=True):
            whole = np.concatenate(of)
            assert (one.dtype, one.tolist()) == (whole.dtype, whole.tolist())
        held = held.emptied()
        assert len(held) == 0


def test_launches_kept_in_order_are_those_of_all_calls_together() -> None:
    rng = np.random.default_rng(5)
    kept = Columns("correlation", "start_ns", "thread")
    parts = []
    for n in (0, 3, 700, 1, 900):
        part = rng.integers(0, 400, n), rng.integers(0, 50, n), rng.integers(0, 4, n)
        parts.append(part)
        kept.add(*part)
        found = launches_of(kept)
        expected = launches(*(np.concatenate(c) for c in zip(*parts, strict=True)))
        assert [c.tolist() for c in found] == [c.tolist() for c in expected]
    assert len(kept) == len(set(np.concatenate([p[0] for p in parts]).tolist()))


def test_a_column_of_nulls_is_one_piece_of_memory_and_null() -> None:
    for n in (0, 5, 300_000):
        for kind in (pa.int64(), pa.int32(), TEXT):
            column = events.absent(n, kind)
            column.validate(full=True)
            assert (column.type, len(column), column.null_count) == (kind, n, n)
    a, b = (events.absent(9, pa.int64()).buffers()[1] for _ in range(2))
    assert a is not None
    assert b is not None
    assert a.address == b.address


def test_memory_is_given_back_where_the_library_can(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.resident_bytes() > 1 << 20
    asked = []
    monkeypatch.setattr(memory, "_trim", lambda: asked.append)
    monkeypatch.setattr(memory, "SMALL_BYTES", 1 << 63)  # what small processes hold they keep
    memory.give_back()
    assert not asked
    monkeypatch.setattr(memory, "SMALL_BYTES", 0)
    memory.give_back()
    assert asked == [0]
    monkeypatch.undo()
    monkeypatch.setattr(memory, "SMALL_BYTES", 0)
    memory._trim.cache_clear()
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    memory.give_back()
    memory._trim.cache_clear()


def test_what_is_made_of_a_rank_is_the_same_however_many_threads_make_it(
    demo_job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(demo_job / f"rank{r}.json.gz") for r in (0, 1)]

    def made(name: str) -> dict[str, bytes]:
        ingest(str(tmp_path / name), paths, job="j")
        found = (tmp_path / name / "job=j").glob("_made_*/*")
        return {f"{p.parent.name}/{p.name}": p.read_bytes() for p in found}

    monkeypatch.setattr(ahead, "cores", lambda: 2)
    monkeypatch.setattr(made_events, "cores", lambda: 2)
    monkeypatch.setattr(ranks, "BESIDE_EVENTS", 0)
    monkeypatch.setattr(made_events, "AHEAD_ROWS", 0)
    two = made("two")
    monkeypatch.setattr(ranks, "ALONE_EVENTS", 0)
    monkeypatch.setattr(made_events, "AHEAD_ROWS", 1 << 60)
    monkeypatch.setattr(made_events, "GIVE_BACK_ROWS", 0)
    monkeypatch.setattr(make, "MANY_GAPS", 0)
    one = made("one")
    assert {p.partition("/")[0] for p in two} >= {"_made_gaps", "_made_kernels"}
    assert one == two


def test_a_table_that_is_finished_is_written_at_once_and_may_go_on(tmp_path: Path) -> None:
    def rows(first: int) -> pa.RecordBatch:
        return TABLES["steps"].batch({"rank": [0] * 10, "step": list(range(first, first + 10))})

    writer = PartWriter(tmp_path)
    writer.finish("comms")  # of which nothing came
    writer.write("steps", rows(0))
    writer.finish("steps")
    writer.write("steps", rows(10))
    (written,) = writer.close()
    file = pq.ParquetFile(tmp_path / written.file)
    assert written.rows == 20
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [10, 10]
    assert file.read(["step"])["step"].to_pylist() == list(range(20))


def test_texts_in_use_stand_once_in_order_of_their_first_row() -> None:
    found = make._in_use(np.array([3, -1, 1, 3, 4, 0]), ["a", "b", "not used", "c", "b"])
    assert found.dictionary.to_pylist() == ["c", "b", "a"]
    assert found.to_pylist() == ["c", None, "b", "c", "b", "a"]
