"""Megatron-LM's tokens-per-expert log: what each local expert received, by microbatch.

Written as `tokens_per_expert/rank<R>.jsonl`, one JSON line an iteration and layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import RankUnknown

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_NAME = re.compile(r"(?:^|[/\\!])rank(\d{1,6})\.jsonl(?:\.gz)?$")


def looks_like(head: bytes, name: str) -> bool:
    """Whether the first line is an object with an iteration and tokens per expert."""
    start = head[:4096].lstrip()
    return start.startswith(b"{") and all(k in start for k in (b'"iter"', b'"tpe"', b'"layer"'))


def peek_rank(source: Source) -> int | None:
    """The rank in the name: the records do not say it."""
    found = _NAME.search(source.name)
    return int(found.group(1)) if found else None


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields `routing` (one row an expert and microbatch), `ranks` and `problems`.

    An expert is known by its place on its rank only: `physical_expert` is rank * local experts +
    place, `expert_rank` the rank, `expert` null; `rank` is null, as the tokens come from all ranks
    of the expert group. Raises RankUnknown where neither name nor caller says the rank,
    UnusableInput where no line has counts.
    """
    from .megatron_counts_rows import rows_of

    own = peek_rank(source) if rank is None else rank
    if own is None:
        told = "its name does not say the rank (rank<R>.jsonl); give it with --rank"
        raise RankUnknown(told, path=source.name)
    yield from rows_of(source, own)
