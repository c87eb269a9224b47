"""Lines of a source: offsets, ends, bounds, damage."""

import gzip
import io
import random

import pytest
from retime.ingest import texts
from retime.ingest.errors import UnusableInput
from retime.ingest.source import Source


def source_of(data, compressed=False):
    return Source("x", len(data), lambda: io.BytesIO(data), compressed=compressed)


def read(data, most=texts.MAX_LINE_BYTES, **kw):
    odd = []
    found = list(texts.lines(source_of(data, **kw), lambda *a, **k: odd.append((*a, k)), most))
    return found, odd


def test_offsets_ends_and_the_line_without_one():
    found, odd = read(b"a\r\n\nbcd\nlast")
    assert found == [(0, b"a", True), (3, b"", True), (4, b"bcd", True), (8, b"last", False)]
    assert odd == []


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
def test_any_cut_into_blocks_gives_the_same(monkeypatch, block):
    rng = random.Random(block)
    data = b"".join(rng.choice((b"a", b"\n", b"\r\n", b"xyz")) for _ in range(300))
    monkeypatch.setattr(texts, "BLOCK", block)
    found, _ = read(data)
    at = 0
    for line, (offset, got, whole) in zip(data.split(b"\n"), found, strict=False):
        assert offset == at
        assert got == (line[:-1] if whole and line.endswith(b"\r") else line)
        at += len(line) + 1
    assert len(found) == data.count(b"\n") + (not data.endswith(b"\n"))


@pytest.mark.parametrize("block", [1, 4, 7, 60, 1 << 20])
def test_a_long_line_is_cut_and_said_once(monkeypatch, block):
    monkeypatch.setattr(texts, "BLOCK", block)
    found, odd = read(b"ab\n" + b"x" * 50 + b"\ncd\n1234567890\n" + b"y" * 11, most=10)
    assert found == [
        (0, b"ab", True),
        (3, b"x" * 10, True),
        (54, b"cd", True),
        (57, b"1234567890", True),
        (68, b"y" * 10, False),
    ]
    assert [(o[0], o[2], o[3]["offset"]) for o in odd] == [
        ("long_line", "lost", 3),
        ("long_line", "lost", 68),
    ]


def test_a_cut_gzip_stream_is_said():
    data = gzip.compress(b"one\ntwo\n" * 10_000)
    found, odd = read(data[: len(data) // 2], compressed=True)
    assert found[0] == (0, b"one", True)
    assert [o[0] for o in odd] == ["truncated"]


def test_whole_refuses_what_is_too_large():
    assert texts.whole(source_of(b"abc"), lambda *a, **k: None) == b"abc"
    with pytest.raises(UnusableInput, match="more than 1 MiB"):
        texts.whole(source_of(b"a" * (1 << 21)), lambda *a, **k: None, most=1 << 20)
