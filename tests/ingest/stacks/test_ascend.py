"""Ascend profiles: made-up folders, shaped as torch_npu's and msprof's writers give them.

The shapes are those of torch_npu's TraceEventManager and CommunicationParser and of msprof's
assemblers of the task and HCCL tracks: processes named in metadata, `connection_id` on the calls
of CANN and on what they launch, operations on a group's track and their tasks on the planes after
it, microseconds as text with a tab or as numbers, no bracket at the end.
"""

import json

import pytest
from retime.ingest.bundles import bundled
from retime.ingest.detect import detect
from retime.ingest.errors import RankUnknown, UnusableInput
from retime.ingest.schema import event_id
from retime.ingest.sources import find_sources
from retime.ingest.stacks import ascend, ascend_names

PYTHON, CANN, NPU, HCCL, OVERLAP = 1000, 1001, 1002, 1003, 1004
T = 1_699_529_623_106_000  # us


def meta(pid, name, tid=None):
    event = {"ph": "M", "name": "process_name" if tid is None else "thread_name", "pid": pid,
             "tid": tid or 0, "args": {"name": name}}  # fmt: skip
    return event


def x(name, pid, tid, at, dur, args=None, cat=None):
    event = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": f"{T + at}.250\t", "dur": dur,
             "args": args or {}}  # fmt: skip
    return event | ({"cat": cat} if cat else {})


def task(kind, connection, stream=2):
    return {"Model Id": 4294967295, "Task Type": kind, "Physic Stream Id": stream, "Task Id": 1,
            "Batch Id": 0, "Subtask Id": 4294967295, "connection_id": connection}  # fmt: skip


def op(connection, count, data_type, size=4):
    return {"rank_size": size, "connection_id": connection, "model id": 4294967295,
            "data_type": data_type, "alg_type": "MESH-RING", "count": count, "relay": "no",
            "retry": "no"}  # fmt: skip


def plane(kind, size, src, dst, stream):
    return {"notify_id": 1, "duration estimated(us)": 1.0, "stream id": stream, "task id": 3,
            "context id": 0, "task type": kind, "src rank": src, "dst rank": dst,
            "transport type": "SDMA", "size(Byte)": size, "data type": "FP16",
            "link type": "HCCS", "bandwidth(GB/s)": 10.0}  # fmt: skip


EVENTS = [
    x("ProfilerStep#4", PYTHON, 9, 100, 5000, cat="cpu_op"),
    meta(PYTHON, "Python"),
    x("aten::mm", PYTHON, 9, 200, 50, cat="cpu_op"),
    {"ph": "s", "bp": "e", "name": "torch_to_npu", "id": 1, "pid": PYTHON, "tid": 9, "ts": T,
     "cat": "async_npu"},
    meta(CANN, "CANN"),
    x("Node@launch", CANN, 9, 210, 10, {"connection_id": 11}),
    x("Node@launch", CANN, 9, 230, 10, {"connection_id": 12}),
    x("HcclAllReduce", CANN, 9, 260, 10, {"connection_id": 13}),
    meta(NPU, "Ascend Hardware"),
    {"ph": "M", "name": "process_labels", "pid": NPU, "tid": 0, "args": {"labels": "NPU 5"}},
    x("aclnnMatmul_MatMulV2_MatMulV2", NPU, 2, 1000, 100, task("AI_CORE", 11)),
    x("MEMCPY_ASYNC", NPU, 2, 1200, 20.5, task("MEMCPY_ASYNC", 12)),
    x("EVENT_WAIT", NPU, 7, 1300, 30, task("EVENT_WAIT", 0, 7)),
    meta(HCCL, "Communication"),
    meta(HCCL, "Group 0 Communication", 0),
    meta(HCCL, "Plane 0", 1),
    meta(HCCL, "Plane 1", 2),
    meta(HCCL, "Group 1 Communication", 3),
    meta(HCCL, "Plane 0", 4),
    x("hcom_allReduce__293_0_1", HCCL, 0, 1500, 400, op(13, 1024, "BFP16")),
    x("Notify_Wait", HCCL, 1, 1500, 300, plane("Notify Wait", 0, 1, 0, 31)),
    x("Memcpy", HCCL, 1, 1810, 40, plane("Memcpy", 512, 1, 0, 31)),
    x("Memcpy", HCCL, 2, 1820, 50, plane("Memcpy", 256, 0, 2, 32)),
    x("hcom_allGather__844_1_1", HCCL, 3, 2000, 100, op(0, 100, "FP32", 8)),
    x("Reduce_Inline", HCCL, 4, 2010, 10, plane("Reduce Inline", 64, 3, 3, 33)),
    meta(OVERLAP, "Overlap Analysis"),
    x("Computing", OVERLAP, 1, 1000, 100),
    {"ph": "C", "name": "AI Core Freq", "pid": NPU, "tid": 0, "ts": f"{T}", "args": {"MHz": 1800}},
]  # fmt: skip


