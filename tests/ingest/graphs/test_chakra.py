"""Chakra traces: real ones held against a small protobuf loop, others written by hand here."""

from __future__ import annotations

import gzip
import json
import struct
import tarfile

import pytest
from retime.ingest.errors import RankUnknown, UnusableInput
from retime.ingest.graphs.chakra_wire import attribute
from retime.ingest.kineto.comms import identity
from retime.ingest.schema import event_id

ET = "chakra/chakra/feeder_tests_trace.tar.gz"
JSON = "chakra/chakra/json_trace.tar.gz"


def member(path, end):
    with tarfile.open(path) as tar:
        return next(tar.extractfile(m).read() for m in tar if m.name.endswith(end))


def number(data, at):
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def pairs(data):
    at = 0
    while at < len(data):
        key, at = number(data, at)
        value, at = number(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        yield key >> 3, value


def messages(data):
    at = 0
    while at < len(data):
        size, at = number(data, at)
        yield data[at : at + size]
        at += size


def simple(data):
    """A real node (only varints and texts occur in them): fields 1, 2, 3, 5, 7 and attributes."""
    listed = list(pairs(data))
    f = dict(listed)
    attrs = {}
    for key, value in listed:
        if key == 10:
            (_, name), *rest = pairs(value)
            attrs[name.decode()] = rest[0][1] if rest else None
    deps, at = [], 0
    while 5 in f and at < len(f[5]):
        dep, at = number(f[5], at)
        deps.append(dep)
    return f[1], f[2].decode(), f[3], deps, f.get(7, 0), attrs


@pytest.fixture(scope="module")
def converted(read, retime_traces):
    (tables,) = read(retime_traces / ET, "chakra").values()
    return tables


def test_a_converted_trace(converted, codes, retime_traces):
    tables = converted
    want = [simple(m) for m in list(messages(member(retime_traces / ET, "chakra.0.et")))[1:]]
    rows = tables["graph_nodes"]
    assert len(rows) == len(want) == 3664
    for row, (id, name, kind, deps, dur_us, attrs) in zip(rows, want, strict=True):
        assert (row["node_id"], row["name"]) == (id, name)
        assert row["kind"] == {4: "compute", 7: "collective"}[kind]
        assert (row["data_deps"] or []) == deps
        assert row["dur_ns"] == (dur_us * 1000 or None)
        assert row["record_function"] == (attrs.get("rf_id") or None)
        assert row["thread"] == str(attrs["tid"])
        assert row["start_ns"] is None
    op = {0: "all_reduce", 5: "broadcast"}
    assert [
        (r["event_id"], r["op"], r["in_bytes"], r["exec_ns"]) for r in tables["collectives"]
    ] == [
        (event_id(0, "chakra", w[0]), op[w[5]["comm_type"]], w[5]["comm_size"], w[4] * 1000)
        for w in want
        if "comm_type" in w[5]
    ]
    assert len(tables["collectives"]) == 7
    assert (tables["ranks"][0]["rank"], tables["ranks"][0]["pid"]) == (0, 114598)
    assert codes(tables) == {"no_sequence_numbers": 1}


def test_the_feeders_json_has_the_same_nodes(read, converted, retime_traces):
    tables, et = read(retime_traces / JSON, "chakra"), converted
    same = ("node_id", "name", "kind", "data_deps", "dur_ns")
    big = tables["chakra.0.json"]
    got = {r["node_id"]: tuple(r[k] if k != "data_deps" else r[k] or [] for k in same) for r in
           big["graph_nodes"]}  # fmt: skip
    raw = json.loads(member(retime_traces / JSON, "/chakra.0.json"))["workload_graph"]
    assert len(big["graph_nodes"]) == len(raw) == 3664
    for n in raw:
        assert got[n["Id"]][1:] == (
            n["Name"], {4: "compute", 7: "collective"}[n["NodeType"]], n["data_deps"],
            n.get("runtime", 0) * 1000 or None,
        )  # fmt: skip
    # It has no comm_type: the op is what the kernels' names say.
    ops = [(r["event_id"], r["op"]) for r in et["collectives"]]
    assert sorted((r["event_id"], r["op"]) for r in big["collectives"]) == sorted(ops)
    small = tables["small_chakra.0.json"]
    assert [n["ctrl_deps"] for n in small["graph_nodes"]] == [[3], [3], [429], [3], [3], [434], [3]]
    assert [(r["op"], r["exec_ns"]) for r in small["collectives"]] == [("broadcast", 28_000)]


# Writing, after schema/protobuf/et_def.proto.


def varint(n):
    out = b""
    n &= (1 << 64) - 1
    while True:
        out += bytes([n & 127 | (128 if n > 127 else 0)])
        n >>= 7
        if not n:
            return out


def field(key, value):
    if isinstance(value, int):
        return varint(key << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(key << 3 | 2) + varint(len(value)) + value


def attr(name, key, value):
    return field(10, field(1, name) + field(key, value))


def node(id, name, kind, *attrs, ctrl=(), deps=(), dur=0, start=0, inputs=None):
    out = field(1, id) if id else b""  # proto3 leaves zeros out
    out += field(2, name) + field(3, kind)
    out += field(4, b"".join(map(varint, ctrl))) if ctrl else b""
    out += b"".join(field(5, d) for d in deps)  # not packed, as old writers may
    out += (field(6, start) if start else b"") + (field(7, dur) if dur else b"")
    out += field(8, field(1, inputs)) if inputs else b""
    return out + b"".join(attrs)


HEAD = field(1, "0.0.4")
GROUPS = json.dumps([{"pg_name": "5", "pg_desc": "mesh_tp", "ranks": [1, 3], "group_size": 2}])


@pytest.fixture
def trace(read, tmp_path):
    def of(*nodes, name="llm.3.et", raw=b"", pack=bytes):
        data = b"".join(varint(len(m)) + m for m in (HEAD, *nodes)) + raw
        (tmp_path / name).write_bytes(pack(data))
        (tables,) = read(tmp_path / name, "chakra").values()
        return tables

    return of


def some(row, *names):
    return tuple(row[n] for n in names)


NODES = (
    node(0, "## process_group:init ##", 1, inputs=f"['{GROUPS}']"),
    node(1, "AR", 7, attr("is_cpu_op", 27, 0), attr("comm_type", 13, 0),
         attr("comm_size", 9, 4096), attr("pg_name", 29, "5"), dur=12, start=7, ctrl=(300, 2)),
    node(2, "SEND", 5, attr("comm_dst", 11, 1), attr("comm_size", 13, 512), deps=(1, 0)),
    node(4, "RECV", 6, attr("comm_src", 7, 2), attr("comm_size", 9, 256)),
    node(5, "c10d::send", 5, attr("is_cpu_op", 27, 1)),
    node(6, "GEMM", 4, attr("num_ops", 9, 5), attr("tensor_size", 9, 77)),
    node(7, "LOAD", 2, attr("tensor_size", 13, 99)),
    node(8, "odd", 7, attr("comm_type", 9, 77), attr("comm_size", 9, -1)),
)  # fmt: skip


def test_nodes_of_all_kinds(trace):
    tables = trace(*NODES)
    rows = tables["graph_nodes"]
    assert [some(r, "node_id", "kind", "bytes", "op") for r in rows] == [
        (0, "metadata", None, None), (1, "collective", 4096, "all_reduce"),
        (2, "send", 512, "send"), (4, "recv", 256, "recv"), (5, "send", None, None),
        (6, "compute", 77, None), (7, "memory", 99, None), (8, "collective", None, "unknown"),
    ]  # fmt: skip
    assert some(rows[1], "ctrl_deps", "start_ns", "dur_ns") == ([300, 2], 7000, 12_000)
    assert rows[2]["data_deps"] == [1, 0]
    comm = identity("5", (1, 3), 2)
    said = ("op", "comm", "group_size", "peer", "in_bytes", "out_bytes", "exec_ns", "rank")
    assert [some(r, *said) for r in tables["collectives"]] == [
        ("all_reduce", comm, 2, None, 4096, 4096, 12_000, 3),
        ("send", None, None, 1, 512, None, None, 3), ("recv", None, None, 2, None, 256, None, 3),
        ("unknown", None, None, None, None, None, None, 3),
    ]  # fmt: skip
    (c,) = tables["comms"]
    assert some(c, "comm", "ranks", "dim") == (comm, [1, 3], "tp")


def test_compressed_it_is_the_same(trace):
    plain, packed = trace(*NODES), trace(*NODES, name="llm.3.et.gz", pack=gzip.compress)
    assert packed["graph_nodes"] == plain["graph_nodes"]
    assert packed["collectives"] == plain["collectives"]


def test_a_cut_file_gives_its_whole_nodes(trace, codes):
    tables = trace(*NODES[:3], raw=varint(len(NODES[3])) + NODES[3][:-2])
    assert [n["node_id"] for n in tables["graph_nodes"]] == [0, 1, 2]
    (lost,) = [p for p in tables["problems"] if p["severity"] == "lost"]
    offset = sum(len(varint(len(m)) + m) for m in (HEAD, *NODES[:3]))
    assert (lost["code"], lost["offset"]) == ("truncated", offset)
    assert "2 bytes before" in lost["message"]


@pytest.mark.parametrize(
    "length", [b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\xff" * 20, b"\x80"]
)
def test_a_length_that_cannot_be_is_not_followed(trace, codes, length):
    tables = trace(*NODES[:3], raw=length + b"abc")
    assert len(tables["graph_nodes"]) == 3
    assert "bad_length" in codes(tables) or "truncated" in codes(tables)


def test_messages_that_are_no_nodes(trace, codes):
    bad = [b"\x0a", b"\xff" * 30, b"\x12\x05x", b"\x07\x01", b"", field(99, b"zz")]
    tables = trace(NODES[0], *bad, NODES[1], NODES[1])
    assert [n["node_id"] for n in tables["graph_nodes"]] == [0, 1, 1]
    # A node twice: the second has no event of its own.
    assert [r["event_id"] for r in tables["collectives"]] == [event_id(3, "chakra", 1), None]
    assert codes(tables) == {"no_sequence_numbers": 1, "lost_node": 6, "duplicate_node": 1}


def test_a_file_that_goes_on_in_zeros_is_given_up(trace, codes):
    tables = trace(NODES[0], raw=bytes(1 << 20))
    assert len(tables["graph_nodes"]) == 1
    assert codes(tables) | {"lost_node": 0} == {"no_sequence_numbers": 1, "gave_up": 1,
                                                "lost_node": 0}  # fmt: skip


def test_ids_beyond_63_bits_are_null(trace, codes):
    tables = trace(node((1 << 64) - 1, "x", 4), node(1, "y", 4, deps=(1 << 63,)))
    assert {n["name"]: (n["node_id"], n["data_deps"]) for n in tables["graph_nodes"]} == {
        "x": (None, None), "y": (1, None),
    }  # fmt: skip
    assert codes(tables)["value_out_of_range"] == 2


def test_all_kinds_of_values_are_read():
    def value(key, data):
        return attribute(field(1, "a") + data)[1]

    assert value(3, varint(3 << 3 | 1) + struct.pack("<d", 1.5)) == 1.5
    assert value(5, varint(5 << 3 | 5) + struct.pack("<f", 0.25)) == 0.25
    assert value(9, field(9, -5)) == -5
    assert value(13, field(13, (1 << 64) - 1)) == (1 << 64) - 1
    assert value(17, field(17, 3)) == -2  # zigzag
    assert value(25, varint(25 << 3 | 1) + struct.pack("<q", -9)) == -9
    assert value(27, field(27, 1)) is True
    assert value(29, field(29, "text")) == "text"
    assert value(10, field(10, field(1, varint(1) + varint(300)))) == [1, 300]  # packed
    assert value(10, field(10, field(1, 1) + field(1, 300))) == [1, 300]
    assert value(30, field(30, field(1, "a") + field(1, "b"))) == ["a", "b"]
    assert value(40, field(41, field(1, b"x"))) is None


def test_the_rank_is_only_in_the_name(trace):
    with pytest.raises(RankUnknown, match="--rank"):
        trace(*NODES, name="llm.et")


def test_nothing_but_metadata_is_no_trace(read, tmp_path):
    data = field(2, field(1, "schema") + field(29, "1.0.1"))
    (tmp_path / "x.0.et").write_bytes(varint(len(data)) + data)
    with pytest.raises(UnusableInput, match="no node"):
        read(tmp_path / "x.0.et", "chakra")
