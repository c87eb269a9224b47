"""What one event says, broken or not: the same rows from all three readers, exact by hand."""

import json
from pathlib import Path

import pytest
from retime.ingest.errors import UnusableInput
from retime.ingest.kineto import lenient
from retime.ingest.kineto.jsontext import Num, Unfinished, decode_text
from retime.ingest.kineto.rawbatch import NULL


@pytest.fixture(params=["lenient", "quick", "scanner"])
def read(request, monkeypatch):
    """`read(data, **options)`: (rows, envelope, problems) by each reader in turn."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    from readers import read as by

    return lambda data, **options: by(request.param, data, **options)


def event(read, text: bytes) -> tuple[dict, list[str]]:
    """The one event's row without its offset, and the codes of problems; neighbours must stand."""
    data = b'[{"ph":"X","name":"before"},' + text + b',{"ph":"X","name":"after"}]'
    rows, envelope, problems = read(data)
    assert [r["name"] for r in (rows[0], rows[-1])] == ["before", "after"]
    assert envelope.array_end == len(data) - 1
    assert len(rows) == 3
    assert rows[1].pop("offset") == 28
    return rows[1], sorted(p.code for p in problems)


def test_every_declared_field(read):
    args = {
        "External id": 1, "device": 2, "stream": 3, "correlation": 4, "bytes": 5,
        "wait_on_stream": 6, "wait_on_cuda_event_record_corr_id": 7, "graph node id": 8,
        "Group size": 9, "In msg nelems": 10, "Out msg nelems": 11, "Rank": 12, "Src Rank": 13,
        "Dst Rank": 14, "Global rank start": 15, "Global rank stride": 16, "Seq": 17,
        "Comms Id": 18, "Is asynchronized op": True, "Process Group ID": 20,
        "Record function id": 21, "grid": [2, 3, 4], "block": [5, 6, 1], "Collective name": "a",
        "dtype": "b", "In split size": "[1, 2]", "Out split size": "[]", "Process Group Name": "c",
        "Process Group Description": "d", "Process Group Ranks": "[0, 1]", "cuda_sync_kind": "e",
        "name": "f", "labels": "g", "Input Dims": [[1, 2], []], "Wait": {"name": "no", "Seq": 1},
    }  # fmt: skip
    text = json.dumps(
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 12, "dur": 0.5}
        | {"args": args, "id": 9}
    )
    row, problems = event(read, text.encode())
    assert row == {
        "ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts_ns": 12000, "dur_ns": 500,
        "external_id": 1, "device": 2, "stream": 3, "correlation": 4, "bytes": 5, "wait_stream": 6,
        "wait_correlation": 7, "graph_node": 8, "group_size": 9, "in_nelems": 10,
        "out_nelems": 11, "rank_arg": 12, "src_rank": 13, "dst_rank": 14, "rank_start": 15,
        "rank_stride": 16, "seq": 17, "comms_id": 18, "is_async": 1, "pg_id": 20,
        "record_function_id": 21, "grid": 24, "block": 30, "coll_name": "a", "dtype": "b",
        "in_split": "[1, 2]", "out_split": "[]", "pg_name": "c", "pg_desc": "d",
        "pg_ranks": "[0, 1]", "sync_kind": "e", "arg_name": "f",
    }  # fmt: skip
    assert problems == []


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("6322354292522.072", 6_322_354_292_522_072),
        ("1712195438123456.789", 1_712_195_438_123_456_789),
        ("1712195438123456", 1_712_195_438_123_456_000),
        ("0.1", 100),
        ("0.01", 10),
        ("0.001", 1),
        ("1.0005", 1000),  # half to even
        ("1.0015", 1002),
        ("1.00050000000000000000000001", 1001),
        ("1.0004999999999999999999999", 1000),
        ("-1.5", -1500),
        ("-0.0015", -2),
        ("0", 0),
        ("-0.0", 0),
        ("1e3", 1_000_000),
        ("1.5E-2", 15),
        ("1.712195438123456789e15", 1_712_195_438_123_456_789),
        ("9223372036854775.807", 9_223_372_036_854_775_807),
        ('"12.5"', 12_500),
        ('"1712195438123456.789\\t"', 1_712_195_438_123_456_789),
        ("null", None),
    ],
)
def test_microseconds_become_integer_ns(read, text, ns):
    row, problems = event(read, b'{"ts": %b,"dur":%b}' % (text.encode(), text.encode()))
    assert row == ({} if ns is None else {"ts_ns": ns, "dur_ns": ns})
    assert problems == []


