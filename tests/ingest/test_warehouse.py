"""The warehouse's folder: what counts, what is ignored and said, what is cleaned up."""

import json
import os
import shutil
import time

import pytest
from retime.ingest import clock, owners, rooms, tidying
from retime.ingest.errors import UsageError, WarehouseError
from retime.ingest.run import ingest
from retime.ingest.warehouse import Warehouse


@pytest.fixture
def warehouse(tmp_path, traces):
    """A warehouse with job `j` of two ranks."""
    for rank in range(2):
        traces(tmp_path / "in" / f"{rank}.fake", rank)
    warehouse = Warehouse(tmp_path / "warehouse")
    ingest(warehouse, tmp_path / "in", job="j")
    return warehouse


def manifest_of(warehouse, rank):
    folder = warehouse.job_folder("j") / "_manifests"
    (m,) = [m for m in warehouse.manifests("j")[0] if m.ranks == [rank]]
    return folder / f"{m.id[:16]}.json"


def ranks_read(rows, snapshot):
    return sorted({r["rank"] for r in rows(snapshot, "events")})


def test_reading_what_is_not_there(tmp_path, warehouse):
    with pytest.raises(WarehouseError, match="no warehouse at"):
        Warehouse(tmp_path / "nowhere").jobs()
    with pytest.raises(WarehouseError, match=r"no job x in .*; jobs: j"):
        warehouse.snapshot("x")
    with pytest.raises(UsageError, match="job id"):
        warehouse.snapshot("../j")
    with pytest.raises(WarehouseError, match="is not a warehouse"):
        Warehouse(tmp_path / "in").jobs()
    with pytest.raises(UsageError, match="is no store for a warehouse"):
        Warehouse("nosuchstore://bucket/warehouse").jobs()
    (tmp_path / "empty").mkdir()
    assert Warehouse(tmp_path / "empty").jobs() == []


def test_an_address_may_be_a_file_url(warehouse):
    assert Warehouse(f"file://{warehouse.path}").jobs() == ["j"]


def garbage(path, m):
    path.write_bytes(b"\0\xff{")


def deep(path, m):
    path.write_text("[" * 100_000)


def wrong_types(path, m):
    path.write_text(json.dumps({**m, "tables": {"events": "x"}}))


def other_id(path, m):
    path.write_text(json.dumps({**m, "id": "0" * 64}))


def path_outside(path, m):
    m["tables"]["events"][0]["file"] = "../../in/0.fake"
    path.write_text(json.dumps(m))


def file_of_another(path, m):
    m["tables"]["events"][0]["file"] = "events/0123456789abcdef-000.parquet"
    path.write_text(json.dumps(m))


def unknown_table(path, m):
    path.write_text(json.dumps({**m, "tables": {"../x": m["tables"]["events"]}}))


def newer_layout(path, m):
    path.write_text(json.dumps({**m, "layout": 2}))


def too_large(path, m):
    with path.open("wb") as f:
        f.truncate(1 << 40)


@pytest.mark.parametrize(
    "spoil",
    [
        garbage,
        deep,
        wrong_types,
        other_id,
        path_outside,
        file_of_another,
        unknown_table,
        newer_layout,
        too_large,
    ],
)
def test_a_spoilt_manifest_leaves_its_source_out_and_says_so(warehouse, rows, spoil):
    path = manifest_of(warehouse, 1)
    files = set((warehouse.job_folder("j") / "events").iterdir())
    spoil(path, json.loads(path.read_text()))
    snapshot = warehouse.snapshot("j")
    assert [(p.code, p.severity) for p in snapshot.problems] == [("bad_manifest", "lost")]
    assert path.name in snapshot.problems[0].message
    assert ranks_read(rows, snapshot) == [0]
    assert [r["rank"] for r in rows(snapshot, "ranks")] == [0]
    warehouse.remove_orphans("j")
    assert set((warehouse.job_folder("j") / "events").iterdir()) == files


@pytest.mark.parametrize("harm", ["missing", "cut"])
def test_a_missing_or_cut_file_leaves_its_source_out_until_it_is_ingested_again(
    tmp_path, warehouse, rows, harm
):
    whole = rows(warehouse.snapshot("j"))
    (m,) = [m for m in warehouse.manifests("j")[0] if m.ranks == [1]]
    part = warehouse.job_folder("j") / m.tables["events"][0].file
    if harm == "missing":
        part.unlink()
    else:
        os.truncate(part, 100)
    snapshot = warehouse.snapshot("j")
    assert ranks_read(rows, snapshot) == [0]
    assert "ingest it again" in snapshot.problems[0].message
    report = ingest(warehouse, tmp_path / "in", job="j")
    assert [s.status for s in report.sources] == ["already", "new"]
    assert warehouse.snapshot("j").problems == []
    assert rows(warehouse.snapshot("j")) == whole


def test_files_without_a_manifest_do_not_count_and_are_removed(warehouse, rows):
    manifest_of(warehouse, 1).unlink()
    assert ranks_read(rows, warehouse.snapshot("j")) == [0]
    removed = warehouse.remove_orphans("j")
    assert sorted(os.path.dirname(p) for p in removed) == [
        "_staged/collectives",
        "_staged/ranks",
        "events",
    ]
    assert warehouse.remove_orphans("j") == []


def test_derived_tables_that_are_gone_are_made_again(warehouse, rows):
    before = warehouse.snapshot("j")
    whole = rows(before)
    os.unlink(before.files["collectives"][0])
    assert rows(warehouse.snapshot("j")) == whole
    for path in (warehouse.job_folder("j") / "_manifests").glob("derived-*"):
        path.unlink()
    assert rows(warehouse.snapshot("j")) == whole


