"""A Kineto trace and an execution trace of one real run: the ids that join them agree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from retime.ingest.kineto.comms import identity

pytest.importorskip("torch", reason="the job runs on PyTorch: install the extra `torch`")

SENT = {0: [3, 5], 1: [1, 2]}  # as traced_job.py has it
ROW_BYTES = 4 * 4


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The folder with both traces of both ranks."""
    folder = tmp_path_factory.mktemp("traced")
    script = Path(__file__).with_name("traced_job.py")
    subprocess.run(
        [sys.executable, str(script), str(folder)], check=True, capture_output=True, timeout=120
    )
    return folder


@pytest.fixture(scope="module")
def tables(read, out):
    """{(kind, rank): tables}."""
    found = {}
    for rank in (0, 1):
        (found["et", rank],) = read(out / f"job_et_{rank}.json", "execution-trace").values()
        (found["kineto", rank],) = read(out / f"rank{rank}.json", "kineto").values()
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_every_record_function_of_one_is_the_same_operator_in_the_other(out, tables, rank):
    events = json.loads((out / f"rank{rank}.json").read_text())["traceEvents"]
    in_kineto = {
        e["args"]["Record function id"]: e["name"]
        for e in events
        if e.get("args", {}).get("Record function id")
    }
    in_et = {
        n["record_function"]: n["name"]
        for n in tables["et", rank]["graph_nodes"]
        if n["record_function"]
    }
    assert len(in_kineto) > 10
    shared = in_kineto.keys() & in_et.keys()
    assert {i: in_kineto[i] for i in shared} == {i: in_et[i] for i in shared}
    assert {in_kineto[i] for i in in_kineto.keys() - shared} == set()


@pytest.mark.parametrize("rank", [0, 1])
def test_collectives_join_one_to_one(tables, rank):
    kineto = {r["record_function"]: r for r in tables["kineto", rank]["collectives"]}
    et = {r["record_function"]: r for r in tables["et", rank]["collectives"]}
    assert len(et) == 5
    assert kineto.keys() == et.keys()
    comm = identity("0", (0, 1), 2)
    for key, row in et.items():
        same = ("op", "comm", "group_size", "dtype", "in_bytes", "root", "peer", "in_splits",
                "out_splits", "rank")  # fmt: skip
        assert {k: row[k] for k in same} == {k: kineto[key][k] for k in same}
        assert row["comm"] == comm
        assert (row["start_ns"], row["timing"]) == (None, None)
        assert kineto[key]["start_ns"] is not None


@pytest.mark.parametrize("rank", [0, 1])
def test_uneven_splits_are_what_the_job_sent(tables, rank):
    (row,) = [r for r in tables["et", rank]["collectives"] if r["op"] == "all_to_all"]
    got = [SENT[0][rank], SENT[1][rank]]
    assert (row["in_splits"], row["out_splits"]) == (SENT[rank], got)
    assert (row["in_bytes"], row["out_bytes"]) == (
        sum(SENT[rank]) * ROW_BYTES, sum(got) * ROW_BYTES,
    )  # fmt: skip
    ops = [r["op"] for r in sorted(tables["et", rank]["collectives"], key=lambda r: r["event_id"])]
    assert ops == ["all_reduce", "all_to_all", "broadcast", "all_gather", ("send", "recv")[rank]]
