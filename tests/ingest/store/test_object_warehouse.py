"""A warehouse in an object store: the same rows as on a disk, with few requests and no locks."""

import json
import time

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retime.analysis.doors import Warehouse as Door
from retime.ingest import clashes, kept, object_jobs, owners, settings, staging, store, tidying
from retime.ingest.errors import NoSources, StoreBusy, StoreRefused, UsageError, WarehouseError
from retime.ingest.keeping.slices import completed
from retime.ingest.run import ingest
from retime.ingest.schema import TABLES
from retime.ingest.store import claims, reading
from retime.ingest.warehouse import Warehouse


def rows(snapshot, table=None):
    """All rows of a snapshot by table, or of one; but for the time at which it was ingested."""

    def of(files):
        found = [r for f in files for r in reading.whole(f).read().to_pylist()]
        for r in found:
            r.pop("created_at_ns", None)
        return found

    if table is not None:
        return of(snapshot.files[table])
    return {t: sorted(of(files), key=repr) for t, files in snapshot.files.items()}


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


def manifest_file(warehouse, rank):
    (m,) = [m for m in warehouse.manifests("j")[0] if m.ranks == [rank]]
    return f"_manifests/{m.id[:16]}.json", m


def test_it_holds_what_one_on_a_disk_holds(tmp_path, given, place, traces):
    local, there = Warehouse(tmp_path / "warehouse"), Warehouse(place)
    for wh in (local, there):
        report = ingest(wh, given, job="j")
        assert [s.status for s in report.sources] == ["new"] * 3
    assert there.jobs() == local.jobs() == ["j"]
    assert rows(there.snapshot("j")) == rows(local.snapshot("j"))
    late = traces(tmp_path / "late.fake", 3)
    for wh in (local, there):
        assert [s.status for s in ingest(wh, given, job="j").sources] == ["already"] * 3
        ingest(wh, late, job="j")
    assert rows(there.snapshot("j")) == rows(local.snapshot("j"))
    assert {p.code for p in there.snapshot("j").problems} == set()


def test_what_is_not_there(place, warehouse):
    with pytest.raises(WarehouseError, match="no warehouse at s3://"):
        Warehouse(f"{place}/nothing").jobs()
    with pytest.raises(NoSources, match=r"no job x in s3://.*; jobs: j"):
        warehouse.snapshot("x")
    store.folder(f"{place}/other").put("a/file", b"")
    with pytest.raises(WarehouseError, match="is not a warehouse"):
        Warehouse(f"{place}/other").jobs()
    with pytest.raises(UsageError, match="not a folder on a disk"):
        _ = warehouse.path


def test_a_job_opens_with_a_handful_of_requests(proxy, warehouse, monkeypatch):
    warehouse.snapshot("j")
    object_jobs._manifests.clear()
    proxy.log.clear()
    warehouse.snapshot("j")
    # The listing, three manifests, the generation's; twice settings and once a tombstone that
    # there are not.
    assert proxy.counts() == {"LIST": 1, "GET": 7}
    proxy.log.clear()
    assert warehouse.jobs() == ["j"]  # and whether it was pruned
    assert proxy.counts() == {"LIST": 1, "HEAD": 1}


def test_many_sources_are_read_from_one_list(tmp_path, proxy, place, traces, monkeypatch):
    monkeypatch.setattr(object_jobs, "LISTED_FROM", 10)
    for rank in range(40):
        traces(tmp_path / "in" / f"{rank}.fake", rank)
    ingest(place, tmp_path / "in", job="j")
    warehouse = Warehouse(place)
    object_jobs._manifests.clear()
    proxy.log.clear()
    snapshot = warehouse.snapshot("j")
    assert len(snapshot.manifests) == 40
    assert sum(proxy.counts().values()) <= 6
    # What the list says of a manifest counts only while that is the one that was read.
    folder = store.folder(warehouse.job_folder("j"))
    file, _ = manifest_file(warehouse, 7)
    folder.put(file, b"{}")
    assert [p.code for p in warehouse.snapshot("j").problems] == ["bad_manifest"]
    assert 7 not in {r["rank"] for r in rows(warehouse.snapshot("j"), "ranks")}
    (listed,) = [n for n in folder.sizes() if n.startswith("_sources/")]
    folder.put(listed, b"[garbage")
    object_jobs._manifests.clear()
    assert len(warehouse.manifests("j")[0]) == 39


