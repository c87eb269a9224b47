"""What communication kernels held of a device, stored with a large job, as the view computes it."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retime.ingest.keeping import slices
from retime.ingest.made import beside, grouped, overlap
from retime.ingest.made.aligned import Odd
from retime.ingest.manifest import Manifest, Part
from retime.ingest.schema import TABLES
from retime.ingest.store import folder
from retime.ingest.writer import PartWriter
from retime.queries import loader

RANKS = 2
MARKS = ("gc", "GC", "Manual gc: step 3", "Python GC", "enumerate(DataLoader)#x.__next__", "x",
         "get_batch", "utils/data/dataloader.py(7): __next__", "garbage-collection",
         None)  # fmt: skip


def rows(table: str, found: list[dict]) -> pa.Table:
    columns = {c for row in found for c in row}
    return pa.Table.from_batches(
        [TABLES[table].batch({c: [row.get(c) for row in found] for c in columns})]
    )


def job(seed: int) -> tuple[list[dict], list[dict]]:
    """Events and collectives: ties, nothing between, kernels that nobody names, several devices."""
    r = random.Random(seed)
    events, collectives = [], []
    for rank in range(RANKS):
        for n in range(r.choice((0, 1, 5, 120))):
            talks = r.random() < 0.4
            id = (rank << 40) + n
            events.append({
                "rank": rank, "event_id": id, "start_ns": r.randint(0, 300),
                "dur_ns": r.choice((None, 0, 1, 7, 7, 30, r.randint(1, 90))),
                "kind": r.choice(("kernel",) * 9 + ("memcpy",)),
                "category": "comm" if talks else r.choice((None, "gemm")),
                "name": r.choice(("nccl_a", "nccl_b", None) if talks else ("gemm", "norm", None)),
                "device": r.choice((0, 0, 0, 1, None)), "grid_blocks": r.choice((None, 8, 8, 16)),
                "block_threads": r.choice((None, 128)),
            })  # fmt: skip
            if n % 3 == 0:
                events.append({
                    "rank": rank, "event_id": id + (1 << 30), "start_ns": r.randint(0, 300),
                    "dur_ns": r.choice((None, 0, 9)), "name": r.choice(MARKS),
                    "kind": r.choice(("annotation", "host_op", "python", "runtime")),
                })  # fmt: skip
            if talks and r.random() < 0.7:
                collectives.append({
                    "rank": rank, "event_id": id, "comm": r.choice(("w", "v", None)),
                    "channels": r.choice((None, 4, 8)), "op": "all_reduce",
                })  # fmt: skip
    return events, collectives


def source(place: Path, events: list[dict], at: int, ranks: list[int]) -> Manifest:
    table = rows("events", events)
    pq.write_table(table, place / f"events{at}.parquet")
    return Manifest(
        id=f"{at:064x}", name=f"s{at}", sha256="", size_bytes=0, format="kineto", ranks=ranks,
        world_sizes=[], views={}, problems={}, tool_version="", created_at_ns=0,
        tables={"events": [Part(f"events{at}.parquet", len(events), 1, "")]},
    )  # fmt: skip


@pytest.mark.parametrize("block_rows", [2, 9, 1 << 16])
@pytest.mark.parametrize("seed", range(12))
def test_stored_rows_are_those_of_the_view(tmp_path: Path, monkeypatch, seed: int, block_rows: int):
    monkeypatch.setattr(overlap, "BLOCK_ROWS", block_rows)
    monkeypatch.setattr(grouped, "PIECE_ROWS", block_rows)
    monkeypatch.setattr(beside, "LEAST_ROWS", 1)
    place = tmp_path / "job"
    place.mkdir()
    events, collectives = job(seed)
    # One rank comes from two sources.
    cut = len(events) // 3
    sources = [source(place, events[:cut], 0, [0, 1]), source(place, events[cut:], 1, [0, 1])]
    tables = {
        "collectives": rows("collectives", collectives or [{"rank": 0, "op": "barrier"}]),
        "ranks": rows("ranks", [{"rank": 0, "n_sms": 12}, {"rank": 1}]),
    }
    files = {"events": [str(place / f"events{n}.parquet") for n in (0, 1)]}
    for name, table in tables.items():
        pq.write_table(table, place / f"{name}.parquet")
        files[name] = [str(place / f"{name}.parquet")]
    writer = PartWriter(tmp_path)
    beside.write(writer, slices.of(folder(place)), sources, tables, {})
    made = {w.table: [str(tmp_path / w.file)] for w in writer.close()}
    computed = loader.connect({"j": files}, threads=1)
    query = "FROM {} ORDER BY ALL"
    expected = computed.execute(query.format("_sm_parts")).fetchall()
    if not expected:
        assert not made
        return
    stored = loader.connect({"j": {**files, **made}}, threads=1)
    assert [c[:2] for c in stored.execute("DESCRIBE _sm_parts").fetchall()] == [
        c[:2] for c in computed.execute("DESCRIBE _sm_parts").fetchall()
    ]
    assert stored.execute(query.format("_sm_parts")).fetchall() == expected
    marks = computed.execute(query.format("_host_marks")).fetchall()
    assert stored.execute(query.format("_host_marks")).fetchall() == marks
    budget = computed.execute(query.format("sm_budget")).fetchall()
    assert _rounded(stored.execute(query.format("sm_budget")).fetchall()) == _rounded(budget)


def _rounded(found: list[tuple]) -> list[tuple]:
    """A slowdown is a sum of doubles, which depends on the order of rows."""
    return [tuple(round(v, 12) if isinstance(v, float) else v for v in row) for row in found]


def test_what_is_out_of_the_ordinary_is_left_to_the_view(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(beside, "LEAST_ROWS", 1)
    kernel = {"rank": 0, "event_id": 1, "start_ns": 5, "dur_ns": 9, "kind": "kernel"}
    for ranks, odd in (([0], {"start_ns": None}), ([0], {"start_ns": 2**62}), ([1], {}), ([], {})):
        writer = PartWriter(tmp_path)
        its = source(tmp_path, [{**kernel, **odd}], 0, ranks)
        with pytest.raises(Odd):
            beside.write(
                writer, slices.of(folder(tmp_path)), [its],
                {t: TABLES[t].schema.empty_table() for t in ("collectives", "ranks")}, {},
            )  # fmt: skip
        writer.abort()


def test_kernels_that_begin_together_are_held_together_and_not_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(beside, "LEAST_ROWS", 1)
    monkeypatch.setattr(overlap, "BLOCK_ROWS", 4)
    monkeypatch.setattr(overlap, "MOST_TOGETHER", 8)
    tables = {t: TABLES[t].schema.empty_table() for t in ("collectives", "ranks")}
    for same, odd in ((6, False), (20, True)):
        kernels = [
            {"rank": 0, "event_id": n, "start_ns": 5 if n < same else n, "dur_ns": 1,
             "kind": "kernel", "category": "comm" if n % 2 else None}
            for n in range(30)
        ]  # fmt: skip
        writer = PartWriter(tmp_path)
        its = source(tmp_path, kernels, 0, [0])
        if odd:
            with pytest.raises(Odd):
                beside.write(writer, slices.of(folder(tmp_path)), [its], tables, {})
            writer.abort()
        else:
            beside.write(writer, slices.of(folder(tmp_path)), [its], tables, {})
            assert [w.table for w in writer.close()] == [beside.TABLE]


def test_a_small_job_is_left_to_the_view(tmp_path: Path):
    writer = PartWriter(tmp_path)
    assert not beside.write(writer, slices.of(folder(tmp_path)), [], {}, {})
    assert writer.close() == []