# As msprof's combine_sdma_info leaves them: SDMA is the sum of HCCS, PCIE and SIO.
LINKS = {"RDMA": 4.194304, "HCCS": 29.360128, "PCIE": 0, "SDMA": 33.554432, "SIO": 4.194304}


def bandwidth(sizes):
    return {
        link: {"Transit Size(MB)": size, "Transit Time(ms)": 1, "Bandwidth(GB/s)": 2,
               "Large Packet Ratio": 0, "Size Distribution": {}}
        for link, size in sizes.items()
    }  # fmt: skip


def time_info(start, elapse, transit, wait):
    return {
        "Communication Time Info": {
            "Start Timestamp(us)": start, "Elapse Time(ms)": elapse, "Transit Time(ms)": transit,
            "Wait Time(ms)": wait, "Synchronization Time(ms)": wait, "Idle Time(ms)": 0.01,
            "Wait Time Ratio": 0.5, "Synchronization Time Ratio": 0.5,
        },
        "Communication Bandwidth Info": bandwidth(LINKS),
    }  # fmt: skip


COMMUNICATION = {
    "step4": {
        "p2p": {
            "hcom_send__844_7_1@17": time_info(T + 4000.25, 0.2, 0.15, 0.05),
            "Total Op Info": time_info(0, 99, 99, 99),
        },
        "collective": {
            "hcom_allReduce__293_0_1@13681369207305868293": time_info(T + 1500.25, 0.4, 0.09, 0.3),
            "Total Op Info": time_info(0, 99, 99, 99),
        },
    }
}


def profile(folder, communication=True, trace=True, rank=3, name="node-a_4242_20230628101435123"):
    root = folder / f"{name}_ascend_pt"
    out = root / "ASCEND_PROFILER_OUTPUT"
    out.mkdir(parents=True)
    if rank is not None:
        (root / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank}))
    if trace:
        (out / "trace_view.json").write_text(json.dumps(EVENTS)[:-1])
    if communication:
        (out / "communication.json").write_text(json.dumps(COMMUNICATION))
    (out / "kernel_details.csv").write_text("Name\n")
    (root / "FRAMEWORK").mkdir()
    (root / "FRAMEWORK" / "torch.op_range").write_bytes(b"\1\2")
    return root


def read(path, rank=None):
    source, found = bundled(find_sources([str(path)], lambda *a: None))[0]
    assert (found or detect(source)) == "ascend"
    out = {}
    for table, batch in ascend.parse(source, rank=rank):
        out.setdefault(table, []).extend(batch.to_pylist())
    return out


def codes(t):
    return {p["code"]: p["count"] for p in t["problems"]}


def slim(row, *names):
    return tuple(row[n] for n in names)


def ns(at):
    return T * 1000 + at * 1000 + 250


def coarse(at):
    """The same as communication.json has it: a float there, which resolves a quarter of a us."""
    assert json.dumps(T + at + 0.25) == f"{T + at}.2"
    return T * 1000 + at * 1000 + 200


def test_folder_of_a_rank_is_one_source(tmp_path):
    profile(tmp_path)
    found = bundled(find_sources([str(tmp_path)], lambda *a: None))
    assert sorted((s.name.rpartition("/")[2], f or "", len(s.members)) for s, f in found) == [
        ("node-a_4242_20230628101435123_ascend_pt", "ascend", 4),
        ("torch.op_range", "", 0),
    ]
    assert [ascend.peek_rank(s) for s, f in found if f] == [3]


def test_device_rows(tmp_path):
    t = read(profile(tmp_path))
    rows = [r for r in t["events"] if r["kind"] in ("kernel", "memcpy", "sync")]
    assert [
        slim(r, "kind", "name", "start_ns", "dur_ns", "stream", "device", "step", "category")
        for r in rows if not r["name"].startswith("hcom")
    ] == [
        ("kernel", "aclnnMatmul_MatMulV2_MatMulV2", ns(1000), 100_000, 2, 5, 4, "gemm"),
        ("memcpy", "MEMCPY_ASYNC", ns(1200), 20_500, 2, 5, 4, "copy"),
        ("sync", "EVENT_WAIT", ns(1300), 30_000, 7, 5, None, None),
    ]  # fmt: skip


def test_host_rows_and_step(tmp_path):
    t = read(profile(tmp_path))
    host = [r for r in t["events"] if r["thread"] is not None]
    assert sorted(slim(r, "kind", "name", "thread") for r in host) == [
        ("annotation", "ProfilerStep#4", "9"),
        ("host_op", "aten::mm", "9"),
        ("runtime", "HcclAllReduce", "9"),
        ("runtime", "Node@launch", "9"),
        ("runtime", "Node@launch", "9"),
    ]
    # From the first kernel that it launched to the end of the all-reduce.
    assert [slim(r, "step", "start_ns", "end_ns", "host_start_ns") for r in t["steps"]] == [
        (4, ns(1000), ns(1900), ns(100))
    ]


