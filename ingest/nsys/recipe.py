"""Nsight Systems recipe output `nvtx_gpu_proj_trace`: detection and parser.

`nsys recipe nvtx_gpu_proj_trace` writes, as Parquet, each NVTX range with the device time of the
work that was launched within it. Metadata tables of the same run may lie beside the recipe's
folder (`system-metadata.parquet`, `device-metadata.parquet`). All Parquet files together are one
source. The times count from the session's start, which is not in these files: clocks of several
such sources have nothing to do with each other.

A range becomes an annotation on its thread and one on the device. Ranges that XLA names after a
collective become participations, and runs of a compiled training step become steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import UnusableInput

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_RECIPE = re.compile(
    r"(?P<folder>.*)[/!]nvtx_gpu_proj_trace[^/!]{0,80}/(?:trace|files)\.parquet", re.S
)
_META = re.compile(r"(?P<folder>.*)[/!](?:system|device|thread)-metadata\.parquet", re.S)


def looks_like(head: bytes, name: str) -> bool:
    """Never alone: a recipe is a folder."""
    return False


def bundle_of(path: str) -> str | None:
    """The folder that holds the recipe's folder and the metadata; None for other files."""
    found = _RECIPE.fullmatch(path) or _META.fullmatch(path)
    return found["folder"] if found else None


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields (table name, batch) of one recipe's output.

    Raises UnusableInput where there is no trace in it, RankUnknown where nothing tells the rank.
    """
    if not source.members:
        raise UnusableInput(
            "recipe output is a folder with nvtx_gpu_proj_trace/trace.parquet", path=source.name
        )
    from .recipe_rows import tables_of

    yield from tables_of(source, rank)
