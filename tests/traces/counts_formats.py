"""Independent counts of the files beside Kineto's: sqlite3, csv, re, pickle, ElementTree."""

from __future__ import annotations

import csv
import io
import json
import pickle
import re
import sqlite3
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
from counts import Count, counter, members, plain


@counter("nsys/*.sqlite")
def sqlite(path: Path) -> Iterator[Count]:
    con = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    there = {r[0] for r in con.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table, kind in (("KERNEL", "kernel"), ("MEMCPY", "memcpy"), ("MEMSET", "memset"),
                        ("RUNTIME", "runtime")):  # fmt: skip
        name = f"CUPTI_ACTIVITY_KIND_{table}"
        if name in there:
            (n,) = con.execute(f"SELECT count(*) FROM {name}").fetchone()
            yield Count(name, n, f"SELECT count(*) FROM events WHERE kind = '{kind}'")
    (n,) = con.execute(
        "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = shortName "
        "WHERE value LIKE 'nccl%'"
    ).fetchone()
    if n:
        yield Count("kernels named nccl…", n, "SELECT count(*) FROM collectives")
    con.close()


@counter("nsys/JAX-Toolbox/*.zip")
def recipe(path: Path) -> Iterator[Count]:
    with zipfile.ZipFile(path) as z:
        trace = pq.read_table(io.BytesIO(z.read("nvtx_gpu_proj_trace/trace.parquet")))
    sql = "SELECT count(*) FROM events WHERE kind = 'gpu_annotation'"
    yield Count("rows of trace.parquet", trace.num_rows, sql)
    n = trace.num_rows - trace["Orig Start"].null_count
    yield Count("with a host range", n, "SELECT count(*) FROM events WHERE kind = 'annotation'")


@counter("nsys/pipit/*.csv")
def stats(path: Path) -> Iterator[Count]:
    rows = list(csv.DictReader(io.StringIO(plain(path).decode())))
    n = sum(r["Event Type"] == "Enter" for r in rows)
    yield Count("Enter rows", n, "SELECT count(*) FROM events")


_ROW = re.compile(
    rb"^\s*(?:\d+: )?\s*(\d+)\s+(\d+)\s+(\w+)\s+(?:(?:sum|none)\s+)?(?:-?\d+\s+)?"
    rb"([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(?:\S+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+\S+\s*$",
    re.M,
)
_INIT = re.compile(rb"comm (0x[0-9a-f]+) rank (\d+) n[rR]anks (\d+)[^\n]*?- Init COMPLETE")


@counter("nccl_logs/nccl-collectives-bench/auto_algo.txt")
def rings(path: Path) -> Iterator[Count]:
    found = re.findall(rb"Channel \d+/\d+ :((?: +\d+)+)", plain(path))
    n = sum(len(x.split()) for x in found)
    yield Count("places in rings", n, "SELECT count(*) FROM topology WHERE kind = 'ring'")


@counter("nccl_tests/*.log", "nccl_logs/nccl-collectives-bench/*.txt")
def tables(path: Path) -> Iterator[Count]:
    text = plain(path)
    n = 2 * len(_ROW.findall(text))
    yield Count("rows of the table, two halves", n, "SELECT count(*) FROM cost_curves")


@counter("nccl_logs/nccl-collectives-bench/scaling_attributed/*.log")
def tuning(path: Path) -> Iterator[Count]:
    text = plain(path)
    n = len(re.findall(rb"\d+ Bytes -> Algo", text))
    yield Count("lines of tuning", n, "SELECT sum(count)::BIGINT FROM tuning")
    ranks = {m.group(2) for m in _INIT.finditer(text)}
    yield Count("ranks of inits", len(ranks), "SELECT count(*) FROM ranks")


@counter("nccl_logs/bigscience/*", "nccl_logs/awsome-distributed-training/*")
def log(path: Path) -> Iterator[Count]:
    text = plain(path)
    inits = _INIT.findall(text)
    world = max(int(n) for _, _, n in inits)
    ranks = {r for _, r, n in inits if int(n) == world}
    yield Count("ranks of the largest inits", len(ranks), "SELECT count(*) FROM ranks")
    nics = {
        (host, nic)
        for host, devices in re.findall(rb"([\w.-]+):\d+:\d+ \[\d\] NCCL INFO NET/\S+ *: Using "
                                        rb"((?:\[\d+\]\S+ ?)+)", text)
        for nic in re.findall(rb"\[\d+\]([\w.-]+)", devices)
    }  # fmt: skip
    if nics:
        yield Count("NICs", len(nics), "SELECT count(*) FROM topology WHERE kind = 'nic'")


@counter("topo/*.xml")
def topology(path: Path) -> Iterator[Count]:
    root = ElementTree.fromstring(plain(path))
    for element, kind in (("gpu", "gpu"), ("net", "nic"), ("cpu", "cpu"), ("pci", "pci")):
        n = sum(1 for _ in root.iter(element))
        if n:
            sql = f"SELECT count(*) FROM topology WHERE kind = '{kind}'"
            yield Count(f"{element} elements", n, sql)


@counter("flight_recorder/*/_dump_*")
def dump(path: Path) -> Iterator[Count]:
    # Python's own unpickler, here only: these files are known.
    entries = pickle.loads(path.read_bytes()).get("entries", [])
    yield Count("entries", len(entries), "SELECT count(*) FROM collectives")


@counter("moe/ESFT/*/expert_weights_*.txt")
def esft(path: Path) -> Iterator[Count]:
    n = sum(len(x.split(b"\t\t")[0].split(b"\t")) for x in plain(path).splitlines() if x)
    yield Count("ids", n, "SELECT sum(tokens)::BIGINT FROM routing")


@counter("moe/ESFT/*/summary.json")
def esft_summary(path: Path) -> Iterator[Count]:
    found = json.loads(plain(path))
    n = sum(len(v) for k in found.values() for v in k.values())
    yield Count("scores", n, "SELECT count(*) FROM counters")


def _added_up(found) -> int:
    if isinstance(found, dict):
        return sum(map(_added_up, found.values()))
    if isinstance(found, list | tuple):
        return sum(map(_added_up, found))
    return int(found)


@counter("moe/OLMoE/*/expert_counts_crosslayer/*.pkl")
def olmoe_pairs(path: Path) -> Iterator[Count]:
    first = next(x for x in pickle.loads(path.read_bytes()) if x)
    sql = "SELECT sum(tokens)::BIGINT FROM routing WHERE layer = 0"
    yield Count("pairs of the first two layers", _added_up(first), sql)


@counter("moe/OLMoE/*.pkl")
def olmoe(path: Path) -> Iterator[Count]:
    n = _added_up(pickle.loads(path.read_bytes()))
    yield Count("counts, added up", n, "SELECT sum(tokens)::BIGINT FROM routing")


@counter("kineto/*_et.json.gz", "kineto/param/dlrm_pytorch_et.tar.gz", "chakra/*/1.0.2*.tgz")
def execution_trace(path: Path) -> Iterator[Count]:
    texts = [plain(path)] if path.name.endswith(".json.gz") else [d for _, d in members(path)]
    graphs = [json.loads(t) for t in texts]
    n = sum(len(g["nodes"]) for g in graphs)
    yield Count("nodes", n, "SELECT count(*) FROM graph_nodes")


@counter("chakra/*/feeder_tests_trace.tar.gz")
def chakra(path: Path) -> Iterator[Count]:
    (data,) = [d for name, d in members(path) if name.endswith(".et")]
    at = messages = 0
    while at < len(data):
        size = shift = 0
        while True:
            byte = data[at]
            at += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        at += size
        messages += 1
    yield Count("messages but the first", messages - 1, "SELECT count(*) FROM graph_nodes")


@counter("chakra/*/json_trace.tar.gz")
def chakra_json(path: Path) -> Iterator[Count]:
    (first,) = [json.loads(d) for n, d in members(path) if Path(n).name == "chakra.0.json"]
    found = first["workload_graph"] if "workload_graph" in first else first["nodes"]
    yield Count("nodes of chakra.0.json", len(found), "SELECT count(*) FROM graph_nodes")


@counter("planner/vTrain/AR_*.csv")
def curve(path: Path) -> Iterator[Count]:
    rows = list(csv.reader(io.StringIO(plain(path).decode())))
    n = sum(len(r) // 2 - 1 for r in rows if r and r[0].strip().isdigit())
    yield Count("times in rows with a size", n, "SELECT count(*) FROM cost_curves")


@counter("planner/vTrain/ground_truth_*.csv")
def truth(path: Path) -> Iterator[Count]:
    n = len(list(csv.DictReader(io.StringIO(plain(path).decode()))))
    yield Count("rows", n, "SELECT count(*) FROM configurations")
