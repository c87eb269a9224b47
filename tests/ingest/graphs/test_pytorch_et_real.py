"""Real PyTorch execution traces, held against a few lines of json on the same files."""

from __future__ import annotations

import gzip
import json
import re
import tarfile

import pytest
from retime.ingest.errors import RankUnknown
from retime.ingest.kineto.comms import identity

DLRM_ET = "kineto/param/dlrm_pytorch_et.tar.gz"
DLRM_KINETO = "kineto/param/dlrm_kineto.tar.gz"
RESNET = "kineto/param/1.1.0-chakra.0.0.4/resnet_2gpu_et.json.gz"
LINEAR = "kineto/param/linear_et.json.gz"
OLD_CHAKRA = "chakra/chakra/1.0.2-chakra.0.0.4.tgz"
PAIR = "kineto/HolisticTraceAnalysis/execution_trace/benchmark_simple_add_{}.json.gz"

OPS = {"allreduce": "all_reduce", "all_to_allv": "all_to_all", "all_to_all": "all_to_all",
       "broadcast": "broadcast", "all_gather": "all_gather"}  # fmt: skip


def members(path):
    with tarfile.open(path) as tar:
        for m in tar:
            name = m.name.rsplit("/", 1)[-1]
            if m.isfile() and name.endswith(".json") and not name.startswith("._"):
                yield name, json.load(tar.extractfile(m))


def unpacked(path):
    with gzip.open(path, "rt") as f:
        return f.read()


@pytest.fixture(scope="module")
def dlrm(read, retime_traces):
    return read(retime_traces / DLRM_ET, "execution-trace")


@pytest.fixture(scope="module")
def dlrm_text(retime_traces):
    """Each rank's trace as the standard library reads it."""
    return dict(members(retime_traces / DLRM_ET))


def attrs(node):
    return {a["name"]: a["value"] for a in node["attrs"]}


def flat_bytes(value):
    """Bytes of the tensors in a nested list of values."""
    if isinstance(value, list) and len(value) == 6 and isinstance(value[5], str):
        return value[3] * value[4]
    return sum(map(flat_bytes, value)) if isinstance(value, list) else 0


def test_dlrm_has_its_nodes_and_collectives_with_whole_splits(dlrm, dlrm_text):
    n = 0
    for name, et in dlrm_text.items():
        tables = dlrm[name]
        assert len(tables["graph_nodes"]) == len(et["nodes"]) == 1675
        (rank,) = tables["ranks"]
        assert (rank["rank"], rank["pid"], rank["clock"]) == (int(name[8]), et["pid"], "none")
        calls = [v for v in et["nodes"] if v["name"] == "record_param_comms" and "wait" not in
                 v["inputs"]]  # fmt: skip
        want = sorted(
            (
                v["rf_id"], v["inputs"][1], OPS[v["inputs"][4]], v["inputs"][5] or None,
                v["inputs"][6] or None, flat_bytes(v["inputs"][0]), flat_bytes(v["outputs"]),
            )
            for v in calls
        )  # fmt: skip
        rows = tables["collectives"]
        assert [
            tuple(r[k] for k in ("record_function", "seq", "op", "in_splits", "out_splits",
                                 "in_bytes", "out_bytes"))
            for r in sorted(rows, key=lambda r: r["event_id"])
        ] == want  # fmt: skip
        assert {r["group_size"] for r in rows} == {8}
        assert {(r["comm"], r["start_ns"], r["timing"], r["source"]) for r in rows} == {
            (None, None, None, "execution-trace")
        }
        n += len(rows)
    assert n == 64


def test_dlrm_what_one_rank_sends_is_what_the_other_gets(dlrm):
    split = {
        (t["ranks"][0]["rank"], r["seq"]): (r["in_splits"], r["out_splits"])
        for t in dlrm.values()
        for r in t["collectives"]
        if r["in_splits"]
    }
    assert {seq for _, seq in split} == {147, 149, 150, 152}
    for rank, seq in split:
        for peer in range(8):
            assert split[rank, seq][0][peer] == split[peer, seq][1][rank]