def test_a_job_that_cannot_be_written_is_derived_apart(warehouse, rows, monkeypatch, tree):
    whole = rows(warehouse.snapshot("j"))
    for path in (warehouse.job_folder("j") / "_manifests").glob("derived-*"):
        path.unlink()
    before = tree(warehouse.path)

    def full(folder):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(rooms, "make", full)
    snapshot = warehouse.snapshot("j")
    assert rows(snapshot) == whole
    assert tree(warehouse.path) == before


def generations(warehouse):
    """Ids of the derived generations that stand; no derived file is of any other."""
    folder = warehouse.job_folder("j")
    files = {p.stem for p in folder.glob("*/derived-*.parquet")}
    assert files == {p.stem for p in (folder / "_manifests").glob("derived-*.json")}
    return {stem.removeprefix("derived-") for stem in files}


def test_a_reader_goes_on_while_another_ingest_publishes(tmp_path, traces, warehouse, rows):
    from retime.analysis.doors import Warehouse as Door

    before = warehouse.snapshot("j")
    read = rows(before)
    connection = Door(warehouse.path).connect("j")
    for rank in (2, 3):
        ingest(warehouse, traces(tmp_path / f"{rank}.fake", rank), job="j")
    assert rows(before) == read
    assert connection.sql("select rank from ranks order by rank").fetchall() == [(0,), (1,)]
    assert [r["rank"] for r in rows(warehouse.snapshot("j"), "ranks")] == [0, 1, 2, 3]


def test_superseded_derived_tables_go_when_nobody_is_to_read_them_any_more(
    tmp_path, traces, warehouse, monkeypatch
):
    superseded = warehouse.snapshot("j").generation
    old = superseded.id
    ingest(warehouse, traces(tmp_path / "2.fake", 2), job="j")
    new = warehouse.snapshot("j").generation.id
    assert warehouse.remove_orphans("j") == []
    assert generations(warehouse) == {old, new}
    later = time.time_ns() + int((tidying.SUPERSEDED_S - 60) * 1e9)
    monkeypatch.setattr(clock, "now_ns", lambda _: later)
    assert warehouse.remove_orphans("j") == []
    monkeypatch.setattr(clock, "now_ns", lambda _: later + 120 * 10**9)
    files = [f"_manifests/derived-{old}.json", *(p.file for p in superseded.parts)]
    assert sorted(warehouse.remove_orphans("j")) == sorted(files)
    assert generations(warehouse) == {new}


def test_an_ingest_removes_what_has_been_superseded_for_long(
    tmp_path, traces, warehouse, monkeypatch
):
    monkeypatch.setattr(tidying, "SUPERSEDED_S", 0.0)
    ingest(warehouse, traces(tmp_path / "2.fake", 2), job="j")
    assert generations(warehouse) == {warehouse.snapshot("j").generation.id}


def test_many_ingests_leave_no_more_than_a_few_generations(
    tmp_path, traces, warehouse, monkeypatch
):
    monkeypatch.setattr(tidying, "STILL_READ_S", 0.0)
    made = [warehouse.snapshot("j").generation.id]
    for rank in range(2, 14):
        ingest(warehouse, traces(tmp_path / f"{rank}.fake", rank), job="j")
        made.append(warehouse.snapshot("j").generation.id)
    assert len(set(made)) == 13
    assert generations(warehouse) == set(made[-8:])


def test_the_generation_of_what_is_there_stays_however_old_it_is(
    tmp_path, warehouse, rows, monkeypatch
):
    first = warehouse.snapshot("j")
    whole = rows(first)
    path = manifest_of(warehouse, 1)
    told = path.read_bytes()
    path.unlink()
    less = warehouse.snapshot("j").generation.id
    path.write_bytes(told)
    monkeypatch.setattr(tidying, "SUPERSEDED_S", 0.0)
    warehouse.remove_orphans("j")
    assert generations(warehouse) == {first.generation.id, less}
    assert rows(warehouse.snapshot("j")) == whole


def test_unfinished_work_goes_when_its_process_is_gone(warehouse, rows):
    whole = rows(warehouse.snapshot("j"))
    host, space, pid, born = owners.owner().split(".")
    for name, age_s, stays in [
        (f"{host}.{space}.{pid}.{born}.x", 0, True),  # this very process
        (f"{host}.{space}.{pid}.{born}.x", 10**6, True),
        (f"{host}.{space}.{pid}.1.x", 0, False),  # its number is used by another process now
        (f"{host}.{space}.{2**22 + 5}.{born}.x", 0, False),
        (f"{host}.{space}.{10**30}.{born}.x", 0, False),
        (f"another.{space}.{pid}.1.x", 0, True),  # cannot be asked: by age
        (f"another.{space}.{pid}.1.x", 10**6, False),
        (f"{host}.container.{pid}.1.x", 3600, True),
        ("strange", 0, True),
        ("strange", 10**6, False),
    ]:
        token = warehouse.job_folder("j") / "_incoming" / name
        token.mkdir(exist_ok=True)
        (token / "events-000.parquet").write_bytes(b"x")
        for path in (*token.iterdir(), token):
            os.utime(path, (time.time() - age_s,) * 2)
        assert rows(warehouse.snapshot("j")) == whole
        warehouse.remove_orphans("j")
        assert token.exists() == stays, (name, age_s)
        shutil.rmtree(token, ignore_errors=True)


def test_other_engines_find_the_rows_by_their_folders(warehouse):
    duckdb = pytest.importorskip("duckdb")
    pattern = f"{warehouse.path}/job=*/events/*.parquet"
    found = duckdb.sql(
        f"select job, rank, count(*) from read_parquet('{pattern}', hive_partitioning=true) "
        "group by all order by all"
    )
    assert found.fetchall() == [("j", 0, 10), ("j", 1, 10)]
