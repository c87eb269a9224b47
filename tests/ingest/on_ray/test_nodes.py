"""What a node must see and have, and the sentence for one that does not."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from retime.ingest.on_ray import ClusterError, Seen, nodes, staged
from retime.ingest.sources import find_sources


def test_a_shared_folder_is_told_by_what_lies_in_it(tmp_path: Path) -> None:
    with nodes.shared_folder(tmp_path) as wanted:
        assert nodes.unseen(wanted) == ""
        (token,) = tmp_path.iterdir()
        assert nodes.unseen([w for w in wanted if w.made]) == ""
        assert list(tmp_path.iterdir()) == [token]  # what was tried is gone again
        token.write_text("of another machine")
        assert nodes.unseen(wanted) == f"has another {tmp_path} than this machine"
        token.unlink()
        assert nodes.unseen(wanted).startswith(f"does not see {tmp_path} (No such file")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    said = nodes.unseen([Seen(str(file), made=True)])
    assert said == f"cannot write into {file} (Not a directory)"


def test_a_file_is_told_by_its_size(tmp_path: Path) -> None:
    file = tmp_path / "rank0.json"
    file.write_bytes(b"12345")
    wanted = nodes.shared_files([str(file), str(file), str(tmp_path / "gone")])
    assert wanted == [Seen(str(file), 5)]
    assert nodes.unseen(wanted) == ""
    file.write_bytes(b"123456")
    assert nodes.unseen(wanted) == f"has another {file} (6 bytes, here 5)"
    file.unlink()
    assert nodes.unseen(wanted) == f"does not see {file} (No such file or directory)"


def test_of_many_files_one_of_each_folder_comes_first(tmp_path: Path, monkeypatch) -> None:
    files = [tmp_path / folder / name for folder in "ab" for name in "xyz"]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"1")
    monkeypatch.setattr(nodes, "MOST_SEEN", 3)
    seen = nodes.shared_files(map(str, files))
    assert [Path(s.path).relative_to(tmp_path).as_posix() for s in seen] == ["a/x", "b/x", "a/y"]


def test_a_worker_looks_once_for_what_it_has_found(tmp_path: Path) -> None:
    file = tmp_path / "x"
    wanted = [tuple(Seen(str(file), 1))]
    assert nodes.unseen_once(wanted)
    file.write_bytes(b"1")
    assert nodes.unseen_once(wanted) == ""
    file.unlink()
    assert nodes.unseen_once(wanted) == ""
    assert nodes.unseen_once([*wanted, *wanted])


def test_versions_must_be_the_same() -> None:
    here = nodes.versions()
    assert set(here) == set(nodes.PACKAGES)
    nodes._same_versions("10.0.0.3", here, here)
    with pytest.raises(ClusterError, match=r"node 10\.0\.0\.3 has polars 0\.1, this machine "):
        nodes._same_versions("10.0.0.3", {**here, "polars": "0.1"}, here)
    missing = {"retime": "missing: ModuleNotFoundError: No module named 'retime'"}
    with pytest.raises(ClusterError, match=r"has no retime \(ModuleNotFoundError: .*install "):
        nodes._same_versions("10.0.0.3", missing, here)


def test_the_files_behind_sources(tmp_path: Path, demo_job: Path) -> None:
    plain, packed = demo_job / "rank0.json.gz", tmp_path / "more.zip"
    with zipfile.ZipFile(packed, "w") as z:
        z.write(demo_job / "rank1.json.gz", "rank1.json.gz")
    sources = list(find_sources([str(plain), str(packed)], lambda name, problem: None))
    assert [staged.paths_of(s) for s in sources] == [[str(plain)], [str(packed)]]


def test_each_try_of_a_source_has_a_folder_of_its_own(tmp_path: Path, demo_job: Path) -> None:
    (source,) = find_sources([str(demo_job / "rank0.json.gz")], lambda name, problem: None)
    task = (source, "kineto", "retime.ingest.kineto", None, 1, 1, str(tmp_path / "0"))
    first, second = (staged.stage_afresh(*task, lambda done: None) for _ in range(2))
    assert first.manifest.parts == second.manifest.parts
    assert first.moves != second.moves
    for done in (first, second):
        sizes = {goal: (tmp_path / "0" / file).stat().st_size for file, goal in done.moves}
        assert sizes == {p.file: p.bytes for p in done.manifest.parts}
