"""Made-up reports: payloads, groups, steps, ranks, clocks, metrics; rows worked out by hand.

Tables, columns and payload schemas are those that exports of NCCL 2.25 and the exporter's schema
reference show; the payload's header is the 32 bytes that stand before every one.
"""

import base64
import gzip
import json
import struct
import zipfile

import pytest
from retime.ingest.errors import RankUnknown, UsageError
from retime.ingest.nsys import sqlite
from retime.ingest.schema import event_id

ZERO = 1_700_000_000_000_000_000
A, B = 100, 101


def start(*values):
    return {"TARGET_INFO_SESSION_START_TIME": [values or (ZERO, "2023")]}


def kernel(begin, end, pid, correlation, name, device=0, stream=7, grid=24):
    return (begin, end, device, 1, stream, correlation, pid, name, name, grid, 1, 1, 512, 1, 1)


def call(begin, end, tid, correlation):
    return (begin, end, 0, tid, correlation, 9, 0)


def span(begin, end, tid, text, blob=None, domain=1, kind=59):
    return (begin, end, kind, text, tid, None, domain, None, blob)


STRINGS = [
    (1, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"), (2, "ncclDevKernel_SendRecv(x)"),
    (3, "sm90_gemm"), (4, "ncclDevKernel_AllGather_RING_LL(x)"), (9, "cudaLaunchKernelExC_v11060"),
]  # fmt: skip


@pytest.fixture
def two(nsys, tmp_path):
    """Two processes that reduce and gather on one communicator, with payloads."""

    def make(**more):
        ranges, runtime, kernels = [], [], []
        for rank, pid in enumerate((A, B)):
            g, t = nsys.gid(pid), nsys.gid(pid, pid)
            ranges += [
                span(10, 20, t, "ncclCommInitRank",
                     nsys.blob(nsys.INIT, struct.pack("<Qiiii", nsys.HASH, 2, 1 - rank, rank, 0))),
                span(100, 200, t, "ncclAllReduce",
                     nsys.blob(nsys.ALL_REDUCE, struct.pack("<QQii", nsys.HASH, 4096, 0, 0))),
                span(300, 400, t, "ncclAllGather",
                     nsys.blob(nsys.ALL_GATHER, struct.pack("<QQ", nsys.HASH, 1000))),
            ]  # fmt: skip
            runtime += [call(150, 160, t, 11), call(350, 360, t, 12), call(500, 510, t, 13)]
            kernels += [
                kernel(1000, 1500, g, 11, 1, rank), kernel(2000, 2600, g, 12, 4, rank),
                kernel(3000, 3100, g, 13, 3, rank, grid=8),
            ]  # fmt: skip
        tables = {
            "StringIds": STRINGS, "NVTX_EVENTS": ranges, "CUPTI_ACTIVITY_KIND_RUNTIME": runtime,
            "CUPTI_ACTIVITY_KIND_KERNEL": kernels,
            "NVTX_PAYLOAD_SCHEMA_ENTRIES": nsys.SCHEMA_ENTRIES, **start(), **more,
        }  # fmt: skip
        return nsys.make(tmp_path / "two.sqlite", **tables)

    return make


def test_payloads_tell_communicator_size_and_rank(nsys, two):
    out = nsys.read(two())
    # process A has place 1 in the only communicator, process B place 0
    assert [(r["rank"], r["pid"], r["world_size"]) for r in out["ranks"]] == [(0, B, 2), (1, A, 2)]
    assert "rank_from_communicator" in nsys.problems(out)
    rows = [c for c in out["collectives"] if c["rank"] == 1]
    assert [
        (c["op"], c["comm"], c["in_bytes"], c["out_bytes"], c["group_size"], c["dtype"])
        for c in rows
    ] == [
        ("all_reduce", "nccl-deadbeef12345678", 4096, 4096, 2, "bfloat16"),
        ("all_gather", "nccl-deadbeef12345678", 1000, 2000, 2, None),
    ]
    assert rows[0] | {"event_id": 0} == rows[0] | {
        "start_ns": ZERO + 1000, "end_ns": ZERO + 1500, "enqueued_ns": ZERO + 150,
        "timing": "kernel", "clock": "host", "source": "nsys", "stream": 7, "channels": 24,
        "seq": None, "step": None, "event_id": 0,
    }  # fmt: skip
    kernels = {e["event_id"]: e for e in out["events"] if e["kind"] == "kernel"}
    assert kernels[rows[0]["event_id"]]["start_ns"] == ZERO + 1000
    assert rows[0]["event_id"] == event_id(1, "nsys", 0)
    assert [
        (c["comm"], c["ranks"], c["size"], c["member"], c["member_place"]) for c in out["comms"]
    ] == [
        ("nccl-deadbeef12345678", [0, 1], 2, 0, 0), ("nccl-deadbeef12345678", [0, 1], 2, 1, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "at_root", "elsewhere"),
    [
        ("ncclGather", (1000, 2000), (1000, 0)), ("ncclScatter", (2000, 1000), (0, 1000)),
        ("ncclReduce", (1000, 1000), (1000, 0)), ("ncclBroadcast", (1000, 1000), (1000, 1000)),
    ],
)  # fmt: skip
def test_only_the_root_has_the_buffer_of_all(nsys, two, name, at_root, elsewhere):
    ranges = []
    for rank, pid in enumerate((A, B)):
        t = nsys.gid(pid, pid)
        ranges += [
            span(10, 20, t, "ncclCommInitRank",
                 nsys.blob(nsys.INIT, struct.pack("<Qiiii", nsys.HASH, 2, 1 - rank, rank, 0))),
            span(100, 200, t, name,
                 nsys.blob(nsys.ROOTED, struct.pack("<QQii", nsys.HASH, 1000, 1, 0))),
        ]  # fmt: skip
    out = nsys.read(two(NVTX_EVENTS=ranges))
    got = {c["rank"]: (c["root"], c["in_bytes"], c["out_bytes"]) for c in out["collectives"]
           if c["start_ns"] == ZERO + 1000}  # fmt: skip
    assert got == {1: (1, *at_root), 0: (1, *elsewhere)}


def test_a_cut_payload_leaves_what_names_say(nsys, two):
    whole = nsys.blob(nsys.ALL_REDUCE, struct.pack("<QQii", nsys.HASH, 4096, 0, 0))
    t = nsys.gid(A, A)
    out = nsys.read(
        two(NVTX_EVENTS=[span(100, 200, t, "ncclAllReduce", whole[:20]),
                         span(300, 400, t, "ncclAllGather", b"\xff" * 64)],
            MPI_RANKS=[(t, 5), (nsys.gid(B), 6)])
    )  # fmt: skip
    assert [(c["op"], c["comm"], c["in_bytes"]) for c in out["collectives"] if c["rank"] == 5] == [
        ("all_reduce", None, None), ("all_gather", None, None),
    ]  # fmt: skip
    assert nsys.problems(out)["payload_unread"]["count"] == 2


def p2p(nsys, begin, tid, name, n_bytes, peer):
    payload = struct.pack("<QQii", nsys.HASH, n_bytes, peer, 0)
    return span(begin, begin + 5, tid, name, nsys.blob(nsys.P2P, payload))


def grouped(nsys, tid, *calls):
    return [
        span(100, 105, tid, "ncclGroupStart"),
        *(p2p(nsys, 110 + 10 * i, tid, *c) for i, c in enumerate(calls)),
        span(200, 300, tid, "ncclGroupEnd"),
    ]


def exchange(nsys, tmp_path, size, *calls, place=0):
    """One process of `size` ranks and the rows of its one group."""
    g, t = nsys.gid(A), nsys.gid(A, A)
    join = nsys.blob(nsys.INIT, struct.pack("<Qiiii", nsys.HASH, size, place, 0, 0))
    path = nsys.make(
        tmp_path / "x.sqlite", StringIds=STRINGS,
        NVTX_EVENTS=[span(10, 20, t, "ncclCommInitRankConfig", join), *grouped(nsys, t, *calls)],
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(250, 260, t, 11)],
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1000, 1500, g, 11, 2)],
        NVTX_PAYLOAD_SCHEMA_ENTRIES=nsys.SCHEMA_ENTRIES, **start(),
    )  # fmt: skip
    keys = ("op", "peer", "in_bytes", "out_bytes", "coalesced", "group_size")
    return [tuple(c[k] for k in keys) for c in nsys.read(path)["collectives"]]


