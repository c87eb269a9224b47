"""Where results are written: whole or not at all, and never in the place of what is no file."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from retime.analysis import outfile
from retime.ingest.errors import UsageError


def put(path: str | Path, content: bytes) -> None:
    with outfile.writing(path) as out:
        out.write(content)


def test_parents_are_made_and_nothing_else_is_left(tmp_path):
    put(tmp_path / "a" / "b" / "c.html", b"1")
    put(tmp_path / "a" / "b" / "c.html", b"2")
    assert (tmp_path / "a" / "b" / "c.html").read_bytes() == b"2"
    assert os.listdir(tmp_path / "a" / "b") == ["c.html"]


def test_a_block_that_fails_leaves_what_was_there(tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    with suppress(KeyError), outfile.writing(tmp_path / "f") as out:
        out.write(b"new")
        raise KeyError
    assert os.listdir(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"old"


def test_a_file_keeps_its_rights(tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    (tmp_path / "f").chmod(0o600)
    put(tmp_path / "f", b"new")
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_what_it_points_to_is_written(tmp_path, there):
    if there:
        (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    put(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_what_is_no_file_is_refused_and_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.mkdir("folder")
    os.symlink("pipe", "to-pipe")
    os.symlink("round", "round")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("socket")
    before = {n: os.lstat(n) for n in os.listdir()}
    for name, words in {
        "pipe": "is a pipe: name a file",
        "to-pipe": "is a pipe: name a file",
        "folder": "is a folder: name a file",
        "socket": "is a socket: name a file",
        "round": "cannot be written",
    }.items():
        with pytest.raises(UsageError, match=words):
            put(name, b"1")
    listening.close()
    after = {n: os.lstat(n) for n in os.listdir()}
    assert {n: (s.st_ino, s.st_mode) for n, s in after.items()} == {
        n: (s.st_ino, s.st_mode) for n, s in before.items()
    }


def test_a_device_is_refused():
    # Only asked about: nothing is written, whatever the answer.
    with pytest.raises(UsageError, match="is a device: name a file"):
        outfile.checked(os.devnull)


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "empty"), ("new/", "ends like a folder"), ("x" * 300, "too long"), ("a\0b", "null"),
     ("file/inner", "Not a directory")],
)  # fmt: skip
def test_names_that_no_file_can_have(tmp_path, monkeypatch, name, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match=words) as e:
        put(name, b"1")
    assert len(str(e.value)) < 200
    assert os.listdir() == ["file"]


def test_the_longest_name_is_written(tmp_path):
    put(tmp_path / ("é" * 127), b"1")
    assert os.listdir(tmp_path) == ["é" * 127]


def test_an_error_of_another_file_is_not_told_as_this_ones(tmp_path):
    with pytest.raises(FileNotFoundError), outfile.writing(tmp_path / "f"):
        (tmp_path / "other").read_bytes()
    assert os.listdir(tmp_path) == []


def test_folders(tmp_path):
    assert outfile.folder(tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="is no folder"):
        outfile.folder(tmp_path / "file")
    with pytest.raises(UsageError, match="empty"):
        outfile.folder("")
    with pytest.raises(UsageError, match="cannot be written"):
        outfile.folder(tmp_path / "file" / "below")
