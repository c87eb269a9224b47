"""Real Kineto traces against independent counts with the standard library's json and Decimal."""

import gzip
import json
import re
import tarfile
from collections import Counter
from decimal import Decimal

import numpy as np
import pytest
from retime.ingest.kineto import parser as kineto
from retime.ingest.sources import find_sources

HTA = "kineto/HolisticTraceAnalysis"
H100 = "kineto/modded-nanogpt/2025-12-11_NorMuonOptimsAndFixes/profiler-example-traces"
FILES = (
    f"{HTA}/amd_trace/*.gz",
    f"{HTA}/cpu_only/*.gz",
    f"{HTA}/critical_path/*/*.gz",
    f"{HTA}/distributed_info_unavailable/*.gz",
    f"{HTA}/execution_trace/*_trace.json.gz",
    f"{HTA}/nccl_parser_config/*.gz",
    f"{HTA}/ns_resolution_trace/*.gz",
    f"{HTA}/rank_unavailable/*.gz",
    f"{HTA}/trace_file_list/*.gz",
    f"{HTA}/trace_filter/*.gz",
    f"{HTA}/triton_example/*.gz",
    "kineto/TraceLens/*/*.gz",
    "kineto/kineto/docs/traces/*.json",
    "kineto/kineto/tb_plugin/test/*.json",
    "kineto/modded-nanogpt/2025-10-31_AdamSyncGradientHook/*rank-00*",
)


def read(source, rank=None):
    out = {}
    for table, batch in kineto.parse(source, rank=rank):
        out.setdefault(table, []).append(batch)
    return out


def column(batches, name):
    return [v for b in batches for v in b.column(b.schema.get_field_index(name)).to_pylist()]


def sources(*paths):
    return list(find_sources([str(p) for p in paths], lambda n, p: None))


def as_json(source):
    with source.open() as f:
        return json.loads(f.read(), parse_float=Decimal)


def instant_or_complete(trace):
    return [e for e in trace["traceEvents"] if e["ph"] in "Xi"]


def exact_ns(trace, event):
    """Start by exact decimal arithmetic; the base belongs to relative times."""
    ns = Decimal(event["ts"]) * 1000
    if ns < 10**17:
        ns += int(trace.get("baseTimeNanoseconds", 0))
    return int(ns.to_integral_value())


@pytest.mark.parametrize("pattern", FILES)
def test_every_event_and_its_times(retime_traces, pattern):
    for source in sources(retime_traces / pattern):
        trace = as_json(source)
        wanted = instant_or_complete(trace)
        out = read(source, rank=0)
        events = out["events"]
        rank = trace.get("distributedInfo", {}).get("rank", 0)
        assert set(column(events, "rank")) == {rank}
        assert column(out["ranks"], "rank") == [rank]
        got = Counter(
            zip(
                column(events, "name"),
                column(events, "start_ns"),
                column(events, "dur_ns"),
                strict=True,
            )
        )
        expected = Counter(
            (e["name"], exact_ns(trace, e), int(Decimal(e.get("dur", 0)) * 1000)) for e in wanted
        )
        assert got == expected
        ids = column(events, "event_id")
        assert len(set(ids)) == len(ids)
        kinds = Counter(column(events, "kind"))
        cats = Counter(e.get("cat", "").lower() for e in wanted if e["ph"] == "X")
        assert kinds["kernel"] == cats["kernel"]
        assert kinds["gpu_annotation"] == cats["gpu_user_annotation"]
        assert kinds["memcpy"] + kinds["memset"] == sum(
            cats[c] for c in ("gpu_memcpy", "gpu_memset", "memcpy", "memset")
        )
        stored = Counter(e["ph"] for e in trace["traceEvents"])
        codes = {
            c: n
            for b in out["problems"]
            for c, n in zip(b["code"].to_pylist(), b["count"].to_pylist(), strict=True)
        }
        assert codes.get("flows_not_stored", 0) == stored["s"] + stored["f"]
        assert codes.get("metadata_not_stored", 0) == stored["M"]
        assert "lost" not in [s for b in out["problems"] for s in b["severity"].to_pylist()]


