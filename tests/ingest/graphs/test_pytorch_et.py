"""PyTorch execution traces made by hand, as `execution_trace_observer.cpp` writes schema 1.1.1."""

from __future__ import annotations

import json

import pytest
from retime.ingest.errors import UnusableInput
from retime.ingest.graphs.names import rank_of
from retime.ingest.kineto.comms import identity
from retime.ingest.schema import event_id

BFLOAT = "Tensor(c10::BFloat16)"


def node(id, name, parent=2, inputs=(), types=(), outputs=(), scope=0, rf=None, schema="", **more):
    attrs = {"rf_id": id + 100 if rf is None else rf, "fw_parent": 0, "seq_id": -1, "scope": scope,
             "tid": 1, "fw_tid": 0, "op_schema": schema, **more}  # fmt: skip
    return {
        "id": id, "name": name, "ctrl_deps": parent,
        "inputs": {"values": list(inputs), "shapes": [], "types": list(types), "strides": []},
        "outputs": {"values": list(outputs), "shapes": [], "types": [], "strides": []},
        "attrs": [{"name": k, "type": "", "value": v} for k, v in attrs.items()],
    }  # fmt: skip


def tensor(id, n=8, itemsize=2):
    return [id, id + 500, 0, n, itemsize, "cuda:0"]


def call(id, name, seq, group, place, *, splits=([], []), size=4, n=8, tensors=True, **attrs):
    values = [seq, group, place, name, *splits, 0, 1, size]
    values = [[tensor(7, n)], *values] if tensors else values
    types = ["GenericList[" + BFLOAT + "]"] if tensors else []
    return node(id, "record_param_comms", 9, values, types, [[tensor(7, n)]] if tensors else [],
                collective_name=name, **attrs)  # fmt: skip


INIT = [
    {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cpu:gloo,cuda:nccl", "ranks": [],
     "group_size": 64, "group_count": 2},
    {"pg_name": "5", "pg_desc": "mesh_tp", "backend_config": "cuda:nccl", "ranks": [1, 2, 7, 9],
     "group_size": 4, "group_count": 2},
]  # fmt: skip
ROOT = node(1, "[pytorch|profiler|execution_trace|process]", 1, rf=0, scope=7)
TP = identity("5", (1, 2, 7, 9), 4)


def init(groups=INIT, id=3):
    return node(id, "## process_group:init ##", 2, [json.dumps(groups)], ["String"], scope=7)


@pytest.fixture
def trace(read, tmp_path):
    def of(*nodes, name="job_et_2.json", schema="1.1.1-chakra.0.0.4", **top):
        text = {"schema": schema, "pid": 77, "time": "2026-01-01 00:00:00", "start_ts": 1,
                "nodes": list(nodes), "finish_ts": 2, **top}  # fmt: skip
        (tmp_path / name).write_text(json.dumps(text, indent=1))
        (tables,) = read(tmp_path / name, "execution-trace").values()
        return tables

    return of


def some(row, *names):
    return tuple(row[n] for n in names)


def test_a_collective_in_full(trace, codes):
    sizes = {"dtype": "BFloat16", "in_msg_nelems": 8, "out_msg_nelems": 8}
    tables = trace(init(), call(10, "allreduce", [31, False], ["5", "mesh_tp"], 1, **sizes), ROOT)
    (row,) = tables["collectives"]
    assert {k: v for k, v in row.items() if v is not None} == {
        "comm": TP, "seq": 31, "rank": 2, "op": "all_reduce", "dtype": "bfloat16", "in_bytes": 16,
        "out_bytes": 16, "group_size": 4, "event_id": event_id(2, "execution-trace", 10),
        "record_function": 110, "source": "execution-trace",
    }  # fmt: skip
    comms = {c["comm"]: c for c in tables["comms"]}
    assert {k: v for k, v in comms[TP].items() if v is not None} == {
        "comm": TP, "name": "5", "description": "mesh_tp", "ranks": [1, 2, 7, 9], "size": 4,
        "dim": "tp", "dim_source": "description", "backend": "nccl",
    }  # fmt: skip
    # An empty list means all ranks.
    assert comms[identity("0", tuple(range(64)), 64)]["ranks"] == list(range(64))
    assert some(tables["ranks"][0], "rank", "pid", "world_size", "clock") == (2, 77, 64, "none")
    assert codes(tables) == {}


