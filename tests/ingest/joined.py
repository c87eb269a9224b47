"""One rank's true operations, and what each kind of source would say of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from retime.ingest.schema import TABLES, event_id

US, MS, S = 1_000, 1_000_000, 1_000_000_000
EPOCH_NS = 1_700_000_000 * S
ZERO_NS = EPOCH_NS - 77 * S + 123_457
"""The host's time at which the process's own clock was 0."""
PG, NCCL = "0@abcd1234", "nccl-0a1b2c3d4e5f6071"


class Truth(NamedTuple):
    """One operation as it was; `n` is its place among all, `counted` among those of its op."""

    n: int
    rank: int
    step: int
    op: str
    size: int
    start: int
    end: int
    queued: int
    counted: int


def operations(
    *,
    rank: int = 0,
    steps: int = 6,
    sizes: tuple[int, ...] = (1 << 20,) * 6,
    ops: tuple[str, ...] = ("all_reduce",),
    noise: float = 0.3,
    seed: int = 0,
) -> list[Truth]:
    """What a rank ran: each step an operation of each size, after compute of noisy length."""
    random = np.random.default_rng(seed + 1000 * rank)
    now, out, counts = EPOCH_NS, [], {}
    for step in range(steps):
        for k, size in enumerate(sizes):
            op = ops[k % len(ops)]
            now += int(2 * MS * (1 + noise * random.uniform(-1, 1)))
            start = now
            now += int(300 * US * (1 + noise * random.uniform(-0.9, 3)))
            counts[op] = counts.get(op, -1) + 1
            queued = start - int(500 * US * (1 + noise * random.uniform(-1, 1)))
            out.append(Truth(len(out), rank, step, op, size, start, now, queued, counts[op]))
    return out


def _row(t: Truth, space: str | None, **more: Any) -> dict[str, Any]:
    n = 4
    part = t.size // n
    return {
        "truth": t.n, "rank": t.rank, "op": t.op, "dtype": "bfloat16", "group_size": n,
        "in_bytes": part if t.op == "all_gather" else t.size,
        "out_bytes": part if t.op == "reduce_scatter" else t.size,
        "event_id": (t.rank << 40) + 1000 + t.n if space is None else event_id(t.rank, space, t.n),
    } | more  # fmt: skip


def kineto(ops: list[Truth], *, numbered: bool = False, **more: Any) -> list[dict]:
    """Kernels with times; numbers only from a new PyTorch."""
    return [
        _row(t, None, source="kineto", start_ns=t.start, end_ns=t.end, stream=7, step=t.step,
             **{"comm": PG, "seq": t.n + 1 if numbered else None} | more)
        for t in ops
    ]  # fmt: skip


def inspector(ops: list[Truth], *, error: float = 0.003, seed: int = 5, **more: Any) -> list[dict]:
    """Durations by number of the function on the communicator."""
    random = np.random.default_rng(seed)
    return [
        _row(t, "inspector", source="inspector", seq=t.counted, dtype=None,
             exec_ns=int((t.end - t.start) * (1 + error * random.uniform(-1, 1))) // US * US,
             **{"comm": NCCL} | more)
        for t in ops
    ]  # fmt: skip


def profiler(
    ops: list[Truth], *, jitter_ns: int = 3 * US, seed: int = 6, **more: Any
) -> list[dict]:
    """Times from a zero of the process's own."""
    random = np.random.default_rng(seed)
    return [
        _row(t, "profiler", source="profiler", comm=NCCL, seq=t.counted, clock="process",
             timing="proxy", enqueued_ns=t.queued - ZERO_NS,
             start_ns=t.start - ZERO_NS + int(random.integers(-200, 0)) * US,
             end_ns=t.end - ZERO_NS + int(random.integers(0, jitter_ns)), algo="ring", **more)
        for t in ops
    ]  # fmt: skip


def nccl_log(ops: list[Truth], **more: Any) -> list[dict]:
    """Lines without times, counted by operation."""
    return [_row(t, "nccl-log", source="nccl-log", comm=NCCL, seq=t.counted, **more) for t in ops]


def flight_recorder(ops: list[Truth], **more: Any) -> list[dict]:
    """Numbers, when enqueued and how far they came."""
    return [
        _row(t, "flight-recorder", source="flight-recorder", comm=PG, seq=t.n + 1,
             enqueued_ns=t.queued, state="completed", **more)
        for t in ops
    ]  # fmt: skip


def execution_trace(ops: list[Truth], **more: Any) -> list[dict]:
    """Nodes without times, joined by record function."""
    return [
        _row(t, "execution-trace", source="execution-trace", comm=PG, record_function=t.n + 50,
             **more)
        for t in ops
    ]  # fmt: skip


def table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a table of the warehouse; columns not given are null."""
    declared = TABLES[name]
    if not rows:
        return declared.schema.empty_table()
    keys = sorted({k for r in rows for k in r} - {"truth"})
    return pa.Table.from_batches([declared.batch({k: [r.get(k) for r in rows] for k in keys})])


def ranks(*numbers: int, clock: str = "host") -> pa.Table:
    """Rows of `ranks`, one a rank."""
    return table(
        "ranks",
        [{"rank": r, "clock": clock, "host": "h", "start_ns": EPOCH_NS, "end_ns": EPOCH_NS + S}
         for r in numbers],
    )  # fmt: skip
