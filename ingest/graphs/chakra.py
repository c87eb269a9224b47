"""Chakra execution traces (protobuf `.et`, and the feeder's JSON): detection and parser.

A file is one rank's graph: nodes of computation, memory, collectives, sends and receives, with
their dependencies and durations in whole microseconds, mostly without a start. Rows of
`graph_nodes` for all of them, and untimed `collectives` for the communication that runs on the
device (nodes with a `comm_type` or a communication kernel's name; a converted trace has the host's
calls beside them, which are no participations). `in_bytes` is `comm_size`, which counts the inputs;
converters guess `comm_type` from a kernel's name, and give no splits, no peers and no sequence
numbers. `record_function` is the `rf_id` of the PyTorch trace that was converted, on host nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .names import rank_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_GRAPH = re.compile(rb'"workload_graph"[ \t\r\n]*:[ \t\r\n]*\[')
_LARGEST_METADATA = 1 << 14


def looks_like(head: bytes, name: str) -> bool:
    """Whether the first 64 KiB of a file are those of a Chakra trace, in protobuf or in JSON.

    Protobuf has no magic bytes: the metadata message and the first node must decode.
    """
    text = head[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] == b"{" and _GRAPH.search(head) is not None:
        return True
    from .chakra_wire import Bad, metadata, node, varint

    try:
        size, at = varint(head[:16], 0)
        if size > min(_LARGEST_METADATA, len(head)):
            return False
        version, attrs = metadata(head[at : at + size])
        if size and version is None and not attrs:
            return False
        at += size
        if at >= len(head):
            return bool(size) and ("schema" in attrs or name.endswith(".et"))
        size, at = varint(head[at : at + 10], 0)[0], at + varint(head[at : at + 10], 0)[1]
        if not size >= 2:
            return False
        body = head[at : at + size]
        if len(body) < size:  # the first node goes beyond the head
            return body[:1] in b"\x08\x12" and bool(attrs or version)
        first = node(body)
        return bool(first.name) and 0 < first.type < 16 and first.name.isprintable()
    except Bad:
        return False


def peek_rank(source: Source) -> int | None:
    """The rank in the source's name (`x.3.et`); None where it has none."""
    return rank_of(source.name, numbered=True)


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields (table, batch): `graph_nodes`, `collectives`, `comms`, one row of `ranks`, `problems`.

    The rank is the one in the name, else `rank`: the format has no place for it. A file that is cut
    gives its whole nodes. Raises RankUnknown, and UnusableInput where there are no nodes.
    """
    # Only now: every file of a folder is shown to `looks_like`.
    from .chakra_rows import tables_of

    yield from tables_of(source, rank)
