"""Kineto traces made by hand to tables: rank, times, rows, steps, oddities, value by value."""

import gzip
import json

import pytest
from retime.ingest.errors import RankUnknown, UnusableInput
from retime.ingest.kineto import parser as kineto
from retime.ingest.kineto.header import groups, rank_in_name, rebuild_ranks
from retime.ingest.schema import TABLES
from retime.ingest.sources import find_sources

BASE = 1_759_300_074_000_000_000
INFO = {"rank": 3, "world_size": 8}


def event(name="aten::add", cat="cpu_op", ts="100.000", dur="1.500", ph="X", pid=7, tid=8, **args):
    """An event's text; times are given as the text that stands in the file."""
    parts = [f'"ph": "{ph}"', f'"cat": "{cat}"', f'"name": {json.dumps(name)}']
    parts += [f'"pid": {json.dumps(pid)}', f'"tid": {json.dumps(tid)}']
    parts += [f'"{k}": {v}' for k, v in (("ts", ts), ("dur", dur)) if v is not None]
    if args:
        parts.append(f'"args": {json.dumps(args)}')
    return "{" + ", ".join(parts) + "}"


def kernel(name="gemm_kernel", ts="200.000", dur="5.000", stream=7, correlation=1, **args):
    return event(
        name, "kernel", ts, dur, pid=0, tid=stream,
        device=0, stream=stream, correlation=correlation, **args,
    )  # fmt: skip


def launch(ts="150.000", correlation=1, name="cudaLaunchKernel", tid=8, dur="2.000"):
    return event(name, "cuda_runtime", ts, dur, tid=tid, correlation=correlation)


def trace(*events, head=None, tail=None):
    """A trace's text: metadata before and after the events."""
    head = {"baseTimeNanoseconds": BASE, "distributedInfo": INFO} if head is None else head
    text = "{\n" + "".join(f' "{k}": {json.dumps(v)},\n' for k, v in head.items())
    text += ' "traceEvents": [\n' + ",\n".join(events) + "\n]"
    text += "".join(f',\n "{k}": {json.dumps(v)}' for k, v in (tail or {}).items())
    return text + "\n}\n"


@pytest.fixture
def tables(tmp_path):
    """Parses text (a file of the name given) to rows by table; checks schemas and order."""

    def read(text, name="trace.json", rank=None):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = text if isinstance(text, bytes) else text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        (source,) = find_sources([str(path)], lambda n, p: None)
        out = {}
        for table, batch in kineto.parse(source, rank=rank):
            assert batch.schema == TABLES[table].schema
            batch.validate(full=True)
            rows = batch.to_pylist()
            if table in ("events", "collectives", "counters"):
                time = "time_ns" if table == "counters" else "start_ns"
                assert [r[time] for r in rows] == sorted(r[time] for r in rows)
            out.setdefault(table, []).extend(rows)
        assert len(out["ranks"]) == 1
        return out

    return read


def codes(out):
    return {p["code"]: (p["severity"], p["count"]) for p in out.get("problems", [])}


def offsets(out):
    return {p["code"]: p["offset"] for p in out.get("problems", [])}


# ---- one row


def test_rows_of_a_launch_and_its_kernel(tables):
    text = trace(
        launch(correlation=9),
        kernel(correlation=9, ts="200.123", dur="0.032", grid=[4, 2, 1], block=[32, 4, 1]),
    )
    host, device = tables(text)["events"]
    assert host == {
        "rank": 3,
        "event_id": (3 << 40) | text.index('{"ph"'),
        "kind": "runtime",
        "name": "cudaLaunchKernel",
        "stream": None,
        "device": None,
        "thread": "8",
        "start_ns": BASE + 150_000,
        "dur_ns": 2_000,
        "correlation": 9,
        "external_id": None,
        "category": None,
        "grid_blocks": None,
        "block_threads": None,
        "bytes": None,
        "wait_stream": None,
        "wait_correlation": None,
        "step": None,
    }
    assert device == host | {
        "event_id": (3 << 40) | text.rindex('{"ph"'),
        "kind": "kernel",
        "name": "gemm_kernel",
        "stream": 7,
        "device": 0,
        "thread": None,
        "start_ns": BASE + 200_123,
        "dur_ns": 32,
        "category": "gemm",
        "grid_blocks": 8,
        "block_threads": 128,
    }


