"""Joining sources of real jobs: eight ranks' kernels with their execution traces' split lists."""

import gzip
import importlib.util
import json
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from retime.ingest import joining
from retime.ingest.run import ingest
from retime.ingest.schema import event_id
from retime.ingest.warehouse import Warehouse

spec = importlib.util.spec_from_file_location("joined", Path(__file__).with_name("joined.py"))
see = importlib.util.module_from_spec(spec)
spec.loader.exec_module(see)


def stored(warehouse, job, table):
    files = warehouse.snapshot(job).files.get(table, [])
    return [r for f in files for r in pq.ParquetFile(str(f)).read().to_pylist()]


@pytest.fixture(scope="module")
def dlrm(tmp_path_factory, retime_traces):
    warehouse = Warehouse(tmp_path_factory.mktemp("w"))
    folder = retime_traces / "kineto/param"
    paths = [str(folder / f"dlrm_{n}.tar.gz") for n in ("pytorch_et", "kineto")]
    ingest(warehouse, paths, job="dlrm")
    return stored(warehouse, "dlrm", "collectives"), stored(warehouse, "dlrm", "ranks")


def test_dlrms_kernels_get_sizes_and_splits_from_the_execution_traces(dlrm, retime_traces):
    rows, ranks = dlrm
    assert len(rows) == 64
    assert {(r["source"], r["match"]) for r in rows} == {("kineto+execution-trace", "order")}
    assert [(r["rank"], r["clock"]) for r in ranks] == [(i, "host") for i in range(8)]
    with tarfile.open(retime_traces / "kineto/param/dlrm_pytorch_et.tar.gz") as tar:
        for name in [n for n in tar.getnames() if n.endswith(".json")]:
            rank = int(name.rsplit("_", 1)[1].split(".")[0])
            nodes = json.load(tar.extractfile(name))["nodes"]
            # [tensor, number, group, rank, name, splits in, splits out]
            calls = [n["inputs"] for n in nodes if n["name"] == "record_param_comms"]
            told = [c for c in calls if len(c) == 7 and c[4] != "wait"]
            want = [c[5] or None for c in told if "all_to_all" in c[4]]
            mine = sorted((r for r in rows if r["rank"] == rank), key=lambda r: r["start_ns"])
            got = [r["in_splits"] for r in mine if r["op"] == "all_to_all"]
            assert got == want
            assert any(got)


# --- what Inspector, the profiler and Flight Recorder would say of real kernels ------------------


@pytest.fixture(scope="module")
def kernels(tmp_path_factory, retime_traces):
    """The 76 communication kernels of a rank, as the parser has them, in order."""
    folder = retime_traces / "kineto/modded-nanogpt/2025-12-11_NorMuonOptimsAndFixes"
    (path,) = folder.glob("*/*rank0-chrome*.json.gz")
    copy = tmp_path_factory.mktemp("n") / "rank0.json"
    copy.write_bytes(gzip.decompress(path.read_bytes()))
    warehouse = Warehouse(tmp_path_factory.mktemp("w"))
    ingest(warehouse, [str(copy)], job="n")
    rows = [r for r in stored(warehouse, "n", "collectives") if r["comm"]]
    rows = sorted(rows, key=lambda r: (r["start_ns"], r["event_id"]))
    # numbers are taken away: PyTorch has them only since 2.12
    return [r | {"seq": None, "collective_id": None, "match": None, "truth": n}
            for n, r in enumerate(rows)]  # fmt: skip


def second(kernels, kind):
    counts, out = {}, []
    for r in kernels:
        n, took = r["truth"], r["end_ns"] - r["start_ns"]
        number = counts[r["op"]] = counts.get(r["op"], -1) + 1
        told = {k: r[k] for k in ("rank", "op", "in_bytes", "out_bytes", "group_size")}
        row = told | {"source": kind, "event_id": event_id(0, kind, n), "truth": n}
        if kind == "flight-recorder":
            # enqueued a little before the launch, by an amount that varies
            when = r["enqueued_ns"] and r["enqueued_ns"] - 5_000 - n * 37_000 % 50_000
            row |= {"comm": r["comm"], "seq": n + 1, "enqueued_ns": when}
        else:
            row |= {"comm": see.NCCL, "seq": number}
        if kind == "inspector":
            row["exec_ns"] = took * (995 + n * 7 % 11) // 1000 // 1000 * 1000
        if kind == "profiler":
            zero = see.ZERO_NS
            row |= {"clock": "process", "timing": "kernel", "start_ns": r["start_ns"] - zero,
                    "end_ns": r["end_ns"] - zero + n * 977 % 4000}  # fmt: skip
        out.append(row)
    return out


@pytest.mark.parametrize(
    ("kind", "least"), [("inspector", 30), ("profiler", 30), ("flight-recorder", 25)]
)
def test_a_window_of_real_kernels_joins_its_own_operations_only(kernels, kind, least):
    assert len(kernels) == 76
    window, other = kernels[-46:-6], second(kernels, kind)
    out = joining.join(
        see.table("collectives", window + other), see.ranks(0), see.table("comms", [])
    )
    truth = {r["event_id"]: r["truth"] for r in window + other}
    found = [(truth[s], truth[g]) for g, s in zip(out.gone.tolist(), out.stands.tolist(),
                                                  strict=True)]  # fmt: skip
    assert all(a == b for a, b in found)
    assert len(found) >= least