def test_dlrm_pairs_with_its_kineto_trace_by_order(read, dlrm, dlrm_text, retime_traces):
    # 2023: Kineto has no `Record function id` and no arguments of collectives.
    by_rank = {
        t["ranks"][0]["rank"]: t["collectives"]
        for t in read(retime_traces / DLRM_KINETO, "kineto").values()
    }
    for tables in dlrm.values():
        kineto = sorted(by_rank[tables["ranks"][0]["rank"]], key=lambda r: r["start_ns"])
        et = sorted(tables["collectives"], key=lambda r: r["event_id"])
        assert {r["record_function"] for r in kineto} == {None}
        shared = ("op", "dtype", "in_bytes")
        assert [[r[k] for k in shared] for r in kineto] == [[r[k] for k in shared] for r in et]
        assert [r["op"] for r in et].count("all_to_all") == 5
    # External ids are no rf_ids: one too many on the first thread, others elsewhere.
    et = dlrm_text["dlrm_eg_3.json"]
    kineto = next(e for n, e in members(retime_traces / DLRM_KINETO) if n.startswith("worker3"))
    external = sorted(
        (e["ts"], e["args"]["External id"])
        for e in kineto["traceEvents"]
        if e.get("name") == "record_param_comms"
    )
    rf = sorted(n["rf_id"] for n in et["nodes"] if n["name"] == "record_param_comms")
    assert [e - r for (_, e), r in zip(external, rf, strict=True)] == [1] * 8 + [234] * 4 + [232]


def test_a_pair_of_2023_agrees_where_its_ids_happen_to(read, retime_traces):
    et = read(retime_traces / PAIR.format("et"), "execution-trace", rank=0)
    kineto = read(retime_traces / PAIR.format("trace"), "kineto")
    (et,), (kineto,) = et.values(), kineto.values()
    text = unpacked(retime_traces / PAIR.format("et"))
    assert len(et["graph_nodes"]) == len(json.loads(text)["nodes"]) == 38
    of_node = {n["record_function"]: n["name"] for n in et["graph_nodes"] if n["record_function"]}
    ops = [e for e in kineto["events"] if e["kind"] in ("host_op", "annotation")]
    ops = [e for e in ops if e["external_id"]]
    assert len(ops) == 36
    assert [of_node[e["external_id"]] for e in ops] == [e["name"] for e in ops]


def test_groups_by_address_get_the_name_that_the_init_node_gives(read, codes, retime_traces):
    (tables,) = read(retime_traces / OLD_CHAKRA, "execution-trace").values()
    ((_, et),) = members(retime_traces / OLD_CHAKRA)
    calls = [
        n["inputs"]["values"] for n in et["nodes"]
        if n["name"] == "record_param_comms" and "wait" not in n["inputs"]["values"]
    ]  # fmt: skip
    rows = sorted(tables["collectives"], key=lambda r: r["event_id"])
    assert len(tables["graph_nodes"]) == len(et["nodes"]) == 263
    comm = identity("0", (0, 1), 2)
    # Each of the two ranks gives one float: 4 bytes in, 8 out.
    assert [(r["seq"], r["op"], r["comm"], r["group_size"], r["in_bytes"], r["out_bytes"],
             r["dtype"]) for r in rows] == [
        (v[1], "all_gather", comm, 2, 4, 8, "float32") for v in calls
    ]  # fmt: skip
    assert tables["comms"][0]["ranks"] == [0, 1]
    assert tables["comms"][0]["backend"] == "nccl"
    # The rank is the place that the calls give; the file's last number is a version's.
    assert tables["ranks"][0]["rank"] == 0
    assert codes(tables) == {"rank_from_group": 1}