def test_a_group_that_reaches_everybody_is_an_all_to_all(nsys, tmp_path):
    calls = [(f"nccl{way}", 100 * peer + 1, peer) for peer in range(3) for way in ("Send", "Recv")]
    assert exchange(nsys, tmp_path, 3, *calls) == [("all_to_all", None, 303, 303, None, 3)]


def test_a_group_with_neighbours_has_a_row_a_peer(nsys, tmp_path):
    calls = [("ncclSend", 10, 1), ("ncclRecv", 20, 3), ("ncclSend", 30, 3)]
    assert exchange(nsys, tmp_path, 4, *calls) == [
        ("send", 1, 10, None, 3, 4), ("send_recv", 3, 30, 20, 3, 4),
    ]  # fmt: skip


def test_one_send_has_its_peer(nsys, tmp_path):
    assert exchange(nsys, tmp_path, 4, ("ncclSend", 10, 2), place=1) == [
        ("send", 2, 10, None, None, 4)
    ]


def test_grouped_collectives_are_dealt_by_order_or_added_up(nsys, tmp_path):
    g, t = nsys.gid(A), nsys.gid(A, A)
    reduce = [
        nsys.blob(nsys.ALL_REDUCE, struct.pack("<QQii", nsys.HASH, n, 0, 0)) for n in (64, 128)
    ]
    ranges = [
        span(100, 105, t, "ncclGroupStart"), span(110, 115, t, "ncclAllReduce", reduce[0]),
        span(120, 125, t, "ncclAllReduce", reduce[1]), span(200, 300, t, "ncclGroupEnd"),
    ]  # fmt: skip
    common = {"StringIds": STRINGS, "NVTX_EVENTS": ranges, **start(),
              "NVTX_PAYLOAD_SCHEMA_ENTRIES": nsys.SCHEMA_ENTRIES}  # fmt: skip
    one = nsys.make(
        tmp_path / "one_rank0.sqlite", **common,
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(250, 260, t, 11)],
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1000, 1500, g, 11, 1)],
    )  # fmt: skip
    two = nsys.make(
        tmp_path / "two_rank0.sqlite", **common,
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(250, 260, t, 11), call(270, 280, t, 12)],
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1000, 1500, g, 11, 1), kernel(1600, 1700, g, 12, 1)],
    )  # fmt: skip
    assert [(c["in_bytes"], c["coalesced"]) for c in nsys.read(one)["collectives"]] == [(192, 2)]
    assert [(c["in_bytes"], c["coalesced"]) for c in nsys.read(two)["collectives"]] == [
        (64, None), (128, None),
    ]  # fmt: skip


