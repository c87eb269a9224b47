"""The text of calls is kept while a stream goes by, wherever its blocks and batches end."""

from __future__ import annotations

import gzip
import io
import json

import numpy as np
import pytest
from retime.ingest.gunzip import Gunzip
from retime.ingest.kineto import call_texts, lenient, quick, readers, scanner
from retime.ingest.kineto.args import args_in
from retime.ingest.kineto.blocks import Ahead
from retime.ingest.kineto.call_texts import CallTexts
from retime.ingest.kineto.rawbatch import Envelope

TEXT = np.random.default_rng(5).bytes(50_000)

EVENTS = [
    b'{"ph": "X", "name": "aten::mm", "ts": 1, "dur": 2, "args": {"n": 0}}',
    b'{"ph": "X", "name": "gloo:all_reduce", "ts": 2, "dur": 2, "args": {"n": 1}}',
    b'{"name": "c10d::\\u0061llreduce_", "ph": "X", "ts": 3, "dur": 1, "args": {"n": 2, "t": "}"}}',
    b'{"ph": "X", "name": "\\u006eccl:send", "ts": 3.5, "dur": 1, "args": {"n": 3}}',
    b'{"ph": "X", "name": "xccl:a", "ts": NaN, "dur": 1, "args": {"n": 4}}',
    b'{"ph": "X", "name": "ncclDevKernel", "ts": 4, "dur": 1, "args": {"n": 5}}',
    b'{"ph": "X", "name": "ProfilerStep#3", "ts": 5, "dur": 1, "args": {"name": "nccl:no"}}',
    b'{"ph": "X", "name": "mpi:last", "ts": 6, "dur": 1, "args": {"n": 7}}',
]
WANTED = {1: {"n": 1}, 2: {"n": 2, "t": "}"}, 3: {"n": 3}, 4: {"n": 4}, 7: {"n": 7}}
TRACE = b'{"traceEvents": [' + b" ,\n".join(EVENTS) + b"]}"


@pytest.mark.parametrize(
    "read", [lenient.read_events, quick.read_events, scanner.read_events, readers.read_both]
)
@pytest.mark.parametrize("block_bytes", [1, 64, 200, 1 << 20])
@pytest.mark.parametrize("batch_rows", [1, 3, 100])
def test_calls_and_no_others_are_kept(read, block_bytes: int, batch_rows: int) -> None:
    found, first = {}, 0
    batches = read(
        io.BytesIO(TRACE), Envelope(), lambda problem: None,
        batch_rows=batch_rows, block_bytes=block_bytes, call_texts=True,
    )  # fmt: skip
    for batch in batches:
        assert batch.n <= batch_rows
        texts = {first + row: batch.texts.at(row) for row in range(batch.n)}
        found |= {row: args_in(text) for row, text in texts.items() if text}
        for row, text in texts.items():
            assert not text or text.startswith(EVENTS[row])
        first += batch.n
    assert first == len(EVENTS)
    assert found == WANTED


def test_nothing_is_kept_where_nobody_wants_it() -> None:
    (batch,) = scanner.read_events(io.BytesIO(TRACE), Envelope(), lambda problem: None)
    assert batch.texts is None


def test_an_event_that_only_the_slow_path_takes() -> None:
    whole = EVENTS[4]
    assert lenient.parse_event(whole, 0, len(whole), final=True).notes  # or it tests nothing


def test_the_newest_texts_are_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_texts, "KEPT_BYTES", 250)
    monkeypatch.setattr(call_texts, "MAX_EVENT_BYTES", 100)
    texts, view = CallTexts(), memoryview(TEXT)
    texts.keep(4, view, 10, 30)
    texts.keep(6, view, 1000, 1500)
    texts.keep(7, view, 2000, 2100)
    assert [texts.at(row) for row in (3, 4, 6, 7)] == [
        b"", TEXT[10:30], TEXT[1000:1100], TEXT[2000:2100],
    ]  # fmt: skip
    texts.keep(9, view, 3000, 3050)
    assert [texts.at(row) for row in (4, 6, 7, 9)] == [
        b"", TEXT[1000:1100], TEXT[2000:2100], TEXT[3000:3050],
    ]  # fmt: skip


def test_what_cannot_be_read_has_no_args() -> None:
    assert args_in(b"") is None
    assert args_in(EVENTS[1][:-3]) is None
    assert args_in(b"[1]") is None
    assert args_in(b'{"args": 3}') is None
    assert args_in(EVENTS[1] + b" ,\n" + EVENTS[2]) == {"n": 1}
    assert args_in(EVENTS[1]) == json.loads(EVENTS[1])["args"]


def read_whole(stream, sizes) -> bytes:
    out, k = b"", 0
    while n := stream.readinto(buffer := bytearray(sizes[k % len(sizes)])):
        out += bytes(buffer[:n])
        k += 1
    return out


@pytest.mark.parametrize("block_bytes", [1, 10_000, 1 << 20])
def test_what_a_thread_inflates_comes_whole_and_in_order(
    monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr("retime.ingest.gunzip.OUT_BYTES", 777)
    text = TEXT * 3

    def inflated() -> Gunzip:
        members = gzip.compress(text[:60_000]) + gzip.compress(text[60_000:])
        return Gunzip(io.BytesIO(members), "a")

    whole = inflated()
    assert read_whole(whole, [1000, 1, 5000]) == text
    assert (whole.cut, whole.corrupt, whole.trailing) == (False, None, False)
    ahead = Ahead(inflated(), block_bytes)  # type: ignore[arg-type]
    try:
        assert read_whole(ahead, [1, 5000, 300]) == text
        assert ahead.readinto(bytearray(10)) == 0
    finally:
        ahead.close()
