"""PyTorch execution traces (ExecutionTraceObserver JSON): detection and parser.

Schemas 1.0.1 to 1.1.1, by the members present: every operator that a rank ran, with its tensors and
its caller, and no time. Rows of `graph_nodes` for all nodes; untimed `collectives` for those that
communicate, with whole lists of splits and members where Kineto's are cut.

A node's `data_deps` are found from the tensors it reads (the innermost node that gave one out
before). `bytes` of a communication node is the larger of its two sides.

Joining to a Kineto trace of the same rank. From torch 2.1 on Kineto's events have a `Record
function id`, which is this trace's `rf_id`: `record_function` is equal in both, and with torch 2.12
(comm, seq) too. Before that (2023, schema 1.0.1) nothing is equal in both: Kineto's `External id`
counts on each thread by itself, in blocks, and agrees with `rf_id` only by chance on the first
thread. There the order decides: the rank's collectives by `event_id` here (nodes are numbered as
they begin) and by start in Kineto are the same ones in the same order; op, type and input bytes
are on both sides and must agree one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .names import rank_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_SCHEMA = re.compile(rb'"schema"[ \t\r\n]*:[ \t\r\n]*"\d{1,4}\.\d{1,4}\.\d{1,4}[^"\\]{0,60}"')
_NODES = re.compile(rb'"nodes"[ \t\r\n]*:[ \t\r\n]*\[')


def looks_like(head: bytes, name: str) -> bool:
    """Whether the first 64 KiB of a file are those of an execution trace in JSON."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] != b"{":
        return False
    nodes = _NODES.search(text)
    schema = _SCHEMA.search(text, 0, 4096)
    return nodes is not None and schema is not None and schema.start() < nodes.start()


def peek_rank(source: Source) -> int | None:
    """The rank in the source's name; None where it has none."""
    return rank_of(source.name)


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields (table, batch): `graph_nodes`, `collectives`, `comms`, one row of `ranks`, `problems`.

    The rank is the one in the name, else `rank`, else the one that the trace's collectives give
    with groups of known members. Nodes are streamed: memory does not grow with the file, but for
    its tensors' ids and its collectives. A file that a crash cut short gives its whole nodes.
    Raises RankUnknown where nothing says the rank, UnusableInput where there are no nodes.
    """
    # Only now: every file of a folder is shown to `looks_like`.
    from .et_rows import tables_of

    yield from tables_of(source, rank)
