"""Text of a stream that is kept for a while, round and round in one piece of memory."""

from __future__ import annotations

import gzip
import io

import numpy as np
import pytest
from retime.ingest.gunzip import Gunzip, piece
from retime.ingest.kineto import args
from retime.ingest.kineto.args import KeepingStream
from retime.ingest.kineto.blocks import Ahead

TEXT = np.random.default_rng(5).bytes(50_000)


def read(stream, sizes) -> bytes:
    out, k = b"", 0
    while n := stream.readinto(buffer := bytearray(sizes[k % len(sizes)])):
        out += bytes(buffer[:n])
        k += 1
    return out


@pytest.mark.parametrize("kept", [1, 999, 20_000, 50_000, 1 << 20])
def test_the_newest_text_is_at_hand(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    monkeypatch.setattr(args, "KEPT_BYTES", kept)
    stream = KeepingStream(io.BytesIO(TEXT))
    done = b""
    for size in (1, 700, 4000, 30_000):
        buffer = bytearray(size)
        assert stream.readinto(buffer) == size
        done += bytes(buffer)
        first = max(0, len(done) - kept)
        for at in {first, first + kept // 3, len(done) - 1}:
            assert stream.text_at(at) == done[at:]
        assert stream.text_at(len(done)) == b""
        if first:
            assert stream.text_at(first - 1) == b""
    assert done == TEXT[: len(done)]
    stream.stop_keeping()
    assert stream.text_at(len(done) - 1) == b""
    assert done + read(stream, [1000]) == TEXT


def test_no_more_than_an_event_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(args, "MAX_EVENT_BYTES", 100)
    stream = KeepingStream(io.BytesIO(TEXT))
    read(stream, [7000])
    assert stream.text_at(40_000) == TEXT[40_000:40_100]


@pytest.mark.parametrize("block_bytes", [1, 10_000, 1 << 20])
def test_pieces_go_through_whole_and_in_order(
    monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr("retime.ingest.gunzip.OUT_BYTES", 777)
    text = TEXT * 3

    def inflated() -> Gunzip:
        members = gzip.compress(text[:60_000]) + gzip.compress(text[60_000:])
        return Gunzip(io.BytesIO(members), "a")

    whole = inflated()
    start = bytearray(1000)
    assert whole.readinto(start) == 1000
    parts = [bytes(start), *iter(lambda: piece(whole), b"")]
    assert b"".join(parts) == text
    assert max(map(len, parts)) <= 1000
    assert (whole.cut, whole.corrupt, whole.trailing) == (False, None, False)
    ahead = Ahead(inflated(), block_bytes)  # type: ignore[arg-type]
    try:
        assert read(KeepingStream(ahead), [1, 5000, 300]) == text
    finally:
        ahead.close()
