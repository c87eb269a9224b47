"""A rank of a job is told by one source, whatever the formats: its rows never count twice."""

import polars as pl
import pyarrow as pa
import pytest
from retime.ingest import clashes
from retime.ingest.errors import UsageError
from retime.ingest.joining.ranks import one_a_rank
from retime.ingest.run import ingest
from retime.ingest.schema import TABLES
from retime.ingest.warehouse import Warehouse


@pytest.fixture
def recorded_rank0(tmp_path):
    """Recorded operations of rank 0 alone."""
    columns = {"dp_rank": 0, "stage": 0, "rank": 0, "step": 0, "optype": "optimizer"}
    path = tmp_path / "trace-x.parquet"
    pl.DataFrame({**columns, "start_ts": 0.0, "duration": 1.0, "seq_id": 0}).write_parquet(path)
    return path


@pytest.mark.parametrize("order", [1, -1], ids=["kineto first", "recorded first"])
def test_a_rank_in_two_formats_clashes(tmp_path, demo_job, recorded_rank0, order, rows):
    first, second = [demo_job / "rank0.json.gz", recorded_rank0][::order]
    warehouse = Warehouse(tmp_path / "w")
    ingest(warehouse, first, job="j")
    whole = rows(warehouse.snapshot("j"))
    with pytest.raises(UsageError, match=r"rank 0 of job j clashes.*--job"):
        ingest(warehouse, second, job="j")
    assert rows(warehouse.snapshot("j")) == whole


def test_in_one_call_the_first_of_two_formats_stays(tmp_path, demo_job, recorded_rank0, rows):
    warehouse = Warehouse(tmp_path / "w")
    report = ingest(warehouse, [demo_job / "rank0.json.gz", recorded_rank0], job="j")
    assert [s.status for s in report.sources] == ["new", "refused"]
    assert [p.code for p in report.sources[1].problems] == ["rank_clash"]
    assert [r["rank"] for r in rows(warehouse.snapshot("j"), "ranks")] == [0]


def test_of_two_sources_with_a_rank_that_stand_all_the_same_the_earlier_counts(
    tmp_path, traces, rows, monkeypatch
):
    warehouse = Warehouse(tmp_path / "w")
    with monkeypatch.context() as m:
        m.setattr(clashes, "check_clash", lambda *_: None)
        for name, n in (("a", 3), ("b", 5)):
            ingest(warehouse, traces(tmp_path / f"{name}.fake", 7, rows=n), job="j")
    snapshot = warehouse.snapshot("j")
    assert len(rows(snapshot, "ranks")) == 1
    assert len(rows(snapshot, "events")) == 3
    assert len(rows(snapshot, "collectives")) == 3
    (problem,) = snapshot.problems
    assert problem.severity == "lost"
    assert "b.fake has rank 7 as" in problem.message


def test_a_rank_described_twice_keeps_its_first_row():
    described = TABLES["ranks"].batch(
        {"rank": [2, 0, 2, 2], "source": ["a", "b", "c", "d"], "world_size": [4, 4, 4, 4]}
    )
    kept, problems = one_a_rank(pa.Table.from_batches([described]), ["kineto"] * 4, set())
    assert kept.select(["rank", "source"]).to_pylist() == [
        {"rank": 0, "source": "b"},
        {"rank": 2, "source": "a"},
    ]
    assert [(p.code, p.count) for p in problems] == [("rank_twice", 2)]
