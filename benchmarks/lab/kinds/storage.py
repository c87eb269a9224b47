"""Reads from storage over the links of collectives before, over links of their own after."""

from __future__ import annotations

from dataclasses import replace

from ..pairs import Pair, Run
from ..shape import MBIT, Shape
from ..workload import Storage
from .jobs import data_parallel, gradients

KIND = "storage isolated"


def pairs() -> list[Pair]:
    """One reader or all, short and long bursts, a slow and a fast store."""
    cases = (
        ("one-reader", 60 * MBIT, (1,), 400.0, 300.0),
        ("all-read", 400 * MBIT, (0, 1, 2, 3), 300.0, 300.0),
        ("long-bursts", 100 * MBIT, (0, 2), 800.0, 400.0),
        ("slow-store", 20 * MBIT, (3,), 300.0, 300.0),
    )
    out = []
    for name, rate, seats, on_ms, off_ms in cases:
        shape = Shape(4, storage_bps=rate)
        stream = Storage(seats, on_ms, off_ms)
        load = data_parallel(4, gradients((500_000, 500_000, 500_000)), steps=12, storage=stream)
        before = Run(f"storage-{name}-shared", shape, load)
        own = load.but(storage=replace(stream, port="store"))
        after = Run(f"storage-{name}-own", replace(shape, store_bps=100 * MBIT), own)
        policy = ("isolate-storage:what=isolate",)
        out.append(Pair(KIND, f"isolate-{name}", before, after, policy))
    return out