def test_copies_sets_syncs_annotations_and_instants(tables):
    out = tables(
        trace(
            event("Memcpy HtoD", "gpu_memcpy", "10.0", pid=0, tid=7,
                  device=0, stream=7, correlation=1, bytes=4096),
            event("Memset", "gpu_memset", "11.0", pid=0, tid=0, device=0, stream=0, bytes=64),
            event("Stream Wait Event", "cuda_sync", "12.0", pid=0, tid=7, device=0, stream=20,
                  wait_on_stream=7, wait_on_cuda_event_record_corr_id=5, correlation=6),
            event("Context Sync", "cuda_sync", "13.0", pid=0, tid=7, device=0, stream=-1,
                  wait_on_stream=-1, wait_on_cuda_event_record_corr_id=-1),
            event("nccl:all_reduce", "gpu_user_annotation", "14.0", pid=0, tid=7),
            event("[memory]", "cpu_instant_event", "15.0", None, ph="i"),
            event("f.py(1): f", "python_function", "16.0"),
            event("Buffer", "overhead", "17.0", pid=-1, tid=0),
            event("PyTorch Profiler (0)", "Trace", "1.0", pid="Spans", tid="PyTorch Profiler"),
        )
    )  # fmt: skip
    got = [
        (e["kind"], e["stream"], e["thread"], e["category"], e["bytes"], e["wait_stream"],
         e["wait_correlation"])
        for e in sorted(out["events"], key=lambda e: e["start_ns"])
    ]  # fmt: skip
    assert got == [
        ("other", None, "PyTorch Profiler", None, None, None, None),
        ("memcpy", 7, None, "copy", 4096, None, None),
        ("memset", 0, None, "memset", 64, None, None),
        ("sync", 20, None, None, None, 7, 5),
        ("sync", None, None, None, None, None, None),
        ("gpu_annotation", 7, None, None, None, None, None),
        ("instant", None, "8", None, None, None, None),
        ("python", None, "8", None, None, None, None),
        ("overhead", None, "0", None, None, None, None),
    ]
    # The twin of an annotation on the device is not a participation.
    assert "collectives" not in out


def test_stream_minus_one_and_streams_from_tid(tables):
    out = tables(
        trace(
            kernel(stream=-1, ts="1.0"),
            event("k", "Kernel", "2.0", pid=1, tid=21),
            event("k", "kernel", "3.0", pid=0, tid=1, device="0x1", stream="0x10"),
        )
    )
    assert [(e["kind"], e["stream"], e["device"]) for e in out["events"]] == [
        ("kernel", -1, 0),
        ("kernel", 21, 1),
        ("kernel", 16, 1),
    ]


def test_string_and_negative_thread_ids(tables):
    out = tables(trace(event(tid="main", ts="1.0"), event(tid=-5, ts="2.0"), event(tid="", ts="3")))
    assert [e["thread"] for e in out["events"]] == ["main", "-5", ""]


def test_categories_of_2021_in_capitals(tables):
    cats = ("Operator", "Runtime", "Kernel", "Memcpy", "Memset")
    out = tables(trace(*(event("x", c, f"{i}.0") for i, c in enumerate(cats, 1))))
    kinds = [e["kind"] for e in sorted(out["events"], key=lambda e: e["start_ns"])]
    assert kinds == ["host_op", "runtime", "kernel", "memcpy", "memset"]


def test_counters(tables):
    out = tables(
        trace(
            event("GPU util", "", "2.0", None, ph="C", pid=0, value=50),
            event("mem", "", "1.0", None, ph="C", pid=0, used=1.5, free="x"),
        )
    )
    assert out["counters"] == [
        {"rank": 3, "host": None, "device": "0", "name": "mem.used", "time_ns": BASE + 1000,
         "value": 1.5},
        {"rank": 3, "host": None, "device": "0", "name": "GPU util", "time_ns": BASE + 2000,
         "value": 50.0},
    ]  # fmt: skip
    assert codes(out)["counter_not_numeric"] == ("lost", 1)