def test_steps_come_from_ranges_that_count(nsys, two):
    t = [nsys.gid(p, p) for p in (A, B)]
    marks = [span(90 + 200 * i, 290 + 200 * i, tid, f"iteration {7 + i}", domain=0)
             for tid in t for i in range(2)]  # fmt: skip
    inner = [span(95, 105, t[0], "step 3", domain=0), span(490, 530, t[0], "optimizer step")]
    out = nsys.read(two(NVTX_EVENTS=[*marks, *inner], MPI_RANKS=[(t[0], 0), (t[1], 1)]))
    keys = ("rank", "step", "start_ns", "end_ns", "host_start_ns", "host_end_ns", "found_by")
    assert [tuple(s[k] for k in keys) for s in out["steps"] if s["rank"] == 0] == [
        (0, 7, ZERO + 1000, ZERO + 2000, ZERO + 90, ZERO + 290, "annotation"),
        (0, 8, ZERO + 2000, ZERO + 2600, ZERO + 290, ZERO + 490, "annotation"),
    ]
    kernels = [e["step"] for e in out["events"] if e["kind"] == "kernel" and e["rank"] == 0]
    assert kernels == [7, 8, None]
    assert [c["step"] for c in out["collectives"] if c["rank"] == 1] == [7, 8]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ProfilerStep#4", ("profilerstep", 4)), ("step 12", ("step", 12)),
        ("Step_12", ("step", 12)), ("iteration 3", ("iteration", 3)), ("iter=9", ("iter", 9)),
        ("train_step", ("train_step", -1)), ("train step 5", ("step", 5)),
        ("training_step[7]", ("step", 7)), ("optimizer step", None),
        ("aten::step, op_id = 3", None), ("iteration", ("iteration", -1)), ("stepper 3", None),
        ("step " + "9" * 40, None), ("s" * 10**6, None),
    ],
)  # fmt: skip
def test_names_of_steps(name, found):
    from retime.ingest.nsys.stepnames import step_of

    assert step_of(name) == found


def test_bare_step_ranges_are_counted(nsys, two):
    t = nsys.gid(A, A)
    ranges = [span(90, 280, t, "train_step", domain=0), span(290, 450, t, "train_step", domain=0)]
    out = nsys.read(two(NVTX_EVENTS=ranges, MPI_RANKS=[(t, 0), (nsys.gid(B), 1)]))
    assert [(s["rank"], s["step"]) for s in out["steps"]] == [(0, 0), (0, 1)]