def test_splits_are_whole_where_kineto_and_long_values_are_cut(trace):
    rows = list(range(1, 41))
    long = [1] * 5000
    got = trace(
        init([{"pg_name": "0", "ranks": [], "group_size": 40}]),
        call(10, "all_to_allv", [1, False], ["0", ""], 2, size=40, splits=(rows, rows[::-1])),
        # The writer stops a list of values after 4097 items; the attribute has them all.
        call(11, "all_to_allv", [2, False], ["9", ""], 2, size=5000, splits=(long[:4097], []),
             in_split_size=str(long), out_split_size="[]"),
    )  # fmt: skip
    a, b = got["collectives"]
    assert some(a, "op", "in_splits", "out_splits") == ("all_to_all", rows, rows[::-1])
    assert some(b, "in_splits", "out_splits", "group_size") == (long, None, 5000)


def test_roots_peers_and_point_to_point(trace):
    tables = trace(
        init(),
        call(10, "broadcast", [5, False], ["5", ""], 2),
        call(11, "send", [6, True], ["5", ""], 3),
        call(12, "recv", [7, True], ["5", ""], 0),
        call(13, "barrier", [8, False], ["5", ""], 1, tensors=False),
        call(14, "wait", [9, False], ["", ""], 1, tensors=False),
        call(15, "init", [0, False], ["5", ""], 1, tensors=False),
    )
    assert [some(r, "op", "seq", "root", "peer") for r in tables["collectives"]] == [
        ("broadcast", 5, 7, None), ("send", None, None, 9), ("recv", None, None, 1),
        ("barrier", 8, None, None),
    ]  # fmt: skip
    kinds = {n["node_id"]: n["kind"] for n in tables["graph_nodes"]}
    assert kinds == {3: "metadata", 10: "collective", 11: "send", 12: "recv", 13: "collective",
                     14: "other", 15: "other"}  # fmt: skip


def test_groups_without_a_listing_come_from_start_and_stride(trace):
    n = node(10, "record_param_comms", 2,
             [[tensor(1)], [1, False], ["3", "dp"], 0, "allreduce", [], [], 2, 4, 3])  # fmt: skip
    (row,) = trace(n)["collectives"]
    assert some(row, "comm", "group_size") == (identity("3", (2, 6, 10), 3), 3)


def test_groups_listed_behind_their_calls_are_known_all_the_same(trace):
    tables = trace(call(10, "allreduce", [1, False], ["5", ""], 1, size=4), init(id=30), ROOT)
    assert tables["collectives"][0]["comm"] == TP


def test_the_rank_that_calls_give_is_held_against_the_name(trace, codes):
    call_of_7 = call(10, "allreduce", [1, False], ["5", ""], 2)
    tables = trace(init(), call_of_7, ROOT)
    assert tables["ranks"][0]["rank"] == 2
    assert codes(tables) == {"rank_differs": 1}
    tables = trace(init(), call_of_7, ROOT, name="trace.et.json")
    assert tables["ranks"][0]["rank"] == 7
    assert codes(tables) == {"rank_from_group": 1}


def test_a_rooted_call_says_nothing_of_the_rank(read, trace):
    with pytest.raises(UnusableInput, match="--rank"):
        trace(init(), call(10, "broadcast", [1, False], ["5", ""], 2), name="trace.et.json")


def test_calls_of_a_back_end_that_records_no_comms(trace):
    # gloo of torch 2.13: the operator's schema names its arguments.
    schema = (
        "c10d::alltoall_base_(Tensor output, Tensor input, __torch__.torch.classes.c10d."
        "ProcessGroup process_group, int[] output_split_sizes, int[] input_split_sizes, "
        "bool async_op=True, int timeout=-1) -> __torch__.torch.classes.c10d.Work"
    )
    values = [tensor(1, 16, 4), tensor(2, 32, 4), "<Object>", [3, 1], [3, 5], False, -1]
    types = ["Tensor(float)", "Tensor(float)", "Object"]
    send = "c10d::send(Tensor[] tensors, ProcessGroup process_group, int dst, int tag) -> Work"
    one = [INIT[1] | {"backend_config": "cpu:gloo"}]
    tables = trace(
        init(one),
        node(10, "c10d::alltoall_base_", 2, values, types, schema=schema),
        node(11, "c10d::send", 2, [[tensor(3, 4, 8)], "<Object>", 2, 0], [], schema=send),
        # With its own record_param_comms a c10d operator is only what called it.
        call(13, "allreduce", [1, False], ["5", ""], 1) | {"ctrl_deps": 12},
        node(12, "c10d::allreduce_", 2, [[tensor(7)], "<Object>"], [],
             schema="c10d::allreduce_(Tensor[] tensors, ProcessGroup process_group) -> ()"),
        ROOT,
    )  # fmt: skip
    rows = tables["collectives"]
    assert [some(r, "op", "comm", "in_bytes", "out_bytes", "peer", "record_function") for r in
            rows] == [
        ("all_to_all", TP, 128, 64, None, 110), ("send", TP, 32, 32, 7, 111),
        ("all_reduce", TP, 16, 16, None, 113),
    ]  # fmt: skip
    assert some(rows[0], "in_splits", "out_splits", "dtype") == ([3, 5], [3, 1], "float32")
    kinds = {n["node_id"]: n["kind"] for n in tables["graph_nodes"]}
    assert (kinds[10], kinds[12], kinds[13]) == ("collective", "other", "collective")


