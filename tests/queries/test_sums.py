"""Everything adds up to the nanosecond, on generated timelines and on the real ones.

The oracle of the generated ones looks at every single nanosecond; no interval arithmetic.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from retime.ingest import run
from retime.ingest.errors import RankUnknown
from retime.ingest.schema import TABLES
from retime.ingest.warehouse import Warehouse
from retime.queries import loader

HORIZON = 40
BARRIER_LIKE = ("all_reduce", "all_gather", "all_to_all", "barrier", "unknown")
ROOTED = ("broadcast", "scatter", "reduce", "gather")

spans = st.tuples(st.integers(0, HORIZON), st.integers(0, 12)).map(lambda s: (s[0], s[0] + s[1]))


@st.composite
def ranks_timeline(draw, rank: int) -> dict[str, list[dict[str, Any]]]:
    """Kernels, copies, launches and steps of one rank, in any arrangement."""
    events = []
    for i, (kind, (start, end)) in enumerate(
        draw(st.lists(st.tuples(st.sampled_from(("gemm", "comm", "memcpy")), spans), max_size=9))
    ):
        kernel = kind != "memcpy"
        events.append(
            {"rank": rank, "event_id": rank << 40 | i, "name": f"k{i}", "start_ns": start}
            | {"dur_ns": end - start, "correlation": i}
            | {"kind": "kernel" if kernel else "memcpy", "category": kind if kernel else None}
        )
        if draw(st.booleans()):
            events.append(
                {"rank": rank, "event_id": rank << 40 | 100 + i, "name": "cudaLaunchKernel"}
                | {"start_ns": draw(st.integers(0, start)), "dur_ns": 1}
                | {"kind": "runtime", "correlation": i, "thread": "t"}
            )
    edges = sorted(draw(st.sets(st.integers(0, HORIZON + 12), min_size=2, max_size=5)))
    steps = [
        {"rank": rank, "step": i, "start_ns": a, "end_ns": draw(st.integers(a, b))}
        for i, (a, b) in enumerate(pairwise(edges))
    ]
    return {"events": events, "steps": steps}


@st.composite
def jobs(draw) -> dict[str, list[dict[str, Any]]]:
    """Three ranks; comm kernels carry collectives, the k-th of each rank matched."""
    tables: dict[str, list[dict[str, Any]]] = {"events": [], "steps": [], "collectives": []}
    ops = draw(st.lists(st.sampled_from(BARRIER_LIKE + ROOTED), min_size=9, max_size=9))
    roots = draw(st.lists(st.sampled_from((0, 1, 2, None)), min_size=9, max_size=9))
    for rank in range(3):
        timeline = draw(ranks_timeline(rank))
        tables["events"] += timeline["events"]
        tables["steps"] += timeline["steps"]
        comm = [e for e in timeline["events"] if e.get("category") == "comm"]
        tables["collectives"] += [
            {"rank": rank, "collective_id": k + 1, "op": ops[k], "root": roots[k], "comm": "w"}
            | {"start_ns": e["start_ns"], "end_ns": e["start_ns"] + e["dur_ns"]}
            | {"event_id": e["event_id"], "match": "order"}
            for k, e in enumerate(comm)
            if k < 8 or draw(st.booleans())
        ]
    # whole job on one clock, or rank 2 on a host that nothing ties to the others
    tied = draw(st.booleans())
    tables["ranks"] = [
        {"rank": r, "host": "b" if r == 2 else "a", "start_ns": 0, "end_ns": HORIZON}
        | {"clock_offset_ns": 0, "clock_error_ns": 3 if tied or r < 2 else None}
        for r in range(3)
    ]
    return tables


@pytest.fixture(scope="module")
def refill():
    """`refill(tables)`: the same connection with other rows in its tables."""
    con = loader.connect({"j": {}}, threads=1)

    def fill(tables: dict[str, list[dict[str, Any]]]):
        for name, rows in tables.items():
            schema = TABLES[name].schema
            table = pa.Table.from_pylist(rows, schema=schema)
            con.register(f"given_{name}", table)
            columns = ", ".join(
                f"{c.name}::{loader.sql_type(c.type)} AS {c.name}" for c in TABLES[name].columns
            )
            con.execute(
                f"CREATE OR REPLACE VIEW {name} AS SELECT 'j' AS job, {columns} FROM given_{name}"
            )
        return con

    return fill


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables=jobs())
def test_generated_timelines_add_up(refill, tables):
    con = refill(tables)
    waits = {
        (rank, event): (wait, transfer)
        for rank, event, wait, transfer in con.execute(
            "SELECT rank, event_id, wait_ns, transfer_ns FROM waits"
        ).fetchall()
    }
    for c in tables["collectives"]:
        wait, transfer = waits[c["rank"], c["event_id"]]
        assert wait >= 0
        assert transfer >= 0
        assert wait + transfer == c["end_ns"] - c["start_ns"]

    # the only rank seen of a group of unknown size knows its wait where it hangs on itself alone
    seen = Counter(c["collective_id"] for c in tables["collectives"])
    known = {
        (c["rank"], c["event_id"])
        for c in tables["collectives"]
        if seen[c["collective_id"]] > 1
        or (c["op"] in ("broadcast", "scatter") and c["root"] == c["rank"])
        or (c["op"] in ("reduce", "gather") and c["root"] not in (None, c["rank"]))
    }
    expected: Counter = Counter()
    overlap: Counter = Counter()
    for rank in range(3):
        work = [e for e in tables["events"] if e["rank"] == rank and e["kind"] != "runtime"]
        steps = [s for s in tables["steps"] if s["rank"] == rank]
        edges = [e["start_ns"] for e in work] + [e["start_ns"] + e["dur_ns"] for e in work]
        edges += [s[k] for s in steps for k in ("start_ns", "end_ns")]
        for t in range(min(edges, default=0), max(edges, default=0)):
            running = [e for e in work if e["start_ns"] <= t < e["start_ns"] + e["dur_ns"]]
            compute = any(e["category"] == "gemm" for e in running)
            comm = [e for e in running if e["category"] == "comm"]
            split = [e for e in comm if (rank, e["event_id"]) in known]
            moving = any(t >= e["start_ns"] + waits[rank, e["event_id"]][0] for e in split)
            inside = [s["step"] for s in steps if s["start_ns"] <= t < s["end_ns"]]
            key = (rank, inside[0] if inside else None)
            if compute:
                expected[*key, "compute_with_comm" if comm else "compute"] += 1
            elif comm:
                waiting = "exposed_wait" if split == comm else "exposed_comm_unsplit"
                expected[*key, "exposed_transfer" if moving else waiting] += 1
            else:
                expected[*key, "exposed_memcpy" if running else "idle"] += 1
            overlap[*key, "comm"] += bool(comm)
            overlap[*key, "compute"] += compute
            overlap[*key, "both"] += bool(comm) and compute

    found: Counter = Counter()
    for rank, step, name, ns in con.execute(
        "SELECT rank, step, class, ns FROM step_breakdown"
    ).fetchall():
        assert ns > 0
        found[rank, step, "idle" if name.startswith("idle") else name] += ns
    assert found == expected

    measured: Counter = Counter()
    for rank, step, comm, compute, both in con.execute(
        "SELECT rank, step, comm_ns, compute_ns, overlap_ns FROM overlap"
    ).fetchall():
        measured[rank, step, "comm"] += comm
        measured[rank, step, "compute"] += compute
        measured[rank, step, "both"] += both
    assert +measured == +overlap

    gaps = [dur for (dur,) in con.execute("SELECT dur_ns FROM idle_gaps").fetchall()]
    assert sum(gaps) == sum(n for key, n in expected.items() if key[2] == "idle")
    assert all(dur > 0 for dur in gaps)


WAIT_SUMS = """
    SELECT count(*) FROM waits
    WHERE wait_ns < 0 OR transfer_ns < 0 OR wait_ns + transfer_ns <> end_ns - start_ns