def test_collectives_with_bytes_and_group(tmp_path):
    t = read(profile(tmp_path))
    assert [
        slim(r, "op", "comm", "dtype", "in_bytes", "out_bytes", "group_size", "start_ns", "end_ns",
             "stream", "channels", "step", "algo", "timing", "clock", "source", "seq")
        for r in t["collectives"]
    ] == [
        ("all_reduce", "hccl-13681369207305868293", "bfloat16", 2048, 2048, 4, ns(1500), ns(1900),
         31, 2, 4, "MESH-RING", "kernel", "host", "ascend", None),
        ("all_gather", "hccl-*844", "float32", 400, 3200, 8, ns(2000), ns(2100), 33, 1, None,
         "MESH-RING", "kernel", "host", "ascend", None),
        ("send", "hccl-17", None, None, None, None, coarse(4000), coarse(4200), None, None, 4, None,
         "kernel", "host", "ascend", None),
    ]  # fmt: skip
    ids = {r["event_id"] for r in t["events"]}
    assert all(r["event_id"] in ids for r in t["collectives"])
    assert len(ids) == len(t["events"]) == 11
    assert sorted(slim(r, "comm", "size", "backend", "member") for r in t["comms"]) == [
        ("hccl-*844", 8, "hccl", 3),
        ("hccl-13681369207305868293", 4, "hccl", 3),
        ("hccl-17", None, "hccl", 3),
    ]


def test_times_of_operations_are_counters_at_their_start(tmp_path):
    t = read(profile(tmp_path))
    at = {(r["name"], r["time_ns"]): r["value"] for r in t["counters"]}
    assert at[("hccl.transit_ns", ns(1500))] == 90_000
    assert at[("hccl.wait_ns", ns(1500))] == 300_000
    assert at[("hccl.idle_ns", coarse(4000))] == 10_000
    assert at[("AI Core Freq.MHz", T * 1000)] == 1800
    # Two operations of four times each, and one sample; no sums over all of them.
    assert len(t["counters"]) == 9


def test_transfers_from_tasks_else_from_sums_by_link(tmp_path):
    t = read(profile(tmp_path))
    all_reduce = event_id(3, "ascend", 1 + EVENTS.index(
        next(e for e in EVENTS if e["name"] == "hcom_allReduce__293_0_1")))  # fmt: skip
    of = [slim(r, "bytes", "channel", "start_ns", "end_ns", "via", "measured")
          for r in t["transfers"] if r["event_id"] == all_reduce]  # fmt: skip
    assert of == [
        (512, 0, ns(1810), ns(1850), "SDMA/HCCS", True),
        (256, 1, ns(1820), ns(1870), "SDMA/HCCS", True),
    ]
    sums = [slim(r, "bytes", "start_ns", "end_ns", "via")
            for r in t["transfers"] if r["event_id"] != all_reduce]  # fmt: skip
    assert sums == [
        (4 << 20, coarse(4000), coarse(4200), "RDMA"),
        (28 << 20, coarse(4000), coarse(4200), "HCCS"),
        (4 << 20, coarse(4000), coarse(4200), "SIO"),
    ]


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        # 0.1 + 0.2 as floats are more than 0.3: no byte of it.
        ({"HCCS": 0.1, "PCIE": 0.2, "SIO": 0, "SDMA": 0.1 + 0.2},
         [("HCCS", 100_000), ("PCIE", 200_000)]),
        # What the engine moved on no other link, as newer writers add to it.
        ({"HCCS": 1, "SDMA": 1.5, "RDMA": 0}, [("HCCS", 1_000_000), ("SDMA", 500_000)]),
        ({"SDMA": 2}, [("SDMA", 2_000_000)]),
        ({"HCCS": 2, "SDMA": 1}, [("HCCS", 2_000_000)]),
        ({"HCCS": None, "SDMA": "x"}, []),
    ],
)  # fmt: skip
def test_bytes_count_on_one_link_only(tmp_path, sizes, wanted):
    root = profile(tmp_path)
    told = json.loads(json.dumps(COMMUNICATION))
    send = told["step4"]["p2p"]["hcom_send__844_7_1@17"]
    send["Communication Bandwidth Info"] = bandwidth(sizes)
    (root / "ASCEND_PROFILER_OUTPUT" / "communication.json").write_text(json.dumps(told))
    rows = [r for r in read(root)["transfers"] if r["start_ns"] == coarse(4000)]
    assert [slim(r, "via", "bytes") for r in rows] == wanted


