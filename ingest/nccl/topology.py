"""NCCL's topology and graph XML (`NCCL_TOPO_DUMP_FILE`, `NCCL_GRAPH_DUMP_FILE`): front of them.

A topology is one host: processors, PCI tree, GPUs, NICs, and the links between GPUs. A graph is
what a communicator searched out in it: the devices of each channel in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_START = re.compile(rb"<(?:system|graphs)[ \t\r\n]{1,20}version[ \t]{0,8}=")


def looks_like(head: bytes, name: str) -> bool:
    """Whether it is XML with NCCL's `system` or `graphs` around devices."""
    if not head[:512].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return False
    m = _START.search(head)
    return m is not None and re.search(rb"<(?:cpu|graph)[ \t\r\n/>]", head[m.end() :]) is not None


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields (table name, batch) of one file: rows of `topology` and `problems`.

    `rank` says nothing about a host's topology and is passed over. Raises UnusableInput for what
    is not XML, has a document type (entities could expand), is nested too deep, or has no device.
    """
    from .topology_xml import tables_of

    yield from tables_of(source)
