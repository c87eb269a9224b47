"""What storage costs a step: stalls of the loader, and collectives that share links with its bytes.

The two are apart: a class of its own for storage's traffic takes away the second only, storage that
is staged on the host takes away both (Sharing a Fabric; DYAD).
"""

from __future__ import annotations

import numpy as np
import polars as pl

from ...ingest.errors import UsageError

_LOADER = (
    r"(?i)(^|[^a-z])(train_)?data[ _-]?load(er|ing)?(_next)?([^a-z]|$)"
    r"|(^|[^a-z])(get|next|fetch|load|read)[ _-](next[ _-])?(train[ _-])?(batch|data)([^a-z]|$)"
    r"|(^|[^a-z])batch[ _-]generator([^a-z]|$)"
    r"|(^|[^a-z])data[ _-](fetch|wait|time|iter)([^a-z]|$)"
)
_FRAME = r"data/dataloader\.py\([0-9]+\): (__next__|_next_data)$"


def is_data_loading() -> pl.Expr:
    """Rows of `events` that wait for a batch: as the SQL library's macro of that name."""
    kind, name = pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String)
    enumerated = kind.is_in(["annotation", "host_op"]) & name.str.starts_with(
        "enumerate(DataLoader)"
    )
    ranged = (kind == "annotation") & name.str.contains(_LOADER)
    framed = (kind == "python") & name.str.contains(_FRAME)
    return (enumerated | ranged | framed).fill_null(False)


def stalls(read: np.ndarray, compute: float, depth: int) -> np.ndarray:
    """How long each step waits for its batch: max(0, r - depth x compute), in the unit given.

    `read` [k] is what each batch's read takes, `depth` how many steps ahead it is begun.
    """
    if depth < 0:
        raise UsageError(f"isolate-storage: a prefetch depth of {depth}: 0 or more")
    return np.maximum(np.asarray(read, np.float64) - depth * compute, 0.0)


def shared_factor(storage_flows: float, collective_flows: float, guarantee: float = 0.0) -> float:
    """How many times longer collectives take beside storage: min(1 + j/m, 1/g).

    Max-min fair sharing of one link by j storage and m collective flows; g is the share that the
    collectives' own class is sure of (0: no class).
    """
    fair = 1.0 + storage_flows / collective_flows
    return min(fair, 1.0 / guarantee) if guarantee > 0 else fair


def queue_ns(buffer_bytes: float, bandwidth: float) -> float:
    """What a small operation waits behind a full buffer each round: d = buffer / B, in ns."""
    return buffer_bytes * 1e9 / bandwidth


def union(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint intervals in order that cover what the given ones do."""
    order = np.argsort(start, kind="stable")
    start, until = start[order], np.maximum.accumulate(end[order])
    first = np.ones(len(start), bool)
    first[1:] = start[1:] > until[:-1]
    at = np.flatnonzero(first)
    return start[at], until[np.append(at[1:], len(start)) - 1] if len(start) else end[:0]


def covered(start: np.ndarray, end: np.ndarray, by: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """How much of each interval [start, end) disjoint intervals cover, int64 [k]."""
    begin, until = by
    before = np.concatenate([[0], np.cumsum(until - begin)])

    def up_to(t: np.ndarray) -> np.ndarray:
        i = np.searchsorted(begin, t, side="right")
        inside = np.maximum(until[np.maximum(i - 1, 0)] - t, 0) if len(begin) else 0
        return before[i] - np.where(i > 0, inside, 0)

    return up_to(end) - up_to(start)