def shifted(nsys, offset):
    """The kernels and calls of one process, with all times moved by an offset."""
    g, t = nsys.gid(A), nsys.gid(A, A)
    k = kernel(1000 + offset, 1500 + offset, g, 11, 1)
    return {
        "StringIds": STRINGS, "CUPTI_ACTIVITY_KIND_KERNEL": [k],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(150 + offset, 160 + offset, t, 11)],
    }  # fmt: skip


def test_session_start_is_added_once(nsys, tmp_path):
    plain = nsys.read(nsys.make(tmp_path / "a_rank0.sqlite", **shifted(nsys, 0), **start()))
    absolute = nsys.read(nsys.make(tmp_path / "b_rank0.sqlite", **shifted(nsys, ZERO), **start()))
    for out in (plain, absolute):
        assert [(e["start_ns"], e["dur_ns"]) for e in out["events"] if e["kind"] == "kernel"] == [
            (ZERO + 1000, 500)
        ]
        assert out["ranks"][0]["clock"] == "host"
    none = nsys.read(nsys.make(tmp_path / "c_rank0.sqlite", **shifted(nsys, 0)))
    assert none["ranks"][0]["clock"] == "process"
    assert none["collectives"][0]["clock"] == "process"
    assert none["ranks"][0]["end_ns"] == 1500
    assert nsys.problems(none)["no_session_start"]["severity"] == "warning"


def test_a_place_in_a_part_of_the_job_is_not_a_rank(nsys, two, tmp_path):
    """Communicators of two in a job of eight: the node's number and the devices tell more."""
    words = ("--nnodes=4", "--nproc-per-node", "2", "--node_rank=3")
    command = [(f"PROCESS_0:ARGUMENT_{i}", word) for i, word in enumerate(words)]
    out = nsys.read(two(META_DATA_CAPTURE=command))
    assert [(r["rank"], r["pid"], r["world_size"]) for r in out["ranks"]] == [(6, A, 8), (7, B, 8)]
    # their places in the communicator still give its members
    assert {tuple(c["ranks"]) for c in out["comms"]} == {(7, 6)}
    assert "rank_from_communicator" not in nsys.problems(out)


def host_env(**variables):
    text = ";".join(f"{k}={v}" for k, v in variables.items())
    return {"TARGET_INFO_SYSTEM_ENV": [(1 << 48, "x", "Hostname", 1, "n0"),
                                       (1 << 48, "x", "DeviceEnvironment", 2, text)]}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "variables", "rank"),
    [
        ("r.sqlite", {"RANK": 6, "WORLD_SIZE": 8, "SLURM_PROCID": 1}, 6),
        ("r.sqlite", {"OMPI_COMM_WORLD_RANK": 2, "OMPI_COMM_WORLD_SIZE": 4}, 2),
        ("r.sqlite", {"SLURM_PROCID": 3, "SLURM_NTASKS": 4}, 3),
        ("job_rank12.sqlite", {}, 12),
        ("job_proc1.sqlite", {"WORLD_SIZE": 4}, 1),
        ("plain.sqlite", {}, 0),
    ],
)
def test_rank_of_a_process_alone_in_its_report(nsys, tmp_path, name, variables, rank):
    path = nsys.make(tmp_path / name, **shifted(nsys, 0), **start(), **host_env(**variables))
    out = nsys.read(path)
    assert [(r["rank"], r["host"]) for r in out["ranks"]] == [(rank, "n0")]
    assert {e["rank"] for e in out["events"]} == {rank}
    assert ("rank_from_device" in nsys.problems(out)) == (name == "plain.sqlite")


def test_rank_that_nothing_tells(nsys, tmp_path, two):
    alone = nsys.make(
        tmp_path / "plain.sqlite", **shifted(nsys, 0), **start(), **host_env(WORLD_SIZE=4)
    )
    with pytest.raises(RankUnknown, match="--rank"):
        nsys.read(alone)
    assert nsys.read(alone, rank=3)["ranks"][0]["rank"] == 3
    with pytest.raises(UsageError, match="holds 2 processes"):
        nsys.read(two(), rank=3)


