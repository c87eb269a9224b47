"""rocprofv3 output: made-up files, shaped as its JSON and CSV writers give them.

The shapes are those of rocprofiler-sdk's generateJSON, its serialization of records, and
generateCSV: a table of operation names by kind, records with `correlation_id.internal`,
`dispatch_info` in work items, HIP's and RCCL's calls without arguments, markers by correlation.
"""

import gzip
import json

import pytest
from retime.ingest.detect import FORMATS
from retime.ingest.errors import RankUnknown, UnusableInput
from retime.ingest.schema import event_id
from retime.ingest.sources import find_sources
from retime.ingest.stacks import rocprof

KINDS = [
    {"kind": "NONE", "operations": []},
    {"kind": "HIP_RUNTIME_API", "operations": ["hipMalloc", "hipLaunchKernel", "hipMemcpyAsync"]},
    {"kind": "MARKER_CORE_RANGE_API", "operations": ["roctxMarkA", "roctxThreadRangeA"]},
    {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
    {"kind": "KERNEL_DISPATCH", "operations": ["NONE", "ENQUEUE", "COMPLETE"]},
    {
        "kind": "RCCL_API",
        "operations": ["ncclAllReduce", "ncclGroupStart", "ncclGroupEnd", "ncclSend", "ncclRecv",
                       "ncclCommInitRank"],
    },
]  # fmt: skip
HIP, MARKER, COPY, KERNEL, RCCL = 1, 2, 3, 4, 5
NAMES = {
    7: "gemm_kernel(float*)",
    8: "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
}


def call(kind, operation, internal, start, end, thread=70):
    return {
        "size": 72,
        "kind": kind,
        "operation": operation,
        "correlation_id": {"internal": internal, "external": 0, "ancestor": 0},
        "start_timestamp": start,
        "end_timestamp": end,
        "thread_id": thread,
    }


def kernel(kernel_id, internal, start, end, stream=3, agent=222):
    return {
        "size": 160,
        "kind": KERNEL,
        "operation": 2,
        "thread_id": 70,
        "correlation_id": {"internal": internal, "external": 0},
        "start_timestamp": start,
        "end_timestamp": end,
        "dispatch_info": {
            "size": 64,
            "agent_id": {"handle": agent},
            "queue_id": {"handle": 1},
            "kernel_id": kernel_id,
            "dispatch_id": internal,
            "private_segment_size": 0,
            "group_segment_size": 0,
            "workgroup_size": {"x": 256, "y": 1, "z": 1},
            "grid_size": {"x": 1000, "y": 2, "z": 1},
        },
        "stream_id": {"handle": stream},
    }


def process():
    return {
        "metadata": {
            "node": {"id": 1, "hash": 2, "machine_id": "m", "system_name": "Linux",
                     "hostname": "node-a"},
            "pid": 4242,
            "init_time": 900,
            "fini_time": 99000,
            "command": ["python", "train.py"],
            "config": {"output_path": "/out"},
        },
        "agents": [
            {"size": 1, "id": {"handle": 111}, "type": 1, "node_id": 0, "name": "CPU"},
            {"size": 1, "id": {"handle": 221}, "type": 2, "node_id": 1, "name": "gfx942",
             "logical_node_type_id": 0, "product_name": "MI300X", "cu_count": 304},
            {"size": 1, "id": {"handle": 222}, "type": 2, "node_id": 2, "name": "gfx942",
             "logical_node_type_id": 1, "product_name": "MI300X", "cu_count": 304},
        ],
        "counters": [],
        "strings": {
            "callback_records": [],
            "buffer_records": KINDS,
            "marker_api": [{"key": 500, "value": "ProfilerStep#7"}],
            "correlation_id": {"external": []},
        },
        "code_objects": [],
        "kernel_symbols": [
            {"size": 1, "kernel_id": k, "kernel_name": f"mangled{k}.kd",
             "formatted_kernel_name": name}
            for k, name in NAMES.items()
        ],
        "host_functions": [],
        "summary": [],
        "callback_records": {"counter_collection": []},
        "buffer_records": {
            "kernel_dispatch": [
                kernel(7, 10, 2000, 2500),
                kernel(8, 21, 3000, 4000, stream=4),
                kernel(8, 31, 5000, 5600, stream=4),
                kernel(8, 77, 1000, 1100, stream=4),
            ],
            "hip_api": [
                call(HIP, 1, 10, 1500, 1510),
                call(HIP, 1, 21, 1620, 1630),
                call(HIP, 1, 31, 1880, 1890),
                call(HIP, 2, 40, 9000, 9100),
            ],
            "hsa_api": [call(HIP, 0, 3, 1, 2)],
            "marker_api": [call(MARKER, 1, 500, 1400, 8000)],
            "rccl_api": [
                call(RCCL, 5, 19, 1000, 1200),
                call(RCCL, 0, 20, 1600, 1700),
                call(RCCL, 1, 29, 1800, 1801),
                call(RCCL, 3, 28, 1810, 1811),
                call(RCCL, 4, 27, 1820, 1821),
                call(RCCL, 2, 30, 1850, 1900),
            ],
            "memory_copy": [
                {"size": 80, "kind": COPY, "operation": 1, "thread_id": 70,
                 "correlation_id": {"internal": 40, "external": 0},
                 "start_timestamp": 9500, "end_timestamp": 9700,
                 "dst_agent_id": {"handle": 222}, "src_agent_id": {"handle": 111},
                 "bytes": 4096, "stream_id": {"handle": 3}},
            ],
            "scratch_memory": [],
        },
    }  # fmt: skip


def write(folder, *processes, name="rank3_results.json"):
    path = folder / name
    path.write_text(json.dumps({"rocprofiler-sdk-tool": list(processes)}, indent=1))
    return path


def tables(path, rank=None):
    (source,) = find_sources([str(path)], lambda *a: None)
    return of(source, rank)


def of(source, rank=None):
    out = {}
    for table, batch in rocprof.parse(source, rank=rank):
        out.setdefault(table, []).extend(batch.to_pylist())
    return out


def codes(t):
    return {p["code"]: p["count"] for p in t.get("problems", [])}


def slim(row, *names):
    return tuple(row[n] for n in names)


def test_kernels_carry_name_device_blocks_and_the_step_that_launched_them(tmp_path):
    t = tables(write(tmp_path, process()))
    rows = [r for r in t["events"] if r["kind"] == "kernel"]
    assert [
        slim(r, "name", "start_ns", "dur_ns", "stream", "device", "correlation", "step", "category")
        for r in rows
    ] == [
        (NAMES[8], 1000, 100, 4, 1, 77, None, "comm"),
        (NAMES[7], 2000, 500, 3, 1, 10, 7, "gemm"),
        (NAMES[8], 3000, 1000, 4, 1, 21, 7, "comm"),
        (NAMES[8], 5000, 600, 4, 1, 31, 7, "comm"),
    ]
    # 1000 work items in groups of 256 are 4 blocks, twice.
    assert {(r["grid_blocks"], r["block_threads"]) for r in rows} == {(8, 256)}
    assert len({r["event_id"] for r in t["events"]}) == len(t["events"]) == 16
    assert rows[1]["event_id"] == event_id(3, "rocprof", 1)


def test_copies_calls_and_markers(tmp_path):
    t = tables(write(tmp_path, process()))
    (copy,) = [r for r in t["events"] if r["kind"] == "memcpy"]
    assert slim(copy, "name", "start_ns", "dur_ns", "bytes", "stream", "device", "step") == (
        "Memcpy HOST_TO_DEVICE", 9500, 200, 4096, 3, 1, None,
    )  # fmt: skip
    calls = [r["name"] for r in t["events"] if r["kind"] == "runtime"]
    assert sorted(calls) == sorted(
        ["hipLaunchKernel"] * 3 + ["hipMemcpyAsync", "ncclCommInitRank", "ncclAllReduce",
         "ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd"]
    )  # fmt: skip
    assert [r["name"] for r in t["events"] if r["kind"] == "annotation"] == ["ProfilerStep#7"]
    assert codes(t)["hsa_api_not_stored"] == 1


def test_step_runs_from_its_first_kernel_to_its_last_end(tmp_path):
    t = tables(write(tmp_path, process()))
    assert [slim(r, "step", "start_ns", "end_ns", "host_start_ns", "host_end_ns", "found_by")
            for r in t["steps"]] == [(7, 2000, 5600, 1400, 8000, "annotation")]  # fmt: skip


def test_collectives_take_their_op_from_the_call_around_the_launch(tmp_path):
    t = tables(write(tmp_path, process()))
    assert [
        slim(r, "op", "start_ns", "end_ns", "stream", "step", "coalesced", "channels", "event_id",
             "timing", "clock", "source")
        for r in t["collectives"]
    ] == [
        ("unknown", 1000, 1100, 4, None, None, 8, event_id(3, "rocprof", 4), "kernel", "boot",
         "rocprof"),
        ("all_reduce", 3000, 4000, 4, 7, None, 8, event_id(3, "rocprof", 2), "kernel", "boot",
         "rocprof"),
        ("send_recv", 5000, 5600, 4, 7, 2, 8, event_id(3, "rocprof", 3), "kernel", "boot",
         "rocprof"),
    ]  # fmt: skip
    assert all(r["comm"] is None and r["in_bytes"] is None for r in t["collectives"])
    assert codes(t)["rccl_no_arguments"] == 3
    assert codes(t)["kernels_without_calls"] == 1


def test_calls_are_collectives_where_no_kernels_were_traced(tmp_path):
    p = process()
    p["buffer_records"]["kernel_dispatch"] = []
    t = tables(write(tmp_path, p))
    assert [slim(r, "op", "start_ns", "end_ns", "timing", "step") for r in t["collectives"]] == [
        ("all_reduce", 1600, 1700, "host", 7),
        ("send", 1810, 1811, "host", 7),
        ("recv", 1820, 1821, "host", 7),
    ]
    assert "rccl_calls_only" in codes(t)


def test_rank_row_and_its_clock(tmp_path):
    t = tables(write(tmp_path, process()))
    (r,) = t["ranks"]
    assert slim(r, "rank", "host", "host_source", "pid", "device", "n_devices", "device_name",
                "n_sms", "start_ns", "end_ns", "clock") == (
        3, "node-a", "recorded", 4242, 1, 2, "MI300X", 304, 1000, 9700, "boot",
    )  # fmt: skip
    assert "boot_time_clock" in codes(t)


def test_rank_from_environment_name_or_option(tmp_path):
    p = process()
    path = write(tmp_path, p, name="4242_results.json")
    with pytest.raises(RankUnknown, match=r"--rank N.*rank%rank%"):
        tables(path)
    assert tables(path, 5)["ranks"][0]["rank"] == 5
    p["metadata"]["environment"] = {"SLURM_PROCID": "9"}
    path = write(tmp_path, p, name="4242_results.json")
    t = tables(path, 5)
    assert t["ranks"][0]["rank"] == 9
    assert "rank_disagrees" in codes(t)


def test_old_form_with_one_process_that_is_no_list(tmp_path):
    path = tmp_path / "rank3.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": process()}))
    assert len(tables(path)["collectives"]) == 3