def test_event_ids_are_places_in_the_file(retime_traces):
    (source,) = sources(*(retime_traces / HTA / "cpu_only").glob("*.gz"))
    with source.open() as f:
        text = f.read()
    for batch in read(source)["events"]:
        rows = zip(batch["event_id"].to_pylist(), batch["name"].to_pylist(), strict=True)
        for event_id, name in rows:
            assert event_id >> 40 == 34
            at = event_id & ((1 << 40) - 1)
            assert json.JSONDecoder().raw_decode(text[at:].decode())[0]["name"] == name


@pytest.fixture(scope="module")
def h100(retime_traces):
    found = sources(retime_traces / H100)
    return {kineto.peek_rank(s): (as_json(s), read(s)) for s in found}


def test_h100_kernels_by_rank(h100):
    counts = [len(column(h100[r][1]["collectives"], "op")) for r in range(8)]
    assert counts == [76, 76, 76, 76, 81, 84, 84, 84]


def test_h100_collectives_say_what_the_arguments_say(h100):
    size = {"BFloat16": 2, "Float": 4}
    for rank, (trace, out) in h100.items():
        expected = Counter(
            (e["args"].get("Collective name", "").replace("_allgather_base", "all_gather")
             .replace("_reduce_scatter_base", "reduce_scatter")
             or {"AllGather": "all_gather", "ReduceScatter": "reduce_scatter"}[
                 e["name"].split("_")[1]],
             e["args"].get("In msg nelems", 0) * size.get(e["args"].get("dtype"), 0) or None,
             e["args"]["grid"][0], exact_ns(trace, e))
            for e in trace["traceEvents"]
            if e.get("cat") == "kernel" and "nccl" in e["name"]
        )  # fmt: skip
        c = out["collectives"]
        got = Counter(
            zip(column(c, "op"), column(c, "in_bytes"), column(c, "channels"),
                column(c, "start_ns"), strict=True)
        )  # fmt: skip
        assert got == expected
        comms = column(c, "comm")
        named = [x for x in comms if x is not None]
        assert len(named) == 56, rank
        assert set(named) == set(column(out["comms"], "comm"))
        assert column(out["comms"], "ranks") == [list(range(8))]
        assert column(out["comms"], "dim") == ["world"]


def test_h100_steps(h100):
    for trace, out in h100.values():
        steps = out["steps"]
        assert column(steps, "step") == [10, 11, 12, 13]
        marks = {
            e["name"]: e
            for e in trace["traceEvents"]
            if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep#")
        }
        launched = {
            e["args"]["correlation"]: e["ts"]
            for e in trace["traceEvents"]
            if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e["args"]
        }
        work = [
            e
            for e in trace["traceEvents"]
            if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
        ]
        starts = []
        for n in range(10, 14):
            mark = marks[f"ProfilerStep#{n}"]
            mine = [
                e
                for e in work
                if (at := launched.get(e["args"]["correlation"])) is not None
                and mark["ts"] <= at < mark["ts"] + mark["dur"]
            ]
            starts.append(min(exact_ns(trace, e) for e in mine))
            last = max(exact_ns(trace, e) + int(e["dur"] * 1000) for e in mine)
        assert column(steps, "start_ns") == starts
        assert column(steps, "end_ns") == [*starts[1:], last]


