"""nccl-tests and rccl-tests as files: which are taken, JSON and CSV as their writers print them."""

import json
from pathlib import Path

import pytest
from retime.ingest.errors import UnusableInput, UsageError
from retime.ingest.nccl import nccl_tests
from retime.ingest.sources import find_sources


def open_source(path: Path):
    return next(iter(find_sources([str(path)], lambda *a, **k: None)))


# The members and their order are those of nccl-tests' JSON writer (file version 2 and 3).
DOCUMENT = {
    "version": 3,
    "start_time": "2026-01-02 03:04:05",
    "args": ["./build/all_reduce_perf", "-b", "1M", "-J", "x.json"],
    "env": ["HOME=/root", "NCCL_ALGO=NVLSTree", "NCCL_PROTO=LL128"],
    "nccl_version": 22902,
    "config": {
        "nthreads": 1,
        "ngpus": 1,
        "devices": [
            {"rank": 0, "group": 0, "pid": 7, "hostname": "a", "device": 0, "device_info": "H100"},
            {"rank": 1, "group": 0, "pid": 8, "hostname": "b", "device": 0, "device_info": "H100"},
        ],
    },
    "results": [
        {
            "size": 1048576,
            "count": 262144,
            "type": "bfloat16",
            "redop": "sum",
            "root": "    -1",
            "out_of_place": {"time": 21.123456, "alg_bw": 49.6, "bus_bw": 49.6, "nwrong": 0.0},
            "in_place": {"time": "nan", "alg_bw": "nan", "bus_bw": "nan", "nwrong": None},
            "actual_iterations": 20,
        },
        {"size": 2, "count": 1, "type": "float", "redop": "sum", "root": "-1",
         "out_of_place": None,
         "in_place": {"cpu_time": 3.5, "alg_bw": 0.0, "bus_bw": 0.0, "nwrong": 0}},
    ],
    "average_bus_bandwidth": {"bandwidth": 49.6, "okay": "unchecked"},
}  # fmt: skip

RCCL = {"numCycle": 0, "name": "ReduceScatter", "nodes": 2, "ranks": 16, "ranksPerNode": 8,
        "gpusPerRank": 1, "size": 1048576, "type": "float", "redop": "sum", "inPlace": 1,
        "time": 100.25, "algBw": 167.3, "busBw": 156.8, "wrong": "0"}  # fmt: skip


@pytest.fixture
def read(tmp_path):
    """(rows of cost_curves, problems by code) of a file with this text."""

    def of(text: str, name: str = "x.json"):
        path = tmp_path / name
        path.write_text(text)
        source = open_source(path)
        assert nccl_tests.looks_like(source.head(65536), source.name)
        rows, problems = [], {}
        for table, batch in nccl_tests.parse(source):
            if table == "problems":
                problems.update({p["code"]: p for p in batch.to_pylist()})
            else:
                rows += batch.to_pylist()
        return rows, problems

    return of


def test_a_json_document(read):
    rows, problems = read(json.dumps(DOCUMENT, separators=(",", ":")))
    rows.sort(key=lambda r: (-r["bytes"], r["in_place"]))
    assert rows[0] == {
        "op": "all_reduce", "bytes": 1048576, "n_ranks": 2, "n_hosts": 2, "dtype": "bfloat16",
        "redop": "sum", "in_place": False, "time_ns": 21123, "algbw_bytes_per_s": 49600000000,
        "busbw_bytes_per_s": 49600000000, "n_wrong": 0, "algo": "nvls_tree", "proto": "LL128",
        "channels": None, "library": "nccl 2.29.2", "device_name": "H100", "tool": "nccl-tests",
        "run": "0",
    }  # fmt: skip
    assert [(r["bytes"], r["time_ns"], r["n_wrong"]) for r in rows[1:]] == [
        (1048576, None, None),
        (2, 3500, 0),
    ]
    assert set(problems) == {"time_not_a_number"}


def test_a_json_document_cut_by_a_crash_keeps_its_whole_rows(read):
    text = json.dumps(DOCUMENT, separators=(",", ":"))
    rows, problems = read(text[: text.index('{"size":2') + 40])
    assert [(r["bytes"], r["op"], r["n_ranks"]) for r in rows] == [(1048576, "all_reduce", 2)] * 2
    assert problems["truncated"]["severity"] == "lost"


def test_a_document_of_processes_with_several_gpus_counts_them_all(read):
    config = {**DOCUMENT["config"], "ngpus": 4}
    rows, _ = read(json.dumps({**DOCUMENT, "config": config}, separators=(",", ":")))
    assert {r["n_ranks"] for r in rows} == {8}