def test_several_reports_of_several_hosts(nsys, tmp_path):
    """torchrun's command line and SLURM's node tell which ranks a report of a node has."""
    for node in range(2):
        kernels = [kernel(1000, 1500, nsys.gid(A + d), 11, 1, device=d) for d in range(2)]
        path = nsys.make(
            tmp_path / f"report{node}.sqlite", StringIds=STRINGS,
            CUPTI_ACTIVITY_KIND_KERNEL=kernels, **start(),
            TARGET_INFO_SYSTEM_ENV=[
                (1 << 48, "x", "Hostname", 1, f"n{node}"),
                (1 << 48, "x", "DeviceEnvironment", 2, f"SLURM_NODEID={node}\0SLURM_NNODES=2"),
            ],
            META_DATA_CAPTURE=[("PROCESS_0:ARGUMENT_0", "--nnodes=2"),
                               ("PROCESS_0:ARGUMENT_1", "--nproc_per_node=2")],
        )  # fmt: skip
        out = nsys.read(path)
        assert [(r["rank"], r["host"], r["device"], r["world_size"]) for r in out["ranks"]] == [
            (2 * node, f"n{node}", 0, 4), (2 * node + 1, f"n{node}", 1, 4),
        ]  # fmt: skip


def test_rows_without_an_end_or_a_start(nsys, tmp_path):
    g, t = nsys.gid(A), nsys.gid(A, A)
    path = nsys.make(
        tmp_path / "r_rank0.sqlite", StringIds=STRINGS, **start(),
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1000, None, g, 11, 3), kernel(None, 5, g, 12, 3),
                                    kernel(3000, 2000, g, 13, 3), kernel(4000, 4100, g, 14, 3)],
        NVTX_EVENTS=[span(1, None, t, "open"), span(2, None, t, "mark", kind=34),
                     span(3, None, t, "MPI", kind=75)],
    )  # fmt: skip
    out = nsys.read(path)
    assert [(e["kind"], e["start_ns"] - ZERO, e["dur_ns"], e["name"]) for e in out["events"]] == [
        ("kernel", 1000, 0, "sm90_gemm"), ("kernel", 3000, 0, "sm90_gemm"),
        ("kernel", 4000, 100, "sm90_gemm"), ("annotation", 1, 0, "open"), ("instant", 2, 0, "mark"),
    ]  # fmt: skip
    said = {c: (p["severity"], p["count"]) for c, p in nsys.problems(out).items()}
    assert said["row_without_time"] == ("lost", 1)
    assert said["open_end"] == ("warning", 2)
    assert said["bad_end"] == ("warning", 1)


@pytest.mark.parametrize("table", ["RUNTIME", "KERNEL", "NVTX", "NIC"])
def test_a_row_without_a_start_is_told_by_its_place_in_the_table(nsys, two, monkeypatch, table):
    monkeypatch.setattr(sqlite, "BATCH_ROWS", 100)
    g, t = nsys.gid(A), nsys.gid(A, A)
    name, row = {
        "RUNTIME": ("CUPTI_ACTIVITY_KIND_RUNTIME", lambda at: call(at, 900, t, 11)),
        "KERNEL": ("CUPTI_ACTIVITY_KIND_KERNEL", lambda at: kernel(at, 900, g, 11, 3)),
        "NVTX": ("NVTX_EVENTS", lambda at: span(at, 900, t, "range")),
        "NIC": ("NET_NIC_METRIC", lambda at: (at, 900, 1 << 48, 1, 0, 6, 3000)),
    }[table]  # fmt: skip
    rows = [row(None if i == 137 else 500 + i) for i in range(250)]
    if table == "NVTX":
        rows[100:103] = [span(5, None, t, "MPI", kind=75)] * 3  # of no time
    found = nsys.problems(nsys.read(two(**{**METRICS, "GPU_METRICS": [], name: rows})))
    assert (found["row_without_time"]["count"], found["row_without_time"]["offset"]) == (1, 137)


def test_graphs_with_and_without_nodes(nsys, tmp_path):
    g, t = nsys.gid(A), nsys.gid(A, A)
    nodes = [(*kernel(1000 + 100 * i, 1050 + 100 * i, g, 11, 3), 900 + i) for i in range(3)]
    path = nsys.make(
        tmp_path / "r_rank0.sqlite", StringIds=STRINGS, **start(),
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(150, 160, t, 11), call(170, 180, t, 12)],
        CUPTI_ACTIVITY_KIND_KERNEL=nodes,
        CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[(2000, 2900, 0, 1, 7, 12, g, 5, 6)],
        NVTX_EVENTS=[span(100, 165, t, "step 1", domain=0), span(165, 300, t, "step 2", domain=0)],
    )  # fmt: skip
    out = nsys.read(path)
    device = [e for e in out["events"] if e["kind"] in ("kernel", "other")]
    # the three nodes share the launch of their graph; the graph as a whole is one row
    assert [(e["kind"], e["name"], e["dur_ns"], e["step"]) for e in device] == [
        *[("kernel", "sm90_gemm", 50, 1)] * 3, ("other", "graph 5", 900, 2),
    ]  # fmt: skip
    assert "--cuda-graph-trace=node" in nsys.problems(out)["graphs_whole"]["message"]
    assert [(s["step"], s["end_ns"] - ZERO) for s in out["steps"]] == [(1, 2000), (2, 2900)]


