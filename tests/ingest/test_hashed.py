"""What is hashed while it is read: the digest is that of the bytes, and nothing is read twice."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import time
from pathlib import Path

import numpy as np
import pytest
from retime.ingest.hashed import Hashed
from retime.ingest.kineto import blocks, parser, quick, scanner
from retime.ingest.kineto.rawbatch import Envelope
from retime.ingest.source import Source
from retime.ingest.sources import find_sources
from retime.ingest.warehouse import Warehouse

BYTES = np.random.default_rng(3).bytes(100_000)
EVENT = '{"ph": "X", "cat": "kernel", "name": "k%d", "pid": 0, "tid": 7, "ts": %d, "dur": 1}'


KNOWN = '"distributedInfo": {"rank": 3}, "baseTimeNanoseconds": 0'


def trace(n: int, meta: str = KNOWN) -> bytes:
    events = ",\n".join(EVENT % (i % 5, 1000 + i) for i in range(n))
    return f'{{{meta}, "traceEvents": [{events}]}}\n'.encode()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("beside", [False, True])
def test_the_digest_is_told_once_all_was_read(beside: bool) -> None:
    told: list[str] = []
    stream = Hashed(io.BytesIO(BYTES), told.append, beside)
    buffers = [bytearray(999), bytearray(999)]
    out = stream.read(10)
    k = 0
    while n := stream.readinto(buffers[k % 2]):
        out += bytes(buffers[k % 2][:n])
        k += 1
    assert (out, told) == (BYTES, [])
    stream.close()
    stream.close()
    assert told == [sha256(BYTES)]


@pytest.mark.parametrize("beside", [False, True])
def test_no_digest_of_what_was_not_read_to_its_end(beside: bool) -> None:
    told: list[str] = []
    stream = Hashed(io.BytesIO(BYTES), told.append, beside)
    stream.read(len(BYTES))  # that these are all, nobody has seen
    assert stream.read(0) == b""
    stream.close()
    assert told == []
    whole = Hashed(io.BytesIO(BYTES), told.append, beside)
    assert whole.read() == BYTES
    whole.close()
    assert told == [sha256(BYTES)]


class Slow:
    """A digest that looks at what it is given late."""

    def __init__(self) -> None:
        self.seen = b""

    def update(self, part: memoryview) -> None:
        time.sleep(0.002)
        self.seen += bytes(part)

    def hexdigest(self) -> str:
        return sha256(self.seen)


@pytest.mark.parametrize("block_bytes", [64, 1000, 4096, 1 << 20])
@pytest.mark.parametrize("short", [0, 300])
def test_no_byte_is_written_over_before_it_is_hashed(block_bytes: int, short: int) -> None:
    data = trace(500, '"x": "' + "y" * 3000 + '"')  # windows grow, and come to their size again

    class Short(io.BytesIO):
        def readinto(self, buffer) -> int:
            view = memoryview(buffer)
            return super().readinto(view[: short or len(view)])

    told: list[str] = []
    stream = Hashed(Short(data), told.append, beside=True)
    stream._hash = Slow()  # type: ignore[assignment]
    batches = quick.read_events(stream, Envelope(), lambda p: None, block_bytes=block_bytes)
    starts = [t for b in batches for t in b.cols["ts_ns"].tolist()]
    stream.close()
    assert starts == [1000 * (1000 + i) for i in range(500)]
    assert told == [sha256(data)]


def test_windows_are_filled_by_turns_only_beside_a_hash() -> None:
    for beside, n_arrays in ((False, 1), (True, 2)):
        window = blocks.Window(Hashed(io.BytesIO(BYTES), lambda d: None, beside), 1000)
        seen, out = set(), b""
        while not window.eof:
            window.advance(window.n)
            seen.add(window.data.ctypes.data)
            out += bytes(window.view[: window.n])
            assert not window.data[window.n : window.n + blocks.PAD].any()
        assert (len(seen), out) == (n_arrays, BYTES)


def counted(source: Source) -> list[int]:
    """The source opens as before; how often is in the list."""
    opened, opens = source.open_stored, [0]

    def open_stored():
        opens[0] += 1
        return opened()

    source.open_stored = open_stored
    return opens


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("read", [quick.read_events, scanner.read_events])
def test_parsing_hashes_what_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, packed: bool, read
) -> None:
    data = gzip.compress(trace(300)) if packed else trace(300)
    path = tmp_path / ("a.json.gz" if packed else "a.json")
    path.write_bytes(data)
    monkeypatch.setattr(parser, "reader", lambda source: (read, True))
    (source,) = find_sources([str(path)], lambda name, problem: None)
    source = dataclasses.replace(source)
    opens = counted(source)
    for _ in parser.parse(source, threads=threads):
        pass
    assert opens == [1]
    assert source.sha256 == sha256(data)
    assert opens == [1]


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "b.json.gz"])
def test_a_manifest_has_the_digest_of_all_that_is_stored(tmp_path: Path, name: str) -> None:
    data = trace(300)
    if name.endswith(".gz"):
        # What follows the compressed data is not read; it is in the digest all the same.
        data = gzip.compress(data) + (b"no gzip" * 300_000 if name == "b.json.gz" else b"")
    path = tmp_path / name
    path.write_bytes(data)
    warehouse = Warehouse(tmp_path / "warehouse")
    from retime.ingest.run import ingest

    report = ingest(warehouse, [str(path)], job="j")
    assert [s.status for s in report.sources] == ["new"]
    (manifest,), _ = warehouse.manifests("j")
    assert manifest.sha256 == sha256(data)
    assert ingest(warehouse, [str(path)], job="j").sources[0].status == "already"
