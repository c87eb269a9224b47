"""DeepEP's dispatch layout as a job saved it: tensors by the names that DeepEP gives them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

KEYS = ("num_tokens_per_rank", "num_tokens_per_rdma_rank", "num_tokens_per_expert",
        "num_recv_tokens_per_expert_list", "cumulative_local_expert_recv_stats",
        "dispatch_wait_recv_cost_stats", "topk_idx")  # fmt: skip
_JSON = re.compile(rb'[{,]\s*"(?:' + "|".join(KEYS).encode() + rb')"\s*:\s*[\[n]')
_RANK = re.compile(r"rank[-_.]?(\d{1,6})")


def looks_like(head: bytes, name: str) -> bool:
    """Whether it is JSON, .npz or .pt that names one of DeepEP's tensors."""
    if head[:4] == b"PK\x03\x04":
        from .arrays import named

        return bool(named(head, KEYS))
    return head.lstrip()[:1] in (b"{", b"[") and _JSON.search(head) is not None


def peek_rank(source: Source) -> int | None:
    """The rank in the name."""
    found = _RANK.search(re.split(r"[/\\!]", source.name)[-1])
    return int(found.group(1)) if found else None


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields `routing`, `counters` (tokens and waits by rank), `ranks` and `problems`.

    The file holds a dict of tensors, a list of such, or JSON lines of such; `step`, `microbatch`,
    `layer`, `rank`, `num_ranks` and a map from physical to logical experts may stand beside them.
    Raises UnusableInput where none of the tensors is there.
    """
    from .deepep_rows import rows_of

    yield from rows_of(source, peek_rank(source) if rank is None else rank)