def test_operations_of_ncclS_own_trace_are_numbered_alike(nsys, two):
    top = (1 << 63) + 5  # a hash: the exporter has signed 64-bit columns
    rows = [
        ("AllReduce", 1000, 1490, -1, 1, 2048, "ncclBfloat16", "collective", top - (1 << 64), A),
        ("AllReduce", 1010, 1500, -1, 0, 2048, "ncclBfloat16", "collective", top - (1 << 64), B),
        ("Send", 5000, 5100, -1, 0, 10, "ncclFloat32", "p2p", 77, B),
        ("Send", 5000, 5100, -1, 0, 10, "ncclFloat32", "p2p", 78, 4242),
    ]  # fmt: skip
    out = nsys.read(two(NCCL_GPU_OPERATIONS=rows))
    told = [
        (c["rank"], c["op"], c["comm"], c["seq"], c["in_bytes"], c["start_ns"] - ZERO)
        for c in out["collectives"]
        if c["seq"] is not None
    ]
    comm = "nccl-ffffffffffffffff"
    assert sorted(told) == [
        (0, "all_reduce", comm, 5, 4096, 1000), (0, "send", comm, 77, 40, 5000),
        (1, "all_reduce", comm, 5, 4096, 1000),
    ]  # fmt: skip
    assert nsys.problems(out)["operation_without_process"]["count"] == 1


def test_json_payloads_of_the_advanced_trace(nsys, two):
    t = nsys.gid(A, A)
    said = (
        '{"commHash": "0xdeadbeef12345678", "count": 512, "dataType": "ncclFloat32", '
        '"seqNumber": 9}'
    )
    ranges = [(75, None, 75, "NCCL", t, None, 3, None, None),
              (100, 200, 59, "AllReduce", t, None, 3, said, None)]  # fmt: skip
    out = nsys.read(two(NVTX_EVENTS=ranges, MPI_RANKS=[(t, 0), (nsys.gid(B), 1)]))
    first = next(c for c in out["collectives"] if c["rank"] == 0)
    assert (first["comm"], first["seq"], first["in_bytes"]) == ("nccl-deadbeef12345678", 9, 2048)


def test_calls_without_kernels_are_untimed(nsys, tmp_path):
    t = nsys.gid(A, A)
    payload = nsys.blob(nsys.ALL_REDUCE, struct.pack("<QQii", nsys.HASH, 4096, 0, 0))
    path = nsys.make(
        tmp_path / "r_rank2.sqlite", **start(),
        NVTX_EVENTS=[span(100, 200, t, "ncclAllReduce", payload)],
        NVTX_PAYLOAD_SCHEMA_ENTRIES=nsys.SCHEMA_ENTRIES,
    )  # fmt: skip
    out = nsys.read(path)
    (row,) = out["collectives"]
    assert (row["rank"], row["op"], row["in_bytes"]) == (2, "all_reduce", 4096)
    assert (row["start_ns"], row["timing"], row["clock"]) == (None, None, None)
    assert row["enqueued_ns"] == ZERO + 100
    assert "no_comm_kernels" in nsys.problems(out)


def test_diagnostics_of_lost_data(nsys, two):
    texts = ["CUDA profiling might have not been started correctly.", "12 events were dropped.",
             "No events were lost.", "Profiling has started."]  # fmt: skip
    rows = [(i, 1, 1, s, t, 0) for i, (s, t) in enumerate(zip((3, 2, 2, 1), texts, strict=True))]
    out = nsys.problems(nsys.read(two(DIAGNOSTIC_EVENT=rows)))
    assert (out["nsys_lost"]["severity"], out["nsys_lost"]["count"]) == ("lost", 1)
    assert texts[1] in out["nsys_lost"]["message"]
    assert texts[0] in out["nsys_error"]["message"]
    assert texts[2] in out["nsys_warning"]["message"]