def test_data_dependencies_are_the_innermost_earlier_writers(trace):
    # Written as they end: 5 (linear) holds 6 (addmm); 8 reads what both give out; 9 is in place.
    tables = trace(
        node(4, "aten::empty", 2, [], [], [tensor(50)]),
        node(6, "aten::addmm", 5, [tensor(50)], [], [tensor(51)]),
        node(5, "aten::linear", 2, [tensor(50)], [], [tensor(51)]),
        node(8, "aten::relu", 2, [tensor(51), [tensor(50), 3]], [], [tensor(52)]),
        node(9, "aten::add_", 2, [tensor(51), tensor(52)], [], [tensor(51)]),
        node(10, "aten::copy_", 2, [tensor(53, 10, 4), tensor(51)], [], [tensor(53)]),
    )
    deps = {n["node_id"]: n["data_deps"] for n in tables["graph_nodes"]}
    assert deps == {4: [], 5: [4], 6: [4], 8: [4, 6], 9: [6, 8], 10: [9]}
    (copy,) = [n for n in tables["graph_nodes"] if n["node_id"] == 10]
    assert some(copy, "kind", "bytes", "parent", "thread", "record_function") == (
        "memory", 40, 2, "1", 110,
    )  # fmt: skip


def test_wrong_types_everywhere_end_in_rows_and_problems(trace, codes):
    bad = [None, True, -1, 1 << 70, 1.5, "x", [], {}, [[]], "[1, 2, ..., 9]"]
    odd = []
    for i, v in enumerate(bad):
        n = call(20 + i, "allreduce", v, v, v, splits=(v, v), size=v, pg_size=v, dtype=v,
                 in_msg_nelems=v, in_split_size=v, pg_name=v)  # fmt: skip
        odd += [n, n | {"id": v}, n | {"inputs": v}, n | {"attrs": v}, n | {"ctrl_deps": v},
                n | {"name": v}]  # fmt: skip
    odd += [init(v) for v in bad] + [init([{"pg_name": v, "ranks": v, "group_size": v}]) for v in
                                     bad]  # fmt: skip
    tables = trace(*odd, ROOT)
    assert len(tables["graph_nodes"]) == len(odd) + 1
    assert {"duplicate_node", "no_id", "bad_group_list", "splits_truncated"} <= set(codes(tables))


def test_a_root_that_is_missing_is_said(trace, codes):
    assert codes(trace(init())) == {"no_root": 1}


def test_no_node_is_no_trace(trace):
    with pytest.raises(UnusableInput, match="no node"):
        trace()


@pytest.mark.parametrize(
    ("name", "rank", "numbered"),
    [
        ("a/dlrm_eg_3.json", 3, 3),
        ("x_et_12.json.gz", 12, 12),
        ("t.zip!rank-3/et.json", 3, 3),
        ("job/rank7.et.json", 7, 7),
        ("execution_trace_5.json", 5, 5),
        ("chakra.0.et", None, 0),
        ("llm.17.et.gz", None, 17),
        ("3.json", None, 3),
        ("1.0.2-chakra.0.0.4.json", None, None),
        ("benchmark_simple_add_et.json", None, None),
        ("x_et_99999999.json", None, None),
        ("x_et_8388608.json", None, None),  # one beyond the highest
    ],
)
def test_ranks_in_names(name, rank, numbered):
    assert rank_of(name) == rank
    assert rank_of(name, numbered=True) == numbered