@pytest.mark.parametrize("text", ["9223372036854775.808", "1e400", '"soon"', "true", "[1]"])
def test_no_time_is_null_and_told(read, text):
    row, problems = event(read, b'{"ts": %b, "dur": 1}' % text.encode())
    assert row == {"dur_ns": 1000}
    assert problems == ["number_range"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-7", -7),
        ("9007199254740993", 9007199254740993),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775807", -(2**63) + 1),
        ("18446744073709551615", -1),  # the 64 bits of an unsigned hash
        ("12297829382473034410", 12297829382473034410 - 2**64),
        ("3.0", 3),
        ("2e2", 200),
        ('"0x1F"', 31),
        ('"42"', 42),
        ('" 42"', 42),
        ("true", 1),
        ("false", 0),
        ("null", None),
    ],
)
def test_integers(read, text, value):
    row, problems = event(read, b'{"args":{"Comms Id":%b}}' % text.encode())
    assert row == ({} if value is None else {"comms_id": value})
    assert problems == []


@pytest.mark.parametrize("text", ["18446744073709551616", "3.5", '"default"', "[1]", "1e30"])
def test_no_integer_is_null_and_told(read, text):
    row, problems = event(read, b'{"args":{"stream":%b,"device":1}}' % text.encode())
    assert row == {"device": 1}
    assert problems == ["number_range"]


def test_thread_and_process_as_string_or_number(read):
    row, _ = event(read, b'{"pid":"Spans","tid":"PyTorch Profiler"}')
    assert row == {"pid_sym": "Spans", "tid_sym": "PyTorch Profiler"}
    row, _ = event(read, b'{"pid":"","tid":-1}')
    assert row == {"pid_sym": "", "tid": -1}
    row, _ = event(read, b'{"pid":"Spans","tid":3,"pid":4,"tid":"t"}')
    assert row == {"pid": 4, "tid_sym": "t"}


@pytest.mark.parametrize(
    ("raw", "text", "good"),
    [
        (rb"a\"b\\c\/d\n", 'a"b\\c/d\n', True),
        (rb"\u00e9\ud83d\ude00", "é😀", True),
        ("é😀".encode(), "é😀", True),
        (rb"lone \ud800.", "lone \ufffd.", False),
        (b"bad \xff.", "bad \ufffd.", False),
        (b"tab\there", "tab\there", False),
        (rb"C:\path \q", "C:\\path \\q", False),
        (rb"\u00zz", "\\u00zz", False),
    ],
)
def test_texts(read, raw, text, good):
    assert decode_text(raw) == (text, good)
    row, problems = event(read, b'{"name":"%b","args":{"dtype":"%b"}}' % (raw, raw))
    assert row == {"name": text, "dtype": text}
    # msgspec passes over bad UTF-8 where it skips; here the strings are wanted.
    assert bool(problems) != good or "\ufffd" in text


def test_same_text_written_twice_ways_is_one_symbol(read):
    data = b'[{"name":"a/b"},{"name":"a\\/b"},{"name":"\\u0061/b"}]'
    rows, _, _ = read(data)
    assert [r["name"] for r in rows] == ["a/b"] * 3


def test_numbers_and_lists_as_names(read):
    row, problems = event(
        read, b'{"args":{"Process Group Name":5,"dtype":null,"In split size":[1, 2],"name":true}}'
    )
    assert row == {"pg_name": "5", "in_split": "[1, 2]", "arg_name": "true"}
    assert problems == []


