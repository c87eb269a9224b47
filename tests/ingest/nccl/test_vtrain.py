"""vTrain's measured tables: every cell of the real files against the csv module's reading."""

import csv
from decimal import Decimal
from pathlib import Path

import pytest
from retime.ingest.errors import UnusableInput, UsageError
from retime.ingest.nccl import vtrain
from retime.ingest.sources import find_sources

CURVE = "size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s)\n"


def read(path: Path):
    source = next(iter(find_sources([str(path)], lambda *a, **k: None)))
    assert vtrain.looks_like(source.head(65536), source.name)
    tables: dict[str, list] = {}
    for table, batch in vtrain.parse(source):
        tables.setdefault(table, []).extend(batch.to_pylist())
    return tables


@pytest.mark.parametrize("n", [2, 4, 8])
def test_real_curves(retime_traces, n):
    path = retime_traces / f"planner/vTrain/AR_GPU{n}_1M_1024M_LUT.csv"
    tables = read(path)
    assert set(tables) == {"cost_curves"}
    rows = tables["cost_curves"]
    with path.open() as f:
        wanted = [r for r in csv.reader(f) if r[0] != "size(B)"]
    assert len(wanted) == 1024
    found = {(r["bytes"], r["in_place"]): (r["time_ns"], r["busbw_bytes_per_s"]) for r in rows}
    assert len(found) == len(rows) == 2048
    for size, _, _, t0, b0, t1, b1 in wanted:
        assert found[int(size), False] == (int(t0), int(Decimal(b0) * 10**9))
        assert found[int(size), True] == (int(t1), int(Decimal(b1) * 10**9))
    assert {(r["op"], r["n_ranks"], r["dtype"], r["tool"]) for r in rows} == {
        ("all_reduce", n, "float32", "vtrain")
    }


def test_real_configurations(retime_traces):
    path = retime_traces / "planner/vTrain/ground_truth_single.csv"
    tables = read(path)
    assert set(tables) == {"configurations"}
    with path.open(encoding="utf-8-sig") as f:
        wanted = list(csv.DictReader(f))
    assert len(wanted) == 1440
    keys = {"n_gpus": "# GPUs", "tp": "tensor parallelism", "dp": "data parallelism",
            "pp": "pipeline parallelism", "global_batch": "global batch",
            "micro_batch": "micro batch", "hidden": "hidden size", "heads": "attention heads",
            "layers": "# layers", "seq_len": "sequence length"}  # fmt: skip
    for ours, theirs in zip(tables["configurations"], wanted, strict=True):
        assert {k: ours[k] for k in keys} == {k: int(theirs[v]) for k, v in keys.items()}
        assert ours["step_ns"] == round(Decimal(theirs["iteration time (ms)"]) * 10**6)
    assert tables["configurations"][0]["step_ns"] == 372160408


def test_a_curve_whose_name_says_nothing_is_told_by_its_bandwidths(tmp_path):
    path = tmp_path / "lut.csv"
    path.write_text(CURVE + "1048576,262144,float,92790,19.78,92150,19.91\n")
    tables = read(path)
    assert {(r["op"], r["n_ranks"]) for r in tables["cost_curves"]} == {("all_reduce", 8)}
    assert [p["code"] for p in tables["problems"]] == ["op_from_table"]


def test_odd_cells(tmp_path):
    path = tmp_path / "AR_GPU2.csv"
    path.write_text(CURVE + "x,1,float,1,1,1,1\n1,2\n\n1024,256,float,nan,1e999,-1,\n")
    tables = read(path)
    assert [(r["time_ns"], r["busbw_bytes_per_s"]) for r in tables["cost_curves"]] == [
        (None, None),
        (None, None),
    ]
    assert {p["code"]: p["count"] for p in tables["problems"]} == {
        "not_a_row": 2,
        "time_not_a_number": 2,
    }


def test_degrees_that_do_not_multiply_are_told(tmp_path, retime_traces):
    head = (retime_traces / "planner/vTrain/ground_truth_single.csv").read_bytes().split(b"\n")[0]
    path = tmp_path / "g.csv"
    path.write_bytes(head + b"\n8,16,8,1024,16,24,1024,1,1,2,372.1\n")
    tables = read(path)
    assert tables["configurations"][0]["step_ns"] == 372100000
    assert [p["code"] for p in tables["problems"]] == ["degrees_do_not_multiply"]


def test_refusals(tmp_path):
    path = tmp_path / "AR_GPU2.csv"
    path.write_text(CURVE)
    with pytest.raises(UnusableInput):
        read(path)
    source = next(iter(find_sources([str(path)], lambda *a, **k: None)))
    path.write_text("x,y\n1,2\n")
    with pytest.raises(UnusableInput):
        list(vtrain.parse(source))
    with pytest.raises(UsageError):
        next(vtrain.parse(source, rank=0))
    for text in (b"a,b\n", b"", b"size(B)", b"\xff\xfe,\n", b"," * 65536):
        assert not vtrain.looks_like(text, "AR_GPU2.csv")
