"""GPU traces of nsys stats: the real one against csv, and lines as the tool prints them."""

import csv
import shutil
from collections import Counter

import pytest
from retime.ingest.detect import detect
from retime.ingest.errors import RankUnknown, UnusableInput
from retime.ingest.nsys import stats
from retime.ingest.schema import event_id

REAL = "nsys/pipit/cloverleaf-nsys/cloverleaf_gpu_trace.csv"

# The columns of `nsys stats --report cuda_gpu_trace --format csv`.
HEADING = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),"
    "DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
)


def test_every_pair_of_the_real_trace(nsys, retime_traces, tmp_path):
    path = shutil.copy(retime_traces / REAL, tmp_path / "rank0.csv")
    assert detect(nsys.source(path)) == "nsys-stats"
    out = nsys.read(path, parser=stats)
    with open(retime_traces / REAL) as f:
        lines = list(csv.DictReader(f))
    wanted = Counter(
        (
            int(r["Timestamp (ns)"]),
            int(r["_matching_timestamp"]) - int(r["Timestamp (ns)"]),
            "kernel" if r["type"] == "kernel" else "memcpy",
            int(r["bytes"]) if r["bytes"] else None,
        )
        for r in lines
        if r["Event Type"] == "Enter"
    )
    got = Counter((e["start_ns"], e["dur_ns"], e["kind"], e["bytes"]) for e in out["events"])
    assert got == wanted
    assert len(out["events"]) == 1591 == len(lines) / 2
    assert Counter(e["name"] for e in out["events"]) == {
        "par_ranged1d_kernel": 968, "par_ranged2d_kernel": 331, "par_reduce_kernel": 13,
        "Memcpy HtoD": 254, "Memcpy DtoH": 25,
    }  # fmt: skip
    assert set(nsys.problems(out)) == {"no_session_start"}
    assert out["ranks"][0]["clock"] == "process"


def test_the_real_trace_does_not_say_its_rank(nsys, retime_traces):
    with pytest.raises(RankUnknown, match="--rank"):
        nsys.read(retime_traces / REAL, parser=stats)
    assert nsys.read(retime_traces / REAL, parser=stats, rank=5)["ranks"][0]["rank"] == 5


def test_lines_of_nsys_stats(nsys, tmp_path):
    path = tmp_path / "gpu_rank2.csv"
    path.write_text(
        HEADING
        + '100,50,7,2,3,4,32,2,1,40,0.0,0.0,,,,,NVIDIA H100 (1),1,,13,"ncclDevKernel_AllReduce_'
        'Sum_f32_RING_LL(a, b)"\n'
        "200,9,8,,,,,,,,,,1.5,10.2,Pageable,Device,NVIDIA H100 (1),1,,13,"
        "[CUDA memcpy Host-to-Device]\n"
        "300,9,9,,,,,,,,,,0.001,1,,,NVIDIA H100 (1),1,,13,[CUDA memset]\n"
    )
    out = nsys.read(path, parser=stats)
    keys = ("kind", "name", "start_ns", "dur_ns", "stream", "device", "correlation", "bytes",
            "grid_blocks", "block_threads", "category")  # fmt: skip
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(a, b)"
    assert [tuple(e[k] for k in keys) for e in out["events"]] == [
        ("kernel", name, 100, 50, 13, 1, 7, None, 24, 64, "comm"),
        ("memcpy", "Memcpy HtoD", 200, 9, 13, 1, 8, 1_500_000, None, None, "copy"),
        ("memset", "Memset", 300, 9, 13, 1, 9, 1000, None, None, "memset"),
    ]
    (row,) = out["collectives"]
    assert (row["op"], row["dtype"], row["start_ns"], row["end_ns"], row["channels"]) == (
        "all_reduce", "float32", 100, 150, 24,
    )  # fmt: skip
    assert row["event_id"] == event_id(2, "nsys-stats", len(HEADING))
    assert (out["ranks"][0]["device"], out["ranks"][0]["device_name"]) == (1, "NVIDIA H100")


def test_other_units_are_exact(nsys, tmp_path):
    path = tmp_path / "rank0.csv"
    path.write_text(
        HEADING.replace("(ns)", "(s)") + "1234567.123456789,0.000000001,7" + "," * 17 + ",gemm\n"
    )
    (event,) = nsys.read(path, parser=stats)["events"]
    assert (event["start_ns"], event["dur_ns"]) == (1_234_567_123_456_789, 1)


def test_bad_lines_are_counted(nsys, tmp_path):
    path = tmp_path / "rank0.csv"
    path.write_bytes(
        HEADING.encode() + b"100,50,7" + b"," * 17 + b",gemm\n"
        b"abc,50,7\n\xff\xfe\0\nnan,inf,1\n1e400,1,1\n" + b"9" * 5000 + b",1\n-5,1,1\n"
        b'"100,50\n' + b"a" * (2 << 20) + b"\n1,2"
    )
    out = nsys.read(path, parser=stats)
    assert [e["name"] for e in out["events"]] == ["gemm"]
    said = {c: (p["severity"], p["count"]) for c, p in nsys.problems(out).items()}
    assert said["bad_row"] == ("lost", 7)
    assert said["bad_line"] == ("lost", 2)
    assert said["long_line"][0] == "lost"


def test_files_without_rows(nsys, tmp_path):
    path = tmp_path / "rank0.csv"
    for content in (HEADING, HEADING + "x\n", "a,b\n" * 30, "\n\n"):
        path.write_text(content)
        with pytest.raises(UnusableInput):
            nsys.read(path, parser=stats)
