"""Chakra's execution traces: nodes worked out by hand, the official schema, and back again."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import retime
from retime.analysis.export import export
from retime.ingest.graphs.chakra_wire import messages, metadata, node
from retime.ingest.sources import find_sources

US = 1_000


def launched(n, start_us, end_us, stream, name, call_us, *, category="other", **more):
    """A kernel and the call that launched it, on host thread 1."""
    return [
        {
            "rank": 0, "event_id": n, "kind": "kernel", "name": name, "stream": stream, "device": 0,
            "start_ns": start_us * US, "dur_ns": (end_us - start_us) * US, "correlation": n,
            "category": category, "step": 5, **more,
        },
        {
            "rank": 0, "event_id": 100 + n, "kind": "runtime", "name": "cudaLaunchKernel",
            "thread": "1", "start_ns": call_us * US, "dur_ns": 2 * US, "correlation": n, "step": 5,
        },
    ]  # fmt: skip


@pytest.fixture
def one_rank(rows):
    """One rank: two kernels that overlap on stream 7, an all-reduce on 8, then one on 7 again.

    The host launches at 0, 10, 20, waits in a cudaStreamSynchronize from 30 until the all-reduce
    has ended at 500, and launches the last kernel at 510.
    """
    tables = {k: [r for r in rows[k] if r.get("rank", 0) == 0] for k in ("jobs", "ranks", "comms")}
    tables["ranks"][0] |= {"world_size": 2, "end_ns": 600 * US}
    tables["steps"] = [{**rows["steps"][0], "end_ns": 600 * US, "host_end_ns": 600 * US}]
    tables["comms"][0] |= {"name": "3", "description": "dp group"}
    tables["events"] = [
        *launched(1, 100, 200, 7, "first", 0),
        *launched(2, 150, 260, 7, "second", 10),
        *launched(3, 300, 499, 8, "ncclDevKernel_AllReduce", 20, category="comm"),
        *launched(4, 530, 560, 7, "third", 510),
        {
            "rank": 0, "event_id": 150, "kind": "runtime", "name": "cudaStreamSynchronize",
            "thread": "1", "start_ns": 30 * US, "dur_ns": 470 * US, "correlation": 50, "step": 5,
        },
    ]  # fmt: skip
    tables["collectives"] = [
        {**rows["collectives"][0], "start_ns": 300 * US, "end_ns": 499 * US, "event_id": 3}
    ]
    return tables


def read(path: Path):
    """Version and attributes of a file, and its nodes, by the reader of `retime ingest`."""
    odd = []
    (source,) = find_sources([str(path)], odd.append)
    lengths = [data for _, data in messages(source, lambda *a, **k: odd.append(a))]
    assert not odd
    return metadata(lengths[0]), [node(data) for data in lengths[1:]]


def test_every_node_of_one_rank(one_rank, job_of, tmp_path):
    told = export(job_of(one_rank), tmp_path / "out", "chakra")
    assert told["paths"] == [str(tmp_path / "out" / "trace.0.et")]
    (version, attrs), (groups, *nodes) = read(Path(told["paths"][0]))
    assert (version, attrs) == ("0.0.4", {"rank": 0})
    assert (groups.id, groups.type, groups.name) == (1, 1, "## process_group:init ##")
    assert groups.inputs == (
        """['[{"pg_name": "3", "pg_desc": "dp group", "ranks": [0, 1], "group_size": 2}]']"""
    )
    by_name = {n.name: n for n in nodes if not n.attrs["is_cpu_op"]}
    first, second, third = (by_name[n] for n in ("first", "second", "third"))
    reduce = by_name["ncclDevKernel_AllReduce"]
    host = [n for n in nodes if n.attrs["is_cpu_op"]]
    at = {n.start_us + n.dur_us: n for n in host}
    # The segment of the host thread up to each launch; the sync's return at 500.
    assert sorted(at) == [0, 10, 20, 30, 500, 510]
    assert [n.attrs["tid"] for n in host] == [0] * 6
    assert first.data_deps == [at[0].id]
    # Also what overlaps its predecessor follows it: the order of the stream is kept.
    assert second.data_deps == sorted([at[10].id, first.id])
    assert reduce.data_deps == [at[20].id]
    assert third.data_deps == sorted([at[510].id, second.id])
    assert set(at[500].data_deps) == {at[30].id, reduce.id}
    assert [n.type for n in (first, second, reduce, third)] == [4, 4, 7, 4]
    assert [(n.start_us, n.dur_us) for n in (first, second, reduce, third)] == [
        (100, 100), (150, 110), (300, 199), (530, 30),
    ]  # fmt: skip
    assert reduce.attrs == {
        "is_cpu_op": False, "comm_type": 0, "pg_name": "3", "comm_size": 2048, "dtype": "bf16",
        "stream": 8, "device": 0,
    }  # fmt: skip
    assert first.attrs == {"is_cpu_op": False, "stream": 7, "device": 0}
    assert (told["nodes"], told["collectives"]) == (len(nodes), 1)
    assert told["deps"] == sum(len(n.data_deps) for n in nodes)


def test_without_the_host_what_it_waited_for_is_followed_still(one_rank, job_of, tmp_path):
    told = export(job_of(one_rank), tmp_path / "out", "chakra", host=False)
    _, (_, *nodes) = read(Path(told["paths"][0]))
    ids = {n.name: n.id for n in nodes}
    assert {n.name: n.data_deps for n in nodes} == {
        "first": [],
        "second": [ids["first"]],
        "ncclDevKernel_AllReduce": [],
        # Launched after the sync, which the all-reduce held up.
        "third": [ids["second"], ids["ncclDevKernel_AllReduce"]],
    }


def test_sends_and_receives_of_one_kernel(one_rank, job_of, tmp_path):
    (row,) = one_rank["collectives"]
    one_rank["collectives"] = [
        {**row, "op": "send", "peer": 1, "in_bytes": 64, "out_bytes": None, "collective_id": 1},
        {**row, "op": "recv", "peer": 3, "in_bytes": None, "out_bytes": 32, "collective_id": 2},
    ]
    told = export(job_of(one_rank), tmp_path / "out", "chakra")
    _, nodes = read(Path(told["paths"][0]))
    send, recv = (next(n for n in nodes if n.type == t) for t in (5, 6))
    assert (send.attrs["comm_dst"], send.attrs["comm_src"], send.attrs["comm_size"]) == (1, 0, 64)
    assert (recv.attrs["comm_src"], recv.attrs["comm_dst"], recv.attrs["comm_size"]) == (3, 0, 32)
    assert send.data_deps == recv.data_deps
    returned = next(n for n in nodes if {send.id, recv.id} <= set(n.data_deps))
    assert returned.start_us + returned.dur_us == 500


def test_what_chakra_has_no_word_for_takes_its_measured_time(one_rank, job_of, tmp_path):
    one_rank["collectives"][0] |= {"op": "send_recv", "peer": None}
    told = export(job_of(one_rank), tmp_path / "out", "chakra")
    _, nodes = read(Path(told["paths"][0]))
    kernel = next(n for n in nodes if n.name.startswith("ncclDevKernel"))
    assert (kernel.type, kernel.dur_us) == (4, 199)
    assert told["warnings"][0].startswith("1 communication kernels")


def test_a_size_that_is_not_known_is_left_out(one_rank, job_of, tmp_path):
    one_rank["collectives"][0] |= {"in_bytes": None, "out_bytes": None}
    told = export(job_of(one_rank), tmp_path / "out", "chakra")
    _, nodes = read(Path(told["paths"][0]))
    assert "comm_size" not in next(n for n in nodes if n.type == 7).attrs
    assert told["warnings"] == ["1 collectives have no known size: they carry no comm_size"]


def test_groups_get_numbers_and_absurd_names_are_cut(one_rank, job_of, tmp_path):
    (comm,) = one_rank["comms"]
    one_rank["comms"] = [
        comm,
        {**comm, "comm": "x@1", "name": "x'\"" * 1000, "description": None},
        {**comm, "comm": "y@1", "name": "7", "ranks": [0], "size": 1},
        {**comm, "comm": "y@2", "name": "7", "ranks": [1], "size": 1},
    ]
    one_rank["events"][0]["name"] = "k" * 50_000
    told = export(job_of(one_rank), tmp_path / "out", "chakra")
    path = Path(told["paths"][0])
    _, (groups, *nodes) = read(path)
    listed = json.loads(groups.inputs[2:-2])
    names = [g["pg_name"] for g in listed]
    assert sorted(names) == ["0", "1", "2", "3"]
    assert listed[[g["pg_desc"].startswith("x'") for g in listed].index(True)]["ranks"] == [0, 1]
    assert max(len(n.name) for n in nodes) == 1000
    assert path.stat().st_size < 10_000


def test_steps_and_ranks(one_rank, job_of, tmp_path):
    from retime.ingest.errors import UnusableInput, UsageError

    one_rank["events"][6]["step"] = one_rank["events"][7]["step"] = None
    told = export(job_of(one_rank), tmp_path / "out", "chakra", steps="5", ranks="0")
    _, nodes = read(Path(told["paths"][0]))
    assert "third" not in {n.name for n in nodes}
    with pytest.raises(UsageError, match="no step 9"):
        export(job_of(one_rank), tmp_path / "out", "chakra", steps="9")
    with pytest.raises(UsageError, match="no rank 4"):
        export(job_of(one_rank), tmp_path / "out", "chakra", ranks=[4])
    one_rank["events"] = one_rank["collectives"] = []
    with pytest.raises(UnusableInput, match="nothing to replay"):
        export(job_of(one_rank), tmp_path / "none", "chakra")


def test_the_official_schema_reads_every_field(one_rank, job_of, tmp_path):
    """Messages declared as `schema/protobuf/et_def.proto` does, by Google's own library."""
    classes = official()
    from google.protobuf.unknown_fields import UnknownFieldSet

    told = export(job_of(one_rank), tmp_path / "out", "chakra")
    data, at, found = Path(told["paths"][0]).read_bytes(), 0, []
    while at < len(data):
        size = shift = 0
        while True:
            byte = data[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        kind = classes["Node"] if found else classes["GlobalMetadata"]
        found.append(kind.FromString(data[at : at + size]))
        at += size
    assert at == len(data)
    for message in found:
        assert len(UnknownFieldSet(message)) == 0
        for attr in message.attr:
            assert len(UnknownFieldSet(attr)) == 0
            assert attr.WhichOneof("value") is not None
    meta, groups, *nodes = found
    assert meta.version == "0.0.4"
    assert groups.inputs.values.startswith("['[{")
    reduce = next(n for n in nodes if n.type == 7)
    attrs = {
        a.name: (a.WhichOneof("value"), getattr(a, a.WhichOneof("value"))) for a in reduce.attr
    }
    # The types that the feeder asks each attribute for.
    assert attrs == {
        "is_cpu_op": ("bool_val", False), "comm_type": ("int64_val", 0),
        "comm_size": ("int64_val", 2048), "pg_name": ("string_val", "3"),
        "dtype": ("string_val", "bf16"), "stream": ("int64_val", 8), "device": ("int64_val", 0),
    }  # fmt: skip
    assert [n.id for n in nodes] == list(range(2, len(nodes) + 2))


def official():
    """The classes of `et_def.proto` that nodes use, built at run time."""
    descriptor = pytest.importorskip("google.protobuf.descriptor_pb2", reason="needs protobuf")
    from google.protobuf import descriptor_pool, message_factory

    f = descriptor.FieldDescriptorProto
    file = descriptor.FileDescriptorProto(name="et.proto", package="chakra", syntax="proto3")

    def message(name, *fields, oneof=None):
        made = file.message_type.add(name=name)
        if oneof:
            made.oneof_decl.add(name=oneof)
        for label, number, kind, many in fields:
            named = isinstance(kind, str)
            one = made.field.add(
                name=label, number=number, type=f.TYPE_MESSAGE if named else kind,
                label=f.LABEL_REPEATED if many else f.LABEL_OPTIONAL,
            )  # fmt: skip
            if named:
                one.type_name = f".chakra.{kind}"
            if oneof and number > 2:
                one.oneof_index = 0

    text, u64 = f.TYPE_STRING, f.TYPE_UINT64
    message(
        "AttributeProto", ("name", 1, text, False), ("doc_string", 2, text, False),
        ("int32_val", 7, f.TYPE_INT32, False), ("int64_val", 9, f.TYPE_INT64, False),
        ("uint64_val", 13, u64, False), ("bool_val", 27, f.TYPE_BOOL, False),
        ("string_val", 29, text, False), oneof="value",
    )  # fmt: skip
    message(
        "IOInfo", ("values", 1, text, False), ("shapes", 2, text, False), ("types", 3, text, False)
    )
    message("GlobalMetadata", ("version", 1, text, False), ("attr", 2, "AttributeProto", True))
    message(
        "Node", ("id", 1, u64, False), ("name", 2, text, False), ("type", 3, f.TYPE_INT32, False),
        ("ctrl_deps", 4, u64, True), ("data_deps", 5, u64, True),
        ("start_time_micros", 6, u64, False), ("duration_micros", 7, u64, False),
        ("inputs", 8, "IOInfo", False), ("outputs", 9, "IOInfo", False),
        ("attr", 10, "AttributeProto", True),
    )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"chakra.{name}"))
        for name in ("GlobalMetadata", "Node")
    }