@pytest.mark.parametrize("form", ["lines", "array"])
def test_rccl_json(read, form):
    other = {**RCCL, "name": "AllReduce", "inPlace": 0, "algBw": 10.46}
    texts = [json.dumps(RCCL).replace('": ', '":'), json.dumps(other).replace('": ', '":')]
    text = "\n".join(texts) if form == "lines" else "[\n" + ",\n".join(texts) + "\n]\n"
    rows, problems = read(text)
    rows.sort(key=lambda r: r["op"])
    assert [(r["op"], r["bytes"], r["n_ranks"], r["n_hosts"], r["time_ns"]) for r in rows] == [
        ("all_reduce", 1048576, 16, 2, 100250),
        ("reduce_scatter", 16777216, 16, 2, 100250),
    ]
    assert {r["tool"] for r in rows} == {"rccl-tests"}
    assert set(problems) == {"size_of_a_part"}


@pytest.mark.parametrize(
    "text",
    [
        "collective, ranks, rankspernode, gpusperrank, size, type, redop, inplace, time, algbw, "
        'busbw, #wrong\n"AllReduce", 1, 8, 8, 2, 1024, "half", "sum", 0, 8.5, 0.12, 0.21, "N/A"\n',
        "numCycle,collective,nodes,ranks,ranksPerNode,gpusPerRank,size,type,redop,inplace,time,"
        "algbw,busbw,#wrong\n0,AllReduce,1,8,8,2,1024,half,sum,0,8.5,0.12,0.21,N/A\n",
    ],
)
def test_rccl_csv_of_both_generations(read, text):
    rows, problems = read(text, "x.csv")
    assert [(r["op"], r["n_ranks"], r["n_hosts"], r["dtype"], r["time_ns"]) for r in rows] == [
        ("all_reduce", 16, 1, "float16", 8500)
    ]
    assert (rows[0]["in_place"], rows[0]["n_wrong"], rows[0]["busbw_bytes_per_s"]) == (
        False,
        None,
        210000000,
    )
    assert not problems


@pytest.mark.parametrize(
    "text",
    [
        '{"version":3,"start_time":"x","args":[],"results":[1,{},{"size":"x"},{"size":-1},[]]}',
        '{"version":3,"start_time":"x","args":[' + "[" * 5000,
        '{"name":"x","inPlace":1,"size":1e999}\n{"name":[],"size":{},"inPlace":0}',
        "collective, size, inplace, busbw\n1\n2,3,4,5,6\n",
        "# nThread 1 nGpus 8 minBytes\n# Rank 0\n",
    ],
)
def test_files_without_a_row_are_refused(read, text):
    with pytest.raises(UnusableInput):
        read(text)


def test_a_rank_is_refused(read, tmp_path):
    path = tmp_path / "a"
    path.write_text("x")
    with pytest.raises(UsageError):
        next(nccl_tests.parse(open_source(path), rank=3))


def test_what_is_not_taken():
    for text, name in (
        (b"# Notes\n\nSome text about all_reduce_perf\n", "README"),
        (b"  1024  256  float  sum -1  1.0 1.0 1.0 0  1.0 1.0 1.0 0\n", "README.md"),
        (b"h:1:2 [0] NCCL INFO x\n" * 9 + b"# nThread 1 nGpus 8\n", "job.out"),
        (b'{"schemaVersion":1,"traceEvents":[]}', "a.json"),
        (b"size(B),count,type,time(ns),busbw(GB/s)\n", "a.csv"),
        (b"1 2 three 4 5 6 7 8 9\n", "a.txt"),
        (b"\0" * 100 + b"# nThread 1 nGpus 8\n", "a.bin"),
        (b"a" * 65536, "a"),
        (b" " * 65536, "a"),
        (b"1 " * 32768, "a"),
    ):
        assert not nccl_tests.looks_like(text, name)


def test_real_files_that_are_taken(retime_traces: Path):
    taken = {
        p.name
        for folder in ("nccl_tests", "nccl_logs", "planner")
        for p in (retime_traces / folder).rglob("*")
        if p.is_file() and nccl_tests.looks_like(p.read_bytes()[:65536], str(p))
    }
    assert taken == {
        "nccl_allgather.log", "nccl_allreduce.log", "nccl_alltoall.log", "nccl_broadcast.log",
        "nccl_reduce.log", "nccl_reducescatter.log", "algo_sweep.txt", "proto_sweep.txt",
        "scaling.txt", "all_gather.txt", "all_reduce.txt", "reduce_scatter.txt",
    }  # fmt: skip


def test_no_other_real_file_is_taken(retime_traces: Path):
    for path in retime_traces.rglob("*"):
        if path.is_file() and path.parts[len(retime_traces.parts)] not in (
            "nccl_tests",
            "nccl_logs",
        ):
            with path.open("rb") as f:
                assert not nccl_tests.looks_like(f.read(65536), str(path)), path


def test_a_real_sweep_from_file_to_rows(retime_traces: Path):
    source = open_source(retime_traces / "nccl_logs/nccl-collectives-bench/scaling.txt")
    tables = {t: b.to_pylist() for t, b in nccl_tests.parse(source)}
    assert sorted({(r["n_ranks"], r["run"]) for r in tables["cost_curves"]}) == [
        (2, "0 GPUS=2"),
        (4, "1 GPUS=4"),
        (6, "2 GPUS=6"),
    ]
    assert len(tables["cost_curves"]) == 36