def test_second_process_of_a_file_is_told_as_lost(tmp_path):
    t = tables(write(tmp_path, process(), process()))
    assert len(t["events"]) == 16
    (p,) = [p for p in t["problems"] if p["code"] == "more_processes"]
    assert p["severity"] == "lost"


def test_cut_file_keeps_what_came_before(tmp_path):
    path = write(tmp_path, process())
    text = path.read_text()
    path.write_text(text[: text.index('"memory_copy"')])
    t = tables(path)
    assert len(t["events"]) == 15
    assert {p["code"]: p["severity"] for p in t["problems"]}["truncated"] == "lost"


def test_file_cut_before_its_records_says_so(tmp_path):
    path = write(tmp_path, process())
    text = path.read_text()
    path.write_text(text[: text.index('"kernel_symbols"')])
    with pytest.raises(UnusableInput, match=r"no record.*ends before its text does"):
        tables(path)


def test_gzip_gives_the_same_rows(tmp_path):
    path = write(tmp_path, process())
    packed = tmp_path / "rank3_results.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert tables(packed)["events"] == tables(path)["events"]


@pytest.mark.parametrize("value", [None, "x", [], 10**30, {"handle": 1 << 63}])
def test_wrong_types_anywhere_end_in_rows_or_refusal(tmp_path, value):
    def mutants(node):
        """The document with each of its values replaced in turn."""
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, old in list(items):
            node[key] = value
            yield
            node[key] = old
            if isinstance(old, dict | list):
                yield from mutants(old)

    p = process()
    for group, some in p["buffer_records"].items():
        p["buffer_records"][group] = some[:2]
    p["agents"], p["kernel_symbols"] = p["agents"][::2], p["kernel_symbols"][:1]
    document = {"rocprofiler-sdk-tool": [p]}
    path = tmp_path / "rank3.json"
    n = 0
    for _ in mutants(document):
        path.write_text(json.dumps(document))
        try:
            tables(path)
        except UnusableInput:
            continue
        n += 1
    assert n > 100


