"""The reader that starts at once: what it imports, and how it works round one bad event."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from retime.ingest.kineto import lenient, quick


@pytest.fixture
def read(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    from readers import read as by

    return by


def test_starts_without_the_compiler():
    code = (
        "import sys; from retime.ingest.kineto import quick; "
        "assert not {'numba', 'llvmlite', 'pandas', 'duckdb', 'polars'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_only_the_refused_events_are_read_again(read, monkeypatch):
    events = [
        b'{"ph":"X","name":"n%d","ts":%d.5,"args":{"stream":7}}' % (i, i) for i in range(9000)
    ]
    bad = {17, 4444, 8998}
    for i in bad:
        events[i] = events[i][:-2] + b',"x":NaN}}'
    again = []
    parse = lenient.parse_event

    def noting(buf, start, end, *, final):
        event = parse(buf, start, end, final=final)
        again.append(event.values["ts_ns"])
        return event

    monkeypatch.setattr(lenient, "parse_event", noting)
    rows, _, problems = read("quick", b"[" + b",\n".join(events) + b"]")
    assert [r["ts_ns"] for r in rows] == [i * 1000 + 500 for i in range(9000)]
    assert [(p.code, p.count) for p in problems] == [("malformed_event", 3)]
    wanted = {i * 1000 + 500 for i in bad}
    assert wanted <= set(again)
    # The few others are where a run of single events ended.
    assert len(again) < 60


def test_batches_are_bounded_and_in_order(read):
    data = b"[" + b",".join(b'{"ts":%d}' % i for i in range(1000)) + b"]"
    from retime.ingest.kineto.rawbatch import Envelope

    sizes = [b.n for b in quick.read_events(data, Envelope(), print, batch_rows=300)]
    assert sizes == [300, 300, 300, 100]
    rows, _, _ = read("quick", data, batch_rows=300, block_bytes=1000)
    assert [r["ts_ns"] for r in rows] == [i * 1000 for i in range(1000)]


@pytest.mark.parametrize("seed", range(3))
def test_mixed_columns_equal_the_reference(read, seed):
    """Columns whose values change type from event to event leave the arrays' fast paths."""
    rng = random.Random(seed)
    values = [b"1", b'"0x1f"', b"null", b"true", b'"text"', b"18446744073709551615", b"-3", b"2.0"]
    times = [b"1.125", b"7", b"-1.5", b'"3.25"', b"null", b"1e3", b"1.00051", b"12345678901234.5"]
    keys = [b"stream", b"device", b"bytes", b"Bytes", b"In msg size", b"In msg nelems"]
    events = []
    for _ in range(300):
        args = b",".join(b'"%b":%b' % (k, rng.choice(values)) for k in rng.sample(keys, 4))
        events.append(
            b'{"ts":%b,"dur":%b,"pid":%b,"tid":%b,"args":{%b}}'
            % (rng.choice(times), rng.choice(times), rng.choice(values), rng.choice(values), args)
        )
    data = b"[" + b",".join(events) + b"]"
    expected = read("lenient", data)
    assert read("quick", data) == expected
    assert read("scanner", data)[0] == expected[0]


@pytest.mark.parametrize("word", [b"NaN", b"trux", b"[1, ,2]", b"[NaN]", b"1.2.3", b"Infinity"])
def test_the_same_is_said_of_words_that_are_no_json(read, word):
    data = b'[{"ph":"X","ts":1,"x":' + word + b"}]"
    rows, _, problems = read("scanner", data)
    assert rows == [{"ph": "X", "ts_ns": 1000, "offset": 1}]
    assert read("quick", data)[::2] == (rows, problems)
