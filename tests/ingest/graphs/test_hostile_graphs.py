"""Execution traces made to hang a reader, fill memory or overflow a stack; and what is no trace."""

from __future__ import annotations

import io
import json
import re

import pytest
from retime.ingest import detect
from retime.ingest.errors import UnusableInput
from retime.ingest.graphs import chakra, json_items, param_comms, pytorch_et
from retime.ingest.graphs.json_items import Items
from retime.ingest.source import Source
from retime.ingest.sources import find_sources

HEAD = b'{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": ['
NODE = b'{"id": %d, "name": "aten::add", "ctrl_deps": 1}'


def source(data, name="x_et_0.json"):
    return Source(name, len(data), lambda: io.BytesIO(data))


def tables(data, module=pytorch_et, name="x_et_0.json"):
    assert module.looks_like(data[:65536], name)
    out = {}
    for table, batch in module.parse(source(data, name)):
        out.setdefault(table, []).extend(batch.to_pylist())
    return out


@pytest.mark.parametrize(
    "junk",
    [
        b'{"id": 1, "name": "x", "a": ' * 50_000,
        b'{"id": 1, "name": "x", "inputs": ' + b"[" * 500_000,
        b'{"id": 1, "name": "x", "inputs": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"id": 1, "name": "' + b"a" * (1 << 20),
        b'{"id": 1, "name": "' + b"\\" * (1 << 20),
        b"{" * 200_000,
        b'"' * 200_000,
        b'{"name": "' * 100_000,
        b'{"id": 1, "name": "x", "z": ' + b"9" * 500_000 + b"}",
        b"\0" * (1 << 20),
    ],
    ids=["open", "deep", "deep but closed", "string", "escapes", "braces", "quotes", "names",
         "digits", "zeros"],
)  # fmt: skip
def test_junk_between_nodes_costs_itself_only(junk):
    got = tables(HEAD + NODE % 7 + b",\n" + junk + b",\n" + NODE % 8 + b"\n]}")
    ids = [n["node_id"] for n in got["graph_nodes"] if n["name"] == "aten::add"]
    assert ids == [7, 8]
    assert any(p["severity"] == "lost" for p in got["problems"])


def test_nodes_without_an_end_are_given_up_after_a_while(monkeypatch):
    monkeypatch.setattr(json_items, "MAX_WASTED", 10_000)
    junk = b'{"id": 1, "name": "x", "a": 1, ' * 90 + b"," + b'{"id": 1, "name": "x", "a": [],' * 90
    got = tables(HEAD + NODE % 7 + b"," + junk + NODE % 8 + b"]}")
    assert [n["node_id"] for n in got["graph_nodes"]] == [7]
    assert "gave_up" in {p["code"] for p in got["problems"]}


def test_a_node_beyond_the_limit_is_left_out(monkeypatch):
    monkeypatch.setattr(json_items, "MAX_ITEM_BYTES", 1000)
    monkeypatch.setattr(json_items, "BLOCK", 500)
    big = b'{"ident": 1, "values": [' + b"1, " * 2000 + b'1], "more": {}}'
    got = tables(HEAD + NODE % 7 + b"," + big + b"," + NODE % 8 + b"]}")
    assert [n["node_id"] for n in got["graph_nodes"]] == [7, 8]
    assert [(p["code"], p["count"]) for p in got["problems"] if p["severity"] == "lost"] == [
        ("lost_node", 1)
    ]


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
def test_nodes_are_the_same_whatever_the_blocks(monkeypatch, block):
    monkeypatch.setattr(json_items, "BLOCK", block)
    nodes = [{"id": i, "name": 'a "quoted" }{ name', "x": [[i], {"y": "\\"}]} for i in range(40)]
    text = json.dumps({"schema": "1", "pid": 5, "nodes": nodes, "finish_ts": 9}).encode()
    starts = re.compile(rb'\{"id": \d+, "name"')
    items = Items(source(text), re.compile(rb'"nodes": \['), starts, pytest.fail)
    got = list(items)
    assert [n for _, n in got] == nodes
    assert all(text[at : at + 6] == b'{"id":' for at, _ in got)
    assert items.beside == {"schema": "1", "pid": 5, "finish_ts": 9}
    assert items.closed