def test_resnet_of_two_gpus(read, retime_traces):
    text = unpacked(retime_traces / RESNET)
    (tables,) = read(retime_traces / RESNET, "execution-trace").values()
    assert len(tables["graph_nodes"]) == text.count('"ctrl_deps": ') == 14392
    called = re.findall(r'"collective_name", "type": "string", "value": "(\w+)"', text)
    called = [c for c in called if c != "wait"]
    rows = tables["collectives"]
    assert sorted(r["op"] for r in rows) == sorted(OPS[c] for c in called)
    assert len(rows) == 21
    comm = identity("0", (0, 1), 2)
    assert {r["comm"] for r in rows} == {comm}
    # Attributes give elements and their type, the values give a root or the rank's own place.
    calls = {
        n["id"]: (attrs(n), n["inputs"]["values"])
        for n in json.loads(text)["nodes"]
        if n["name"] == "record_param_comms"
    }
    size = {"Float": 4, "Long": 8}
    for r in rows:
        a, v = calls[r["event_id"] & 0xFFFFFFFF]
        assert r["record_function"] == a["rf_id"]
        assert r["in_bytes"] == a["in_msg_nelems"] * size[a["dtype"]] == flat_bytes(v[0])
        assert r["root"] == (v[3] if r["op"] == "broadcast" else None)
        assert r["seq"] == v[1]
    assert {v[3] for a, v in calls.values() if a["collective_name"] == "allreduce"} == {1}
    assert tables["ranks"][0]["rank"] == 1


def test_a_trace_that_does_not_say_its_rank(read, retime_traces):
    with pytest.raises(RankUnknown, match="--rank"):
        read(retime_traces / LINEAR, "execution-trace")
    (tables,) = read(retime_traces / LINEAR, rank=5).values()
    text = unpacked(retime_traces / LINEAR)
    assert len(tables["graph_nodes"]) == text.count('"rf_id":')
    assert "collectives" not in tables
    assert tables["ranks"][0]["rank"] == 5


def whole_nodes(text):
    """Nodes of a cut trace that the standard library can read, one after another."""
    at = text.index('"nodes": [') + len('"nodes": [')
    decoder, out = json.JSONDecoder(), []
    while True:
        at = re.compile(r"[\s,]*").match(text, at).end()
        try:
            node, at = decoder.raw_decode(text, at)
        except ValueError:
            return out
        out.append(node)


@pytest.mark.parametrize("keep", [0.2, 0.5003, 0.9])
def test_a_crash_leaves_the_nodes_before_it(read, retime_traces, tmp_path, keep):
    text = unpacked(retime_traces / LINEAR)
    cut = text[: int(len(text) * keep)]
    (tmp_path / "job_et_1.json").write_text(cut)
    (tables,) = read(tmp_path / "job_et_1.json", "execution-trace").values()
    want = whole_nodes(cut)
    assert sorted(n["node_id"] for n in tables["graph_nodes"]) == sorted(n["id"] for n in want)
    (problem,) = tables["problems"]
    assert (problem["code"], problem["severity"], problem["count"]) == ("truncated", "lost", 1)
    # It names the byte where the first node that is not whole begins.
    assert len(whole_nodes(cut[: problem["offset"]])) == len(want)
    assert cut[problem["offset"] :].lstrip(" \n,")[:1] in ("{", "")


def test_a_compressed_file_that_is_cut(read, codes, retime_traces, tmp_path):
    stored = (retime_traces / RESNET).read_bytes()
    (tmp_path / "job_et_1.json.gz").write_bytes(stored[: len(stored) // 2])
    (tables,) = read(tmp_path / "job_et_1.json.gz", "execution-trace").values()
    assert 5000 < len(tables["graph_nodes"]) < 14392
    assert "truncated" in codes(tables)


def test_one_broken_node_costs_one_node(read, codes, retime_traces, tmp_path):
    text = unpacked(retime_traces / PAIR.format("et"))
    broken = text.replace('"name": "aten::uniform_", "id": 8,', '"name": "aten::uni"form_", "id":',
                          1)  # fmt: skip
    assert broken != text
    (tmp_path / "x_et_0.json").write_text(broken)
    (tables,) = read(tmp_path / "x_et_0.json", "execution-trace").values()
    assert len(tables["graph_nodes"]) == 37
    assert codes(tables) == {"lost_node": 1}
