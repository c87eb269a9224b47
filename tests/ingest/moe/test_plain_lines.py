"""Blocks of whole lines are all lines of a file once, at their offsets, and the file is hashed."""

import gzip
import hashlib
import random

import pytest
from retime.ingest.moe import plain_lines

from .conftest import source_of


def wanted(text):
    """(offset, line with its end) of each line of a text."""
    at, found = 0, []
    for line in text.splitlines(keepends=True):
        found.append((at, line if line.endswith(b"\n") else line + b"\n"))
        at += len(line)
    return found


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_each_line_comes_once_where_it_stands(tmp_path, monkeypatch, packed, threads):
    monkeypatch.setattr(plain_lines, "BLOCK", 16)
    monkeypatch.setattr(plain_lines, "BLOCK_BYTES", 40)
    monkeypatch.setattr(plain_lines, "_NEAR_BYTES", 2)
    path = tmp_path / "x"
    for seed in range(40):
        rng = random.Random(seed)
        longest = rng.choice([3, 20, 200])
        text = b"".join(
            bytes(rng.choices(b"abc", k=rng.randrange(longest))) + b"\n" for _ in range(60)
        )[: -rng.randrange(1, 3)]
        path.write_bytes(gzip.compress(text) if packed else text)
        source = source_of(path)
        found, held = [], []

        def odd(*told, **place):
            raise AssertionError(told)

        for at, lines in plain_lines.whole_lines(source, odd, threads):
            # As many blocks as threads read at once stay as they were.
            held = [*held, (at, lines, lines.text())][-threads:]
            assert all(block.text() == was for _, block, was in held)
            assert lines.bytes.size >= lines.n + plain_lines.PAD
            for line in lines.text().splitlines(keepends=True):
                found.append((at, line))
                at += len(line)
        assert found == wanted(text)
        assert source._sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_line_without_end_is_left_out_and_told(tmp_path, monkeypatch, end):
    monkeypatch.setattr(plain_lines, "BLOCK", 16)
    monkeypatch.setattr(plain_lines, "BLOCK_BYTES", 40)
    monkeypatch.setattr(plain_lines, "MAX_LINE_BYTES", 100)
    path = tmp_path / "x"
    first, last = b"one\n" * 13, b"two\n" * 30
    path.write_bytes(first + b"x" * 5000 + b"\n" + last + b"three" + end)
    told = []

    def odd(code, message, severity, offset):
        told.append((code, severity, offset))

    found = [(at, b.text()) for at, b in plain_lines.whole_lines(source_of(path), odd, 1)]
    assert b"".join(text for _, text in found) == first + last + b"three\n"
    assert told == [("long_line", "lost", len(first))]
    assert next(at for at, text in found if text.startswith(b"two")) == len(first) + 5001