def test_bad_utf8_and_nan_are_read_forgivingly():
    odd = b'{"id": 5, "name": "a\xffb", "x": NaN}'
    got = tables(HEAD + odd + b"," + NODE % 8 + b"]}")
    assert [n["name"] for n in got["graph_nodes"]] == ["a\ufffdb", "aten::add"]
    assert ("malformed_node", "warning") in {(p["code"], p["severity"]) for p in got["problems"]}


@pytest.mark.parametrize("module", [pytorch_et, chakra, param_comms])
def test_what_is_no_trace(module):
    for head in (
        b"", b"\0", b"{", b"[", b"[]", b"{}", b'{"nodes": []}', b'{"schema": 1, "nodes": [',
        b'{"schemaVersion": 1, "traceEvents": [{"ph": "X"}]}', b'[{"ph": "X", "comms": "x"}]'[:9],
        b'[{"a": 1}, {"comms": "all_reduce"}]', b"PAR1", b"SQLite format 3\0", b"# a README\n",
        b"\x80\x04\x95", b"PK\x03\x04", b"\x1f\x8b", bytes(range(256)) * 10, b"\xff" * 1000,
        b"import json\n" * 100, b"\x02\x12\x00\x00", b'{"nodes": [{"id": 1, "schema": "1.0.1"}]}',
    ):  # fmt: skip
        assert not module.looks_like(head, "x.json"), head


def test_every_real_execution_trace_is_detected_and_nothing_else_is(retime_traces):
    found = {}
    kinds = ("chakra", "kineto", "nccl_tests", "topo", "planner", "straggler", "moe")
    for one in find_sources([str(retime_traces / k) for k in kinds], lambda *_: None):
        head = one.head(detect.HEAD_BYTES)
        claims = [
            f
            for f, m in (
                ("execution-trace", pytorch_et), ("chakra", chakra), ("param", param_comms)
            )
            if m.looks_like(head, one.name)
        ]  # fmt: skip
        if claims:
            (claim,) = claims
            assert detect.detect(one) == claim
            name = one.name.removeprefix(str(retime_traces)).rsplit("/", 1)[-1]
            found[name] = claim
    want = {f"dlrm_eg_{r}.json": "execution-trace" for r in range(8)} | {
        "linear_et.json.gz": "execution-trace", "resnet_2gpu_et.json.gz": "execution-trace",
        "benchmark_simple_add_et.json.gz": "execution-trace", "chakra.0.et": "chakra",
        "1.0.2-chakra.0.0.4.tgz!1.0.2-chakra.0.0.4.json": "execution-trace",
        "chakra.0.json": "chakra",
        "small_chakra.0.json": "chakra",
    }  # fmt: skip
    assert found == want


def test_a_forced_format_refuses_what_is_none():
    for module, data in ((pytorch_et, b'{"a": 1}'), (param_comms, b"{}"), (chakra, b"\xff" * 99)):
        with pytest.raises(UnusableInput):
            list(module.parse(source(data, "x_et_0.json"), rank=0))


def test_groups_of_a_million_do_not_fill_memory(monkeypatch):
    monkeypatch.setattr("retime.ingest.graphs.groups.MAX_ALL_MEMBERS", 1000)
    call = (
        '{"id": %d, "name": "record_param_comms", "ctrl_deps": 1, "inputs": {"values": '
        '[[1, false], ["g%d", ""], 0, "barrier", [], [], 0, 1, 600], "types": []}}'
    )
    nodes = ",".join(call % (i, i) for i in (7, 8, 9)).encode()
    got = tables(HEAD + nodes + b"]}")
    assert [(c["name"], c["size"], c["ranks"] is None) for c in got["comms"]] == [
        ("g7", 600, False), ("g8", 600, True), ("g9", 600, True),
    ]  # fmt: skip
    assert ("members_unknown", 2) in [(p["code"], p["count"]) for p in got["problems"]]