def test_what_is_not_stored_is_counted(tables):
    flow = event("ac2g", "ac2g", "1.0", None, ph="s")
    text = trace(event(), flow, flow, event("process_name", "", "1.0", None, ph="M", labels="x"),
                 event("b", "", "1.0", None, ph="B"))  # fmt: skip
    out = tables(text)
    assert codes(out) == {
        "flows_not_stored": ("info", 2),
        "metadata_not_stored": ("info", 1),
        "phase_not_stored": ("lost", 1),
        "no_steps": ("info", 1),
    }
    assert offsets(out)["flows_not_stored"] == text.index('{"ph": "s"')


# ---- time


@pytest.mark.parametrize(
    ("ts", "head", "start_ns"),
    [
        ("52133701.125", {"baseTimeNanoseconds": BASE}, BASE + 52_133_701_125),
        ("1682725898236567", {}, 1_682_725_898_236_567_000),
        # 19 digits: no float holds them.
        ("1712195495519689.001", {}, 1_712_195_495_519_689_001),
        ("1712195495519689.7", {}, 1_712_195_495_519_689_700),
        ('"1682725898236567.250"', {}, 1_682_725_898_236_567_250),
        ("4458676522690.655", {"baseTimeNanoseconds": str(BASE)}, BASE + 4_458_676_522_690_655),
        # Already absolute: the base is not added.
        ("1682725898236567", {"baseTimeNanoseconds": BASE}, 1_682_725_898_236_567_000),
    ],
)
def test_both_time_bases_exactly(tables, ts, head, start_ns):
    out = tables(trace(event(ts=ts), head=head | {"distributedInfo": INFO}))
    assert out["events"][0]["start_ns"] == start_ns
    assert out["ranks"][0]["start_ns"] == start_ns


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_base_and_rank_after_the_events(tables, name):
    tail = {"baseTimeNanoseconds": BASE, "distributedInfo": INFO, "traceName": "x"}
    # A string in an event that looks like metadata is not metadata.
    bait = event('"distributedInfo": {"rank": 99}', ts="1.001")
    out = tables(trace(bait, head={"schemaVersion": 1}, tail=tail), name)
    assert out["events"][0]["start_ns"] == BASE + 1001
    assert out["ranks"][0]["rank"] == 3
    assert out["ranks"][0]["world_size"] == 8


def test_relative_times_without_a_base_are_said(tables):
    out = tables(trace(event(ts="1.5"), head={"distributedInfo": INFO}))
    assert out["events"][0]["start_ns"] == 1500
    assert codes(out)["no_time_base"] == ("warning", 1)


def test_times_and_durations_that_cannot_be(tables):
    text = trace(
        event("good", ts="100000000000.000"),
        event("zero", ts="0", dur="0"),
        event("none", ts=None),
        event("before", ts="100000000001.0", dur="-3.5"),
        event("week", ts="100000000002.0", dur="604800000000.001"),
        event("huge", ts="100000000003.0", dur="18446744073709551615"),
        event("open", ts="100000000004.0", dur=None),
        event("short", ts="100000000005.0", dur="0.001"),
    )
    out = tables(text)
    assert [(e["name"], e["dur_ns"]) for e in out["events"]] == [
        ("good", 1500), ("before", 0), ("week", 0), ("huge", 0), ("open", 0), ("short", 1),
    ]  # fmt: skip
    found = codes(out)
    assert found["no_time"] == ("lost", 2)
    assert found["negative_duration"] == ("warning", 1)
    assert found["absurd_duration"][1] + found["no_duration"][1] == 3
    assert offsets(out)["no_time"] == text.index('{"ph": "X", "cat": "cpu_op", "name": "zero"')
    first, last = out["ranks"][0]["start_ns"], out["ranks"][0]["end_ns"]
    assert (first, last) == (BASE + 10**14, BASE + 10**14 + 5001)


def test_a_trace_that_begins_at_zero_is_whole(tables):
    out = tables(trace(event(ts="0"), event(ts="5"), head={"distributedInfo": INFO}))
    assert len(out["events"]) == 2


def test_a_kernel_longer_than_its_trace_is_absurd(tables):
    out = tables(
        trace(kernel(ts="1.0", dur="4000000000.0"), kernel(ts="1000.0", dur="2.0", correlation=2))
    )
    assert [e["dur_ns"] for e in out["events"]] == [0, 2000]
    assert codes(out)["absurd_duration"] == ("warning", 1)
    assert out["ranks"][0]["end_ns"] == BASE + 1_002_000