def test_dlrm_in_a_tar_of_ranks(retime_traces):
    found = sources(retime_traces / "kineto/param/dlrm_kineto.tar.gz")
    assert len(found) == 8
    for rank, source in enumerate(found):
        assert re.search(rf"!dlrm_kineto/worker{rank}_", source.name)
        assert kineto.peek_rank(source) == rank
        out = read(source)
        c = out["collectives"]
        assert Counter(column(c, "op")) == {"all_to_all": 5, "all_reduce": 3}
        # Sizes from the shapes that the calls recorded: 394,241 floats first.
        reduced = [
            b for o, b in zip(column(c, "op"), column(c, "in_bytes"), strict=True)
            if o == "all_reduce"
        ]  # fmt: skip
        assert reduced[0] == 394_241 * 4
        assert None not in column(c, "in_bytes")
        assert column(c, "step") == [10] * 8
        assert column(out["steps"], "step") == [10]


def test_the_clean_reference(retime_traces):
    (source,) = sources(*(retime_traces / HTA / "nccl_parser_config").glob("*.gz"))
    out = read(source)
    c = out["collectives"]
    assert Counter(column(c, "op")) == {"all_reduce": 15, "broadcast": 6}
    assert set(column(c, "comm")) == set(column(out["comms"], "comm"))
    assert column(out["comms"], "ranks") == [[0, 1]]
    assert set(column(c, "group_size")) == {2}
    assert Counter(column(c, "step")) == {4: 7, 5: 7, 6: 7}
    # `Rank`, the broadcasts' root, is in traces from torch 2.5 on only.
    assert set(column(c, "root")) == {None}


def test_rccl_kinds_are_in_the_arguments_only(retime_traces):
    (source,) = sources(*(retime_traces / "kineto/TraceLens/mi300").glob("*.gz"))
    assert Counter(column(read(source)["collectives"], "op")) == {
        "broadcast": 6,
        "all_reduce": 6,
        "unknown": 5,
    }


def test_gloo_calls_run_on_their_own_threads(retime_traces):
    (source,) = sources(*(retime_traces / HTA / "cpu_only").glob("*.gz"))
    out = read(source)
    c = out["collectives"]
    assert column(c, "op") == ["all_reduce"] * 10
    assert sorted(set(column(c, "in_bytes"))) == [321_271 * 4, 2_082_411 * 4]
    # Ten groups share the backend and the members: which of them it was is not said.
    assert set(column(c, "comm")) == {None}
    assert set(column(c, "group_size")) == {300}


def test_batches_of_any_size_give_the_same_tables(retime_traces, monkeypatch):
    from retime.ingest.kineto import quick

    (source,) = sources(*(retime_traces / HTA / "trace_filter").glob("*-0.json.gz"))
    whole = read(source)

    def small(*given, **wanted):
        return quick.read_events(*given, **wanted, batch_rows=701, block_bytes=65536)

    monkeypatch.setattr(kineto, "reader", lambda source: (small, False))
    parts = read(source)
    assert len(parts["events"]) > len(whole["events"])
    order = np.argsort(column(parts["events"], "event_id"))
    other = np.argsort(column(whole["events"], "event_id"))
    for name in whole["events"][0].schema.names:
        a, b = column(parts["events"], name), column(whole["events"], name)
        assert [a[i] for i in order] == [b[i] for i in other], name
    for table in ("steps", "collectives", "ranks"):
        assert [b.to_pylist() for b in parts[table]] == [b.to_pylist() for b in whole[table]]


def test_a_plain_file_and_its_archives_give_the_same_rows(retime_traces, tmp_path):
    (source,) = sources(*(retime_traces / HTA / "cpu_only").glob("*.gz"))
    with source.open() as f:
        text = f.read()
    (tmp_path / "rank34.json").write_bytes(text)
    (tmp_path / "rank34.json.gz").write_bytes(
        gzip.compress(text[:9999]) + gzip.compress(text[9999:])
    )
    with tarfile.open(tmp_path / "all.tar", "w") as t:
        t.add(tmp_path / "rank34.json", "x/rank34.json")
    expected = [b.to_pylist() for b in read(source)["collectives"]]
    for name in ("rank34.json", "rank34.json.gz", "all.tar"):
        (one,) = sources(tmp_path / name)
        assert [b.to_pylist() for b in read(one)["collectives"]] == expected
