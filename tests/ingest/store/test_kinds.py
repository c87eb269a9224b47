"""Addresses that no warehouse can have are refused at every door, in one sentence and at once."""

import importlib.util
import logging

import pytest
import retime
from retime.cli import run
from retime.ingest import kinds
from retime.ingest.errors import UsageError
from retime.ingest.store import folder
from retime.ingest.upload import entry, handler

WRONG = {
    "http://127.0.0.1:1/w": "a web address is no warehouse; name s3://BUCKET/FOLDER, and the "
    "server that has it by AWS_ENDPOINT_URL",
    "https://user:hunter2@h/w": "https://h/w: a web address is no warehouse",
    "HTTP://h/w": "a web address",
    "s3:/bucket/w": "one slash behind s3:",
    "gs:/bucket/w": "one slash behind gs:",
    "file:/tmp/w": "write file:///path",
    "FILE:///tmp/w": "small letters",
    "ftp://127.0.0.1:1/w": "ftp:// is no store for a warehouse",
    "sftp://h/w": "no store",
    "nonsense://h/w": "no store",
}


@pytest.mark.parametrize("address", WRONG)
def test_doors_in_python(address, tmp_path):
    for door in (retime.open, folder, entry.check_address):
        with pytest.raises(UsageError) as e:
            door(address)
        assert WRONG[address] in str(e.value)
        assert "hunter2" not in str(e.value)
    with pytest.raises(UsageError):
        retime.upload(tmp_path, to=address, job="j", spool=tmp_path / "spool")


@pytest.mark.parametrize("address", WRONG)
def test_doors_on_the_command_line(address, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_text("{}")
    commands = (["ingest", "t.json", "--job", "j", "--warehouse"], ["jobs", "--warehouse"],
                ["upload", "t.json", "--job", "j", "--spool", "spool", "--to"])  # fmt: skip
    for command in commands:
        assert run([*command, address]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert WRONG[address] in said
    assert [p.name for p in tmp_path.iterdir() if p.name != "spool"] == ["t.json"]


def test_a_handler_logs_it(tmp_path, caplog):
    with caplog.at_level(logging.ERROR, "retime.upload"):
        made = handler.trace_handler("ftp://h/w", "j", spool=tmp_path)
    assert made.to == ""
    assert "ftp:// is no store for a warehouse" in caplog.text


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_an_endpoint_without_a_scheme(name, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv(name, "minio.example:9000")
    for door in (retime.open, folder, entry.check_address):
        with pytest.raises(UsageError, match=f"{name} is 'minio.example:9000': it needs http://"):
            door("s3://bucket/w")
    folder("memory://bucket/w")
    monkeypatch.setenv(name, "http://minio.example:9000")
    folder("s3://bucket/w")


def test_a_package_that_is_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"pip install gcsfs$"):
        retime.open("gs://bucket/w")
    with pytest.raises(UsageError, match=r"pip install 'retime\[s3\]'$"):
        retime.open("s3://bucket/w")
    # An upload is kept for later: the package may come.
    assert entry.check_address("gs://bucket/w") == "gs://bucket/w"


def test_addresses_that_can_be(tmp_path, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    good = ("s3://b/w", "S3://b/w", "s3a://b", "abfss://c@a/w", "memory://w", "viewfs://n/w", "w",
            "./a:b/c", "C:/w", "with:colon", f"file://{tmp_path}", "relative/s3:/x")  # fmt: skip
    for address in good:
        kinds.check(address)