# ---- rank


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank0.json", 0),
        ("run-rank-34.Jul_15.pt.trace.json.gz", 34),
        ("trace_rank_12.json", 12),
        ("a.rank.3.json", 3),
        ("[rank7].json", 7),
        ("gpu-rank-00-chrome-trace.json", 0),
        ("inference_rank_1.json.gz", 1),
        ("all.tar!rank5/trace.json", 5),
        ("rank2/rank2.json", 2),
        ("rank_3/rank4.json", 4),
        ("test_of_rank0/trace.json", None),
        ("trace.json", None),
        ("local_rank1.json", None),
        ("dp_rank1.json", None),
        ("rank1_rank2.json", None),
        ("frank1.json", None),
        ("rank.json", None),
    ],
)
def test_rank_in_a_name(name, rank):
    assert rank_in_name(name) == rank


def test_content_before_name_before_argument(tables):
    unranked = {"baseTimeNanoseconds": BASE}
    assert tables(trace(event()), "rank5.json")["ranks"][0]["rank"] == 3
    assert tables(trace(event(), head=unranked), "rank5.json")["ranks"][0]["rank"] == 5
    assert tables(trace(event(), head=unranked), "t.json", rank=6)["ranks"][0]["rank"] == 6
    told = tables(trace(event()), "t.json", rank=6)
    assert told["ranks"][0]["rank"] == 3
    assert codes(told)["rank_disagrees"] == ("warning", 1)
    with pytest.raises(RankUnknown, match="--rank"):
        tables(trace(event(), head=unranked), "t.json")


@pytest.mark.parametrize(
    ("info", "rank"),
    [({"rank": "4"}, 4), (json.dumps({"rank": 4}), 4), ({"rank": -1}, 9), ({"backend": "nccl"}, 9)],
)
def test_odd_distributed_info(tables, info, rank):
    out = tables(
        trace(event(), head={"baseTimeNanoseconds": BASE, "distributedInfo": info}), rank=9
    )
    assert out["ranks"][0]["rank"] == rank


def test_compact_printing(tables):
    text = json.dumps(json.loads(trace(event(), kernel())), separators=(",", ":"))
    assert [e["kind"] for e in tables(text)["events"]] == ["host_op", "kernel"]


def test_a_bare_array_has_its_rank_from_its_name(tables):
    out = tables(f"[{event(ts='1682725898236567')}]", "rank2.json")
    assert out["ranks"][0]["rank"] == 2


def test_peek_rank(tmp_path):
    for name, text, rank in (
        ("head.json", trace(event()), 3),
        ("tail.json", trace(event(), head={}, tail={"distributedInfo": INFO}), 3),
        ("rank8.json", trace(event(), head={}), 8),
        ("none.json", trace(event(), head={}), None),
    ):
        (tmp_path / name).write_text(text)
        (source,) = find_sources([str(tmp_path / name)], lambda n, p: None)
        assert kineto.peek_rank(source) == rank


def test_row_of_ranks(tables):
    head = {
        "deviceProperties": [{"id": 0, "name": "A", "numSms": 1}, {"id": 1, "name": "B",
                                                                  "numSms": 132}],
        "host_name": "node-7",
        "distributedInfo": INFO,
        "baseTimeNanoseconds": BASE,
    }  # fmt: skip
    row = tables(trace(event("k", "kernel", "5.0", "1.0", pid=1, tid=7, device=1, stream=7),
                       event(ts="9.0", dur="2.0"), head=head))["ranks"][0]  # fmt: skip
    row.pop("source")
    assert {k: v for k, v in row.items() if v is not None} == {
        "rank": 3,
        "host": "node-7",
        "host_source": "recorded",
        "device": 1,
        "n_devices": 2,
        "device_name": "B",
        "n_sms": 132,
        "world_size": 8,
        "start_ns": BASE + 5000,
        "end_ns": BASE + 11_000,
    }


# ---- defects


def test_metadata_only(tables):
    out = tables(trace())
    assert set(out) == {"ranks", "problems"}
    assert out["ranks"][0]["start_ns"] is None
    assert codes(out) == {"no_events": ("info", 1)}