def test_last_of_duplicate_keys_wins(read):
    row, _ = event(
        read,
        b'{"ts":1,"name":"a","ts":2,"name":"b","args":{"stream":1,"Seq":5,"stream":2}}',
    )
    assert row == {"ts_ns": 2000, "name": "b", "stream": 2, "seq": 5}
    row, _ = event(read, b'{"args":{"stream":1,"Seq":5},"ts":1,"args":{"stream":2}}')
    assert row == {"ts_ns": 1000, "stream": 2}
    row, _ = event(read, b'{"args":{"stream":1},"args":null}')
    assert row == {}
    row, _ = event(read, b'{"args":{"bytes":1,"Bytes":2,"bytes":3}}')
    assert row == {"bytes": 3}
    row, _ = event(read, b'{"args":{"Bytes":2,"bytes":1}}')
    assert row == {"bytes": 1}
    row, _ = event(read, b'{"args":{"bytes":2,"Bytes":null}}')
    assert row == {}


@pytest.mark.parametrize(
    "text",
    [
        b'{"name":"k","args":{"x":NaN,"stream":7}}',
        b'{"name":"k","args":{"x":-Infinity,"stream":7}}',
        b'{"name":"k","args":{"x":-nan,"stream":7}}',
        b'{"name":"k","ts":NaN,"args":{"stream":7}}',
        b'{"name":"k","args":{"stream":7,}}',
        b'{"name":"k","args":{"stream":7},}',
        b'{"name":"k","x":,"args":{"y": ,"stream":7}}',
        b'{"name":"k","args":{"stream":7,,"x":1}}',
        b'{"name":"k","args":{"Stream":0x7f,"dt":ncclFloat32,"stream":7}}',
        b'{"name":"k","y":"\x01","args":{"stream":7}}',
        b'{"name":"k","args":{"x":"say "hi" now","stream":7}}',
        b'{"name":"k","args":{"x":["a "b" c"],"stream":7}}',
        b'{"name":"k","args":{"x":[[1,,2],"stream"],"stream":7}}',
    ],
)
def test_mended(read, text):
    row, problems = event(read, text)
    assert row == {"name": "k", "stream": 7}
    # The scan does not look into what it skips.
    assert problems in (["malformed_event"], [])


def test_quotes_inside_a_name(read):
    row, problems = event(read, b'{"ph":"X","name":"op "a", "b": c","ts":1,"args":{"Seq":2}}')
    assert row == {"ph": "X", "name": 'op "a", "b": c', "ts_ns": 1000, "seq": 2}
    assert problems == ["malformed_event"]
    row, problems = event(read, b'{"ph":"X","name":"f("x", "y")","ts":1,"args":{"Seq":2}}')
    assert row == {"ph": "X", "name": 'f("x", "y")', "ts_ns": 1000, "seq": 2}


def test_counters_keep_all_args(read):
    row, problems = event(
        read, b'{"ph":"C","name":"m","ts":1,"args":{"a":1.5,"b":{"c":[1]},"bytes":3}}'
    )
    assert row["extra"] == {"a": 1.5, "b": {"c": [1]}, "bytes": 3}
    assert row["bytes"] == 3
    assert problems == []


def test_products(read):
    def grid(text):
        return event(read, b'{"args":{"grid":%b}}' % text)

    assert grid(b"[ 65536 , 65536 , 64 ]") == ({"grid": 2**38}, [])
    assert grid(b"[0,1]") == ({"grid": 0}, [])
    assert grid(b"7") == ({"grid": 7}, [])
    assert grid(b"null") == ({}, [])
    assert grid(b"[]") == ({}, ["number_range"])
    assert grid(b"[1,2.5]") == ({}, ["number_range"])
    assert grid(b"[9999999999,9999999999]") == ({}, ["number_range"])


def test_items_that_are_no_events(read):
    rows, _, problems = read(b'[1, "a]{", {"ts":1}, [{"ts":9}], null, {}, {"ts":2},]')
    assert [r.get("ts_ns") for r in rows] == [1000, None, 2000]
    assert [(p.code, p.severity, p.count, p.offset) for p in problems] == [
        ("not_an_event", "lost", 4, 1)
    ]


def test_garbage_between_events_does_not_take_the_next_one(read):
    rows, _, problems = read(b'[{"ts":1}, "abc {"ph": "X","ts":2}, {"ts":3}]')
    assert [r["ts_ns"] for r in rows] == [1000, 2000, 3000]
    assert [p.severity for p in problems] == ["lost"]


