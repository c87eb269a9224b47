"""A second, naive reader of NCCL kernels in Kineto JSON: the tests' oracle, not the product's."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal

import pyarrow as pa
from retime.ingest import schema

ITEM_BYTES = {"BFloat16": 2, "Float": 4}
OPS = {
    "_allgather_base": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "allreduce": "all_reduce",
    "sendrecv": "send_recv",
}
DTYPES = {"BFloat16": "bf16", "Float": "f32"}


def read(raw: bytes) -> tuple[list[dict], dict]:
    """NCCL kernels as rows of `collectives` by start, and one row of `ranks`."""
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    doc = json.loads(raw, parse_float=Decimal)
    info = doc["distributedInfo"]
    rank, base = info["rank"], int(doc.get("baseTimeNanoseconds", 0))
    rows = []
    for number, event in enumerate(doc["traceEvents"]):
        if event.get("cat") != "kernel" or "nccl" not in event["name"].lower():
            continue
        args, name = event["args"], event["name"].split("(")[0]
        words = name.split("_")
        start = base + int(event["ts"] * 1000)
        item = ITEM_BYTES.get(args.get("dtype", ""), 1)
        size = args.get("Group size")
        kernel = words[1].lower()
        row = {
            "rank": rank,
            "op": OPS[args.get("Collective name", kernel)],
            "dtype": DTYPES.get(args.get("dtype", "")),
            "in_bytes": item * args["In msg nelems"] if "In msg nelems" in args else None,
            "out_bytes": item * args["Out msg nelems"] if "Out msg nelems" in args else None,
            "group_size": size,
            "comm": args["Process Group Name"] + args["Process Group Ranks"] if size else None,
            "start_ns": start,
            "end_ns": start + int(event["dur"] * 1000),
            "stream": args["stream"],
            "event_id": rank << 40 | number,
            "source": "kineto",
            "device": args["device"],
        }
        if row["dtype"] is None:
            found = [w for w in words if w in ("bf16", "f32")]
            row["dtype"] = found[0] if found else None
        rows.append(row)
    rows.sort(key=lambda r: r["start_ns"])
    ranks = {
        "rank": rank,
        "device": rows[0]["device"],
        "n_devices": len(doc["deviceProperties"]) if doc.get("deviceProperties") else None,
        "world_size": info["world_size"],
        "start_ns": rows[0]["start_ns"],
        "end_ns": rows[-1]["end_ns"],
    }
    return [{k: v for k, v in r.items() if k != "device"} for r in rows], ranks


def table(name: str, rows: list[dict]) -> pa.Table:
    """Rows as a table of the warehouse; columns not given are null."""
    declared = schema.TABLES[name]
    if not rows:
        return declared.schema.empty_table()
    keys = {k for r in rows for k in r}
    batch = declared.batch({k: [r.get(k) for r in rows] for k in sorted(keys)})
    return pa.Table.from_batches([batch])
