"""Megatron-LM's router trace: one JSON line for each router call, with the experts of each token.

Written by `--moe-routing-trace-path` as `router_trace_rank<R>.jsonl`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

HASHES_ALONE = True
"""With one thread `parse` hashes what it reads: nobody else has to read it once more."""

_NAME = re.compile(r"router_trace_rank(\d{1,6})\.jsonl")
_RANK = re.compile(rb'"rank"\s*:\s*(\d{1,6})\s*[,}]')


def looks_like(head: bytes, name: str) -> bool:
    """Whether the first line is a router call: an object with stage, layer and top-k."""
    start = head[:2048].lstrip()
    keys = (b'"stage"', b'"pre_dispatch"', b'"topk"', b'"layer"', b'"num_tokens"')
    return start.startswith(b"{") and all(k in start for k in keys)


def peek_rank(source: Source) -> int | None:
    """The rank of the first record, else the one in the name."""
    found = _RANK.search(source.head(2048)) or _NAME.search(source.name)
    return int(found.group(1)) if found else None


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields `routing` (one row an expert of a router call), `ranks` and `problems`.

    The experts are counted line by line. `microbatch` is the number of the call among those of
    its step and layer, in file order. Raises UnusableInput where no line is a router call.
    """
    from .megatron_rows import rows_of

    yield from rows_of(source, rank, threads == 1)