def test_a_connection_reads_less_than_the_files(tmp_path, proxy, place, warehouse):
    n = 300_000
    table = pa.table(
        {
            "rank": pa.array([5] * n, pa.int32()),
            "dur_ns": pa.array(range(n), pa.int64()),
            "start_ns": pa.array([i * 7919 % 1000003 for i in range(n)], pa.int64()),
            "correlation": pa.array([i * 104729 % 999983 for i in range(n)], pa.int64()),
        }
    )
    whole = completed(table, TABLES["events"].schema)
    pq.write_table(whole, tmp_path / "big.parquet", row_group_size=n // 3, compression="none")
    folder = store.folder(warehouse.job_folder("j"))
    file, m = manifest_file(warehouse, 0)
    part = m.tables["events"][0].file
    folder.put(part, tmp_path / "big.parquet")
    size = (tmp_path / "big.parquet").stat().st_size
    said = json.loads(folder.read(file, 1 << 20))
    said["tables"]["events"][0] |= {"rows": n, "bytes": size}
    folder.put(file, json.dumps(said).encode())
    reading._sizes.clear()
    con = Door(str(warehouse.root)).connect("j")
    proxy.log.clear()
    found = con.sql("select sum(dur_ns) from events where rank = 5").fetchall()
    assert found == [(n * (n - 1) // 2,)]
    assert size > 6 << 20
    assert 0 < proxy.sent() < size // 2
    proxy.log.clear()
    lazy = reading.scan([folder.address(part)])
    assert lazy.select(pl.col("dur_ns").sum()).collect().item() == n * (n - 1) // 2
    assert 0 < proxy.sent() < size // 2
    assert lazy.filter(pl.col("dur_ns") < 5).select("dur_ns", "rank").collect().rows() == [
        (i, 5) for i in range(5)
    ]
    assert lazy.head(7).collect().height == 7


def test_sql_reads_this_warehouse_and_nothing_else(place, warehouse):
    store.folder(place).put("secret.csv", b"a,b\n1,2\n")
    con = Door(place).connect()
    assert con.sql("select count(*) from events").fetchall() == [(300,)]
    for query in (
        f"select * from read_csv('{place}/secret.csv')",
        f"select * from glob('{place}/*')",
        f"copy (select 1) to '{place}/x.parquet'",
        "select * from read_text('/etc/hostname')",
    ):
        with pytest.raises(Exception, match=r"disabled by configuration|[Pp]ermission"):
            con.execute(query).fetchall()


def test_what_is_said_of_a_job_is_kept_in_it(warehouse, place):
    before = warehouse.snapshot("j").generation.id
    Door(place).job("j").set_kernels(["kernel_1=gemm"])
    folder = warehouse.job_folder("j")
    said = settings.read(folder)
    assert [(r.pattern, r.category) for r in said.kernels] == [("kernel_1", "gemm")]
    settings.write(folder, settings.replaced(said, step_annotation="x*"))
    assert warehouse.snapshot("j").generation.id != before
    assert [r.pattern for r in warehouse.snapshot("j").kernels] == ["kernel_1"]


def test_rows_of_a_replay_are_kept(warehouse):
    folder = warehouse.job_folder("j")
    key = kept.key(folder, warehouse.snapshot("j").generation)
    some = TABLES["replay_scores"].schema.empty_table()
    assert kept.find(folder, key) is None
    assert kept.keep(folder, key, {"replay_scores": some})
    listed = kept.find(folder, key)
    assert kept.rows(folder, listed, "replay_scores").num_rows == 0
    store.folder(folder).put(listed.tables["replay_scores"].file, b"other")
    assert kept.rows(folder, listed, "replay_scores") is None
    assert kept.keep(folder, key, {}, "because")
    assert kept.find(folder, key).reason == "because"


@pytest.mark.parametrize("harm", ["missing", "cut"])
def test_a_missing_or_cut_object_leaves_its_source_out_until_it_is_ingested_again(
    given, warehouse, harm
):
    whole = rows(warehouse.snapshot("j"))
    folder = store.folder(warehouse.job_folder("j"))
    _, m = manifest_file(warehouse, 1)
    part = m.tables["events"][0].file
    if harm == "missing":
        folder.remove([part])
    else:
        folder.put(part, folder.read(part, 1 << 20)[:100])
    snapshot = warehouse.snapshot("j")
    assert {r["rank"] for r in rows(snapshot, "events")} == {0, 2}
    assert [(p.code, p.severity) for p in snapshot.problems] == [("bad_manifest", "lost")]
    assert "ingest it again" in snapshot.problems[0].message
    assert [s.status for s in ingest(warehouse, given, job="j").sources] == [
        "already", "new", "already",
    ]  # fmt: skip
    assert warehouse.snapshot("j").problems == []
    assert rows(warehouse.snapshot("j")) == whole


def test_a_second_trace_of_a_rank_is_refused(tmp_path, traces, warehouse):
    other = traces(tmp_path / "other.fake", 1, salt=9)
    with pytest.raises(clashes.RankClash, match="rank 1 of job j clashes"):
        ingest(warehouse, other, job="j")
    # Not even where it is only known when it has been read.
    other = traces(tmp_path / "other.fake", 1, salt=9, no_peek=True)
    with pytest.raises(clashes.RankClash, match="rank 1 of job j clashes"):
        ingest(warehouse, other, job="j")
    folder = store.folder(warehouse.job_folder("j"))
    known = {p.file for m in warehouse.manifests("j")[0] for p in m.parts}
    parts = {n for n in folder.sizes() if n.endswith(".parquet") and "derived-" not in n}
    assert parts == known  # the refused one left nothing


def test_who_may_only_read_derives_apart(proxy, warehouse, soon):
    whole = rows(warehouse.snapshot("j"))
    folder = store.folder(warehouse.job_folder("j"))
    folder.remove([n for n in folder.sizes() if "/derived-" in n])
    before = folder.sizes()

    proxy.rule = lambda r: (403, "AccessDenied") if r.op in ("PUT", "DELETE", "POST") else None
    snapshot = warehouse.snapshot("j")
    assert rows(snapshot) == whole
    with pytest.raises(StoreRefused, match="access refused, cannot be written"):
        staging.publish(folder, None, [], snapshot.generation)
    proxy.rule = None
    assert folder.sizes() == before


def test_superseded_tables_and_what_nobody_names_go_by_the_stores_own_clock(
    tmp_path, traces, warehouse, monkeypatch
):
    folder = store.folder(warehouse.job_folder("j"))
    old = warehouse.snapshot("j").generation.id
    folder.put("events/0123456789abcdef-0123456789ab-000.parquet", b"left by a dead writer")
    ingest(warehouse, traces(tmp_path / "3.fake", 3), job="j")
    new = warehouse.snapshot("j").generation.id
    # A clock of this machine that is years ahead removes nothing that is young by the store's.
    with monkeypatch.context() as m:
        m.setattr(time, "time", lambda: 2**33)
        assert warehouse.remove_orphans("j") == []
    monkeypatch.setattr(tidying, "SUPERSEDED_S", 0.0)
    monkeypatch.setattr(owners, "ABANDONED_S", -1.0)
    removed = warehouse.remove_orphans("j")
    assert "events/0123456789abcdef-0123456789ab-000.parquet" in removed
    assert f"_manifests/derived-{old}.json" in removed
    left = folder.sizes()
    assert f"_manifests/derived-{new}.json" in left
    assert {p.file for m in warehouse.manifests("j")[0] for p in m.parts} <= set(left)
    assert warehouse.snapshot("j").generation.id == new


def test_a_damaged_manifest_protects_the_files_of_its_source(warehouse, monkeypatch):
    folder = store.folder(warehouse.job_folder("j"))
    file, m = manifest_file(warehouse, 1)
    folder.put(file, b"{")
    monkeypatch.setattr(owners, "ABANDONED_S", -1.0)
    warehouse.remove_orphans("j")
    assert {p.file for p in m.parts} <= set(folder.sizes())


def test_a_copy_on_a_disk_is_a_warehouse(tmp_path, warehouse, monkeypatch):
    whole = rows(warehouse.snapshot("j"))
    for file in warehouse.root.sizes():
        target = tmp_path / "copy" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(warehouse.root.read(file, 1 << 24))
    copy = Warehouse(tmp_path / "copy")
    assert rows(copy.snapshot("j")) == whole
    monkeypatch.setattr(owners, "ABANDONED_S", -1.0)
    assert copy.remove_orphans("j") == []
    assert rows(copy.snapshot("j")) == whole


def test_a_claim_of_a_dead_writer_is_taken_over(place, monkeypatch):
    monkeypatch.setattr(claims, "TERM_S", 0.2)
    monkeypatch.setattr(claims, "SPREAD_S", 0.01)
    folder = store.folder(place)
    folder.put("_claims/timeline-3", b"of somebody who died")
    with claims.claimed(folder, ["timeline-3", "timeline-4"]):
        assert folder.names("_claims") == ["timeline-3", "timeline-4"]
        assert folder.read("_claims/timeline-3", 100) != b"of somebody who died"
    assert folder.names("_claims") == []


def test_a_claim_of_a_writer_at_work_is_waited_for_and_not_taken(place, monkeypatch):
    monkeypatch.setattr(claims, "PATIENCE_S", 0.3)
    folder = store.folder(place)
    with claims.claimed(folder, ["a", "b"]):
        with pytest.raises(StoreBusy, match="other writers"), claims.claimed(folder, ["b", "c"]):
            pass
        assert folder.names("_claims") == ["a", "b"]


def test_a_writer_that_was_too_slow_does_not_commit(place, monkeypatch):
    folder = store.folder(place)
    with claims.claimed(folder, ["a"]) as mine:
        folder.put("_claims/a", b"of who took over")
        monkeypatch.setattr(claims, "TERM_S", 0.0)
        with pytest.raises(StoreBusy, match="taken over"):
            mine.check()
    assert folder.read("_claims/a", 100) == b"of who took over"


def test_a_job_whose_first_source_is_on_its_way_does_not_stop_the_others(place, warehouse):
    store.folder(place).put("job=coming/events/x-000.parquet", b"")
    assert Warehouse(place).jobs() == ["coming", "j"]
    con = Door(place).connect()
    assert con.sql("select distinct job from ranks").fetchall() == [("j",)]
    with pytest.raises(NoSources):
        Door(place).connect("coming")


def test_an_ingest_says_that_the_warehouse_is_new(place, given, capsys):
    from retime import cli

    def ingested(where, *more):
        assert cli.run(["ingest", str(given), "--job", "j", "--warehouse", where, *more]) == 0
        return capsys.readouterr()

    slip = f"{place}-slip"
    assert ingested(place).err == f"new warehouse at {place} (no job was there before)\n"
    assert ingested(place).err == ""
    assert json.loads(ingested(slip, "--json").out)["new_warehouse"] == slip
    assert json.loads(ingested(slip, "--json").out)["new_warehouse"] is None