"""
STEP_SUMS = """
    SELECT s.job, s.rank, s.step, s.end_ns - s.start_ns AS whole, b.ns
    FROM steps s
    LEFT JOIN (SELECT job, rank, step, sum(ns) AS ns FROM step_breakdown GROUP BY ALL) b
    USING (job, rank, step)
    WHERE coalesce(b.ns, 0) <> s.end_ns - s.start_ns
"""


def test_the_bundled_job_adds_up(demo_job, tmp_path):
    warehouse = Warehouse(str(tmp_path))
    run.ingest(warehouse, [str(p) for p in sorted(demo_job.glob("*.json.gz"))], job="demo")
    con = loader.connect({"demo": warehouse.snapshot("demo").files})
    assert con.execute(WAIT_SUMS).fetchone() == (0,)
    assert con.execute(STEP_SUMS).fetchall() == []
    assert con.execute("SELECT count(*) FROM steps").fetchone() == (32,)
    # what everybody knows about this job: they all wait for rank 1
    assert con.execute(
        "SELECT rank FROM late_ranks ORDER BY wait_caused_ns DESC LIMIT 1"
    ).fetchone() == (1,)


def test_every_real_file_adds_up(retime_traces, tmp_path):
    """Each file as a job of its own; those that do not say their rank are given 0."""
    warehouse = Warehouse(str(tmp_path))
    files = {}
    paths = sorted((retime_traces / "kineto").rglob("*.json*"))
    paths += sorted((retime_traces / "straggler").rglob("trace-*.parquet"))
    for i, path in enumerate(p for p in paths if not p.name.endswith("_et.json.gz")):
        job = f"job{i}"
        try:
            run.ingest(warehouse, [str(path)], job=job)
        except RankUnknown:
            run.ingest(warehouse, [str(path)], job=job, rank=0)
        files[job] = warehouse.snapshot(job).files
    con = loader.connect(files)
    assert con.execute(WAIT_SUMS).fetchone() == (0,)
    assert con.execute(STEP_SUMS).fetchall() == []
    assert len(files) >= 20


def test_sync_tax_of_the_straggler_study(retime_traces, tmp_path):
    """Shares computed from the study's raw columns: by start, and by the shortest duration."""
    warehouse = Warehouse(str(tmp_path))
    files = {}
    for job in ("AR", "ST"):
        (path,) = (retime_traces / "straggler").rglob(f"trace-{job}.parquet")
        run.ingest(warehouse, [str(path)], job=job)
        files[job] = warehouse.snapshot(job).files
    con = loader.connect(files)
    rows = con.execute(
        "SELECT job, op, round(tau_share, 3), round(proxy_tau_share, 3) FROM sync_tax "
        "WHERE op IN ('all_gather', 'reduce_scatter') ORDER BY job, op"
    ).fetchall()
    assert rows == [
        ("AR", "all_gather", 0.042, 0.042),
        ("AR", "reduce_scatter", 0.973, 0.973),
        ("ST", "all_gather", 0.003, 0.003),
        ("ST", "reduce_scatter", 0.104, 0.104),
    ]