CSV = {
    "agent_info": '"Node_Id","Logical_Node_Id","Agent_Type","Cu_Count","Name","Product_Name"\n'
    '0,0,"CPU",0,"cpu","EPYC"\n4,1,"GPU",304,"gfx942","MI300X"\n5,2,"GPU",304,"gfx942","MI300X"\n',
    "kernel_trace": '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id",'
    '"Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp",'
    '"LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",'
    '"Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y",'
    '"Grid_Size_Z"\n'
    '"KERNEL_DISPATCH","Agent 2",1,4,70,1,8,"ncclDevKernel_Generic(ncclArgs<4ul>)",20,3000,4000,'
    "0,0,12,4,48,256,1,1,14336,1,1\n"
    '"KERNEL_DISPATCH","Agent 2",1,0,70,2,7,"gemm_kernel(float*, int)",10,2000,2500,0,0,12,4,48,'
    "64,1,1,128,2,1\n"
    '"KERNEL_DISPATCH","Agent 2",1,0\n',
    "memory_copy_trace": '"Kind","Direction","Stream_Id","Source_Agent_Id",'
    '"Destination_Agent_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    '"MEMORY_COPY","MEMORY_COPY_DEVICE_TO_HOST",0,"Agent 2","Agent 0",40,9500,9700\n',
    "rccl_api_trace": '"Domain","Function","Process_Id","Thread_Id","Correlation_Id",'
    '"Start_Timestamp","End_Timestamp"\n"RCCL_API","ncclAllGather",4242,70,20,1600,1700\n',
    "hip_api_trace": '"Domain","Function","Process_Id","Thread_Id","Correlation_Id",'
    '"Start_Timestamp","End_Timestamp"\n"HIP_RUNTIME_API","hipLaunchKernel",4242,70,10,1500,1510\n',
    "kernel_stats": '"Name","Calls"\n"gemm",1\n',
}


