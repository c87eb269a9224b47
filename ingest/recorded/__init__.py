"""Recorded operations (the Parquet form of the public straggler study): detection and parser.

One row of such a file is one operation of one pipeline worker in one step: `dp_rank, stage, rank,
step, optype, start_ts, duration, seq_id, mc, mb_id, gmc`, with tensor-parallel ranks folded into
the worker that stands for them. Compute operations become kernels of stream 0; communication
becomes kernels of further streams and a row of `collectives` each.

Time. `start_ts` and `duration` are float32 seconds, counted from the start of their own step.
They become the nearest integer ns, and the job's timeline is the steps one after another in the
order of their numbers: times within a step are kept exactly, the gaps between steps are unknown
and set to nothing. A float32 resolves only 0.24 us at 2 to 4 s and 3.8 us at 32 to 64 s; the
resolution that holds for a file is an `info` row of `problems`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..parquet_footer import MAGIC, footer, has_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source


_COLUMNS = ("optype", "start_ts", "dp_rank")


def looks_like(head: bytes, name: str) -> bool:
    """Whether a small Parquet file has our columns: they stand at its end."""
    return head[:4] == MAGIC and head[-4:] == MAGIC and has_columns(head, _COLUMNS)


def looks_like_further(source: Source) -> bool:
    """The same of a larger one, whose columns stand beyond its head.

    One without a footer is cut, and could be anything: its name is believed.
    """
    if source.head(4) != MAGIC:
        return False
    found = footer(source)
    return has_columns(found, _COLUMNS) if found else source.name.endswith(".parquet")


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields (table name, batch) of one file, which may hold all ranks of a job.

    `meta-X.yaml` beside a local `trace-X.parquet` gives the degrees; without it the world size
    is null. `event_id` is rank << 40 | row of the file. `seq` is step << 32 | kind of operation
    << 24 | position among those of its kind in the step, so it is the same on every rank.
    Raises UnusableInput for a file that is not Parquet, lacks a column or has no usable row, and
    UsageError where a `rank` is asked of a file that names its own.
    """
    if rank is not None:
        raise UsageError(f"{source.name}: recorded operations name their ranks; drop --rank")
    # Only now: every folder is asked whether it holds such files, and polars takes its time.
    from .tables import tables_of

    yield from tables_of(source)
