"""A graph from stored tasks is that from the events; what is odd is left to these."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import retime
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.ingest.kernel_rules import rule
from retime.ingest.made import tasks
from retime.ingest.tasks import stored
from retime.replay import engine, load
from retime.replay.traced import build, merged, windows

from .stored_jobs import loaded, same


def ingested(demo_job, tmp_path):
    """The bundled job's first two ranks in a warehouse."""
    files = sorted(demo_job.rglob("*.json.gz"))[:2]
    house = retime.open(str(tmp_path / "wh"))
    house.ingest([str(f) for f in files], job="j")
    return house.job("j")


@pytest.fixture
def job(demo_job, tmp_path, monkeypatch):
    """The same, with their tasks stored, few as they are."""
    monkeypatch.setattr(tasks, "LEAST_EVENTS", 0)
    return ingested(demo_job, tmp_path)


@pytest.mark.parametrize("few", [merged.FEW, 0])
def test_a_real_job_from_its_tasks_is_that_from_its_events(job, few, monkeypatch):
    for module in (merged, load.stored):
        monkeypatch.setattr(module, "FEW", few)
    from_tasks, from_events = load._of_tasks(job.snapshot), load._of_events(job.snapshot)
    assert from_tasks is not None
    same(from_events, from_tasks)
    for one, other in zip(
        engine.replay(from_events.graph), engine.replay(from_tasks.graph), strict=True
    ):
        assert np.array_equal(one, other)
    whole = load.load(job.snapshot)
    for name in ("steps", "collectives"):
        frame = whole.frame(name)
        assert frame is not None
        assert frame.equals(from_events.facts[name])
    assert whole.frame("nothing") is None


LIMITS = [("MOST_EVENTS", 10), ("MOST_PARTICIPATIONS", 1), ("FILE_ROWS", 10),
          ("LEAST_EVENTS", 10**9), ("LEAST_RANKS", 3)]  # fmt: skip


@pytest.mark.parametrize(("limit", "value"), LIMITS)
def test_what_takes_too_much_memory_or_hardly_any_time_is_not_stored(
    demo_job, tmp_path, limit, value, monkeypatch
):
    monkeypatch.setattr(tasks, "LEAST_EVENTS", 0)
    monkeypatch.setattr(tasks, limit, value)
    snapshot = ingested(demo_job, tmp_path).snapshot
    assert not any(snapshot.files[table] for table in tasks.ALL)
    assert snapshot.files["_made_gaps"]  # the others stay
    assert load.load(snapshot).graph.n


def test_kernels_that_are_said_to_be_others_are_read_again(job):
    snapshot = job.snapshot
    names = {n for n in load.load(snapshot).graph.op_names if "gemm" in n.lower()}
    snapshot = dataclasses.replace(snapshot, kernels=(rule("gemm", "communication", "here"),))
    assert names
    assert load._of_tasks(snapshot) is None
    made = load.load(snapshot)
    same(load._of_events(snapshot), made)
    kinds = made.graph.kind[made.graph.ops(*names)]
    assert set(kinds.tolist()) == {6}


def test_collectives_that_wait_in_a_circle_are_left_to_the_events(tables):
    for rank, instances in ((0, (1, 2)), (1, (2, 1))):
        for k, instance in enumerate(instances):
            tables.part(rank, "all_reduce", 100 * k, 100 * k + 50, instance=instance, stream=7)
    assert loaded(tables.frames()) is None


@pytest.fixture
def frames(tables):
    """Two ranks with two collectives and some work."""
    for rank in range(2):
        for k in range(2):
            tables.call(rank, "cudaLaunchKernel", 100 * k, 100 * k + 5, correlation=k)
            tables.kernel(rank, f"k{k}", 100 * k + 10, 100 * k + 20, correlation=k)
            tables.part(rank, "all_reduce", 100 * k + 30 + rank, 100 * k + 50, instance=k)
    return tables.frames()


