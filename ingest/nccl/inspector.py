"""NCCL Inspector: JSON lines of every generation, and its Prometheus text files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_RECORD = re.compile(
    rb'\s{0,16}\{\s{0,16}"(?:header"\s{0,4}:\s{0,16}\{\s{0,16}"id"\s{0,4}:\s{0,4}"0x[0-9a-f]{1,16}"'
    rb'|coll_perf"\s{0,4}:\s{0,16}\{\s{0,16}"coll"|p2p_perf"\s{0,4}:\s{0,16}\{\s{0,16}"p2p"'
    rb'|proxy_trace"\s{0,4}:\s{0,16}\{\s{0,16}"record_type")'
)
_METRIC = re.compile(
    rb"(?m)^nccl_(?:algorithm_bandwidth_gbs|bus_bandwidth_gbs|p2p_bus_bandwidth_gbs|"
    rb'collective_exec_time_microseconds|collectives_total|p2p_total)\{\w{1,32}="'
)


HASHES_ALONE = True
"""With one thread `parse` hashes what compiled code reads; of what is read line by line the hash
comes after it."""


def looks_like(head: bytes, name: str) -> bool:
    """Whether a file holds Inspector's records or its metrics."""
    return bool(_RECORD.match(head) or _METRIC.match(head))


def prepare(n_bytes: int) -> None:
    """Told how many (decompressed) bytes this process is about to parse, in all files together."""
    from . import compiled_code
    from .inspector_scan_code import CODE

    compiled_code.prepare(n_bytes, CODE)


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields batches of one process's file.

    Records give `ranks`, `comms` and `collectives` (durations; starts where the writer was asked
    for them), and `transfers` where its proxy records are in it. Prometheus text gives `counters`.
    Raises UnusableInput where no record can be read, UsageError where a `rank` is given to a
    process of several ranks.
    """
    if _METRIC.match(source.head(4096)):
        from . import inspector_metrics

        yield from inspector_metrics.tables_of(source, rank)
    else:
        from . import inspector_records

        yield from inspector_records.tables_of(source, rank, threads)
