"""Small jobs of random rows in which everything happens that views must tell apart."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from retime.ingest.made import make
from retime.ingest.manifest import Manifest, Part
from retime.ingest.schema import TABLES
from retime.ingest.store import folder

Rows = list[dict[str, Any]]

NAMES = ("gemm", "attention", "all_reduce", "nccl:all_gather", "aten::add",
         "enumerate(DataLoader)#x", "get_batch", "cudaLaunchKernel", "cudaStreamSynchronize",
         "torch/utils/data/dataloader.py(1): __next__", "data loading 7", "c10d::send",
         None)  # fmt: skip
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "scatter", "reduce",
       "gather", "send", "recv", "send_recv", "barrier", "unknown")  # fmt: skip


def job(seed: int) -> dict[str, Rows]:
    """The rows of a job by table."""
    r = random.Random(seed)
    n = r.randint(1, 4)
    span = r.choice((60, 300, 5_000))
    base = r.choice((0, 1_765_000_000_000_000_000))
    one_clock = r.random() < 0.5
    ranks = []
    for rank in range(n):
        row: dict[str, Any] = {
            "rank": rank, "host": r.choice(("a", "b", None)), "start_ns": base,
            "end_ns": base + span, "clock": r.choice((None, "host", "boot", "process")),
        }  # fmt: skip
        if one_clock or r.random() < 0.5:
            row |= {"clock_offset_ns": r.randint(-9, 9), "clock_error_ns": r.choice((0, 3)),
                    "clock_drift_ppm": r.choice((0.0, 20_000.0, -3_333.3))}  # fmt: skip
        ranks.append(row)
    known = r.sample(ranks, r.randint(max(1, n - 1), n))
    collectives, events, steps = [], [], []
    for rank in range(n):
        ids = iter(range((rank << 40) + 1, (rank << 40) + 10_000))
        devices = r.random() < 0.75
        if r.random() < 0.8:
            t = base + r.randint(-5, 20)
            for step in range(r.randint(1, 4)):
                long = r.randint(3, max(4, span // 3))
                steps.append({"rank": rank, "step": step // r.choice((1, 1, 1, 2)),
                              "start_ns": t, "end_ns": t + long})  # fmt: skip
                t += max(1, long + r.choice((0, 0, 5, -1)))
        many = r.randint(0, 40)
        events += [_event(r, rank, next(ids), base, span, devices) for _ in range(many)]
        many = r.randint(0, 12)
        collectives += [
            _part(r, rank, next(ids), base, span, n, events, devices) for _ in range(many)
        ]
    comms = [{"comm": c, "dim": r.choice(("dp", "tp", None)), "size": r.choice((n, None))}
             for c in ("w", "v") if r.random() < 0.8]  # fmt: skip
    return {"ranks": known, "events": events, "steps": steps, "comms": comms,
            "collectives": collectives}  # fmt: skip


def _event(r: random.Random, rank: int, id: int, base: int, span: int, devices: bool) -> dict:
    kinds = ["runtime", "host_op", "annotation", "python", "instant", "gpu_annotation"]
    kinds += (
        ["kernel", "kernel", "kernel", "memcpy", "memset"]
        if devices
        else ["memcpy"] * (id % 3 == 0)
    )
    kind = r.choice(kinds)
    return {
        "rank": rank, "event_id": id, "kind": kind, "name": r.choice(NAMES),
        "thread": r.choice(("1", "2", None)), "start_ns": base + r.randint(0, span),
        "dur_ns": r.choice((0, 1, None, *[r.randint(0, span // 4)] * 6)),
        "correlation": r.choice((None, *range(1, 14))) if kind != "host_op" else None,
        "category": r.choice(("gemm", "comm", None)) if kind in ("kernel", "host_op") else None,
        "grid_blocks": r.choice((None, 4)), "stream": r.choice((7, 9)),
    }  # fmt: skip


def _part(
    r: random.Random, rank: int, id: int, base: int, span: int, n: int, events: Rows, devices: bool
) -> dict:
    op = r.choice(OPS)
    start = base + r.randint(0, span)
    end = start + r.randint(0, span // 3)
    carried = r.random()
    event: int | None = None
    if carried < 0.6:
        event = id
        events.append({
            "rank": rank, "event_id": id, "name": f"nccl_{op}",
            "kind": "kernel" if devices else r.choice(("annotation", "host_op")),
            "start_ns": start, "dur_ns": end - start, "thread": r.choice(("1", "3")),
            "category": "comm", "correlation": r.choice((None, *range(1, 14))),
        })  # fmt: skip
    elif carried < 0.75 and (
        own := [e for e in events if e["rank"] == rank and e["category"] == "comm"]
    ):
        event = r.choice(own)["event_id"]
    timed = r.random() < 0.9
    p2p = op in ("send", "recv", "send_recv")
    return {
        "comm": r.choice(("w", "w", "v", None)), "seq": r.choice((1, 2, None)),
        "collective_id": r.choice((1, 2, 3, 4, 5, None)), "match": "exact", "rank": rank, "op": op,
        "in_bytes": r.choice((None, 100, 1 << 20)), "out_bytes": r.choice((None, 100, 1 << 29)),
        "group_size": r.choice((n, None)), "root": r.choice((0, None)),
        "peer": r.choice((None, 0, n - 1)) if p2p else None,
        "coalesced": r.choice((None, 2)) if p2p else None, "stream": 9,
        "start_ns": start if timed else None, "end_ns": end if timed or r.random() < 0.5 else None,
        "timing": r.choice((None, "kernel", "kernel", "watchdog")), "step": r.choice((None, 0, 1)),
        "event_id": event, "source": "kineto",
    }  # fmt: skip


def written(
    place: Path, rows: dict[str, Rows]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Files of the job's tables, and of what is made of them: table -> files."""
    place.mkdir(parents=True)
    tables: dict[str, pa.Table] = {}
    files: dict[str, list[str]] = {}
    for name in ("ranks", "events", "steps", "comms", "collectives"):
        mine = rows[name]
        columns = {c for row in mine for c in row}
        batch = TABLES[name].batch({c: [row.get(c) for row in mine] for c in columns})
        tables[name] = pa.Table.from_batches([batch])
        pq.write_table(tables[name], place / f"{name}.parquet")
        files[name] = [str(place / f"{name}.parquet")]
    sources = [
        Manifest(
            id=f"{rank:064x}", name=f"rank{rank}", sha256="", size_bytes=0, format="kineto",
            ranks=[rank], world_sizes=[], views={}, problems={}, tool_version="", created_at_ns=0,
            tables={"events": [_of_rank(place, rank, tables["events"])]},
        )
        for rank in sorted({e["rank"] for e in rows["events"]})
    ]  # fmt: skip
    target = place / "target"
    target.mkdir()
    made: dict[str, list[str]] = {}
    for w in make.write(target, folder(place), sources, tables):
        made[w.table] = [str(target / w.file)]
    return files, made


def _of_rank(place: Path, rank: int, events: pa.Table) -> Part:
    of = events.filter(pa.array([r == rank for r in events["rank"].to_pylist()]))
    pq.write_table(of, place / f"rank{rank}.parquet")
    return Part(f"rank{rank}.parquet", len(of), 1, "")
