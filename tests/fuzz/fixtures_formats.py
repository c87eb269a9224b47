"""Fixtures of every format beside Kineto: real files cut down, else the ones its tests build."""

from __future__ import annotations

import importlib.util
import io
import json
import sqlite3
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fixtures import ROOT, Fixture, maker, members, plain, top

TESTS = ROOT / "tests" / "ingest"


def module(path: str):
    """A module of the tests, by path: what they build is mutated here."""
    folder = str((TESTS / path).parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = "fuzzed_" + path.replace("/", "_").removesuffix(".py")
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, TESTS / path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def one(format: str, name: str, data: bytes, rank: int | None = None) -> Fixture:
    """A fixture of one file."""
    return Fixture(name, format, {"": data}, rank)


def parquet(table: pa.Table) -> bytes:
    """A table as Parquet whose bytes mutations can reach: not compressed."""
    out = io.BytesIO()
    pq.write_table(table, out, compression="none")
    return out.getvalue()


def fewer_rows(path: Path, most: int = 60) -> bytes:
    """An SQLite file with each table cut to its first rows."""
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.sqlite"
        small.write_bytes(path.read_bytes())
        con = sqlite3.connect(small)
        names = [r[0] for r in con.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            if name != "StringIds":
                con.execute(f'DELETE FROM "{name}" WHERE rowid > {most}')
        con.execute("DELETE FROM StringIds WHERE rowid > 1500")
        con.commit()
        con.execute("VACUUM")
        con.close()
        return small.read_bytes()


def talk(path: Path) -> bytes:
    """Every so many of a log's lines of NCCL, with all that start or end something."""
    found = [x for x in plain(path).splitlines(keepends=True) if b"NCCL" in x]
    marked = [x for x in found if b"COMPLETE" in x or b"Channel" in x]
    return b"".join([*found[:20], *marked[:: max(1, len(marked) // 120)]])


@maker
def nsys(here: Path | None) -> Iterator[Fixture]:
    if here is None:
        return
    real = here / "nsys" / "nsys-ai" / "mfu_2gpu_before.sqlite"
    small = fewer_rows(real)
    yield one("nsys", "nsys-sqlite", small, None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.sqlite"
        path.write_bytes(small)
        con = sqlite3.connect(path)
        con.text_factory = bytes
        parts: dict[str, bytes] = {}
        lines: list[str] = []
        for (name,) in con.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
            table = name.decode()
            got = con.execute(f'SELECT * FROM "{table}"')
            columns = [c[0] for c in got.description]
            rows = [[v.decode() if isinstance(v, bytes) else v for v in r] for r in got]
            if not rows:
                continue
            data = {c: [r[i] for r in rows] for i, c in enumerate(columns)}
            parts[f"{table}.parquet"] = parquet(pa.table(data))
            lines += [json.dumps({"Table": table, **dict(zip(columns, r, strict=True))})
                      for r in rows]  # fmt: skip
        con.close()
    yield Fixture("x_pqtdir", "nsys", parts)
    zipped = here / "nsys" / "JAX-Toolbox" / "pax_fsdp4_4proc_proc0.zip"
    with zipfile.ZipFile(zipped) as z:
        trace = pq.read_table(io.BytesIO(z.read("nvtx_gpu_proj_trace/trace.parquet")))
        files = {n: z.read(n) for n in z.namelist() if n.endswith(".parquet") and "trace." not in n}
    files["nvtx_gpu_proj_trace/trace.parquet"] = parquet(trace.slice(0, 100))
    yield Fixture("recipe", "nsys-recipe", files, 0)
    stats = min((here / "nsys" / "pipit" / "cloverleaf-nsys").glob("*.csv"))
    yield one("nsys-stats", "stats_gpu_trace.csv", top(stats, 8000), 0)


@maker
def nccl(here: Path | None) -> Iterator[Fixture]:
    profiler = module("nccl/test_profiler.py")
    yield one(
        "nccl-profiler", f"trace_{profiler.HASH}_1.json",
        profiler.whole(profiler.FIRST, profiler.invalid(), profiler.group(
            profiler.both("AllReduce", "COLL", 7, 1.0, 30.0, profiler.coll_args(1),
                          profiler.SCHEDULED), 5)).encode(),
    )  # fmt: skip
    inspector = module("nccl/test_inspector.py")
    text = inspector.text_of(
        *(inspector.record(inspector.coll("AllReduce", n)) for n in (1, 2, 5)),
        inspector.record(inspector.coll("AllGather", 1, **inspector.VERBOSE)),
        inspector.record(inspector.p2p("Send", 1, 4), "p2p_perf"),
    )
    yield one("nccl-inspector", "h0-pid77.log", text.encode())
    if here is None:
        return
    logs = here / "nccl_logs"
    bench = logs / "nccl-collectives-bench"
    yield one("nccl-log", "nccl-2.29", top(bench / "scaling_attributed" / "g2_Ring.log"))
    yield one("nccl-log", "nccl-2.7", talk(min((logs / "bigscience" / "gpt2-meg").glob("*.out"))))
    yield one("nccl-log", "nccl-efa", talk(logs / "awsome-distributed-training" / "slurm-104.out"))
    yield one("nccl-tests", "tests-h100", plain(bench / "all_reduce.txt"))
    yield one("nccl-tests", "tests-sweep", plain(bench / "algo_sweep.txt"))
    yield one(
        "nccl-tests", "tests-a2a", plain(here / "nccl_tests/superbenchmark/nccl_alltoall.log")
    )
    yield one("vtrain", "AR_GPU2.csv", top(here / "planner/vTrain/AR_GPU2_1M_1024M_LUT.csv", 4000))
    truth = here / "planner" / "vTrain" / "ground_truth_single.csv"
    yield one("vtrain", "ground_truth.csv", top(truth, 4000))
    topo = here / "topo"
    yield one("nccl-topology", "p5.xml", plain(topo / "aws-ofi-nccl/topology/p5.48xl-topo.xml"))
    rccl = topo / "rccl" / "tools" / "topo_expl" / "models"
    yield one("nccl-topology", "rccl.xml", plain(rccl / "topo_8p_rome_4n_1.xml"))


@maker
def flight_recorder(here: Path | None) -> Iterator[Fixture]:
    said = {
        "version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg",
                                               "ranks": "[0, 1]"}},
        "pg_status": {"0": {"last_enqueued_collective": 3, "last_started_collective": -1,
                            "last_completed_collective": 2}},
        "entries": [
            {"record_id": i, "pg_id": 0, "process_group": ["0", "default_pg"],
             "collective_seq_id": i, "p2p_seq_id": 0, "op_id": i,
             "profiling_name": name, "time_created_ns": 1700000000000000000 + i,
             "input_sizes": [[3, 4]], "input_dtypes": ["Float"], "output_sizes": [[3, 4]],
             "output_dtypes": ["Float"], "state": "completed", "retired": True,
             "time_discovered_started_ns": None, "time_discovered_completed_ns": 0,
             "timeout_ms": 600000, "is_p2p": "send" in name}
            for i, name in enumerate(("nccl:all_reduce", "nccl:send 0->1", "nccl:coalesced"))
        ],
    }  # fmt: skip
    yield one("flight-recorder", "nccl_trace_rank_1", json.dumps(said).encode())
    if here is not None:
        folder = min((here / "flight_recorder").glob("*/fr_traces/gpu_error_1st"))
        yield one("flight-recorder", "_dump_14", plain(folder / "_dump_14"))


@maker
def graphs(here: Path | None) -> Iterator[Fixture]:
    param = module("graphs/test_param_comms.py")
    yield one("param-comms", "1.json", json.dumps(param.TRACE).encode())
    if here is None:
        return
    kineto = here / "kineto"
    resnet = kineto / "param" / "1.1.0-chakra.0.0.4" / "resnet_2gpu_et.json.gz"
    whole = json.loads(plain(resnet))
    nodes = whole["nodes"]
    talk = [n for n in nodes if "param_comms" in n["name"] or "process_group" in n["name"]]
    small = json.dumps({**whole, "nodes": nodes[:40] + talk[:12] + nodes[-5:]}, indent=1)
    yield one("execution-trace", "et_1.json", small.encode(), 1)
    old = next(d for _, d in members(kineto / "param" / "dlrm_pytorch_et.tar.gz"))
    if old[:2] == b"\x1f\x8b":
        import gzip

        old = gzip.decompress(old)
    listed = json.loads(old)
    talk = [n for n in listed["nodes"] if "param_comms" in n["name"]]
    short = json.dumps({**listed, "nodes": listed["nodes"][:40] + talk})
    yield one("execution-trace", "dlrm_0.json", short.encode(), 0)
    for name, data in members(here / "chakra" / "chakra" / "feeder_tests_trace.tar.gz"):
        if data and name.endswith(".et"):
            yield one("chakra", "chakra.0.et", data[:12000], 0)
            break


@maker
def moe(here: Path | None) -> Iterator[Fixture]:
    megatron = module("moe/test_megatron.py")
    lines = "".join(megatron.call(7, n, [[1, 5], [0, 5], [2, 5]]) for n in range(6))
    yield one("megatron-router", "router_trace_rank3.jsonl", lines.encode())
    counts = "".join(
        json.dumps({"iter": i, "block": "decoder", "layer": i % 3, "tpe": [[1, 2, 3], [4, 5, 6]]})
        + "\n"
        for i in range(6)
    )
    yield one("megatron-counts", "tokens_per_expert/rank3.jsonl", counts.encode())
    csv = "layer_id,expert_id,count\n" + "".join(f"{i % 3},{i},{i * 7}\n" for i in range(30))
    yield one("sglang-experts", "expert_distribution_rank2.csv", csv.encode())
    arrays = module("moe/test_saved_arrays.py")
    yield one("vllm-eplb", "server.log", arrays.LOG.encode())
    yield one("deepep", "dispatch_rank1.json", json.dumps(arrays.DISPATCH).encode())
    out = io.BytesIO()
    np.savez(out, **{k: np.asarray(v) for k, v in arrays.DISPATCH.items()})
    yield one("deepep", "dispatch_rank1.npz", out.getvalue())
    weight = {"weight": [[90, 132, 40, 61], [20, 107, 104, 64]],
              "phy2log": [[0, 1, 2, 3, 1, 0], [1, 2, 3, 0, 1, 2]]}  # fmt: skip
    yield one("eplb", "eplb.json", json.dumps(weight).encode())
    rng = np.random.default_rng(1)
    ids = [list(map(int, rng.permutation(64)[:6])) for _ in range(40)]
    table = pa.table({
        "scores": pa.array([np.linspace(1, 0.1, 6).astype(np.float16)] * 40,
                           pa.list_(pa.float16())),
        "indices": pa.array(ids, pa.list_(pa.int16())),
    })  # fmt: skip
    yield one("flame-moe", "actives/iter_5/layer_02.parquet", parquet(table))
    rows = module("moe/test_plain.py")
    text = "".join(json.dumps(dict(zip(rows.NAMES, r, strict=True))) + "\n" for r in rows.TOKENS)
    yield one("routing", "routing.jsonl", text.encode())
    yield one("routing", "routing.csv", b"step,layer,rank,expert,tokens\n1,2,0,3,10\n1,2,0,4,11\n")
    own = pa.table({
        "step": [1, 1], "layer": [2, 2], "rank": [0, 1], "token": [0, 1],
        "experts": [[1, 2], [3, 4]], "weights": [[0.5, 0.5], [0.25, 0.75]],
    })  # fmt: skip
    yield one("routing", "routing.parquet", parquet(own))
    own_lines = module("plain/test_plain_timeline.py").LINES
    yield one("plain", "rank0.jsonl", "".join(json.dumps(r) + "\n" for r in own_lines).encode())
    if here is None:
        return
    moe = here / "moe"
    log = moe / "ESFT" / "translation" / "expert_weights_13.txt"
    yield one("esft", "expert_weights_13.txt", top(log, 40_000))
    yield one("olmoe", "expert_counts/c4.pkl", plain(moe / "OLMoE/olmoe/expert_counts/c4.pkl"))


@maker
def sglang_dump(here: Path | None) -> Iterator[Fixture]:
    try:
        import torch
    except ImportError:
        return
    out = io.BytesIO()
    sglang = module("moe/test_sglang.py")
    torch.save(
        {"records": [sglang.record(12, [[5, 0, 1, 2], [0, 0, 0, 8]])],
         "last_physical_to_logical_map": sglang.MAP}, out
    )  # fmt: skip
    yield one("sglang-experts", "expert_distribution_recorder_1754000000.25_1.pt", out.getvalue())


@maker
def stacks(here: Path | None) -> Iterator[Fixture]:
    rocprof = module("stacks/test_rocprof.py")
    with tempfile.TemporaryDirectory() as folder:
        path = rocprof.write(Path(folder), rocprof.process())
        yield one("rocprof", "rank3_results.json", path.read_bytes())
        ascend = module("stacks/test_ascend.py")
        root = ascend.profile(Path(folder))
        files = {
            str(p.relative_to(root)): p.read_bytes()
            for p in sorted(root.rglob("*"))
            if p.is_file() and p.suffix in (".json", ".csv")
        }
    yield Fixture("node-a_4242_20230628101435123_ascend_pt", "ascend", files)