def test_the_bundled_job_comes_back_with_the_order_of_its_streams(bundled, tmp_path):
    told = export(bundled, tmp_path / "out", "chakra")
    assert [Path(p).name for p in told["paths"]] == [f"trace.{r}.et" for r in range(8)]
    again = retime.open(tmp_path / "warehouse")
    report = again.ingest(told["path"], job="again", format="chakra")
    assert report.exit_code == 0
    counts = again.sql(
        "SELECT count(*) AS n, count(DISTINCT (rank, node_id)) AS ids FROM graph_nodes"
    )
    assert counts.row(0) == (told["nodes"] + 8, told["nodes"] + 8)
    cycles = again.sql(
        "SELECT count(*) FROM (SELECT node_id, unnest(data_deps) AS d FROM graph_nodes) "
        "WHERE d >= node_id OR d < 2"
    )
    assert cycles.item() == 0
    for rank in (0, 7):
        _, nodes = read(tmp_path / "out" / f"trace.{rank}.et")
        mine = [n for n in nodes if "stream" in n.attrs]
        events = bundled.sql(
            "SELECT stream, name FROM events WHERE kind IN ('kernel', 'memcpy', 'memset') "
            f"AND rank = {rank} ORDER BY start_ns, event_id"
        )
        streams = events["stream"].unique().to_list()
        assert len(mine) == len(events)
        for stream in streams:
            lane = [n for n in mine if n.attrs["stream"] == stream]
            names = events.filter(events["stream"] == stream)["name"].to_list()
            assert [n.name for n in lane] == [n[:999] + "…" if len(n) > 1000 else n for n in names]
            for before, after in itertools.pairwise(lane):
                assert before.id in after.data_deps
    asked = (
        "SELECT rank, comm, op, count(*) AS n, sum(in_bytes) AS b FROM collectives "
        "GROUP BY ALL ORDER BY ALL"
    )
    assert again.sql(asked).to_dicts() == bundled.sql(asked).to_dicts()
