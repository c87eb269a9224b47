"""A warehouse of an older version opens, answers, is replayed, and takes its traces again."""

import gzip
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import retime
from retime.ingest.keeping import compact
from retime.ingest.keeping.verify import verify
from retime.ingest.run import ingest
from retime.ingest.schema import TABLES

DATA = Path(__file__).parent / "data"


def first_steps(demo, folder, ranks=(0, 1), before="ProfilerStep#12"):
    """The bundled traces up to a step, byte for byte as the kept warehouse was made from them."""
    folder.mkdir(parents=True)
    for rank in ranks:
        trace = json.loads(gzip.decompress((demo / f"rank{rank}.json.gz").read_bytes()))
        end = min(e["ts"] for e in trace["traceEvents"] if e.get("name") == before)
        trace["traceEvents"] = [
            e for e in trace["traceEvents"] if e.get("ts", 0) < end or e["ph"] == "M"
        ]
        (folder / f"rank{rank}.json").write_text(json.dumps(trace))


@pytest.fixture
def old(tmp_path):
    """A copy of the old warehouse."""
    shutil.copytree(DATA / "old_warehouse", tmp_path / "warehouse")
    return retime.open(tmp_path / "warehouse")


def test_it_opens_and_every_view_answers(old):
    con = old.connect("old")
    views = [name for (name,) in con.execute("SELECT view_name FROM duckdb_views() WHERE NOT "
             "internal AND view_name NOT LIKE '\\_%' ESCAPE '\\'").fetchall()]  # fmt: skip
    assert {"waits", "step_breakdown", "events", "steps"} <= set(views)
    for view in views:
        con.execute(f'SELECT count(*) FROM "{view}"').fetchall()
    assert con.execute("SELECT count(*) FROM events").fetchall() == [(18481,)]
    assert con.execute("SELECT count(*), min(found_by) FROM steps").fetchall() == [
        (4, "annotation")
    ]
    assert con.execute("SELECT count(*), count(dim_reason) FROM comms").fetchall()[0][0] == 1


def test_it_is_shown_and_replayed(old):
    facts = old.job("old").show()
    assert (facts["ranks_seen"], facts["steps"], facts["participations"]) == (2, 2, 95)
    assert facts["waited_for"] is not None
    out = retime.replay(old.job("old"), policies=["align-arrivals"])
    assert out["fidelity_pct"] < 0.01


def test_the_same_traces_again_change_nothing(tmp_path, old, demo_job):
    first_steps(demo_job, tmp_path / "traces")
    report = ingest(old.store, [tmp_path / "traces"], job="old")
    assert {s.status for s in report.sources} == {"already"}
    assert len(old.store.manifests("old")[0]) == 2


def test_it_equals_what_is_written_now(tmp_path, old, demo_job, held):
    first_steps(demo_job, tmp_path / "traces")
    now = retime.open(tmp_path / "now")
    now.ingest([tmp_path / "traces"], job="old")
    one, other = held(old.store.snapshot("old")), held(now.store.snapshot("old"))
    path = str(tmp_path) + "/"
    for of_categories in ("events", "_made_kernels"):  # these have become finer
        assert len(one.pop(of_categories)) == len(other.pop(of_categories))
    assert {t: [r.replace(path, "") for r in rows] for t, rows in other.items()} == one


def test_it_is_sound_and_compaction_brings_it_up_to_date(old, held):
    old.store.snapshot("old")
    assert [f for f in verify(old.store, "old", deep=True) if f.severity != "info"] == []
    rows = held(old.store.snapshot("old"))
    assert old.store.snapshot("old").older == {"events", "problems"}
    assert compact.compact(old.store.folder("old")) is not None
    assert held(old.store.snapshot("old")) == rows
    assert old.store.snapshot("old").older == frozenset()


@pytest.mark.parametrize("which", ["first", "last", "all"])
def test_columns_that_a_file_lacks_are_null(tmp_path, demo_job, which):
    """As when a table grows: files of before lack the new column, whichever of them come first."""
    wh = retime.open(tmp_path / "w")
    first_steps(demo_job, tmp_path / "traces")
    wh.ingest([tmp_path / "traces"], job="j")
    files = wh.store.snapshot("j").files["events"]
    chosen = {"first": files[:1], "last": files[1:], "all": files}[which]
    folder = wh.store.job_folder("j")
    lacking = 0
    for path in (folder / "_manifests").glob("*.json"):
        said = json.loads(path.read_text())
        for part in said["tables"].get("events", []):
            full = folder / part["file"]
            if str(full) in chosen:
                rows = pq.ParquetFile(full).read()
                pq.write_table(rows.drop_columns(["grid_blocks", "wait_stream"]), full)
                part["bytes"] = full.stat().st_size
                said.pop("columns")
                lacking += part["rows"]
        path.write_text(json.dumps(said))
    con = wh.connect("j")
    n = con.execute("SELECT count(*), count(*) FILTER (kind = 'kernel' AND grid_blocks IS NULL) "
                    "FROM events").fetchall()[0]  # fmt: skip
    assert n[0] == 18481
    assert n[1] > 0
    assert con.execute("SELECT count(*) FROM kernel_stats").fetchall()[0][0] > 0
    retime.replay(wh.job("j"), policies=["align-arrivals"])
    pack = compact.compact(wh.store.folder("j"))
    assert pack is not None
    (packed,) = wh.store.snapshot("j").files["events"]
    schema = pq.ParquetFile(packed).schema_arrow
    assert schema.names == TABLES["events"].schema.names
    assert pa.types.is_integer(schema.field("grid_blocks").type)
    con = wh.connect("j")
    assert con.execute("SELECT count(*), count(*) FILTER (kind = 'kernel' AND grid_blocks IS NULL) "
                       "FROM events").fetchall()[0] == n  # fmt: skip


def test_a_newer_layout_says_upgrade(old):
    for path in (Path(old.url) / "job=old" / "_manifests").glob("[0-9a-f]*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "layout": 3}))
    with pytest.raises(retime.ingest.errors.WarehouseError, match="upgrade"):
        old.connect("old")
