"""Pruned events: steps that were told from them stay, in derived tables made later, too."""

import gzip
import json

import pyarrow.parquet as pq
import pytest
from retime.ingest import staging
from retime.ingest.errors import WarehouseError
from retime.ingest.keeping import compact, events
from retime.ingest.made import OF_EVENTS
from retime.ingest.run import ingest
from retime.ingest.warehouse import Warehouse


@pytest.fixture
def unmarked(tmp_path, demo_job):
    """A warehouse with two ranks of the bundled job without their marks of steps."""
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank in range(2):
        trace = json.loads(gzip.decompress((demo_job / f"rank{rank}.json.gz").read_bytes()))
        trace["traceEvents"] = [
            e for e in trace["traceEvents"] if not str(e.get("name", "")).startswith("ProfilerStep")
        ]
        (folder / f"rank{rank}.json").write_text(json.dumps(trace))
    warehouse = Warehouse(tmp_path / "warehouse")
    ingest(warehouse, folder, job="j")
    return warehouse


def test_inferred_steps_become_the_sources_own(unmarked, held, digests):
    before = unmarked.snapshot("j")
    rows, made = held(before), digests(unmarked.job_folder("j"))
    steps = pq.ParquetFile(before.files["steps"][0]).read()
    assert set(steps["found_by"].to_pylist()) == {"inferred"}
    assert events.stored_bytes(unmarked.folder("j")) > 100_000
    assert events.prune(unmarked, "j") is not None
    after = unmarked.snapshot("j")
    assert after.generation == before.generation
    assert after.files["events"] == []
    # What was made of them goes with them.
    assert held(after) == {**rows, "events": [], **{table: [] for table in OF_EVENTS}}
    assert held(before) == rows  # who read it before goes on
    assert [p.code for p in after.problems] == ["events_pruned"]
    assert events.stored_bytes(unmarked.folder("j")) == 0
    assert events.prune(unmarked, "j") is None
    for path in unmarked.job_folder("j").glob("*/derived-*"):
        path.unlink()
    again = unmarked.snapshot("j")
    assert held(again)["steps"] == rows["steps"]
    assert held(again)["collectives"] == rows["collectives"]
    assert {
        k: v for k, v in digests(unmarked.job_folder("j")).items() if not k.startswith("problems")
    }.items() <= made.items()


def test_events_go_when_their_readers_had_time_and_other_ranks_keep_theirs(
    tmp_path, warehouse, bring, held
):
    events.prune(warehouse, "j")
    bring(warehouse, "j", [4])
    rows = held(warehouse.snapshot("j"))
    assert {"'rank': 4" in r for r in rows["events"]} == {True}
    (told,) = warehouse.snapshot("j").problems
    assert "of 4 of 5 sources" in told.message
    warehouse.remove_orphans("j", 0.0)
    assert len(list(warehouse.job_folder("j").glob("events/*.parquet"))) == 1
    assert held(warehouse.snapshot("j")) == rows
    report = ingest(warehouse, [tmp_path / "in" / "j"], job="j")
    assert {s.status for s in report.sources} == {"already"}


def at_commit(monkeypatch, act):
    """`act` is done by another in the moment before the next pack comes to stand."""
    commit = staging.commit

    def later(*args):
        monkeypatch.setattr(staging, "commit", commit)
        act()
        return commit(*args)

    monkeypatch.setattr(staging, "commit", later)


def test_a_larger_pack_that_comes_before_a_prune_does_not_bring_the_events_back(
    tmp_path, bring, monkeypatch
):
    warehouse = Warehouse(tmp_path / "warehouse")
    bring(warehouse, "j", range(3))

    def compacted():
        bring(warehouse, "j", [3])
        assert compact.compact(warehouse.folder("j")) is not None

    at_commit(monkeypatch, compacted)
    assert events.prune(warehouse, "j") is not None
    assert warehouse.snapshot("j").files["events"] == []
    assert len(warehouse.manifests("j")[0]) == 4


def test_a_larger_pack_that_comes_after_a_prune_does_not_bring_the_events_back(
    warehouse, monkeypatch
):
    folder, sources = warehouse.folder("j"), warehouse.manifests("j")[0]
    at_commit(monkeypatch, lambda: compact.pack(folder, sources[:3], without=["events"]))
    assert compact.compact(folder) is None
    assert len(warehouse.snapshot("j").files["events"]) == 1  # of the one that was not pruned
    assert len(warehouse.manifests("j")[0]) == 4


def test_a_prune_that_compactions_come_before_again_and_again_says_so(warehouse, monkeypatch):
    folder, sources = warehouse.folder("j"), warehouse.manifests("j")[0]
    monkeypatch.setattr(events, "_packed", lambda *_: sources[0])
    compact.compact(folder)
    with pytest.raises(WarehouseError, match="put together at the same time; try again"):
        events.prune(warehouse, "j")
