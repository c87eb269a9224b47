"""Files that are cut, gone or lie: left out and said, never read as something else, and mended."""

import json
import shutil

import pytest
import small_job
from retime.ingest.manifest import MAX_MANIFEST_BYTES
from retime.ingest.warehouse import Warehouse
from whole import rows, whole

MOST_S = 20
"""What a lie makes a reader do must end."""


@pytest.fixture(scope="module")
def made(tmp_path_factory, job, processes):
    folder = tmp_path_factory.mktemp("damaged")
    others = small_job.write(folder / "other", range(4), salt=5)
    assert processes.run("ingest", folder / "w", job[0], "j").error == ""
    assert processes.run("ingest", folder / "w", others, "other").error == ""
    return folder / "w"


@pytest.fixture
def warehouse(tmp_path, made):
    """A warehouse with the job `j`, and one of another run as `other`."""
    return Warehouse(shutil.copytree(made, tmp_path / "w"))


def of_rank(warehouse, rank, job="j"):
    (m,) = [m for m in warehouse.manifests(job)[0] if m.ranks == [rank]]
    return m


def lying(path, change):
    said = json.loads(path.read_text())
    change(said)
    path.write_text(json.dumps(said))


def test_a_cut_file_of_any_table_leaves_its_source_out_until_it_comes_again(
    warehouse, job, processes
):
    paths, expected = job
    folder = warehouse.job_folder("j")
    for part in of_rank(warehouse, 1).parts:
        with (folder / part.file).open("rb+") as f:
            f.truncate(part.bytes - 1)
        snapshot = warehouse.snapshot("j")
        assert [p.severity for p in snapshot.problems] == ["lost"]
        assert part.file in snapshot.problems[0].message
        assert "ingest it again" in snapshot.problems[0].message
        found = rows(snapshot)
        assert found["events"] == {r: expected["events"][r] for r in (0, 2, 3)}
        assert sorted(found["collectives"]) == [0, 2, 3]
        came = processes.run("ingest", warehouse.path, paths, "j")
        assert sorted(came.result) == ["already"] * 3 + ["new"]
        whole(warehouse, "j", expected, paths)


def test_a_cut_file_of_any_derived_table_is_made_again(warehouse, job):
    paths, expected = job
    folder = warehouse.job_folder("j")
    for part in warehouse.snapshot("j").generation.parts:
        with (folder / part.file).open("rb+") as f:
            f.truncate(part.bytes // 2)
        whole(warehouse, "j", expected)
    whole(warehouse, "j", expected, paths)


def more_rows(said):
    said["views"]["ranks"][0]["rows"] = 10**13


def less_bytes(said):
    said["tables"]["events"][0]["bytes"] -= 1


def more_parts(said):
    part = dict(said["tables"]["events"][0])
    said["tables"]["events"].append(part | {"file": part["file"].replace("-000", "-001")})


def another_layout(said):
    said["layout"] = 10**6


@pytest.mark.parametrize("lie", [less_bytes, more_parts, another_layout])
def test_a_manifest_that_lies_of_its_files_leaves_its_source_out(warehouse, job, lie, processes):
    paths, expected = job
    m = of_rank(warehouse, 1)
    path = warehouse.job_folder("j") / "_manifests" / f"{m.id[:16]}.json"
    told = path.read_text()
    lying(path, lie)
    snapshot = warehouse.snapshot("j")
    assert [p.code for p in snapshot.problems] == ["bad_manifest"]
    assert rows(snapshot)["events"] == {r: expected["events"][r] for r in (0, 2, 3)}
    if lie is another_layout:  # a newer version's: not to be touched by this one
        path.write_text(told)
    assert processes.run("ingest", warehouse.path, paths, "j").error == ""
    whole(warehouse, "j", expected, paths)


def test_a_manifest_that_lies_of_its_rows_is_not_believed(warehouse, job, processes):
    paths, expected = job
    m = of_rank(warehouse, 1)
    path = warehouse.job_folder("j") / "_manifests" / f"{m.id[:16]}.json"
    told = path.read_text()
    lying(path, more_rows)
    for made in (warehouse.job_folder("j") / "_manifests").glob("derived-*"):
        made.unlink()
    came = processes.run("count", warehouse.path, "j", "collectives", limit_s=MOST_S)
    assert came.result == 12, came
    path.write_text(told)
    whole(warehouse, "j", expected, paths)


def test_a_manifest_that_lies_of_a_rank_takes_none_from_another_source(
    tmp_path, warehouse, job, processes
):
    paths, expected = job
    m = of_rank(warehouse, 1)
    path = warehouse.job_folder("j") / "_manifests" / f"{m.id[:16]}.json"
    told = path.read_text()
    # The later of two with a rank is left out, and it is said which and why.
    lying(
        path, lambda said: said.update(ranks=[1, 2], created_at_ns=said["created_at_ns"] + 10**18)
    )
    snapshot = warehouse.snapshot("j")
    assert "the later is left out" in snapshot.problems[0].message
    assert rows(snapshot)["events"] == {r: expected["events"][r] for r in (0, 2, 3)}
    # One that claims what nobody has is in nobody's way but that rank's own trace, which is told.
    lying(path, lambda said: said.update(ranks=[1, 9], created_at_ns=1))
    assert rows(warehouse.snapshot("j"))["events"] == expected["events"]
    nine = small_job.write(tmp_path / "nine", [9])
    came = processes.run("ingest", warehouse.path, nine, "j")
    assert (came.kind, "rank 9 of job j clashes" in came.error) == ("RankClash", True)
    path.write_text(told)
    whole(warehouse, "j", expected, paths)


def test_another_job_s_manifest_brings_nothing_in(warehouse, job):
    paths, expected = job
    theirs = warehouse.job_folder("other") / "_manifests"
    here = warehouse.job_folder("j")
    brought = [shutil.copy(path, here / "_manifests") for path in theirs.glob("*.json")]
    snapshot = warehouse.snapshot("j")
    assert len(snapshot.problems) == 4  # one of a source each; the derived one is not of this job
    assert rows(snapshot) == expected
    # With their files, too, they are later traces of the same ranks.
    for path in warehouse.job_folder("other").rglob("*.parquet"):
        goal = here / path.relative_to(warehouse.job_folder("other"))
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, goal)
    snapshot = warehouse.snapshot("j")
    assert all("the later is left out" in p.message for p in snapshot.problems)
    assert rows(snapshot) == expected
    for path in brought:
        (here / "_manifests" / path.rsplit("/", 1)[1]).unlink()
    whole(warehouse, "j", expected, paths)


