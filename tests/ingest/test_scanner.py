"""The compiled scan: equal to the reference wherever blocks, batches and files are cut."""

import gzip
import io
import json
import os
import random
import re
import subprocess
import sys
import tarfile
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.ingest.errors import UnusableInput
from retime.ingest.kineto import scanner
from retime.ingest.kineto.blocks import Window, prefetch
from retime.ingest.kineto.rawbatch import Envelope

HERE = Path(__file__).resolve().parent

SMALL = b"""{"schemaVersion": 1, "note": "a \\"traceEvents\\": [ in a string",
  "traceEvents": [
  {
    "ph": "X", "cat": "kernel", "name": "ncclDevKernel(a, \\u00e9)", "pid": 0, "tid": 7,
    "ts": 6322354292522.072, "dur": 88.128,
    "args": {
      "External id": 912,"device": 1, "Input Dims": [[1, 2], ["}", []]], "grid": [2, 3, 4],
      "Process Group Ranks": "[0, 2]", "Comms Id": 18446744073709551615, "x": -1.5e-3
    }
  },
  {"ph": "C", "name": "mem", "pid": "Spans", "tid": "", "ts": 3, "args": {"a": {"b": [1]}}},
  {},
  {"ph": "i", "s": "g", "name": "last", "ts": -1.0005, "args": {}}
  ],
  "traceName": "t.json"
}"""


@pytest.fixture(scope="module")
def read():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        from readers import read as by
    return by


def test_small_file_by_hand(read):
    rows, envelope, problems = read("scanner", SMALL)
    assert rows == [
        {
            "ph": "X", "cat": "kernel", "name": "ncclDevKernel(a, é)", "pid": 0, "tid": 7,
            "ts_ns": 6_322_354_292_522_072, "dur_ns": 88_128, "external_id": 912, "device": 1,
            "grid": 24, "pg_ranks": "[0, 2]", "comms_id": -1, "offset": SMALL.index(b"  {\n") + 2,
        },
        {
            "ph": "C", "name": "mem", "pid_sym": "Spans", "tid_sym": "", "ts_ns": 3000,
            "extra": {"a": {"b": [1]}}, "offset": SMALL.index(b'{"ph": "C"'),
        },
        {"offset": SMALL.index(b"{},")},
        {"ph": "i", "name": "last", "ts_ns": -1000, "offset": SMALL.index(b'{"ph": "i"')},
    ]  # fmt: skip
    assert problems == []
    assert envelope.array_end == SMALL.index(b'],\n  "traceName')
    assert envelope.parse()["traceName"] == "t.json"


@pytest.mark.parametrize("reader", ["lenient", "quick", "scanner"])
def test_cut_at_every_byte_keeps_what_came_before(read, reader):
    whole, _, _ = read("lenient", SMALL)
    ends = [SMALL.index(b"\n  },") + 4, SMALL.index(b"}},") + 2, SMALL.index(b"{},") + 2]
    ends.append(SMALL.index(b"{}}\n") + 3)
    array = SMALL.index(b"[\n  {\n") + 1
    close = SMALL.index(b'],\n  "traceName') + 1
    for cut in range(len(SMALL)):
        if cut < array:
            with pytest.raises(UnusableInput):
                read(reader, SMALL[:cut])
            continue
        rows, envelope, problems = read(reader, SMALL[:cut])
        kept = sum(e <= cut for e in ends)
        assert rows == whole[:kept], cut
        (problem,) = problems
        assert (problem.code, problem.severity, problem.count) == ("truncated", "lost", 1)
        if cut < close:
            assert envelope.array_end is None
            # The cut event's own brace, or the end where the cut fell between events.
            begun = [r["offset"] for r in whole[kept:] if r["offset"] < cut]
            assert problem.offset in (*begun, cut) or SMALL[problem.offset : cut].isspace()
        else:
            assert problem.offset == cut


@pytest.mark.parametrize("reader", ["lenient", "quick", "scanner"])
def test_any_block_and_batch_size(read, reader):
    expected = read("lenient", SMALL)
    for block in (1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 100, 127, 256, 500, len(SMALL), 10_000):
        for batch in (1, 2, 100):
            assert read(reader, SMALL, block_bytes=block, batch_rows=batch) == expected


def test_every_block_size_with_broken_events(read):
    data = (
        b'[{"ph":"X","name":"a "b" c","ts":1},{"ts":NaN},{"ts":true}, 5, {"a":"' + b"\\" * 9
        + b'""},{"ts":2,"ts":3,"args":{"name":"x\ty"}},{"ph":"C","args":{"v":1,}},{"x":[{"ts":4}'
    )  # fmt: skip
    expected = read("lenient", data)
    assert len(expected[0]) == 6
    for block in range(1, len(data) + 2):
        assert read("scanner", data, block_bytes=block) == expected
        assert read("quick", data, block_bytes=block)[:2] == expected[:2]


def kineto_files(root: Path):
    """(name, bytes) of every JSON file in the folder of real traces."""
    for path in sorted((root / "kineto").rglob("*")):
        if path.name.endswith(".tar.gz"):
            with tarfile.open(path) as tar:
                for member in tar:
                    if member.isfile():
                        yield f"{path}!{member.name}", tar.extractfile(member).read()
        elif path.suffix == ".gz":
            yield str(path), gzip.decompress(path.read_bytes())
        elif path.suffix == ".json":
            yield str(path), path.read_bytes()


