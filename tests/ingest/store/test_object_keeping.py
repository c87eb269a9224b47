"""Keeping a warehouse in an object store: the same as on a disk, without locks."""

import threading

import pytest
from retime.analysis.doors import Warehouse as Door
from retime.ingest import clock, labels
from retime.ingest.errors import StoreBusy, WarehouseError
from retime.ingest.keeping import compact, prune, tombstone
from retime.ingest.keeping.repair import repair
from retime.ingest.keeping.verify import verify
from retime.ingest.run import ingest
from retime.ingest.store import reading
from retime.ingest.warehouse import Warehouse


@pytest.fixture
def given(tmp_path, traces):
    """A folder with traces of three ranks."""
    for rank in range(3):
        traces(tmp_path / "in" / f"{rank}.fake", rank, rows=100)
    return tmp_path / "in"


@pytest.fixture
def warehouse(given, place):
    """A warehouse in the store with job `j` of three ranks."""
    ingest(place, given, job="j")
    return Warehouse(place)


def rows(snapshot):
    out = {}
    for table, files in snapshot.files.items():
        found = [r for f in files for r in reading.whole(f).read().to_pylist()]
        for r in found:
            r.pop("created_at_ns", None)
        out[table] = sorted(map(repr, found))
    return out


def test_compaction(given, place, warehouse, tmp_path, traces):
    before = warehouse.snapshot("j")
    held = rows(before)
    packed = compact.compact(warehouse.folder("j"))
    assert packed is not None
    assert {p.file for p in packed.parts} <= set(warehouse.folder("j").sizes())
    after = warehouse.snapshot("j")
    assert len(after.files["events"]) == 1
    assert after.generation.id == before.generation.id
    assert rows(after) == held
    assert rows(before) == held
    assert compact.compact(warehouse.folder("j")) is None
    assert [s.status for s in ingest(place, given, job="j").sources] == ["already"] * 3
    ingest(place, traces(tmp_path / "late.fake", 3), job="j")
    assert {m.ranks[0] for m in warehouse.manifests("j")[0]} == {0, 1, 2, 3}
    now = rows(warehouse.snapshot("j"))
    assert len([f for f in warehouse.remove_orphans("j", 0.0) if "events/" in f]) == 3
    assert rows(warehouse.snapshot("j")) == now
    assert [f for f in verify(warehouse, "j", deep=True) if f.severity != "info"] == []


def test_a_prune_and_the_same_traces_again(given, place, warehouse):
    held = rows(warehouse.snapshot("j"))
    before = warehouse.snapshot("j")
    prune.prune(warehouse.folder("j"), "ann")
    with pytest.raises(WarehouseError):
        warehouse.snapshot("j")
    assert rows(before) == held
    assert Door(place).jobs().height == 0
    assert warehouse.jobs() == Door(place).job_ids() == []
    assert not warehouse.has("j")
    with pytest.raises(WarehouseError, match="no jobs in warehouse"):
        Door(place).job("j")
    assert {s.status for s in ingest(place, given, job="j").sources} == {"new"}
    assert rows(warehouse.snapshot("j")) == held
    assert warehouse.jobs() == ["j"]
    assert Door(place).job("j").id == "j"
    prune.finish(warehouse.folder("j"), 0)
    assert rows(warehouse.snapshot("j")) == held
    assert warehouse.folder("j").entry(tombstone.FILE) is None
    prune.prune(warehouse.folder("j"))
    prune.finish(warehouse.folder("j"), 0)
    assert warehouse.folder("j").sizes() == {}


def test_files_of_a_pruned_job_go_when_the_grace_is_over(warehouse, monkeypatch):
    """Nothing is written into it any more: its newest object tells no time."""
    folder = warehouse.folder("j")
    prune.prune(folder)
    left = set(folder.sizes())
    assert prune.finish(folder, 3600.0) == []
    assert set(folder.sizes()) == left
    now = clock.clock_ns
    monkeypatch.setattr(clock, "clock_ns", lambda place: now(place) + int(3601e9))
    assert len(prune.finish(folder, 3600.0)) == len(left) - 1  # the tombstone goes unsaid
    assert folder.sizes() == {}