METRICS = {
    "TARGET_INFO_NETWORK_METRICS": [
        (0, 6, "IB: Bytes sent", "", "bytes/ms"), (0, 10, "IB: Send waits", "", "ticks/ms"),
    ],
    "NIC_ID_MAP": [(4, 1 << 48)],
    "TARGET_INFO_NIC_INFO": [(-5, "x", 4, "mlx5_0", 4129, 5555, 2)],
    "NET_NIC_METRIC": [
        (1_000_000, 2_000_000, 1 << 48, 1, 0, 6, 3000), (2_000_000, 4_000_000, 1 << 48, 1, 0, 6, 5),
        (1_000_000, 2_000_000, 1 << 48, 1, 0, 10, 8),
    ],
    "NET_IB_SWITCH_METRIC": [(1_000_000, 2_000_000, -1, 17, 0, 6, 100)],
    "TARGET_INFO_GPU_METRICS": [(0x10000000001, 0, "GPU", 3, "SMs Active [Throughput %]")],
    "GPU_METRICS": [(5, 1_500_000, 0x10000000001, 3, 42), (6, None, 0x10000000001, 3, 43)],
    "TARGET_INFO_GPU": [(1, 1, "H100", "0000:01", 132, 1), (1, 0, "H100", "0000:02", 132, 0)],
    "TARGET_INFO_SYSTEM_ENV": [(1 << 48, "x", "Hostname", 1, "n0")],
}  # fmt: skip


def test_metrics_of_gpus_nics_and_switches(nsys, two):
    out = nsys.read(two(**METRICS))
    keys = ("rank", "host", "device", "name", "time_ns", "value")
    # rank 0 is process B, on device 1
    assert sorted((tuple(c[k] for k in keys) for c in out["counters"]), key=str) == sorted([
        (0, "n0", "gpu1", "SMs Active [Throughput %]", ZERO + 1_500_000, 42.0),
        (None, "n0", "mlx5_0", "IB: Bytes sent", ZERO + 1_000_000, 3000.0),
        (None, "n0", "mlx5_0", "IB: Bytes sent", ZERO + 2_000_000, 5.0),
        (None, "n0", "mlx5_0", "IB: Send waits", ZERO + 1_000_000, 8.0),
        (None, None, "switch 0xffffffffffffffff port 17", "IB: Bytes sent", ZERO + 1_000_000,
         100.0),
    ], key=str)  # fmt: skip
    keys = ("nic", "bytes", "start_ns", "end_ns", "direction", "measured", "via", "clock")
    assert [tuple(t[k] for k in keys) for t in out["transfers"]] == [
        ("mlx5_0", 3000, ZERO + 1_000_000, ZERO + 2_000_000, "send", True, "NET/IB", "host"),
        ("mlx5_0", 10, ZERO + 2_000_000, ZERO + 4_000_000, "send", True, "NET/IB", "host"),
        ("switch 0xffffffffffffffff port 17", 100, ZERO + 1_000_000, ZERO + 2_000_000, "send",
         True, "NET/IB", "host"),
    ]  # fmt: skip
    assert nsys.problems(out)["row_without_time"]["count"] == 1
    assert [(t["device"], t["kind"], t["rank"]) for t in out["topology"]] == [
        ("gpu1", "gpu", 0), ("gpu0", "gpu", 1), ("mlx5_0", "nic", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "vias"),
    [
        # The numbers are not documented: a report says itself which is which.
        ([(1, "Ethernet", ""), (2, "InfiniBand", "")], ["NET/Ethernet", "NET/IB", None]),
        ([(1, "NET_INFINIBAND", "x"), (2, "?", "Ethernet")], ["NET/IB", "NET/Ethernet", None]),
        ([], [None, None, None]),
    ],
)
def test_link_of_a_nic_is_what_the_report_calls_it(nsys, tmp_path, numbers, vias):
    nics = [(k, "x", k, f"mlx5_{k}", 4129, 5555, k) for k in (1, 2, 3)]
    tables = METRICS | {"TARGET_INFO_NIC_INFO": nics, "ENUM_NET_LINK_TYPE": numbers}
    out = nsys.read(nsys.make(tmp_path / "m.sqlite", **tables, **start()))
    found = {t["device"]: t["via"] for t in out["topology"] if t["kind"] == "nic"}
    assert found == dict(zip(("mlx5_1", "mlx5_2", "mlx5_3"), vias, strict=True))