def test_real_files_equal_the_standard_library(read, retime_traces):
    """A direct reading by json with Decimal is the oracle; large files are read up to a cut."""
    seen = 0
    for name, data in kineto_files(retime_traces):
        if b'"traceEvents"' not in data:
            continue
        whole = len(data) < 2_000_000
        if not whole:
            *_, last = re.finditer(rb'\}(?=\s*,\s*\{\s*"(?:ph|name|cat)")', data[:1_200_000])
            data = data[: last.end()] + b"]}"
        events = json.loads(data, parse_float=Decimal)["traceEvents"]
        rows, envelope, problems = read("scanner", data)
        assert len(rows) == len(events), name
        for row, event in zip(rows, events, strict=True):
            args = event.get("args") or {}
            assert row.get("ph") == event.get("ph")
            assert row.get("name") == event.get("name")
            assert row.get("cat") == event.get("cat")
            for key, column in (("ts", "ts_ns"), ("dur", "dur_ns")):
                exact = event.get(key)
                exact = None if exact is None else int((Decimal(exact) * 1000).to_integral_value())
                assert row.get(column) == exact
            for key in ("pid", "tid"):
                assert row.get(key, row.get(key + "_sym")) == event.get(key)
            for key, column in (("External id", "external_id"), ("correlation", "correlation")):
                exact = args.get(key)
                assert row.get(column) == (None if exact is None else int(exact))
            assert row.get("pg_ranks") == args.get("Process Group Ranks")
            assert data[row["offset"] : row["offset"] + 1] == b"{"
        assert read("quick", data)[:2] == (rows, envelope), name
        assert read("scanner", data, block_bytes=60_001, batch_rows=777) == (
            rows, envelope, problems,
        )  # fmt: skip
        if whole:
            assert read("lenient", data)[:2] == (rows, envelope), name
        assert all(p.code == "number_range" for p in problems), name
        seen += 1
    assert seen >= 20


SNIPPETS = [
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n", b" ", b"NaN", b"null", b"true", b"-",
    b".", b"e5", b"0", b"99999999999999999999", b"\xff", b"\x01", b"\x00", b"\\u00e9", b"\\ud800",
    b'"args": {', b'"ph": "C"', b'"name": "a"', b'},{"ph":"X"', b"Infinity", b'"stream": "0x1f"',
    b',"ts":1e3', b'"bytes": 4, "Bytes": null', b"1.5", b'"grid": [1,2]', b'"pid": "x"', b'"""',
]  # fmt: skip


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(SMALL)), st.integers(0, 25), st.sampled_from([b"", *SNIPPETS])
        ),
        max_size=5,
    ),
    st.integers(1, 700),
    st.sampled_from([1, 3, 100]),
)
@settings(max_examples=2 * settings.default.max_examples, deadline=None)
def test_mutated_files_read_the_same_by_all(read, edits, block, batch):
    data = SMALL
    for at, cut, put in edits:
        data = data[:at] + put + data[at + cut :]

    def outcome(reader, **options):
        try:
            rows, envelope, _ = read(reader, data, **options)
        except UnusableInput as e:
            return str(e)
        return repr((rows, envelope))

    expected = outcome("lenient")
    assert outcome("scanner") == expected
    assert outcome("quick") == expected
    for reader in ("lenient", "quick", "scanner"):
        assert outcome(reader, block_bytes=block, batch_rows=batch) == expected


def test_no_load_leaves_the_buffer(tmp_path):
    """Fuzzed bytes under bounds checks, compiled apart from the unchecked code."""
    env = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    # Less optimisation compiles faster; the checks are the same.
    env["NUMBA_OPT"] = "1"
    done = subprocess.run(
        [sys.executable, str(HERE / "scan_checked.py")], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "checked" in done.stdout


def test_many_symbols_and_rows(read):
    """The tables grow in the middle of a batch, and one string may be longer than all of them."""
    long = "y" * 700_000
    events = [{"name": f"name {i % 30_011} {'z' * (i % 90)}", "ts": i} for i in range(40_000)]
    events[20_000]["name"] = long
    data = json.dumps(events).encode()
    envelope = Envelope()
    at = 0
    for batch in scanner.read_events(data, envelope, print, batch_rows=9_000):
        names = [batch.symbols.text(c) for c in batch.cols["name"].tolist()]
        assert names == [e["name"] for e in events[at : at + batch.n]]
        at += batch.n
    assert at == 40_000


def test_streams_that_give_a_little_at_a_time(read):
    class Trickle(io.RawIOBase):
        def __init__(self):
            self.left = io.BytesIO(SMALL)
            self.rng = random.Random(1)

        def readable(self):
            return True

        def readinto(self, target):
            part = self.left.read(self.rng.randint(1, 9))
            target[: len(part)] = part
            return len(part)

    expected = read("lenient", SMALL)
    assert read("scanner", Trickle()) == expected
    with gzip.open(io.BytesIO(gzip.compress(SMALL))) as unzipped:
        assert read("scanner", unzipped) == expected
    assert read("scanner", memoryview(bytearray(SMALL))) == expected


def test_window_shrinks_again_after_a_long_event():
    window = Window(b"x" * 100_000, 100)
    window.advance(0)
    for _ in range(8):
        window.advance(0)
    grown = len(window.data)
    assert grown > 20_000
    window.advance(window.n)
    assert len(window.data) < 300


def test_prefetch_gives_the_same_and_stops():
    assert list(prefetch(iter(range(100)), depth=2)) == list(range(100))

    def failing():
        yield 1
        raise UnusableInput("here")

    items = prefetch(failing())
    assert next(items) == 1
    with pytest.raises(UnusableInput):
        next(items)

    closed = []

    def endless():
        try:
            while True:
                yield 0
        finally:
            closed.append(True)

    items = prefetch(endless())
    assert next(items) == 0
    items.close()
    assert closed == [True]