def test_events_key_is_found_at_the_top_only(read):
    decoys = b'{"a":"\\"traceEvents\\": [", "b":{"traceEvents":[{"ts":9}]}, "traceEvents":7, '
    head = decoys + b'"c":1,\n "traceEvents" : '
    rows, envelope, problems = read(
        head + b'[{"ts":1}], "baseTimeNanoseconds": 1712195438123456789}'
    )
    assert [r["ts_ns"] for r in rows] == [1000]
    assert envelope.head == head
    assert envelope.array_start == len(head)
    meta = envelope.parse()
    assert meta["baseTimeNanoseconds"] == 1712195438123456789
    assert (meta["c"], meta["b"]) == (1, {"traceEvents": [{"ts": 9}]})
    assert problems == []


def test_broken_envelope(read):
    rows, envelope, problems = read(
        b'{"ERROR": ["say "hi" {"],\n"host_name": "h",\n"traceEvents": [{"ts":1}],\n'
        b'"WARNING": ["a "b""],\n"distributedInfo": {"rank": 3},\n"traceName": "t"}'
    )
    assert [r["ts_ns"] for r in rows] == [1000]
    meta = envelope.parse()
    assert (meta["host_name"], meta["distributedInfo"], meta["traceName"]) == (
        "h",
        {"rank": 3},
        "t",
    )
    assert "malformed_envelope" in [p.code for p in problems]


def test_bare_array(read):
    rows, envelope, problems = read(b'\xef\xbb\xbf \n[{"ts":1}]\n')
    assert [r["ts_ns"] for r in rows] == [1000]
    assert envelope.bare
    assert envelope.parse() == {}
    assert problems == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"   \n",
        b"PK\x03\x04",
        b"hello",
        b"{}",
        b'{"a":1}',
        b'{"a":1,',
        b"\x00" * 100,
        b'"',
        b"{",
    ],
)
def test_what_is_no_trace_is_refused(read, data):
    with pytest.raises(UnusableInput):
        read(data)


def test_empty_arrays(read):
    for data in (b"[]", b'{"traceEvents": [ ] }'):
        rows, _, problems = read(data)
        assert (rows, problems) == ([], [])


def test_tail_cut_off_is_told(read):
    rows, envelope, problems = read(b'{"traceEvents":[{"ts":1}],"distributedInfo":{"rank":3')
    assert len(rows) == 1
    assert [(p.code, p.severity, p.offset) for p in problems] == [("truncated", "lost", 53)]
    assert "distributedInfo" not in envelope.parse()


def test_deep_nesting_and_huge_strings(read):
    deep = b"[" * 100_000 + b"]" * 100_000
    huge = b"x" * 3_000_000
    row, _ = event(read, b'{"args":{"a":%b,"b":"%b","name":"%b"}}' % (deep, huge, huge))
    assert row["arg_name"] == huge.decode()


def test_event_beyond_the_limit_is_left_out(read):
    data = b'[{"ts":1},{"ph":"X","name":"%b"},{"ph":"X","ts":2}]' % (b"x" * (17 << 20))
    rows, _, problems = read(data)
    assert [r["ts_ns"] for r in rows] == [1000, 2000]
    assert {p.severity for p in problems} == {"lost"}


def test_parse_event_wants_all_its_bytes():
    text = b'{"ph":"X","ts":1}'
    for cut in range(1, len(text)):
        with pytest.raises(Unfinished):
            lenient.parse_event(text, 0, cut, final=False)
    whole = lenient.parse_event(text, 0, len(text), final=False)
    assert whole == ({"ph": 88, "ts_ns": 1000}, None, len(text), [])


def test_hostile_exponents_cost_nothing():
    assert lenient.nanoseconds(Num("1e999999999")) == NULL
    assert lenient.nanoseconds(Num("1e-999999999")) == 0
    assert lenient.integer(Num("1e999999999")) == NULL
    assert lenient.nanoseconds(Num("9" * 100_000)) == NULL
