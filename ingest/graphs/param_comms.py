"""PARAM basic communication traces (JSON list of operations): detection and parser.

One rank's operations in program order, to be replayed by PARAM's benchmarks: `{comms, req, pg_id,
in_msg_size, out_msg_size, dtype, in_split, out_split, root, src_rank, dst_rank, startTime_ns,
markers}` or `{compute, ...}`. Sizes are elements. Rows of `graph_nodes` for all entries (`node_id`
is the place in the list; a `wait` depends on the operation with its `req`), untimed `collectives`
for those that move data. `req` is the process's own number: there is no sequence number, so over
ranks only the order can match.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .names import rank_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_COMMS = re.compile(rb'"comms"[ \t\r\n]*:[ \t\r\n]*"')
_COMPUTE = re.compile(rb'"compute"[ \t\r\n]*:[ \t\r\n]*"(?:gemm|emb_lookup)"', re.I)
_ENTRY = re.compile(rb'\[[ \t\r\n]*\{[ \t\r\n]*"')


def looks_like(head: bytes, name: str) -> bool:
    """Whether the first 64 KiB of a file are those of a basic trace: its first entry says."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if _ENTRY.match(text) is None:
        return False
    first = text[: text.find(b"}") + 1 or len(text)]
    return _COMMS.search(first) is not None or _COMPUTE.search(first) is not None


def peek_rank(source: Source) -> int | None:
    """The rank in the source's name (`3.json`); None where it has none."""
    return rank_of(source.name, numbered=True)


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields (table, batch): `graph_nodes`, `collectives`, `comms`, one row of `ranks`, `problems`.

    The rank is the one in the name, else `rank`. Raises RankUnknown, and UnusableInput where there
    is no entry that can be read.
    """
    # Only now: every file of a folder is shown to `looks_like`.
    from .param_rows import tables_of

    yield from tables_of(source, rank)