@pytest.mark.parametrize("text", ["", " ", "hello", '{"a": 1}', "\x1f\x8b", "[1, 2"])
def test_what_is_no_trace(tmp_path, text):
    path = tmp_path / "rank0.json"
    path.write_text(text)
    with pytest.raises(UnusableInput):
        _read_if_a_trace(path)


def _read_if_a_trace(path):
    for source in find_sources([str(path)], lambda n, p: None):
        if not kineto.looks_like(source.head(), source.name):
            raise UnusableInput("not a trace", path=source.name)
        list(kineto.parse(source))


def test_looks_like():
    for head in (
        trace(event())[:200],
        '[{"ph": "X"',
        '\n{ "schemaVersion": 1,',
        '{"distributedInfo"\n : {"rank',
    ):
        assert kineto.looks_like(head.encode(), "x")
    for head in ('{"schema": "1.0.1", "nodes": []}', "[1, 2]", "PAR1", "", "rank,step\n"):
        assert not kineto.looks_like(head.encode(), "x")


def test_a_file_cut_anywhere_keeps_what_is_before(tables):
    text = trace(*(event(ts=f"{i}.000") for i in range(1, 6)))
    ends = [i + 1 for i in range(len(text)) if text[i] == "}" and '"ts"' in text[:i]][:5]
    first = text.index('"traceEvents": [') + len('"traceEvents": [')
    for cut in range(first, text.rindex("]")):
        out = tables(text[:cut])
        assert len(out.get("events", [])) == sum(end <= cut for end in ends), cut
        lost = [p for p in out["problems"] if p["code"] == "truncated"]
        assert [p["severity"] for p in lost] == ["lost"]
        assert lost[0]["offset"] <= cut


def test_a_compressed_file_that_is_cut(tables, tmp_path):
    text = trace(*(event(f"op{i * 7919 % 997}", ts=f"{i}.000") for i in range(1, 2000)))
    path = tmp_path / "rank3.json.gz"
    path.write_bytes(gzip.compress(text.encode())[:-2000])
    (source,) = find_sources([str(path)], lambda n, p: None)
    out = {}
    for table, batch in kineto.parse(source):
        out.setdefault(table, []).extend(batch.to_pylist())
    assert 100 < len(out["events"]) < 1999
    assert {"truncated", "damaged_compression"} <= set(codes(out))


def test_broken_events_lose_nothing(tables):
    bad = [
        '{"ph": "X", "cat": "cpu_op", "name": "nan", "ts": 1.0, "dur": 1, "args": {"x": NaN},}',
        '{"ph": "X", "cat": "cpu_op", "name": "f("a")", "pid": 1, "tid": 1, "ts": 2.0, "dur": 1}',
        '{"ph": "X", "cat": "cpu_op", "name": "tab\there", "ts": 3.0, "dur": 1, "ts": 3.5}',
    ]
    out = tables(trace(event(ts="0.5"), *bad, event(ts="9.0") + ","))
    assert [(e["name"], e["start_ns"] - BASE) for e in out["events"]] == [
        ("aten::add", 500), ("nan", 1000), ('f("a")', 2000), ("tab\there", 3500),
        ("aten::add", 9000),
    ]  # fmt: skip
    assert not any(p["severity"] == "lost" for p in out["problems"])
    assert codes(out)["duplicate_key"] == ("warning", 1)


@pytest.mark.parametrize("reader", ["quick", "scanner", "lenient"])
def test_same_tables_by_every_reader(tables, monkeypatch, reader):
    from retime.ingest.kineto import lenient, quick, scanner

    text = trace(
        launch(), kernel(), event("x", "cpu_op", "1.0", tid="s", **{"External id": 4}),
        event("gloo:send", "user_annotation", "2.0"), event("m", "", "3", None, ph="C", v=1),
    )  # fmt: skip
    expected = tables(text)
    chosen = {"quick": quick, "scanner": scanner, "lenient": lenient}[reader]
    monkeypatch.setattr(kineto, "reader", lambda source: (chosen.read_events, True))
    assert tables(text) == expected
    assert tables(text, "trace.json.gz")["events"] == expected["events"]


# ---- steps


def step(n, ts, dur, cat="user_annotation", **where):
    return event(f"ProfilerStep#{n}", cat, ts, dur, **where)


def windows(out):
    return [
        (s["step"], *(s[c] - BASE for c in ("start_ns", "end_ns", "host_start_ns", "host_end_ns")))
        for s in out["steps"]
    ]


