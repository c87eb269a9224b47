"""Rows of saved DeepEP tensors: choices by token, tokens by expert and rank, received tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..collect import Collector
from ..errors import UnusableInput
from .arrays import (
    PHYSICAL_TO_LOGICAL,
    first_map,
    integers,
    load,
    mapped,
    numbers,
    ranks_of,
    scalar,
)
from .counted import MAX_EXPERTS, count, tell_odd
from .deepep import KEYS
from .tally import Routing, fits_i32, fits_rank

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_BESIDE = ("step", "microbatch", "layer", "rank", "num_ranks", "num_experts",
           *PHYSICAL_TO_LOGICAL, "topk_weights", "is_token_in_rank")  # fmt: skip


def rows_of(source: Source, rank: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """All dispatches of a file; see `deepep.parse`."""
    c = Collector(source)
    data = load(source, c.odd)
    records = data if isinstance(data, list | tuple) else [data]
    rows = Routing("deepep")
    ranks: set[int] = set()
    n = 0
    for i, r in enumerate(records):
        if not isinstance(r, dict) or not any(k in r for k in KEYS):
            c.odd("bad_record", "a record without DeepEP's tensors; left out", "lost", offset=i)
            continue
        own = scalar(r.get("rank"))
        own = rank if own is None or not fits_rank(own) else own
        if own is not None:
            ranks.add(own)
        small = {k: v if fits_i32(v := scalar(r.get(k))) else None for k in ("microbatch", "layer")}
        common = {"step": scalar(r.get("step")), **small}
        n += _dispatch(c, rows, r, own, common, i)
        for name in r:
            if isinstance(name, str) and name not in KEYS and name not in _BESIDE:
                c.odd("not_read", f"a key that is not read ({name[:60]!r})", "info", offset=i)
        yield from rows.full()
        yield from c.full()
    if not n:
        raise UnusableInput("none of DeepEP's tensors in a usable form", path=source.name)
    for own in sorted(ranks):
        c.add("ranks", rank=own, clock="none", source=source.name)
    yield from rows.rest()
    yield from c.rest()


def _dispatch(
    c: Collector, rows: Routing, r: dict, own: int | None, common: dict[str, Any], at: int
) -> int:
    """One dispatch; how many of its tensors were usable."""
    per_rank = integers(r.get("num_tokens_per_rank"), 1)
    per_expert = integers(r.get("num_tokens_per_expert"), 1)
    ids = integers(r.get("topk_idx"), 2)
    stated = scalar(r.get("num_ranks"))
    n_ranks = len(per_rank) if per_rank is not None and stated is None else stated
    n_experts = scalar(r.get("num_experts")) if per_expert is None else len(per_expert)
    if per_expert is not None and len(per_expert) > MAX_EXPERTS:
        per_expert = None
    logical = first_map(r, PHYSICAL_TO_LOGICAL, 1, c.odd)
    used = 0
    if ids is not None:
        used += 1
        weights = numbers(r.get("topk_weights"), 2)
        if weights is not None and weights.shape != ids.shape:
            c.odd("lengths_differ", "topk_weights has another shape than topk_idx; not used",
                  offset=at)  # fmt: skip
            weights = None
        counted = count(ids, weights)
        tell_odd(counted, c.odd, offset=at)
        holders = ranks_of(counted.experts, n_experts or 0, n_ranks)
        rows.add_counted(counted, expert=mapped(logical, counted.experts), rank=own,
                         physical=counted.experts, expert_rank=holders, **common)  # fmt: skip
        if per_expert is not None and int(per_expert.sum()) != int(counted.tokens.sum()):
            told = "topk_idx and num_tokens_per_expert have different totals; the ids are counted"
            c.odd("counts_differ", told, offset=at)
    elif per_expert is not None:
        used += 1
        experts = np.arange(len(per_expert))
        rows.add(np.maximum(per_expert, 0), expert=mapped(logical, experts), physical=experts,
                 expert_rank=ranks_of(experts, len(experts), n_ranks), rank=own,
                 **common)  # fmt: skip
    elif per_rank is not None and len(per_rank) <= MAX_EXPERTS:
        used += 1
        rows.add(np.maximum(per_rank, 0), expert_rank=np.arange(len(per_rank)), rank=own, **common)
        told = "tokens by rank only: a token counts once a rank, whichever experts it has there"
        c.odd("tokens_by_rank", told, "info")
    if used and logical is None and (ids is not None or per_expert is not None):
        told = "experts as DeepEP numbers them (physical); without a map the logical are null"
        c.odd("map_missing", told, "info")
    used += _received(c, rows, r, own, common, at)
    used += _by_rank(c, r, own, per_rank)
    return used


def _received(
    c: Collector, rows: Routing, r: dict, own: int | None, common: dict[str, Any], at: int
) -> int:
    """Tokens that arrived at the rank's own experts, from all ranks."""
    used = 0
    for name, what in (
        ("num_recv_tokens_per_expert_list", "rounded up to the expert alignment"),
        ("cumulative_local_expert_recv_stats", "running totals since the process began"),
    ):
        got = integers(r.get(name), 1)
        if got is None or not len(got) or len(got) > MAX_EXPERTS:
            continue
        if own is None:
            told = f"{name} needs the rank to tell its experts; left out: give --rank"
            c.odd("rank_unknown", told, "lost", offset=at)
            continue
        if used:
            told = f"{name} is not added: the record's other received counts are of the same tokens"
            c.odd("counted_twice", told, "info", offset=at)
            continue
        used += 1
        place = np.arange(len(got)) + own * len(got)
        rows.add(np.maximum(got, 0), physical=place, expert_rank=own, **common)
        told = f"{name}: tokens from all ranks (rank is null) by local expert, {what}"
        c.odd("received_counts", told, "info", offset=at)
    return used


def _by_rank(c: Collector, r: dict, own: int | None, per_rank: np.ndarray | None) -> int:
    """Samples by rank: tokens sent (once a rank) and waits."""
    used = 0
    rdma = integers(r.get("num_tokens_per_rdma_rank"), 1)
    for what, values in (("tokens_to_rank", per_rank), ("tokens_to_rdma_rank", rdma)):
        for i, v in enumerate([] if values is None else values[:65536].tolist()):
            c.add("counters", rank=own, name=f"deepep_{what}", device=f"rank {i}", value=float(v))
            used = 1
    waits = integers(r.get("dispatch_wait_recv_cost_stats"), 2)
    if waits is not None:
        for i, j in np.argwhere(waits)[:1_000_000].tolist():
            c.add("counters", rank=own, name="deepep_dispatch_wait_recv_cost",
                  device=f"{i} {j}", value=float(waits[i, j]))  # fmt: skip
        used = 1
    return used
