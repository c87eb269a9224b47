"""Kineto traces of other devices: XPU as its plugin writes it, and categories nobody told us of.

The XPU events are those of Kineto's xpupti plugin: the SYCL queue as track, times of appending and
submitting as text, the context as hex text, `memory opration id` spelt so, collectives as
`collective_comm` on the thread of the host with a `Communicator_id` and nothing else.
"""

import json

import pytest
from retime.ingest.kineto import parser as kineto
from retime.ingest.sources import find_sources

BASE = 1_700_000_000_000_000_000


def event(name, cat, ts, dur, pid, tid, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def on_device(name, cat, ts, dur, correlation, queue=1, **more):
    quoted = {"appended": "123.456", "appended_rel_to_start": "-1.000", "submitted": "124.000",
              "submitted_rel_to_start": "-0.500", "context": "0x000055d0c0ffee00",
              "l0 queue": "0x000055d0c0ffee10"}  # fmt: skip
    return event(name, cat, ts, dur, 0, queue, **quoted, device=0, correlation=correlation,
                 **{"sycl queue": queue}, **more)  # fmt: skip


def runtime(ts, correlation, tid=77):
    return event("urEnqueueKernelLaunch", "xpu_runtime", ts, 2, 4242, tid, correlation=correlation)


XPU = [
    event("ProfilerStep#3", "user_annotation", 1, 90, 4242, 77),
    runtime(10, 5),
    on_device("gemm_kernel", "kernel", 20, 10, 5, kernel_id=9, sycl_node_id=0),
    runtime(12, 6),
    on_device("Memcpy M2D (Memory -> Device)", "gpu_memcpy", 31, 4, 6, queue=2, bytes=65536,
              **{"memory opration id": 17, "l0 call": "zeCommandListAppendMemoryCopy",
                 "memory bandwidth (GB/s)": 16.384}),
    on_device("Memset (0 -> Device)", "gpu_memset", 36, 1, 7, bytes=64,
              **{"memory opration id": 18}),
    event("zeEventHostSynchronize", "xpu_sync", 40, 3, -1, 77, correlation=8, Type="HOST_EVENT",
          Number_wait_events=1, Return_code=0),
    event("zeCommandListAppendLaunchKernel", "xpu_driver", 13, 1, 4242, 77, correlation=6),
    event("xccl::allreduce", "collective_comm", 50, 8, 4242, 77, Communicator_id=3),
    event("xccl::allgather", "collective_comm", 60, 6, 4242, 77, Communicator_id=3),
]  # fmt: skip


@pytest.fixture
def read(tmp_path):
    def tables(events, **info):
        text = {"baseTimeNanoseconds": BASE, "deviceProperties": [{"id": 0, "name": "Max 1550"}],
                "distributedInfo": {"backend": "xccl", "rank": 1, "world_size": 2, **info},
                "traceEvents": events}  # fmt: skip
        path = tmp_path / "trace.json"
        path.write_text(json.dumps(text))
        (source,) = find_sources([str(path)], lambda *a: None)
        out = {}
        for table, batch in kineto.parse(source):
            out.setdefault(table, []).extend(batch.to_pylist())
        return out

    return tables


def slim(row, *names):
    return tuple(row[n] for n in names)


def codes(t):
    return {p["code"]: p["count"] for p in t["problems"]}


def test_kernels_and_copies_of_an_xpu(read):
    t = read(XPU)
    rows = [r for r in t["events"] if r["kind"] in ("kernel", "memcpy", "memset")]
    assert [slim(r, "kind", "name", "start_ns", "dur_ns", "stream", "device", "bytes", "step")
            for r in rows] == [
        ("kernel", "gemm_kernel", BASE + 20_000, 10_000, 1, 0, None, 3),
        ("memcpy", "Memcpy M2D (Memory -> Device)", BASE + 31_000, 4_000, 2, 0, 65536, 3),
        ("memset", "Memset (0 -> Device)", BASE + 36_000, 1_000, 1, 0, 64, None),
    ]  # fmt: skip
    kinds = sorted(r["kind"] for r in t["events"])
    assert kinds == ["annotation", "host_op", "host_op", "kernel", "memcpy", "memset", "runtime",
                     "runtime", "runtime", "sync"]  # fmt: skip


def test_collectives_of_an_xpu_are_the_hosts_calls_and_what_they_lack_is_said(read):
    t = read(XPU)
    assert [slim(r, "op", "start_ns", "end_ns", "comm", "in_bytes", "seq", "stream", "step")
            for r in t["collectives"]] == [
        ("all_reduce", BASE + 50_000, BASE + 58_000, None, None, None, None, 3),
        ("all_gather", BASE + 60_000, BASE + 66_000, None, None, None, None, 3),
    ]  # fmt: skip
    assert codes(t)["xpu_no_ranks"] == 2
    assert "category_unknown" not in codes(t)


def test_the_call_around_an_xpu_collective_says_the_rest(read):
    args = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 100,
            "Out msg nelems": 100, "Group size": 2, "Process Group Name": "0",
            "Process Group Ranks": "[0, 1]"}  # fmt: skip
    t = read([*XPU, event("record_param_comms", "cpu_op", 49, 10, 4242, 77, **args)])
    first, second = t["collectives"]
    assert slim(first, "op", "in_bytes", "group_size", "start_ns") == (
        "all_reduce", 400, 2, BASE + 50_000,
    )  # fmt: skip
    assert first["comm"] is not None
    assert second["comm"] is None
    assert codes(t)["xpu_no_ranks"] == 1