def test_steps_by_what_they_launched(tables):
    out = tables(
        trace(
            # Work of step 4 runs on into step 5; its first kernel is launched late and another
            # thread launches its last; one kernel has no launch and one no step.
            step(4, "100.0", "100.0"),
            step(5, "200.0", "100.0"),
            step(4, "120.0", "999.0", "gpu_user_annotation", pid=0, tid=7),
            launch("90.0", 1), launch("110.0", 2), launch("150.0", 3, tid=9), launch("210.0", 4),
            launch("299.0", 5),
            kernel(ts="95.0", correlation=1), kernel(ts="130.0", correlation=2),
            kernel(ts="225.0", correlation=3), kernel(ts="240.0", correlation=4),
            kernel(ts="310.0", dur="7.5", correlation=5), kernel(ts="400.0", correlation=77),
        )
    )  # fmt: skip
    assert windows(out) == [
        (4, 130_000, 240_000, 100_000, 200_000),
        (5, 240_000, 317_500, 200_000, 300_000),
    ]
    steps = [e["step"] for e in out["events"] if e["kind"] == "kernel"]
    assert steps == [None, 4, 4, 5, 5, None]


def test_steps_without_device_work_are_their_annotations(tables):
    out = tables(trace(step(1, "10.0", "5.0"), step(2, "16.0", "5.0")))
    assert windows(out) == [
        (1, 10_000, 15_000, 10_000, 15_000),
        (2, 16_000, 21_000, 16_000, 21_000),
    ]


def test_a_hole_in_the_numbers_ends_a_step_with_its_own_work(tables):
    out = tables(
        trace(
            step(1, "10.0", "5.0"), step(9, "50.0", "5.0"), launch("11.0", 1), launch("51.0", 2),
            kernel(ts="12.0", dur="3.0", correlation=1), kernel(ts="60.0", correlation=2),
        )
    )  # fmt: skip
    assert windows(out)[0][:3] == (1, 12_000, 15_000)


def test_a_step_annotated_twice_counts_once(tables):
    out = tables(trace(step(1, "10.0", "5.0"), step(1, "10.0", "4.0", tid=99)))
    assert len(out["steps"]) == 1
    assert codes(out)["step_twice"] == ("warning", 1)


def test_device_rows_beyond_the_limit_are_given_early(tables, monkeypatch):
    events = [step(1, "1.0", "1000.0"), launch("2.0", 1)]
    events += [kernel(ts=f"{i}.0", correlation=1) for i in range(10, 20)]
    expected = tables(trace(*events))
    monkeypatch.setattr(kineto, "HELD_ROWS", 1)
    assert tables(trace(*events)) == expected


# ---- process groups


def test_cut_lists_are_rebuilt_only_where_they_must_be_so():
    assert rebuild_ranks((0, 2, 4, 62), 32) == tuple(range(0, 64, 2))
    assert rebuild_ranks((0, 2, 4, 60), 32) is None
    assert rebuild_ranks((0, 2, 5, 62), 32) is None
    assert rebuild_ranks((), 3, 8, 8) == (8, 16, 24)
    assert rebuild_ranks((8, 16, 32), 3, 8, 8) is None
    assert rebuild_ranks((), 3, 8, 0) is None
    assert rebuild_ranks((), None, 0, 1) is None


def test_groups_of_every_form():
    text = "[" + ", ".join(map(str, range(29))) + ", ..., 39]"
    info = {
        "world_size": 64,
        "pg_config": [
            {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cpu:gloo,cuda:nccl",
             "pg_size": 64, "ranks": []},
            {"pg_name": "1", "pg_size": 40, "ranks": text},
            {"pg_name": 2, "uid": 5, "ranks": [3, 1]},
            {"pg_name": "3", "pg_size": 3, "ranks": [0, 1]},
            {"no": "name"},
        ],
    }  # fmt: skip
    found = [(g.name, g.description, g.ranks, g.size, g.backend) for g in groups(
        {"distributedInfo": info})]  # fmt: skip
    assert found == [
        ("0", "default_pg", tuple(range(64)), 64, "nccl+gloo"),
        ("1", None, tuple(range(40)), 40, None),
        ("2", None, (3, 1), 2, None),
        ("3", None, None, 3, None),
    ]