ODD = [
    (stored.TASKS, "what", 99), (stored.TASKS, "what", -1), (stored.TASKS, "op", 1 << 20),
    (stored.TASKS, "op", -2), (stored.TASKS, "detail", 1 << 20), (stored.TASKS, "preds", 1 << 20),
    (stored.TASKS, "preds", 0), (stored.TASKS, "start_ns", -(2**63)), (stored.EDGES, "back", 9999),
    (stored.EDGES, "back", -9999), (stored.EDGES, "back", 0), (stored.PARTS, "row", 9),
    (stored.PARTS, "row", 0), (stored.PARTS, "collective", 1 << 30),
    (stored.PARTS, "collective", -1), (stored.PARTS, "op", 77), (stored.PARTS, "comm", -1),
    (stored.PARTS, "algo", 1 << 30), (stored.TASKS, "rank", None), (stored.PARTS, "row", None),
    (stored.WORDS, "number", 1 << 20),
]  # fmt: skip


@pytest.mark.parametrize(("table", "column", "value"), ODD)
def test_tables_that_contradict_themselves_are_not_used(frames, table, column, value):
    def with_other(name, rows):
        if name != table:
            return rows
        # Of words the last with a number, of tasks one that is a kernel.
        known = rows[column].is_valid().to_pylist()
        at = next(
            i for i in reversed(range(len(rows)))
            if known[i] and (table != stored.TASKS or rows["what"][i].as_py() == 2)
        )  # fmt: skip
        values = rows[column].to_pylist()
        values[at] = value
        new = pa.array(values, rows.schema.field(column).type)
        return rows.set_column(rows.schema.names.index(column), rows.schema.field(column), new)

    assert loaded(frames) is not None
    assert loaded(frames, with_other) is None


def test_edges_that_are_all_alike_take_hardly_a_byte(tables):
    for k in range(20_000):
        tables.kernel(0, "k", 10 * k, 10 * k + 10)
    frames = tables.frames()
    made = loaded(frames)
    assert made is not None
    same(build.build(frames), made)


@pytest.mark.parametrize("table", [stored.TASKS, stored.PARTS, stored.WORDS])
def test_tables_with_other_columns_or_fewer_rows_are_not_used(frames, table):
    def renamed(name, rows):
        names = ["x", *rows.schema.names[1:]]
        return rows.rename_columns(names) if name == table else rows

    def shorter(name, rows):
        return rows.slice(0, len(rows) // 2) if name == table else rows

    def twice(name, rows):
        first = rows.schema.names[0]
        return rows.append_column(first, rows[first]) if name == table else rows

    assert loaded(frames, renamed) is None
    if table != stored.WORDS:
        assert loaded(frames, shorter) is None
        assert loaded(frames, twice) is None


@pytest.mark.parametrize(
    ("table", "column"), [(stored.TASKS, "rank"), (stored.TASKS, "op"), (stored.PARTS, "comm")]
)
def test_numbers_that_do_not_fit_are_not_cut(frames, table, column):
    def wide(name, rows):
        if name != table:
            return rows
        at = rows.schema.names.index(column)
        high = [v + (1 << 32) for v in rows[column].to_pylist()]
        return rows.set_column(at, column, pa.array(high, pa.int64()))

    assert loaded(frames, wide) is None


WHAT = st.sampled_from([2, 3, 5, 7, 8])


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3) | st.integers(0, 2**50), WHAT, st.integers(0, 2),
                          st.integers(0, 2)), min_size=1, max_size=300))  # fmt: skip
def test_tasks_by_time_then_by_what_they_are(rows):
    key, what, dur, event = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    places = np.array([w.place for w in stored.WHAT])
    none = np.full(len(rows), -1, np.int32)
    ties = places, what.astype(np.int8), dur, event, none, np.zeros(1, np.int32)
    found, place = np.empty((2, len(rows)), np.int32)
    assert windows.by_time(key, ties, found, place, merged.one_by_one) == []
    is_work = what <= stored.LAST_ACTIVITY
    wanted = np.lexsort(
        (np.arange(len(rows)), np.where(is_work, event, 0), np.where(is_work, dur, 0),
         places[what], key)
    )  # fmt: skip
    assert found.tolist() == wanted.tolist()
    assert place[found].tolist() == list(range(len(rows)))


def test_tasks_are_packed_so_that_they_unpack_fast(job):
    for table in (stored.TASKS, stored.EDGES):
        (path,) = job.snapshot.files[table]
        group = pq.ParquetFile(path).metadata.row_group(0)
        packed = {group.column(i).compression for i in range(group.num_columns)}
        assert packed == {"LZ4"}