def test_csv_files_of_one_process_are_one_source(tmp_path):
    from retime.ingest.bundles import bundled

    for kind, text in CSV.items():
        for run in ("rank0", "rank1"):
            (tmp_path / f"{run}_{kind}.csv").write_text(text)
    found = bundled(find_sources([str(tmp_path)], lambda *a: None))
    assert [(s.name.rpartition("/")[2], f, len(s.members)) for s, f in found] == [
        ("rank0", "rocprof", 6),
        ("rank1", "rocprof", 6),
    ]
    t = of(found[1][0])
    assert [
        slim(r, "kind", "name", "start_ns", "dur_ns", "stream", "device", "grid_blocks")
        for r in t["events"] if r["kind"] in ("kernel", "memcpy")
    ] == [
        ("kernel", "gemm_kernel(float*, int)", 2000, 500, 0, 1, 4),
        ("kernel", "ncclDevKernel_Generic(ncclArgs<4ul>)", 3000, 1000, 4, 1, 56),
        ("memcpy", "Memcpy DEVICE_TO_HOST", 9500, 200, 0, 1, None),
    ]  # fmt: skip
    # The kernel bears the RCCL call's own correlation: no HIP call stands between them.
    assert [slim(r, "op", "start_ns", "rank") for r in t["collectives"]] == [
        ("all_gather", 3000, 1)
    ]
    (r,) = t["ranks"]
    assert slim(r, "pid", "device", "device_name", "n_devices") == (4242, 1, "MI300X", 2)
    assert codes(t)["bad_line"] == 1
    assert codes(t)["copies_without_sizes"] == 1


def test_other_output_formats_are_refused_with_the_option_that_helps(tmp_path):
    import sqlite3

    path = tmp_path / "rank0_results.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE rocpd_kernel_dispatch_0 (id INTEGER)")
    head = path.read_bytes()
    assert rocprof.looks_like(head, path.name)
    with pytest.raises(UnusableInput, match="--output-format json"):
        tables(path)
    other = tmp_path / "rank0_results.pftrace"
    other.write_bytes(b"\n\x10\x08\x01")
    assert rocprof.looks_like(other.read_bytes(), other.name)
    with pytest.raises(UnusableInput, match="--output-format json"):
        tables(other)


@pytest.mark.parametrize(
    "head", [b"", b"[]", b'{"traceEvents": []}', b"SQLite format 3\0 nsys", b"# rocprofv3\n",
             b'{"a": "rocprofiler-sdk-tool'],
)  # fmt: skip
def test_other_files_are_not_taken(head):
    assert not rocprof.looks_like(head, "x.json")
    assert FORMATS["rocprof"].bundles
