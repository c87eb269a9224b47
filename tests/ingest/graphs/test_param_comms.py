"""PARAM basic traces made by hand, with the keys that `commsTraceParser.py` reads."""

from __future__ import annotations

import json

import pytest
from retime.ingest.errors import RankUnknown, UnusableInput
from retime.ingest.kineto.comms import identity
from retime.ingest.schema import event_id

TRACE = [
    {"comms": "init", "pg_id": 0, "world_size": 4, "req": -1},
    {"comms": "init", "pg_id": 1, "global_ranks": [1, 3], "world_size": 2, "req": -1},
    {"comms": "all_reduce", "req": 4, "pg_id": 0, "in_msg_size": 64, "out_msg_size": 64,
     "dtype": "bfloat16", "startTime_ns": 1200, "markers": ["fwd"]},
    {"compute": "gemm", "count": 3, "mm_dim": 100, "dtype": "float32"},
    {"comms": "wait", "req": 4, "pg_id": 0},
    {"comms": "AllToAllv", "req": 5, "pg_id": 1, "in_msg_size": 8, "out_msg_size": 6,
     "dtype": "Float", "in_split": [3, 5], "out_split": [4, 2]},
    {"comms": "broadcast", "req": 6, "pg_id": 1, "in_msg_size": 1, "out_msg_size": 1,
     "dtype": "long", "root": 3},
    {"comms": "isend", "req": 7, "pg_id": 0, "in_msg_size": 10, "out_msg_size": 10, "dtype": "int",
     "src_rank": 1, "dst_rank": 0, "use_batch": True},
    {"comms": "recv", "req": 8, "pg_id": 0, "in_msg_size": 10, "out_msg_size": 10, "dtype": "?",
     "src_rank": 2, "dst_rank": 1, "use_batch": True},
    {"comms": "batch_isend_irecv", "req": 9, "pg_id": 0},
    {"comms": "barrier", "req": 10, "pg_id": 0},
]  # fmt: skip
WORLD, PAIR = identity("0", (0, 1, 2, 3), 4), identity("1", (1, 3), 2)


@pytest.fixture
def trace(read, tmp_path):
    def of(entries, name="1.json", rank=None):
        text = entries if isinstance(entries, str) else json.dumps(entries)
        (tmp_path / name).write_text(text)
        (tables,) = read(tmp_path / name, "param-comms", rank).values()
        return tables

    return of


def some(row, *names):
    return tuple(row[n] for n in names)


def test_operations_in_order(trace, codes):
    tables = trace(TRACE)
    said = ("op", "comm", "group_size", "dtype", "in_bytes", "out_bytes", "root", "peer")
    assert [some(r, *said) for r in tables["collectives"]] == [
        ("all_reduce", WORLD, 4, "bfloat16", 128, 128, None, None),
        ("all_to_all", PAIR, 2, "float32", 32, 24, None, None),
        ("broadcast", PAIR, 2, "int64", 8, 8, 3, None),
        ("send", WORLD, 4, "int32", 40, 40, None, 0),
        ("recv", WORLD, 4, None, None, None, None, 2),
        ("barrier", WORLD, 4, None, None, None, None, None),
    ]  # fmt: skip
    assert [r["event_id"] for r in tables["collectives"]] == [
        event_id(1, "param", n) for n in (2, 5, 6, 7, 8, 10)
    ]
    alltoall = tables["collectives"][1]
    assert some(alltoall, "in_splits", "out_splits", "seq", "source") == (
        [3, 5], [4, 2], None, "param",
    )  # fmt: skip
    assert {c["comm"]: c["ranks"] for c in tables["comms"]} == {WORLD: [0, 1, 2, 3], PAIR: [1, 3]}
    assert some(tables["ranks"][0], "rank", "world_size", "clock") == (1, 4, "none")
    assert codes(tables) == {"unknown_dtype": 1}


def test_every_entry_is_a_node_and_a_wait_depends_on_its_request(trace):
    nodes = trace(TRACE)["graph_nodes"]
    assert [n["kind"] for n in nodes] == [
        "metadata", "metadata", "collective", "compute", "other", "collective", "collective",
        "send", "recv", "other", "collective",
    ]  # fmt: skip
    assert [n["node_id"] for n in nodes] == list(range(11))
    assert some(nodes[2], "start_ns", "bytes", "comm", "op") == (1200, 128, WORLD, "all_reduce")
    assert nodes[4]["data_deps"] == [2]


def test_entries_that_are_nothing_are_counted(trace, codes):
    tables = trace([TRACE[0], {"x": 1}, {"comms": 5}, 7, TRACE[2]])
    assert [n["kind"] for n in tables["graph_nodes"]] == ["metadata", "collective"]
    assert codes(tables)["lost_node"] == 3


def test_impossible_values_are_null(trace, codes):
    odd = TRACE[5] | {"in_msg_size": -1, "out_msg_size": 1 << 70, "in_split": [1, -1], "pg_id": "x",
                      "out_split": "no", "req": [1]}  # fmt: skip
    (row,) = trace([odd])["collectives"]
    assert some(row, "in_bytes", "out_bytes", "in_splits", "out_splits", "comm", "group_size") == (
        None, None, None, None, None, None,
    )  # fmt: skip


def test_a_cut_list_keeps_what_is_whole(trace, codes):
    text = json.dumps(TRACE)
    tables = trace(text[: text.index('"broadcast"') + 5])
    assert [n["node_id"] for n in tables["graph_nodes"]] == list(range(6))
    assert codes(tables) == {"truncated": 1}


def test_the_rank_is_in_the_name_or_given(trace):
    with pytest.raises(RankUnknown):
        trace(TRACE, name="trace.json")
    assert trace(TRACE, name="trace.json", rank=6)["ranks"][0]["rank"] == 6


def test_nothing_readable_is_no_trace(trace):
    with pytest.raises(UnusableInput, match="no entry"):
        trace('[{"comms": "all_re')