def test_what_a_pack_took_the_place_of_goes_where_nothing_is_written_any_more(
    warehouse, monkeypatch
):
    held, folder = rows(warehouse.snapshot("j")), warehouse.folder("j")
    compact.compact(folder)
    assert warehouse.remove_orphans("j") == []
    now = clock.clock_ns
    monkeypatch.setattr(clock, "clock_ns", lambda place: now(place) + int(25 * 3600e9))
    assert len([f for f in warehouse.remove_orphans("j") if f.startswith("events/")]) == 3
    assert rows(warehouse.snapshot("j")) == held


def test_a_busy_store_tells_no_time(proxy, warehouse, soon):
    """A node's own clock may be off by years: by that what lives would be removed."""
    proxy.rule = lambda request: "slow_down" if request.op == "PUT" else None
    with pytest.raises(StoreBusy):
        warehouse.remove_orphans("j")


def test_a_prune_killed_before_its_manifests_went(given, place, warehouse):
    """The tombstone alone is there: the job is gone, and its traces may come again."""
    folder = warehouse.folder("j")
    names = [n for n in folder.names("_manifests") if n.endswith(".json")]
    digests = {n: tombstone.digest(folder.read(f"_manifests/{n}", 1 << 20)) for n in names}
    tombstone.write(folder, digests, "ann")
    with pytest.raises(WarehouseError):
        warehouse.snapshot("j")
    assert {s.status for s in ingest(place, given, job="j").sources} == {"new"}
    assert len(warehouse.snapshot("j").manifests) == 3


def test_labels_of_many_at_once(warehouse):
    folder = warehouse.folder("j")

    def say(n):
        labels.tag(folder, {f"t{n}": ""})
        labels.note(folder, f"note {n}")

    threads = [threading.Thread(target=say, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    said = labels.read(folder)
    assert set(said.values) == {f"t{n}" for n in range(6)}
    assert len(said.notes) == 6


def test_harm_is_found_and_set_aside(given, place, warehouse):
    held, folder = rows(warehouse.snapshot("j")), warehouse.folder("j")
    (m,) = [m for m in warehouse.manifests("j")[0] if m.ranks == [1]]
    part = m.tables["events"][0].file
    folder.put(part, folder.read(part, 1 << 20)[:100])
    found = verify(warehouse, "j")
    assert [(f.severity, f.code, f.file) for f in found if f.severity == "lost"] == [
        ("lost", "part_damaged", part)
    ]
    repair(folder, found)
    assert {f.severity for f in verify(warehouse, "j", deep=True)} == {"info"}
    assert sorted(s.status for s in ingest(place, given, job="j").sources) == [
        "already", "already", "new",
    ]  # fmt: skip
    assert rows(warehouse.snapshot("j")) == held


def test_a_cut_pack_takes_the_place_of_nothing(given, place, warehouse):
    """Neither of the sources that it was made of nor of those that come in again."""
    held, folder = rows(warehouse.snapshot("j")), warehouse.folder("j")
    assert compact.compact(folder) is not None
    (part,) = folder.entries("events").keys() & {
        p.file for m in warehouse.manifests("j")[0] for p in m.tables["events"]
    }
    folder.put(part, folder.read(part, 1 << 20)[:100])
    warehouse.remove_orphans("j", 0.0)
    assert rows(warehouse.snapshot("j")) == held
    repair(folder, verify(warehouse, "j"))
    assert rows(warehouse.snapshot("j")) == held


def test_sources_that_come_in_again_beside_a_cut_pack_stay(given, place, warehouse):
    held, folder = rows(warehouse.snapshot("j")), warehouse.folder("j")
    compact.compact(folder)
    warehouse.remove_orphans("j", 0.0)
    (part,) = folder.entries("events")
    folder.put(part, folder.read(part, 1 << 20)[:100])
    assert [s.status for s in ingest(place, given, job="j").sources] == ["new"] * 3
    warehouse.remove_orphans("j", 0.0)
    assert rows(warehouse.snapshot("j")) == held


def test_jobs_are_listed_without_their_sources(proxy, place, warehouse):
    labels.tag(warehouse.folder("j"), {"cluster": "a"})
    warehouse.snapshot("j")
    proxy.log.clear()
    found = Door(place).jobs("tags['cluster'] = 'a' AND ranks_seen = 3")
    assert found["job"].to_list() == ["j"]
    # The jobs; the job's manifests; a tombstone, if any; its derived one; its labels.
    assert sum(proxy.counts().values()) <= 7
