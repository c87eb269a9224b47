"""What a rank did, as far as its steps can be told from it: device work, launches, annotations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from ..kineto.rawbatch import NULL

DEVICE = ("kernel", "memcpy", "memset")
LAUNCHED = 0.5
"""Share of the device work whose launch must be known for the host's order to be taken."""

_OPTIMIZER_RANGE = r"^Optimizer\.step#"
"""What PyTorch calls the range around an optimizer's step."""
_COLUMNS = ("rank", "event_id", "kind", "name", "thread", "start_ns", "dur_ns", "correlation",
            "category")  # fmt: skip


class Work(NamedTuple):
    """One rank's device work in the order in which it was asked for; times in the host's clock."""

    rank: int
    name: np.ndarray
    """codes of names, the same for the same name"""
    comm: np.ndarray
    """bool: a communication kernel"""
    start_ns: np.ndarray
    end_ns: np.ndarray
    when_ns: np.ndarray
    """launch on the host; start on the device where launches are not known"""
    event_id: np.ndarray
    by_launch: bool
    """`when_ns` are launches; what was launched before the trace began is NULL"""
    optimizer: list[tuple[int, int]]
    """start and end of each of the optimizer's pieces, on the clock of `when_ns`"""
    annotations: pl.DataFrame
    """name, thread, start_ns, end_ns of the host's annotations"""


def of_files(paths: Sequence[Path], ranks: Sequence[int]) -> Iterator[Work]:
    """The work of some ranks from the `events` of one source, rank by rank."""
    if not paths:
        return
    kinds = [*DEVICE, "runtime", "annotation"]
    rows = (
        pl.scan_parquet([str(p) for p in paths], hive_partitioning=False, glob=False)
        .select(_COLUMNS)
        .filter(pl.col("rank").is_in(ranks), pl.col("kind").cast(pl.String).is_in(kinds))
        .drop_nulls("start_ns")
        .collect()
        .with_columns(pl.col("kind", "name", "category", "thread").cast(pl.String))
    )
    for (rank,), mine in sorted(rows.partition_by("rank", as_dict=True).items()):
        yield _work(int(str(rank)), mine)


def _work(rank: int, rows: pl.DataFrame) -> Work:
    device = rows.filter(pl.col("kind").is_in(DEVICE))
    calls = rows.filter(kind="runtime").drop_nulls("correlation")
    calls = calls.group_by("correlation").agg(pl.col("start_ns").min().alias("launch_ns"))
    device = device.join(calls, on="correlation", how="left", maintain_order="left")
    ranges = rows.filter(kind="annotation").select(
        "name", "thread", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    )
    known = device["launch_ns"].is_not_null().sum()
    by_launch = len(device) == 0 or known >= LAUNCHED * len(device)
    device = device.with_columns(when=pl.col("launch_ns" if by_launch else "start_ns"))
    device = device.sort("when", "start_ns", "event_id", nulls_last=False)
    when = device["when"].fill_null(NULL).to_numpy()
    return Work(
        rank,
        device["name"].rank("dense").cast(pl.Int64).fill_null(0).to_numpy(),
        (device["category"] == "comm").fill_null(False).to_numpy(),
        device["start_ns"].to_numpy(),
        (device["start_ns"] + device["dur_ns"].fill_null(0)).to_numpy(),
        when,
        device["event_id"].to_numpy(),
        by_launch,
        _optimizer(device, ranges, by_launch),
        ranges,
    )


def _optimizer(
    device: pl.DataFrame, ranges: pl.DataFrame, by_launch: bool
) -> list[tuple[int, int]]:
    """The optimizer's pieces: its ranges on the host, else its kernels.

    PyTorch's kernels over lists of tensors are optimizers built of single operations, but norms and
    scaling of gradients too: they count where no kernel is known as an optimizer's.
    """
    marked = ranges.filter(pl.col("name").str.contains(_OPTIMIZER_RANGE))
    if by_launch and len(marked):
        return sorted(set(marked.select("start_ns", "end_ns").rows()))
    kernels = device.filter(pl.col("when").is_not_null(), kind="kernel")
    for of_optimizer in (
        pl.col("category") == "optimizer",
        pl.col("name").str.contains("multi_tensor_apply", literal=True),
    ):
        found = kernels.filter(of_optimizer)["when"].to_list()
        if found:
            return [(w, w) for w in found]
    return []
