"""The walk along each rank's time, against a count of every nanosecond of small random jobs."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retime.ingest.schema import TABLES
from retime.queries import loader

SPAN_NS = 60


def _job(rng: random.Random) -> dict[str, list[dict]]:
    """Two ranks with overlapping work of all classes, steps that touch, and waits."""
    events, collectives, steps = [], [], []
    for rank in (0, 1):
        for n in range(rng.randrange(1, 12)):
            start = rng.randrange(SPAN_NS)
            end = min(SPAN_NS, start + rng.choice((0, 1, 3, 9, 30)))
            kind = rng.choice(("kernel", "kernel", "memcpy"))
            category = rng.choice(("gemm", "comm")) if kind == "kernel" else "copy"
            id = rank * 100 + n
            row = {"rank": rank, "event_id": id, "kind": kind, "name": f"n{n % 3}"}
            row |= {"start_ns": start, "dur_ns": end - start, "category": category}
            events.append(row)
            if category == "comm" and rng.random() < 0.8:
                whole = {"collective_id": n, "comm": "w", "op": "all_reduce", "match": "exact"}
                times = {"rank": rank, "event_id": id, "start_ns": start, "end_ns": end}
                collectives.append(whole | times)
        cuts = sorted(rng.sample(range(SPAN_NS + 1), 4))
        bounds = rng.choice(([cuts[:2], cuts[2:]], [cuts[:2], cuts[1:3]], [cuts[:2]], []))
        for n, (start, end) in enumerate(bounds):
            steps.append({"rank": rank, "step": n, "start_ns": start, "end_ns": end})
    events.append({"rank": 0, "event_id": 999, "kind": "kernel", "name": "z", "start_ns": 0,
                   "dur_ns": 1, "category": "gemm"})  # fmt: skip
    shared = {"host": "h", "start_ns": 0, "end_ns": SPAN_NS}
    ranks = [{"rank": r, "clock_offset_ns": 0, "clock_error_ns": 0} | shared for r in (0, 1)]
    return {"ranks": ranks, "events": events, "collectives": collectives, "steps": steps}


def _files(folder: Path, tables: dict[str, list[dict]]) -> dict[str, list[str]]:
    folder.mkdir()
    files = {}
    for name, rows in tables.items():
        if rows:
            batch = TABLES[name].batch({c: [row[c] for row in rows] for c in rows[0]})
            files[name] = [str(folder / f"{name}.parquet")]
            pq.write_table(pa.Table.from_batches([batch]), files[name][0])
    return files


def _counted(tables: dict[str, list[dict]], waits: dict[int, tuple[int, bool]]) -> Counter:
    """Nanoseconds by rank, step and class, each looked at by itself; `idle` where nothing runs."""
    found: Counter = Counter()
    for rank in (0, 1):
        own = [e for e in tables["events"] if e["rank"] == rank]
        steps = [s for s in tables["steps"] if s["rank"] == rank]
        ends = [e["start_ns"] + e["dur_ns"] for e in own] + [s["end_ns"] for s in steps]
        first = min([e["start_ns"] for e in own] + [s["start_ns"] for s in steps])
        for t in range(first, max(ends)):
            step = next((s["step"] for s in steps if s["start_ns"] <= t < s["end_ns"]), None)
            running = [e for e in own if e["start_ns"] <= t < e["start_ns"] + e["dur_ns"]]
            comm = [e for e in running if e["category"] == "comm"]
            ready = {e["event_id"]: waits.get(e["event_id"], (0, False)) for e in comm}
            if any(e["category"] == "gemm" for e in running):
                what = "compute_with_comm" if comm else "compute"
            elif any(k and e["start_ns"] + w <= t
                     for e in comm for w, k in [ready[e["event_id"]]]):  # fmt: skip
                what = "exposed_transfer"
            elif any(not known for _, known in ready.values()):
                what = "exposed_comm_unsplit"
            elif comm:
                what = "exposed_wait"
            else:
                what = "exposed_memcpy" if running else "idle"
            found[rank, step, what] += 1
    return found


@pytest.mark.parametrize("seed", range(8))
def test_every_nanosecond_is_in_the_class_that_looking_at_it_gives(tmp_path: Path, seed: int):
    rng = random.Random(seed)
    jobs = {name: _job(rng) for name in ("a", "b")}
    con = loader.connect({j: _files(tmp_path / j, t) for j, t in jobs.items()}, threads=1)
    rows = con.execute(
        "SELECT job, rank, step, CASE WHEN class LIKE 'idle%' THEN 'idle' ELSE class END, "
        "sum(ns)::BIGINT FROM step_breakdown GROUP BY ALL"
    ).fetchall()
    gaps = con.execute("SELECT job, rank, step, sum(dur_ns)::BIGINT FROM idle_gaps GROUP BY ALL")
    idle = {(j, r, s): ns for j, r, s, ns in gaps.fetchall()}
    stretches = con.execute(
        "SELECT job, rank, sum(end_ns - start_ns)::BIGINT, "
        "sum(end_ns - start_ns) FILTER (comm AND compute)::BIGINT FROM _segments GROUP BY ALL"
    ).fetchall()
    both = con.execute("SELECT job, rank, sum(overlap_ns)::BIGINT FROM overlap GROUP BY ALL")
    overlap = {(j, r): ns for j, r, ns in both.fetchall()}
    for job, tables in jobs.items():
        waits = con.execute(
            "SELECT event_id, wait_ns, wait_known FROM waits WHERE job = ?", [job]
        ).fetchall()
        expected = _counted(tables, {id: (ns, known) for id, ns, known in waits})
        assert {(r, s, c): ns for j, r, s, c, ns in rows if j == job} == dict(expected)
        assert {(r, s): ns for (j, r, s), ns in idle.items() if j == job} == {
            (r, s): ns for (r, s, c), ns in expected.items() if c == "idle"
        }
        for _, rank, whole, together in (s for s in stretches if s[0] == job):
            assert whole == sum(ns for (r, _, _), ns in expected.items() if r == rank)
            assert (together or 0) == overlap[job, rank]
