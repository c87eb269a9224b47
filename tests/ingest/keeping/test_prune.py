"""A pruned job: gone at once for new readers, its files later, and never half of it."""

import json
import threading

import pytest
from retime.ingest import counting, labels, staging
from retime.ingest.errors import WarehouseError
from retime.ingest.keeping import compact, prune, tombstone
from retime.ingest.run import ingest
from retime.ingest.warehouse import Warehouse


def test_it_is_gone_and_who_reads_it_goes_on(warehouse, bring, held):
    bring(warehouse, "other", [0])
    before = warehouse.snapshot("j")
    rows = held(before)
    prune.prune(warehouse.folder("j"), "ann")
    assert warehouse.jobs() == ["other"]
    with pytest.raises(WarehouseError, match=r"no job j in .*; jobs: other"):
        warehouse.snapshot("j")
    assert held(before) == rows
    assert prune.finish(warehouse.folder("j"), 3600) == []
    assert held(before) == rows
    removed = prune.finish(warehouse.folder("j"), 0)
    assert any(f.startswith("events/") for f in removed)
    assert sorted(p.name for p in warehouse.path.iterdir()) == ["job=other"]


def test_labels_go_with_it(warehouse):
    labels.tag(warehouse.folder("j"), {"a": "1"})
    prune.prune(warehouse.folder("j"))
    assert labels.read(warehouse.folder("j")) == labels.Labels()


def test_the_same_traces_may_come_again_at_once(tmp_path, warehouse, held):
    rows = held(warehouse.snapshot("j"))
    prune.prune(warehouse.folder("j"))
    report = ingest(warehouse, [tmp_path / "in" / "j"], job="j")
    assert {s.status for s in report.sources} == {"new"}
    assert held(warehouse.snapshot("j")) == rows
    prune.finish(warehouse.folder("j"), 0)
    assert warehouse.folder("j").entry(tombstone.FILE) is None
    assert held(warehouse.snapshot("j")) == rows


def killed_after(monkeypatch, n, folder):
    """Removal of a prune's files ends after n of them, as by kill -9."""
    kind = type(folder)
    remove = kind.remove

    def some(self, files):
        for i, file in enumerate(list(files)):
            if i == n:
                raise KeyboardInterrupt
            remove(self, [file])

    monkeypatch.setattr(kind, "remove", some)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_killed_in_the_middle_it_is_gone_and_the_next_finishes(warehouse, monkeypatch, n):
    folder = warehouse.folder("j")
    with monkeypatch.context() as m:
        killed_after(m, n, folder)
        with pytest.raises(KeyboardInterrupt):
            prune.prune(folder)
    assert warehouse.jobs() == []
    with pytest.raises(WarehouseError):
        warehouse.snapshot("j")
    with monkeypatch.context() as m:
        killed_after(m, n, folder)
        with pytest.raises(KeyboardInterrupt):
            prune.finish(folder, 0)
    assert prune.pending(folder)
    prune.finish(folder, 0)
    assert list(warehouse.path.iterdir()) == []


def test_killed_before_a_manifest_went_its_source_may_come_again(
    tmp_path, warehouse, held, monkeypatch
):
    rows = held(warehouse.snapshot("j"))
    with monkeypatch.context() as m:
        killed_after(m, 2, warehouse.folder("j"))
        with pytest.raises(KeyboardInterrupt):
            prune.prune(warehouse.folder("j"))
    report = ingest(warehouse, [tmp_path / "in" / "j"], job="j")
    assert {s.status for s in report.sources} == {"new"}
    prune.finish(warehouse.folder("j"), 0)
    assert held(warehouse.snapshot("j")) == rows


def test_a_reader_in_the_middle_of_it_sees_no_half_job(warehouse, monkeypatch):
    """The prune happens while a reader is between two manifests."""
    read = counting.read_manifest
    seen = []

    def slowly(path):
        found = read(path)
        seen.append(path.name)
        if len(seen) == 2:
            prune.prune(warehouse.folder("j"))
        return found

    with monkeypatch.context() as m:
        m.setattr(counting, "read_manifest", slowly)
        with pytest.raises(WarehouseError, match="no job j"):
            warehouse.snapshot("j")
    assert len(seen) >= 2


def test_readers_meanwhile_get_the_whole_job_or_one_error(tmp_path, bring):
    wrong, whole = [], []
    for attempt in range(4):
        warehouse = Warehouse(tmp_path / f"w{attempt}")
        bring(warehouse, "j", range(6))
        stop = threading.Event()

        def look(warehouse=warehouse, stop=stop):
            while not stop.is_set():
                try:
                    n = len(warehouse.snapshot("j").manifests)
                except WarehouseError:
                    return
                (whole if n == 6 else wrong).append(n)

        readers = [threading.Thread(target=look) for _ in range(2)]
        for r in readers:
            r.start()
        prune.prune(warehouse.folder("j"))
        for r in readers:
            r.join(30)
        stop.set()
    assert wrong == []


def test_a_job_that_is_being_written_is_busy(warehouse):
    assert not prune.busy(warehouse.folder("j"))
    with staging.staging(warehouse.job_folder("j")):
        assert prune.busy(warehouse.folder("j"))


def test_a_packed_job_goes_too(warehouse):
    compact.compact(warehouse.folder("j"))
    prune.prune(warehouse.folder("j"))
    assert warehouse.jobs() == []
    prune.finish(warehouse.folder("j"), 0)
    assert list(warehouse.path.iterdir()) == []


def test_a_compaction_that_a_prune_overtook_brings_nothing_back(warehouse, monkeypatch):
    commit = staging.commit

    def late(job, *rest):
        prune.prune(warehouse.folder("j"))
        return commit(job, *rest)

    monkeypatch.setattr(staging, "commit", late)
    assert compact.compact(warehouse.folder("j")) is None
    assert warehouse.jobs() == []


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"manifests": {"x": 3}})])
def test_a_damaged_tombstone_prunes_nothing(warehouse, text):
    (warehouse.job_folder("j") / tombstone.FILE).write_text(text)
    assert warehouse.jobs() == ["j"]
    assert len(warehouse.snapshot("j").manifests) == 4
    assert prune.finish(warehouse.folder("j"), 0) == []
    assert len(warehouse.snapshot("j").manifests) == 4