def test_a_report_of_metrics_alone_has_no_ranks(nsys, tmp_path):
    out = nsys.read(nsys.make(tmp_path / "m.sqlite", **METRICS, **start()))
    assert set(out) == {"counters", "transfers", "topology", "problems"}
    assert len(out["counters"]) == 5


def test_a_wait_names_the_record_it_waits_for(nsys, tmp_path):
    g = nsys.gid(A)
    path = nsys.make(
        tmp_path / "r_rank0.sqlite", **shifted(nsys, 0), **start(),
        CUPTI_ACTIVITY_KIND_CUDA_EVENT=[(None, 0, 1, 23, 900, g, 6813, 5),
                                        (None, 0, 1, 24, 901, g, 6813, 6)],
        CUPTI_ACTIVITY_KIND_SYNCHRONIZATION=[
            (10, 12, 0, 1, 7, 30, g, 2, 6813, 6), (20, 90, 0, 1, 0xFFFFFFFF, 31, g, 1, 6813, 5),
        ],
    )  # fmt: skip
    out = nsys.read(path)
    keys = ("name", "stream", "dur_ns", "correlation", "wait_stream", "wait_correlation")
    assert [tuple(e[k] for k in keys) for e in out["events"] if e["kind"] == "sync"] == [
        ("Stream Wait Event", 7, 2, 30, 24, 901), ("Event Sync", None, 70, 31, None, None),
    ]  # fmt: skip


def test_metrics_of_older_exports(nsys, tmp_path):
    path = nsys.make(
        tmp_path / "m.sqlite", **start(),
        GENERIC_EVENTS=[(0, 50, 0x1000002, '{"SMs Active": "97", "unit": "%", "x": 1.5}'),
                        (0, 60, 2, "[1]"), (0, 70, 2, "{" * 9000)],
    )  # fmt: skip
    out = nsys.read(path)
    assert [(c["device"], c["name"], c["time_ns"], c["value"]) for c in out["counters"]] == [
        ("source 2", "SMs Active", ZERO + 50, 97.0), ("source 2", "x", ZERO + 50, 1.5),
    ]  # fmt: skip
    assert nsys.problems(out)["generic_event"]["count"] == 2


def test_json_lines_with_numbers_and_payloads_as_text(nsys, tmp_path):
    g, t = nsys.gid(A), nsys.gid(A, A)
    payload = nsys.blob(nsys.ALL_REDUCE, struct.pack("<QQii", nsys.HASH, 4096, 0, 0))
    rows = [
        {"table": "StringIds", "id": 1, "value": STRINGS[0][1]},
        *({"table": "NVTX_PAYLOAD_SCHEMA_ENTRIES", "domainId": d, "schemaId": s, "type": k,
           "name": n, "offset": o} for d, s, _, _, k, n, o in nsys.SCHEMA_ENTRIES),
        {"table": "TARGET_INFO_SESSION_START_TIME", "utcEpochNs": str(ZERO)},
        {"table": "CUPTI_ACTIVITY_KIND_RUNTIME", "start": "150", "end": "160",
         "globalTid": str(t), "correlationId": 11, "nameId": 9},
        {"table": "CUPTI_ACTIVITY_KIND_KERNEL", "start": "1000", "end": 1500, "globalPid": g,
         "correlationId": "11", "demangledName": 1, "streamId": 7, "deviceId": 0},
    ]  # fmt: skip
    for text in (payload.hex(), base64.b64encode(payload).decode()):
        call_row = {
            "table": "NVTX_EVENTS", "start": 100, "end": 200, "eventType": 59, "globalTid": t,
            "text": "ncclAllReduce", "domainId": 1, "binaryData": text,
        }  # fmt: skip
        path = tmp_path / "r_rank0.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in [*rows, call_row]))
        (row,) = nsys.read(path)["collectives"]
        assert (row["in_bytes"], row["start_ns"]) == (4096, ZERO + 1000)


def test_compressed_and_archived_reports(nsys, tmp_path, two):
    plain = two()
    wanted = nsys.read(plain)["collectives"]
    packed = tmp_path / "two.sqlite.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert nsys.read(packed)["collectives"] == wanted
    nsys.as_folder(plain, tmp_path / "two_pqtdir", "parquet")
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as z:
        for file in (tmp_path / "two_pqtdir").iterdir():
            z.write(file, f"two_pqtdir/{file.name}")
    out = nsys.read(tmp_path / "two.zip")
    assert out["collectives"] == wanted
    assert out["ranks"][0]["source"] == f"{tmp_path}/two.zip!two_pqtdir"