def test_rank_row_and_problems(tmp_path):
    t = read(profile(tmp_path))
    (r,) = t["ranks"]
    assert slim(r, "rank", "host", "pid", "device", "start_ns", "end_ns", "clock") == (
        3, "node-a", 4242, 5, ns(100), ns(5100), "host",
    )  # fmt: skip
    c = codes(t)
    assert c["tasks_as_transfers"] == 4
    assert c["members_unknown"] == 3
    assert c["unclosed"] == c["flows_not_stored"] == c["sums_not_stored"] == 1
    assert c["no_sequence_numbers"] == c["group_by_digits"] == c["sizes_unknown"] == 1
    assert not [p for p in t["problems"] if p["severity"] != "info"]


def test_trace_alone(tmp_path):
    root = profile(tmp_path, communication=False)
    alone = tmp_path / "rank7" / "trace_view.json"
    alone.parent.mkdir()
    alone.write_text((root / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text() + "]")
    t = read(alone)
    assert t["ranks"][0]["rank"] == 7
    assert [r["comm"] for r in t["collectives"]] == ["hccl-*293", "hccl-*844"]
    assert "unclosed" not in codes(t)


def test_communication_alone(tmp_path):
    t = read(profile(tmp_path, trace=False))
    assert [slim(r, "op", "comm", "start_ns", "end_ns", "step") for r in t["collectives"]] == [
        ("all_reduce", "hccl-13681369207305868293", coarse(1500), coarse(1900), 4),
        ("send", "hccl-17", coarse(4000), coarse(4200), 4),
    ]
    assert codes(t)["no_trace_view"] == 1


def test_folder_without_either_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(UnusableInput, match=r"without trace_view\.json.*analyse"):
        read(profile(tmp_path, trace=False, communication=False))


def test_rank_is_asked_for(tmp_path):
    root = profile(tmp_path, rank=None)
    with pytest.raises(RankUnknown, match="--rank N"):
        read(root)
    assert read(root, 2)["ranks"][0]["rank"] == 2


def test_detection_is_by_content_and_kineto_keeps_its_own(tmp_path):
    bare = [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1}]
    for name, events, wanted in (
        ("a.json", EVENTS, "ascend"),
        ("b.json", bare, "kineto"),
    ):
        (tmp_path / name).write_text(json.dumps(events))
        (source,) = find_sources([str(tmp_path / name)], lambda *a: None)
        assert detect(source) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("1699529623106750.123\t", 1699529623106750123), (17, 17000), ("12.0005", 12000),
     ("12.0015", 12002), ("12.00051", 12001), ("1e3", 1000000), ("-1.5", -1500)],
)  # fmt: skip
def test_times_go_from_text_to_integers(text, wanted):
    assert ascend_names.us_to_ns(text) == wanted


@pytest.mark.parametrize("text", ["", "x", None, True, [], "9" * 40, "1e400", "nan", "--1"])
def test_what_is_no_time(text):
    assert ascend_names.us_to_ns(text) == ascend_names.NULL


@pytest.mark.parametrize(
    ("name", "op", "digits"),
    [("hcom_allReduce__293_647_1", "all_reduce", "293"),
     ("hcom_reduceScatter_AicpuKernel_503_490_1", "reduce_scatter", "503"),
     ("hcom_BatchSendRecv__101_0_1", "send_recv", "101"),
     ("hcom_alltoallv__1_2_3", "all_to_all", "1"),
     ("hcom_receive__1_2_3", "recv", "1"), ("hcom_broadcast__844_0_1", "broadcast", "844"),
     ("Notify_Wait", None, None)],
)  # fmt: skip
def test_names_of_operations(name, op, digits):
    assert ascend_names.hccl_op(name) == op
    assert ascend_names.group_digits(name) == digits


@pytest.mark.parametrize(
    ("turn", "value"), list(enumerate([None, "x", [], 10**30, {"a": 1}, -1, "9" * 18, True]))
)
def test_wrong_types_anywhere_end_in_rows(tmp_path, turn, value):
    # Each value stands in for every eighth of the values there are, another eighth each.
    def mutants(node):
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, old in list(items):
            node[key] = value
            yield
            node[key] = old
            if isinstance(old, dict | list):
                yield from mutants(old)

    root = profile(tmp_path)
    out = root / "ASCEND_PROFILER_OUTPUT"
    n = 0
    for name, document in (
        ("trace_view.json", json.loads(json.dumps(EVENTS))),
        ("communication.json", json.loads(json.dumps(COMMUNICATION))),
    ):
        for k, _ in enumerate(mutants(document)):
            if k % 8 != turn:
                continue
            (out / name).write_text(json.dumps(document))
            assert read(root)["ranks"]
            n += 1
    assert n > 40