def test_a_generation_that_lists_other_sources_is_made_again(warehouse, job, processes):
    paths, expected = job
    folder = warehouse.job_folder("j") / "_manifests"
    (path,) = folder.glob("derived-*")
    other = warehouse.snapshot("other").generation
    for change in (
        lambda said: said.update(sources=said["sources"][:3]),
        lambda said: said.update(sources=other.sources),
        lambda said: said.update(sources=[]),
    ):
        lying(path, change)
        came = processes.run("count", warehouse.path, "j", "collectives", limit_s=MOST_S)
        assert came.result == 12, came
        whole(warehouse, "j", expected, paths)


def test_another_job_s_derived_tables_under_this_one_s_name_are_not_taken(warehouse, job):
    paths, expected = job
    here, theirs = warehouse.job_folder("j"), warehouse.job_folder("other")
    mine, other = warehouse.snapshot("j").generation, warehouse.snapshot("other").generation
    path = here / "_manifests" / f"derived-{mine.id}.json"
    path.write_text((theirs / "_manifests" / f"derived-{other.id}.json").read_text())
    for part in other.parts:
        shutil.copy(theirs / part.file, here / part.file)
    whole(warehouse, "j", expected)
    whole(warehouse, "j", expected, paths)


def test_a_manifest_s_size_is_bounded(warehouse, job):
    paths, expected = job
    path = warehouse.job_folder("j") / "_manifests" / f"{'0' * 16}.json"
    with path.open("wb") as f:
        f.truncate(MAX_MANIFEST_BYTES + 1)
    snapshot = warehouse.snapshot("j")
    assert [p.code for p in snapshot.problems] == ["bad_manifest"]
    assert rows(snapshot) == expected
    path.unlink()
    whole(warehouse, "j", expected, paths)


def test_a_flipped_bit_is_found_and_its_source_comes_again(warehouse, job, processes):
    from retime.analysis.warehouse import Warehouse as Door

    paths, expected = job
    file = of_rank(warehouse, 1).tables["events"][0].file
    path = warehouse.job_folder("j") / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    door = Door(str(warehouse.path))
    found = door.verify(["j"], deep=True)
    assert found.filter(found["severity"] == "lost")["file"].to_list() == [file]
    door.verify(["j"], deep=True, repair=True)
    assert rows(warehouse.snapshot("j"))["events"] == {r: expected["events"][r] for r in (0, 2, 3)}
    came = processes.run("ingest", warehouse.path, paths, "j")
    assert sorted(came.result) == ["already"] * 3 + ["new"]
    whole(warehouse, "j", expected)


def test_objects_that_are_cut_or_lie(in_store, job, processes):
    paths, expected = job
    warehouse = Warehouse(in_store.new("w"))
    assert processes.run("ingest", str(warehouse.root), paths, "j", **in_store.meets).error == ""
    folder = warehouse.folder("j")
    generation = warehouse.snapshot("j").generation
    file = f"_manifests/derived-{generation.id}.json"
    said = json.loads(folder.read(file, 1 << 20))
    folder.put(file, json.dumps(said | {"sources": said["sources"][:3]}).encode())
    meets = {**in_store.meets, "limit_s": MOST_S}
    assert processes.run("derive", str(warehouse.root), "j", **meets).result is True
    whole(warehouse, "j", expected)
    part = of_rank(warehouse, 1).tables["events"][0].file
    folder.put(part, folder.read(part, 1 << 20)[:-1])
    snapshot = warehouse.snapshot("j")
    assert "ingest it again" in snapshot.problems[0].message
    assert rows(snapshot)["events"] == {r: expected["events"][r] for r in (0, 2, 3)}
    came = processes.run("ingest", str(warehouse.root), paths, "j", **in_store.meets)
    assert sorted(came.result) == ["already"] * 3 + ["new"]
    whole(warehouse, "j", expected, paths)