def test_kernels_launched_by_an_xpu_collective_stand_for_it(read):
    kernel = on_device("oneccl_kernel_main<float>", "kernel", 55, 20, 9)
    t = read([*XPU, runtime(52, 9), kernel])
    assert [slim(r, "op", "start_ns", "end_ns", "stream") for r in t["collectives"]] == [
        ("all_reduce", BASE + 55_000, BASE + 75_000, 1)
    ]


def test_rows_of_other_devices_are_kept(read):
    t = read([
        event("run", "mtia_ccp_events", 10, 5, 0, 3, device=0, correlation=1),
        event("launch", "mtia_runtime", 8, 1, 4242, 77, correlation=1),
        event("fused", "hpu_op", 20, 5, 0, 4, device=0),
        event("npuLaunch", "privateuse1_runtime", 18, 1, 4242, 77, correlation=2),
        event("w", "mtia_workloadd", 30, 5, 0, 4),
        event("x", "quantum_op", 40, 5, 0, 4),
        event("y", "quantum_op", 50, 5, 0, 4),
    ])  # fmt: skip
    assert sorted(slim(r, "kind", "name") for r in t["events"]) == [
        ("kernel", "fused"), ("kernel", "run"), ("other", "w"), ("other", "x"), ("other", "y"),
        ("runtime", "launch"), ("runtime", "npuLaunch"),
    ]  # fmt: skip
    (p,) = [p for p in t["problems"] if p["code"] == "category_unknown"]
    assert p["count"] == 2
    assert "mtia_workloadd, quantum_op" in p["message"]


def test_rocm_traces_against_counts_of_their_own_text(retime_traces):
    import collections
    import gzip

    for name, rank in (
        ("HolisticTraceAnalysis/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz", 0),
        ("TraceLens/mi300/resnet_act_checkpoint.json.gz", None),
    ):
        path = retime_traces / "kineto" / name
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        cats = collections.Counter(e.get("cat") for e in events if e["ph"] == "X")
        rccl = sum(e.get("cat") == "kernel" and "nccl" in e["name"] for e in events)
        (source,) = find_sources([str(path)], lambda *a: None)
        kinds, n = collections.Counter(), 0
        for table, batch in kineto.parse(source, rank=rank):
            if table == "events":
                kinds.update(batch["kind"].to_pylist())
            n += batch.num_rows * (table == "collectives")
        for kind, cat in (("kernel", "kernel"), ("memcpy", "gpu_memcpy"), ("memset", "gpu_memset"),
                          ("runtime", "cuda_runtime"), ("host_op", "cpu_op")):  # fmt: skip
            assert kinds[kind] == cats[cat], (name, kind)
        assert n == rccl
