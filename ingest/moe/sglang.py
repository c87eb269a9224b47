"""SGLang's expert distribution recorder: its dumps (.pt) and the CSV of early versions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

CSV_HEADER = b"layer_id,expert_id,count"
_RANK = re.compile(r"expert_distribution_rank(\d{1,6})_")
_DUMP_RANK = re.compile(r"expert_distribution_recorder_[\d.]{1,30}_(\d{1,6})\.pt")


def looks_like(head: bytes, name: str) -> bool:
    """Whether a torch file names the recorder's keys, or the CSV header stands first.

    A dump's pickle stands at the start of the file, uncompressed.
    """
    if head.startswith(CSV_HEADER) and head[len(CSV_HEADER) :].lstrip(b"\r")[:1] in (b"", b"\n"):
        return True
    from ..pickles.torchfile import is_torch_head

    if not is_torch_head(head):
        return False
    stat = b"logical_count" in head and b"average_utilization_rate_over_window" in head
    return stat or all(k in head for k in (b"records", b"forward_pass_id", b"gatherer_key"))


def peek_rank(source: Source) -> int | None:
    """The rank in the name of a dump that is one rank's."""
    found = _RANK.search(source.name) or _DUMP_RANK.search(source.name)
    return int(found.group(1)) if found else None


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields `routing`, `ranks` (of dumps that are one rank's) and `problems`.

    `stat`: logical counts of all ranks together (`rank` null), `step` the row of the recorder's
    buffer. `per_pass`, `per_token`: physical counts of a rank by forward pass (`step`), mapped to
    logical experts by the dump's last map. CSV: counts of a rank. Raises UnusableInput where the
    file has none of these.
    """
    from .sglang_rows import csv_rows, dump_rows

    if source.head(len(CSV_HEADER)) == CSV_HEADER:
        yield from csv_rows(source, peek_rank(source) if rank is None else rank)
    else:
        yield from dump_rows(source, rank)
