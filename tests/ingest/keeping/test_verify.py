"""Verification: each harm is found, named, and repaired without losing a readable row."""

import json
import os

import pytest
from retime.ingest import labels, owners
from retime.ingest.keeping import compact, prune
from retime.ingest.keeping.repair import repair
from retime.ingest.keeping.verify import verify
from retime.ingest.run import ingest


def found(warehouse, **options):
    return verify(warehouse, "j", **options)


def codes(warehouse, **options):
    return [(f.severity, f.code) for f in found(warehouse, **options)]


def manifest_of(warehouse, rank):
    (m,) = [m for m in warehouse.manifests("j")[0] if m.ranks == [rank]]
    return warehouse.job_folder("j") / "_manifests" / f"{m.id[:16]}.json", m


def events_of(warehouse, rank):
    return warehouse.job_folder("j") / manifest_of(warehouse, rank)[1].tables["events"][0].file


def test_a_sound_job_has_nothing_to_be_said(warehouse):
    assert found(warehouse, deep=True) == []
    compact.compact(warehouse.folder("j"))
    assert found(warehouse, deep=True) == []
    labels.tag(warehouse.folder("j"), {"a": "1"})
    warehouse.remove_orphans("j", 0.0)
    assert found(warehouse, deep=True) == []


def missing(path):
    path.unlink()


def cut(path):
    os.truncate(path, 100)


def longer(path):
    path.write_bytes(path.read_bytes() + b"x")


def flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(data)


def another(path):
    path.write_bytes(b"x" * path.stat().st_size)


@pytest.mark.parametrize(
    ("harm", "what", "deep"),
    [
        (missing, "missing", False),
        (cut, "100 bytes, and its manifest says", False),
        (longer, "and its manifest says", False),
        (another, "cannot be read as Parquet", False),
        (flipped, "its SHA-256 is not the one", True),
    ],
)
def test_a_harmed_file_is_found_and_set_aside_and_comes_again(
    tmp_path, warehouse, held, harm, what, deep
):
    rows = held(warehouse.snapshot("j"))
    harm(events_of(warehouse, 1))
    first = found(warehouse, deep=deep)[0]
    assert (first.severity, first.code) == ("lost", "part_damaged")
    assert what in first.what
    assert first.file.startswith("events/")
    assert "--repair" in first.do
    assert "rank1.fake" in first.do
    done = repair(warehouse.folder("j"), found(warehouse, deep=deep))
    assert done[0].done.startswith("set aside in _quarantine/")
    left = held(warehouse.snapshot("j"))["events"]
    assert [r for r in rows["events"] if "'rank': 1," not in r] == left
    assert {c for s, c in codes(warehouse, deep=True) if s != "info"} == set()
    report = ingest(warehouse, [tmp_path / "in" / "j"], job="j")
    assert sorted(s.status for s in report.sources) == ["already"] * 3 + ["new"]
    assert held(warehouse.snapshot("j")) == rows


@pytest.mark.parametrize("what", ["rows", "sha256"])
def test_a_manifest_that_lies_about_a_whole_file(warehouse, what):
    path, _ = manifest_of(warehouse, 1)
    said = json.loads(path.read_text())
    said["tables"]["events"][0][what] = 7 if what == "rows" else "0" * 64
    path.write_text(json.dumps(said))
    (one,) = [f for f in found(warehouse, deep=what == "sha256") if f.severity != "info"]
    assert one.code == "part_damaged"
    assert ("1,500 rows" if what == "rows" else "SHA-256") in one.what


def test_a_manifest_that_cannot_be_read_is_set_aside_with_its_files(tmp_path, warehouse, held):
    rows = held(warehouse.snapshot("j"))
    path, _ = manifest_of(warehouse, 1)
    path.write_text("{")
    assert ("lost", "manifest_damaged") in codes(warehouse)
    assert ("warning", "orphan") not in codes(warehouse)
    repair(warehouse.folder("j"), found(warehouse))
    assert {s for s, _ in codes(warehouse)} == {"info"}
    aside = {p.name for p in warehouse.job_folder("j").glob("_quarantine/*/*/*")}
    assert path.name in aside
    ingest(warehouse, [tmp_path / "in" / "j"], job="j")
    assert held(warehouse.snapshot("j")) == rows


def test_a_newer_layout_is_left_alone(warehouse, tree):
    path, _ = manifest_of(warehouse, 1)
    path.write_text(json.dumps({**json.loads(path.read_text()), "layout": 9}))
    one = found(warehouse)[0]
    assert (one.code, one.do) == ("newer_layout", "pip install --upgrade retime")
    before = {k: v for k, v in tree(warehouse.job_folder("j")).items() if "_incoming" not in k}
    assert [f.done for f in repair(warehouse.folder("j"), [one])] == [""]
    after = {k: v for k, v in tree(warehouse.job_folder("j")).items() if "_incoming" not in k}
    assert after == before


