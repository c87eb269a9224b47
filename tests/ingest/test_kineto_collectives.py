"""Participations from Kineto traces made by hand: what carries what, and in which group."""

import hashlib
import json

import pytest
from retime.ingest.kineto import parser as kineto
from retime.ingest.sources import find_sources

CONFIG = [
    {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 64,
     "ranks": list(range(64))},
    {"pg_name": "5", "pg_desc": "mesh_tp", "backend_config": "cuda:nccl", "pg_size": 3,
     "ranks": [1, 2, 7]},
]  # fmt: skip
ARGS = {"Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": 4096,
        "Out msg nelems": 4096, "Group size": 3, "Process Group Name": "5",
        "Process Group Description": "mesh_tp", "Process Group Ranks": "[1, 2, 7]"}  # fmt: skip
AR = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SR = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
GENERIC = "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"


def comm_id(name, *ranks):
    return f"{name}@{hashlib.sha256(','.join(map(str, sorted(ranks))).encode()).hexdigest()[:8]}"


TP = comm_id("5", 1, 2, 7)


def event(name, cat, ts, dur, tid=8, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def kernel(ts, correlation, name=AR, dur=5, stream=20, **args):
    fixed = {"device": 0, "stream": stream, "correlation": correlation, "grid": [24, 1, 1]}
    return event(name, "kernel", ts, dur, stream, **fixed, **args)


def launch(ts, correlation, tid=8):
    return event("cudaLaunchKernelExC", "cuda_runtime", ts, 1, tid, correlation=correlation)


def call(ts, dur, tid=8, **args):
    return event("record_param_comms", "cpu_op", ts, dur, tid, **args)


@pytest.fixture
def parts(tmp_path):
    """Parses events (times from 1 us) to collectives, comms by id, and problem codes."""

    def read(*events, config=None, backend="nccl"):
        text = {
            "baseTimeNanoseconds": 10**18,
            "distributedInfo": {"backend": backend, "rank": 2, "world_size": 64,
                                "pg_config": CONFIG if config is None else config},
            "traceEvents": list(events),
        }  # fmt: skip
        path = tmp_path / "trace.json"
        path.write_text(json.dumps(text))
        (source,) = find_sources([str(path)], lambda n, p: None)
        out = {"collectives": [], "comms": [], "problems": [], "events": []}
        for table, batch in kineto.parse(source):
            out.setdefault(table, []).extend(batch.to_pylist())
        comms = {c["comm"]: c for c in out["comms"]}
        codes = {p["code"]: p["count"] for p in out["problems"]}
        return out["collectives"], comms, codes

    return read


def some(row, *names):
    return tuple(row[n] for n in names)


def test_a_kernel_with_full_arguments(parts):
    step = event("ProfilerStep#4", "user_annotation", 1, 50)
    (row,), comms, _ = parts(step, launch(10, 9), kernel(30, 9, Seq=31, **ARGS))
    row.pop("event_id")
    assert row == {
        "comm": TP, "seq": 31, "collective_id": None, "match": None, "rank": 2,
        "op": "all_reduce", "dtype": "bfloat16", "in_bytes": 8192, "out_bytes": 8192,
        "group_size": 3, "root": None, "peer": None, "in_splits": None, "out_splits": None,
        "algo": None, "proto": None, "channels": 24, "start_ns": 10**18 + 30_000,
        "end_ns": 10**18 + 35_000, "stream": 20, "step": 4, "coalesced": None, "source": "kineto",
        "exec_ns": None, "enqueued_ns": 10**18 + 10_000, "state": None, "timing": None,
        "clock": None, "record_function": None,
    }  # fmt: skip
    assert comms[TP] == {
        "comm": TP, "name": "5", "description": "mesh_tp", "ranks": [1, 2, 7], "size": 3,
        "dim": "tp", "dim_source": "description", "backend": "nccl", "member": None,
        "member_place": None, "dim_reason": None,
    }  # fmt: skip
    assert set(comms) == {TP, comm_id("0", *range(64))}


def test_a_kernel_without_arguments_has_what_its_name_says(parts):
    (row,), _, _ = parts(kernel(30, 9))
    assert some(row, "comm", "op", "dtype", "in_bytes", "channels", "step") == (
        None, "all_reduce", "bfloat16", None, 24, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    "events",
    [
        # By the call that holds its launch, though its External id is its correlation (old).
        [call(5, 10, **ARGS), launch(10, 9), kernel(30, 9, GENERIC, **{"External id": 9})],
        # By External id, where the launch was not recorded.
        [call(5, 10, **ARGS, **{"External id": 77}), kernel(30, 9, GENERIC, **{"External id": 77})],
    ],
)
def test_arguments_from_the_call(parts, events):
    step = event("ProfilerStep#4", "user_annotation", 1, 50)
    (row,), _, _ = parts(step, *events)
    assert some(row, "comm", "op", "dtype", "in_bytes", "step") == (
        TP, "all_reduce", "bfloat16", 8192, 4,
    )  # fmt: skip


def test_the_record_function_is_that_of_the_call(parts):
    two = {"Record function id": 41}, {"Record function id": 43}
    send = ARGS | {"Collective name": "send", "Dst Rank": 7}
    recv = ARGS | {"Collective name": "recv", "Src Rank": 1}
    rows, _, _ = parts(
        call(5, 10, **ARGS, **two[0]), launch(10, 9), kernel(30, 9, **ARGS),
        call(40, 2, **ARGS, **{"External id": 77}, **two[1]), kernel(50, 8, **{"External id": 77}),
        kernel(60, 7, **ARGS),
        call(70, 1, **send, **two[0]), call(72, 1, **send, **two[0]), call(74, 1, **recv, **two[1]),
        launch(76, 6), kernel(80, 6, SR),
    )  # fmt: skip
    assert [some(r, "op", "record_function") for r in rows] == [
        ("all_reduce", 41), ("all_reduce", 43), ("all_reduce", None), ("send", 41), ("recv", 43),
    ]  # fmt: skip


def test_calls_on_another_thread_or_at_another_time_are_not_its_own(parts):
    (row,), _, _ = parts(
        call(5, 10, tid=9, **ARGS), call(12, 3, **ARGS), launch(10, 9), kernel(30, 9, GENERIC)
    )
    assert some(row, "comm", "op") == (None, "unknown")


@pytest.mark.parametrize(
    ("name", "rank_arg", "root"),
    [("broadcast", 2, 7), ("reduce", 0, 1), ("gather", 1, 2), ("scatter", 1, 2),
     ("allreduce", 1, None), ("broadcast", 5, None)],
)  # fmt: skip
def test_root_is_a_global_rank_from_the_call(parts, name, rank_arg, root):
    args = ARGS | {"Collective name": name}
    (row,), _, _ = parts(
        call(5, 10, Rank=rank_arg, **args), launch(10, 9), kernel(30, 9, GENERIC, **args)
    )
    assert some(row, "root", "peer") == (root, None)


@pytest.mark.parametrize(
    ("name", "args", "peer"),
    [("send", {"Dst Rank": 7}, 7), ("recv", {"Src Rank": 1}, 1), ("send", {}, None)],
)
def test_peer_of_point_to_point_is_a_global_rank(parts, name, args, peer):
    args = ARGS | {"Collective name": name} | args
    (row,), _, _ = parts(call(5, 10, **args), launch(10, 9), kernel(30, 9, SR, **args))
    assert some(row, "op", "peer", "root", "coalesced") == (name, peer, None, None)


def test_peer_in_a_group_rank_of_the_call(parts):
    args = ARGS | {"Collective name": "send"}
    (row,), _, _ = parts(call(5, 10, Rank=2, **args), launch(10, 9), kernel(30, 9, SR))
    assert some(row, "op", "peer") == ("send", 7)


def test_grouped_sends_and_receives_share_one_kernel(parts):
    send = ARGS | {"Collective name": "send", "Dst Rank": 7}
    recv = ARGS | {"Collective name": "recv", "Src Rank": 1, "In msg nelems": 10,
                   "Out msg nelems": 10}  # fmt: skip
    earlier = call(1, 2, **send)
    rows, _, _ = parts(
        earlier, launch(2, 1), kernel(20, 1, SR),
        call(5, 1, Seq=3, **send), call(7, 1, Seq=4, **send), call(9, 1, Seq=4, **recv),
        launch(12, 2), kernel(30, 2, SR),
    )  # fmt: skip
    assert some(rows[0], "op", "coalesced", "in_bytes") == ("send", None, 8192)
    said = ("op", "coalesced", "comm", "seq", "peer", "in_bytes", "out_bytes", "dtype")
    # one row a peer, all of the one kernel
    assert [some(r, *said) for r in rows[1:]] == [
        ("send", 3, TP, 3, 7, 16384, 0, "bfloat16"), ("recv", 3, TP, 4, 1, 20, 20, "bfloat16"),
    ]  # fmt: skip
    times = [some(r, "event_id", "start_ns", "end_ns", "stream") for r in rows[1:]]
    assert times[0] == times[1]


def test_a_group_with_next_and_previous_rank_exchanges_with_each(parts):
    both = [
        ARGS | {"Collective name": "send", "Dst Rank": peer, "In msg nelems": n}
        for peer, n in ((1, 10), (7, 20))
    ] + [
        ARGS | {"Collective name": "recv", "Src Rank": peer, "Out msg nelems": n}
        for peer, n in ((1, 30), (7, 40))
    ]  # fmt: skip
    rows, _, _ = parts(
        *(call(5 + 2 * i, 1, Seq=3, **args) for i, args in enumerate(both)),
        launch(20, 2), kernel(30, 2, SR),
    )  # fmt: skip
    said = ("op", "coalesced", "peer", "in_bytes", "out_bytes")
    assert [some(r, *said) for r in rows] == [
        ("send_recv", 4, 1, 20, 60), ("send_recv", 4, 7, 40, 80),
    ]  # fmt: skip
    assert len({r["event_id"] for r in rows}) == 1


def test_a_group_that_a_call_of_its_own_ends(parts):
    send = ARGS | {"Collective name": "send", "Dst Rank": 7}
    recv = ARGS | {"Collective name": "recv", "Src Rank": 7}
    (row,), _, _ = parts(
        call(5, 1, **send), call(7, 1, **recv),
        call(10, 5, Seq=9, **(ARGS | {"Collective name": "coalesced"})),
        launch(12, 2), kernel(30, 2, SR),
    )  # fmt: skip
    assert some(row, "op", "coalesced", "peer", "in_bytes") == ("send_recv", 2, 7, 8192)


def test_a_group_with_a_peer_that_nobody_names_is_one_row_without(parts):
    send = ARGS | {"Collective name": "send"}
    (row,), _, _ = parts(
        call(5, 1, **send, **{"Dst Rank": 7}), call(7, 1, **send), launch(12, 2), kernel(30, 2, SR)
    )
    assert some(row, "op", "coalesced", "peer", "in_bytes") == ("send", 2, None, 16384)


def test_grouped_sends_to_one_peer(parts):
    send = ARGS | {"Collective name": "send", "Dst Rank": 7}
    (row,), _, _ = parts(call(5, 1, **send), call(7, 1, **send), launch(12, 2), kernel(30, 2, SR))
    assert some(row, "op", "coalesced", "peer", "in_bytes") == ("send", 2, 7, 16384)


def test_splits_are_rows_and_cut_ones_are_null(parts):
    args = ARGS | {"Collective name": "all_to_allv", "In msg nelems": 60, "Out msg nelems": 40,
                   "dtype": "Float"}  # fmt: skip
    even = {"In split size": "[]", "Out split size": "[]"}
    uneven = {"In split size": "[1, 2, 3]", "Out split size": "[4, 0, 0]"}
    cut = {"In split size": "[1, 2, ..., 9]", "Out split size": "[4, 0, ..., 9]"}
    rows, _, codes = parts(
        *(kernel(30 + i, i, SR, **args, **s) for i, s in enumerate((even, uneven, cut)))
    )
    assert [some(r, "op", "in_bytes", "out_bytes", "in_splits", "out_splits") for r in rows] == [
        ("all_to_all", 240, 160, None, None),
        ("all_to_all", 240, 160, [1, 2, 3], [4, 0, 0]),
        ("all_to_all", 240, 160, None, None),
    ]
    assert codes["splits_truncated"] == 2


def test_names_before_2_3_and_ids_before_2_4(parts):
    args = {"Collective name": "_allgather_base", "dtype": "Half", "In msg size": 10,
            "Out msg size": 30, "Group size": 3, "Process Group ID": 5}  # fmt: skip
    (row,), _, _ = parts(kernel(30, 9, GENERIC, **args))
    assert some(row, "op", "dtype", "in_bytes", "out_bytes", "comm") == (
        "all_gather", "float16", 20, 60, TP,
    )  # fmt: skip


def members(parts, config, **args):
    """Members and identity of the comm that a kernel's arguments give."""
    (row,), comms, codes = parts(kernel(30, 9, **(ARGS | args)), config=config)
    return comms[row["comm"]]["ranks"], row["comm"], codes


def cut(ranks):
    return "[" + ", ".join(map(str, ranks[:29])) + f", ..., {ranks[-1]}]"


def test_cut_lists_of_members(parts):
    odd = [0, *range(2, 41)]
    listed = [{"pg_name": "5", "pg_size": 40, "ranks": odd}]
    args = {"Group size": 40, "Process Group Ranks": cut(odd)}
    # From pg_config where it has the group ...
    ranks, comm, codes = members(parts, listed, **args)
    assert (ranks, comm) == (odd, comm_id("5", *odd))
    # ... else only if evenly spaced, checked at both ends.
    ranks, comm, codes = members(parts, [], **args)
    assert (ranks, comm, codes["members_unknown"]) == (None, "5@size40", 1)
    even = list(range(3, 83, 2))
    ranks, comm, codes = members(parts, [], **(args | {"Process Group Ranks": cut(even)}))
    assert (ranks, comm) == (even, comm_id("5", *even))
    assert "members_unknown" not in codes


def test_irregular_groups_have_an_empty_list_and_their_entry_in_pg_config(parts):
    ranks, comm, _ = members(parts, None, **{"Process Group Ranks": "[]"})
    assert (ranks, comm) == ([1, 2, 7], TP)
    ranks, comm, _ = members(parts, [], **{"Process Group Ranks": "[]"})
    assert (ranks, comm) == (None, "5@size3")


def test_an_entry_of_another_size_is_another_group(parts):
    ranks, comm, codes = members(
        parts, [{"pg_name": "5", "pg_size": 4, "ranks": [0, 1, 2, 3]}],
        **{"Process Group Ranks": "[]"},
    )  # fmt: skip
    assert (ranks, comm) == (None, "5@size3")
    assert codes["group_mismatch"] == 1


def test_one_name_for_two_groups_gives_two_comms(parts):
    rows, comms, _ = parts(
        kernel(30, 9, **ARGS), kernel(40, 10, **(ARGS | {"Process Group Ranks": "[2, 3, 4]"})),
        config=[],
    )  # fmt: skip
    assert [r["comm"] for r in rows] == [TP, comm_id("5", 2, 3, 4)]
    assert len(comms) == 2


def test_calls_that_transfer_nothing_make_no_row_and_no_group(parts):
    nothing = {"Collective name": "wait", "Process Group Name": "", "Group size": 1}
    rows, comms, codes = parts(
        call(1, 1, **nothing), call(3, 1, **(ARGS | {"Collective name": "init"})), launch(10, 9)
    )
    assert rows == []
    assert set(comms) == {TP, comm_id("0", *range(64))}
    assert "members_unknown" not in codes


def test_an_unknown_type_leaves_bytes_open(parts):
    (row,), _, codes = parts(kernel(30, 9, GENERIC, **(ARGS | {"dtype": "Float7"})))
    assert some(row, "op", "in_bytes", "dtype") == ("all_reduce", None, None)
    assert codes["unknown_dtype"] == 1


def test_kernels_of_other_libraries(parts):
    names = ("void deep_ep::intranode::dispatch<8, 768>(int4*)", "nvshmemi_barrier_all_kernel",
             "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(x)")  # fmt: skip
    rows, _, _ = parts(*(kernel(30 + i, i, n) for i, n in enumerate(names)))
    assert [some(r, "op", "algo", "channels") for r in rows] == [
        ("all_to_all", None, None), ("barrier", None, None), ("all_reduce", "one_shot", None),
    ]  # fmt: skip


def test_a_kernel_of_any_name_with_collective_arguments_is_one(parts):
    (row,), _, _ = parts(kernel(30, 9, "my_own_kernel", **ARGS))
    assert some(row, "op", "comm", "channels") == ("all_reduce", TP, None)


def test_old_calls_tell_op_and_size_by_their_tensors(parts):
    shapes = {"Input Dims": [[394241]], "Input type": ["float"]}
    (row,), _, _ = parts(
        event("nccl:all_to_all", "user_annotation", 5, 10, **shapes), launch(10, 9),
        kernel(30, 9, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", **{"External id": 9}),
    )  # fmt: skip
    assert some(row, "op", "dtype", "in_bytes", "comm", "proto") == (
        "all_to_all", "float32", 1_576_964, None, "Simple",
    )  # fmt: skip


def test_calls_without_kernels_are_not_participations(parts):
    rows, _, codes = parts(event("nccl:all_reduce", "user_annotation", 5, 10), call(5, 10, **ARGS))
    assert rows == []
    assert codes["calls_without_kernels"] == 1


GLOO = [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cpu:gloo", "pg_size": 3,
         "ranks": [2, 4, 6]}]  # fmt: skip


def gloo(ts, dur, op, n, tid=99):
    shapes = {"Input Dims": [[n]], "Input type": ["float"]}
    return event(f"gloo:{op}", "user_annotation", ts, dur, tid, **shapes)


def test_host_side_backend(parts):
    rows, _, codes = parts(
        event("ProfilerStep#1", "user_annotation", 1, 100),
        event("c10d::broadcast_", "cpu_op", 10, 2, **{"Concrete Inputs": ["", "", "1", "0"]}),
        gloo(11, 50, "broadcast", 8),
        event("c10d::allreduce_", "cpu_op", 20, 2),
        gloo(21, 30, "all_reduce", 4),
        event("c10d::send", "cpu_op", 70, 4, **{"Concrete Inputs": ["", "", "2", "0"]}),
        gloo(71, 2, "send", 2, tid=8),
        event("c10d::alltoall_base_", "cpu_op", 80, 4,
              **{"Concrete Inputs": ["", "", "", "[1, 2]", "[2, 0]"], "Input Dims": [[3], [2]],
                 "Record function id": 12}),
        gloo(81, 2, "all_to_all", 2),
        gloo(200, 2, "all_gather", 5),
        config=GLOO, backend="gloo",
    )  # fmt: skip
    comm = comm_id("0", 2, 4, 6)
    got = [some(r, "op", "comm", "root", "peer", "in_bytes", "out_bytes", "step") for r in rows]
    assert got == [
        ("broadcast", comm, 4, None, 32, 32, 1),
        ("all_reduce", comm, None, None, 16, 16, 1),
        ("send", comm, None, 6, 8, 8, 1),
        ("all_to_all", comm, None, None, 8, 12, 1),
        ("all_gather", comm, None, None, 20, 60, None),
    ]
    assert some(rows[0], "start_ns", "end_ns", "stream") == (
        10**18 + 11_000, 10**18 + 61_000, None,
    )  # fmt: skip
    assert some(rows[3], "in_splits", "out_splits", "record_function") == ([2, 0], [1, 2], 12)
    assert "comm_unknown" not in codes


def test_several_groups_of_one_host_side_backend_leave_it_open(parts):
    two = [*GLOO, GLOO[0] | {"pg_name": "1", "pg_desc": "mesh_tp"}]
    (row,), _, codes = parts(gloo(1, 2, "all_reduce", 4), config=two, backend="gloo")
    assert some(row, "comm", "group_size") == (None, 3)
    assert codes["comm_unknown"] == 1
