"""Compaction: the same rows in few files, whatever comes before, after, or dies in between."""

import json

import pyarrow.parquet as pq
import pytest
from retime.ingest import staging, store
from retime.ingest.errors import UsageError
from retime.ingest.keeping import compact
from retime.ingest.manifest import PACKED
from retime.ingest.run import ingest


def files_of(warehouse, job="j"):
    return {p.file for m in warehouse.manifests(job)[0] for p in m.parts}


def test_the_same_rows_in_few_files(warehouse, held, digests):
    folder = warehouse.folder("j")
    before, made = warehouse.snapshot("j"), digests(warehouse.job_folder("j"))
    rows = held(before)
    assert len(files_of(warehouse)) == 4 * 3
    pack = compact.compact(folder)
    assert pack is not None
    assert pack.format == PACKED
    after = warehouse.snapshot("j")
    assert held(after) == rows
    assert after.generation == before.generation
    assert len(files_of(warehouse)) == 3
    assert [m.ranks for m in after.manifests] == [m.ranks for m in before.manifests]
    assert held(before) == rows  # who read it before goes on
    for path in warehouse.job_folder("j").glob("*/derived-*"):
        path.unlink()
    assert held(warehouse.snapshot("j")) == rows
    again = digests(warehouse.job_folder("j"))
    assert again
    assert again.items() <= made.items()


def test_again_it_does_nothing(warehouse, tree):
    folder = warehouse.folder("j")
    assert compact.compact(folder) is not None
    stands = tree(warehouse.path)
    assert compact.compact(folder) is None
    assert {k: v for k, v in tree(warehouse.path).items() if "_incoming" not in k} == {
        k: v for k, v in stands.items() if "_incoming" not in k
    }


def test_rows_lie_by_rank(warehouse):
    compact.compact(warehouse.folder("j"))
    (events,) = warehouse.snapshot("j").files["events"]
    ranks = pq.ParquetFile(events).read(["rank"])["rank"].to_pylist()
    assert ranks == sorted(ranks)


def test_ranks_come_afterwards_and_are_packed_too(warehouse, bring, held):
    folder = warehouse.folder("j")
    compact.compact(folder)
    bring(warehouse, "j", [4, 5])
    rows = held(warehouse.snapshot("j"))
    assert {m.ranks[0] for m in warehouse.manifests("j")[0]} == set(range(6))
    assert compact.compact(folder) is not None
    assert len(files_of(warehouse)) == 3
    assert held(warehouse.snapshot("j")) == rows


def test_the_same_trace_is_already_there_and_another_of_its_rank_clashes(
    tmp_path, warehouse, traces
):
    compact.compact(warehouse.folder("j"))
    report = ingest(warehouse, [tmp_path / "in" / "j"], job="j")
    assert {s.status for s in report.sources} == {"already"}
    other = traces(tmp_path / "other" / "rank2.fake", 2, salt=9)
    with pytest.raises(UsageError, match="rank 2 of job j clashes"):
        ingest(warehouse, [other], job="j")


def test_what_it_took_the_place_of_goes_when_its_readers_had_time(warehouse, held):
    rows, folder = held(warehouse.snapshot("j")), warehouse.job_folder("j")
    compact.compact(warehouse.folder("j"))
    warehouse.remove_orphans("j")
    assert len(list(folder.glob("events/*.parquet"))) == 5
    removed = warehouse.remove_orphans("j", 0.0)
    assert len([f for f in removed if f.startswith("_manifests/")]) == 4
    assert len(list(folder.glob("events/*.parquet"))) == 1
    assert held(warehouse.snapshot("j")) == rows
    assert warehouse.remove_orphans("j", 0.0) == []


def test_killed_before_its_manifest_the_job_is_as_it_was(warehouse, held, monkeypatch):
    rows = held(warehouse.snapshot("j"))

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(staging, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            compact.compact(warehouse.folder("j"))
    assert held(warehouse.snapshot("j")) == rows
    assert len(files_of(warehouse)) == 12
    assert compact.compact(warehouse.folder("j")) is not None
    assert held(warehouse.snapshot("j")) == rows


def test_large_sources_stay(warehouse):
    sizes = sorted(sum(p.bytes for p in m.parts) for m in warehouse.manifests("j")[0])
    assert compact.compact(warehouse.folder("j"), sizes[0]) is None


def test_two_packs_that_overlap_lose_and_double_nothing(warehouse, bring, held):
    """Two who compact at once without locks: each saw sources that the other did not."""
    folder = warehouse.folder("j")
    sources = {m.ranks[0]: m for m in warehouse.manifests("j")[0]}
    rows = held(warehouse.snapshot("j"))
    assert compact.pack(folder, [sources[0], sources[1], sources[2]]) is not None
    assert compact.pack(folder, [sources[2], sources[3]]) is not None
    assert held(warehouse.snapshot("j")) == rows
    assert warehouse.snapshot("j").problems == []
    warehouse.remove_orphans("j", 0.0)
    assert held(warehouse.snapshot("j")) == rows
    assert compact.compact(folder) is not None
    assert held(warehouse.snapshot("j")) == rows


def lies(said, what):
    packed = said["packed"]
    table = next(iter(packed[0]["rows"]))
    one = packed[0]["rows"][table][0]
    if what == "beyond":
        one[1] += 1 << 40
    elif what == "overlap":
        packed[1]["rows"][table] = [one]
    elif what == "no file":
        one[0] = 7
    elif what == "negative":
        one[2] = -one[2]
    elif what == "twice":
        packed.append(packed[0])
    elif what == "table":
        packed[0]["rows"]["../x"] = [one]
    elif what == "file":
        parts = {**said["tables"], **said["views"]}[table]
        parts[0]["file"] = "../../x"
    return said


@pytest.mark.parametrize(
    "what", ["beyond", "overlap", "no file", "negative", "twice", "table", "file"]
)
def test_a_pack_that_lies_is_left_out_whole_while_its_sources_stand(warehouse, held, what):
    rows = held(warehouse.snapshot("j"))
    compact.compact(warehouse.folder("j"))
    (path,) = (warehouse.job_folder("j") / "_manifests").glob("pack*.json")
    path.write_text(json.dumps(lies(json.loads(path.read_text()), what)))
    snapshot = warehouse.snapshot("j")
    assert [p.code for p in snapshot.problems] == ["bad_manifest"]
    assert held(snapshot) == rows


def test_an_older_version_is_told_to_upgrade(warehouse):
    """It takes the manifest for one of a source, and looks at its layout first."""
    compact.compact(warehouse.folder("j"))
    (path,) = (warehouse.job_folder("j") / "_manifests").glob("pack*.json")
    said = json.loads(path.read_text())
    assert said["layout"] == 2
    assert {"id", "name", "sha256", "ranks", "tables", "views", "world_sizes"} <= said.keys()


def test_slices_are_read_without_the_rest_of_their_file(warehouse):
    from retime.ingest.keeping import slices

    compact.compact(warehouse.folder("j"))
    folder = store.folder(warehouse.job_folder("j"))
    for m in warehouse.manifests("j")[0]:
        (part,) = m.tables["events"]
        rows = slices.rows(slices.of(folder), part, ["rank"])
        assert rows["rank"].unique().to_pylist() == m.ranks
        assert len(rows) == part.rows == 1500