def test_orphans_and_unfinished_work_are_removed(warehouse, held):
    rows, folder = held(warehouse.snapshot("j")), warehouse.job_folder("j")
    data = events_of(warehouse, 1).read_bytes()
    (folder / "events" / ("f" * 16 + "-000.parquet")).write_bytes(data)
    extra = events_of(warehouse, 1).name.replace("-000", "-001")
    (folder / "events" / extra).write_bytes(data)
    dead = folder / "_incoming" / f"{owners.owner().rsplit('.', 2)[0]}.999999999.1.dead"
    dead.mkdir(parents=True)
    (dead / "x").write_bytes(b"12345")
    assert sorted(c for _, c in codes(warehouse)) == ["orphan", "orphan", "unfinished"]
    done = repair(warehouse.folder("j"), found(warehouse))
    assert {f.done for f in done} == {"removed"}
    assert found(warehouse) == []
    assert held(warehouse.snapshot("j")) == rows


def test_derived_tables_that_are_damaged_are_made_anew(warehouse, held):
    rows = held(warehouse.snapshot("j"))
    os.truncate(warehouse.snapshot("j").files["collectives"][0], 50)
    (path,) = [
        p
        for p in (warehouse.job_folder("j") / "_manifests").glob("derived-*.json")
        if p.stem == f"derived-{warehouse.snapshot('j').generation.id}"
    ]
    assert path.exists()
    flipped(warehouse.job_folder("j") / warehouse.snapshot("j").generation.parts[0].file)
    assert ("warning", "derived_damaged") in codes(warehouse, deep=True)
    repair(warehouse.folder("j"), found(warehouse, deep=True))
    assert codes(warehouse, deep=True) == [("info", "not_derived")]
    assert held(warehouse.snapshot("j")) == rows


def test_two_sources_of_a_rank_are_told_and_the_later_set_aside(tmp_path, warehouse, traces, held):
    rows = held(warehouse.snapshot("j"))
    from retime.ingest.warehouse import Warehouse

    other = Warehouse(tmp_path / "other")
    ingest(other, [traces(tmp_path / "o" / "rank2.fake", 2, salt=5)], job="j")
    for path in other.job_folder("j").rglob("*"):
        goal = warehouse.job_folder("j") / path.relative_to(other.job_folder("j"))
        if path.is_file() and "derived" not in path.name and "_incoming" not in str(path):
            goal.write_bytes(path.read_bytes())
    (one,) = [f for f in found(warehouse) if f.severity != "info"]
    assert (one.code, "has rank 2 as" in one.what) == ("rank_twice", True)
    repair(warehouse.folder("j"), [one])
    assert {s for s, _ in codes(warehouse)} <= {"info"}
    assert held(warehouse.snapshot("j")) == rows


def test_damaged_settings_labels_and_tombstones(warehouse):
    folder = warehouse.folder("j")
    folder.put("_settings.json", b"{")
    folder.put("_pruned.json", b"{")
    folder.put("_labels/000001.json", b"{")
    said = [f for f in found(warehouse) if f.severity == "warning"]
    assert sorted(f.code for f in said) == [
        "labels_damaged", "settings_damaged", "tombstone_damaged",
    ]  # fmt: skip
    repair(folder, said)
    assert {s for s, _ in codes(warehouse)} == {"info"}
    assert labels.tag(folder, {"a": ""}).values == {"a": ""}


def test_a_pruned_job_and_strange_files_are_notes(warehouse):
    (warehouse.job_folder("j") / "README").write_text("mine")
    assert codes(warehouse) == [("info", "unknown_file")]
    prune.prune(warehouse.folder("j"), "ann")
    assert ("info", "pruned") in codes(warehouse)


def test_a_pack_with_a_harmed_file_is_set_aside_and_its_sources_count_again(warehouse, held):
    rows = held(warehouse.snapshot("j"))
    compact.compact(warehouse.folder("j"))
    os.truncate(warehouse.snapshot("j").files["events"][0], 50)
    assert held(warehouse.snapshot("j")) == rows
    assert ("lost", "part_damaged") in codes(warehouse)
    repair(warehouse.folder("j"), found(warehouse))
    assert {s for s, _ in codes(warehouse)} == {"info"}
    assert held(warehouse.snapshot("j")) == rows
