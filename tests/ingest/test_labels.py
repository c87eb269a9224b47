"""Tags and notes: kept, bounded, by several at once, and damaged ones say so."""

import threading

import pytest
from retime.ingest import labels, store
from retime.ingest.errors import UsageError, WarehouseError


@pytest.fixture
def job(tmp_path):
    (tmp_path / "job=j").mkdir()
    return store.folder(tmp_path / "job=j")


def test_tags_are_set_changed_and_removed(job):
    assert labels.read(job) == labels.Labels()
    labels.tag(job, {"cluster": "a", "keep": ""}, author="ann")
    said = labels.tag(job, {"cluster": "b"}, author="bob")
    assert said.values == {"cluster": "b", "keep": ""}
    assert (said.tags["cluster"].author, said.tags["keep"].author) == ("bob", "ann")
    assert labels.tag(job, remove=["keep"]).values == {"cluster": "b"}
    assert labels.read(job).values == {"cluster": "b"}
    assert said.tags["cluster"].at_ns > 1_600_000_000 * 10**9


def test_the_same_again_changes_nothing(job):
    first = labels.tag(job, {"a": "1"}, author="ann")
    assert labels.tag(job, {"a": "1"}, author="bob") == first
    assert len(job.names(labels.FOLDER)) == 1


def test_superseded_files_go_later(job, monkeypatch):
    for n in range(8):
        labels.note(job, f"note {n}", author="ann")
    assert len(job.names(labels.FOLDER)) == 8
    monkeypatch.setattr(labels, "KEPT_S", 0.0)
    labels.note(job, "note 8", author="ann")
    assert job.names(labels.FOLDER) == ["000009.json"]
    assert [n.text for n in labels.read(job).notes] == [f"note {n}" for n in range(9)]


def test_notes_are_removed_by_number(job):
    for text in ("one", "two\nlines", "three"):
        labels.note(job, text)
    assert [n.text for n in labels.remove_note(job, 2).notes] == ["one", "three"]
    with pytest.raises(UsageError, match="no note 3: the job has 2"):
        labels.remove_note(job, 3)


@pytest.mark.parametrize("key", ["", "-x", "a b", "a=b", "../x", "x" * 65, "é", "a\x00", "a\n"])
def test_names_that_cannot_be(job, key):
    with pytest.raises(UsageError, match="is not usable"):
        labels.tag(job, {key: "1"})
    assert job.names(labels.FOLDER) == []


def test_bounds(job, monkeypatch):
    with pytest.raises(UsageError, match="at most 1000"):
        labels.tag(job, {"a": "x" * 1001})
    with pytest.raises(UsageError, match="not UTF-8"):
        labels.tag(job, {"a": "\udcff"})
    with pytest.raises(UsageError, match="at most 64"):
        labels.tag(job, {f"t{n}": "" for n in range(65)})
    with pytest.raises(UsageError, match="at most 8000"):
        labels.note(job, "x" * 8001)
    with pytest.raises(UsageError, match="empty"):
        labels.note(job, " \n")
    with pytest.raises(UsageError, match="no tag 'b' to remove: the job has no tags"):
        labels.tag(job, remove=["b"])
    monkeypatch.setattr(labels, "MOST_NOTES", 1)
    labels.note(job, "one")
    with pytest.raises(UsageError, match="takes no more"):
        labels.note(job, "two")
    assert labels.parse(["a=b=c", "keep"]) == {"a": "b=c", "keep": ""}


def test_of_many_at_once_none_is_lost(job):
    def say(n):
        for k in range(5):
            labels.tag(job, {f"t{n}.{k}": str(k)})
            labels.note(job, f"{n} {k}")

    threads = [threading.Thread(target=say, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    said = labels.read(job)
    assert set(said.values) == {f"t{n}.{k}" for n in range(6) for k in range(5)}
    assert len(said.notes) == 30


@pytest.mark.parametrize("text", [b"\0\xff", b"[" * 100_000, b'{"tags": 3}', b""])
def test_damaged_labels_say_so_and_are_not_overwritten(job, text):
    labels.tag(job, {"a": "1"})
    job.put("_labels/000002.json", text)
    said = labels.read(job)
    assert said.values == {}
    assert "000002.json: not labels" in said.problem
    with pytest.raises(WarehouseError, match="not labels"):
        labels.tag(job, {"b": "2"})
    assert job.read("_labels/000002.json", 1 << 20) == text


def test_what_is_beyond_the_bounds_is_left_out(job):
    tags = {f"k{n:03d}": {"value": "v" * 5000, "author": "a" * 500, "at_ns": 1} for n in range(99)}
    tags["no good"] = {"value": "", "author": "", "at_ns": 1}
    import msgspec

    job.put("_labels/000007.json", msgspec.json.encode({"tags": tags, "notes": []}))
    said = labels.read(job)
    assert len(said.tags) == labels.MOST_TAGS
    assert {len(t.value) for t in said.tags.values()} == {labels.LONGEST_VALUE}
    assert "no good" not in said.tags


def test_a_file_in_the_folders_place_is_said(job):
    job.put("_labels", b"not a folder")
    assert "cannot be read" in labels.read(job).problem
    with pytest.raises(WarehouseError):
        labels.tag(job, {"a": "1"})
