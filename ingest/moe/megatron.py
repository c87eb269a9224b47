"""Megatron-LM's router trace: one JSON line for each router call, with the experts of each token.

Written by `--moe-routing-trace-path` as `router_trace_rank<R>.jsonl`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from ..errors import UnusableInput
from ..texts import lines
from .tally import Routing, count, tell_odd

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

MAX_LINE_BYTES = 24 << 20
"""A call of 128,000 tokens with 22 experts each is half of this."""

MAX_KEYS = 1 << 16
_NAME = re.compile(r"router_trace_rank(\d{1,6})\.jsonl")
_RANK = re.compile(rb'"rank"\s*:\s*(\d{1,6})\s*[,}]')

I64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Small = Annotated[int, msgspec.Meta(ge=0, le=(1 << 23) - 1)]


class Record(msgspec.Struct):
    """One router call as written."""

    step: I64
    layer: Small
    rank: Small
    top_indices: list[list[I64]]
    block: str | None = None
    mtp_idx: Small | None = None
    num_tokens: I64 | None = None
    logit_offset: I64 | None = None
    hs_offset: I64 | None = None


def looks_like(head: bytes, name: str) -> bool:
    """Whether the first line is a router call: an object with stage, layer and top-k."""
    start = head[:2048].lstrip()
    keys = (b'"stage"', b'"pre_dispatch"', b'"topk"', b'"layer"', b'"num_tokens"')
    return start.startswith(b"{") and all(k in start for k in keys)


def peek_rank(source: Source) -> int | None:
    """The rank of the first record, else the one in the name."""
    found = _RANK.search(source.head(2048)) or _NAME.search(source.name)
    return int(found.group(1)) if found else None


def block_name(block: str | None, mtp_idx: int | None) -> str | None:
    """`decoder`, or `mtp.<head>`: heads of a multi-token predictor share their layers' numbers."""
    return block if mtp_idx is None else f"{(block or 'mtp')[:80]}.{mtp_idx}"


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields `routing` (one row an expert of a router call), `ranks` and `problems`.

    The experts are counted line by line. `microbatch` is the number of the call among those of
    its step and layer, in file order. Raises UnusableInput where no line is a router call.
    """
    from ..collect import Collector

    c = Collector(source)
    rows = Routing("megatron-router")
    decoder = msgspec.json.Decoder(Record)
    calls: dict[tuple, tuple[int, int]] = {}
    ranks: set[int] = set()
    sides: set[str] = set()
    n, most = 0, 0
    for at, line, complete in lines(source, c.odd, MAX_LINE_BYTES):
        if not line.strip():
            continue
        try:
            r = decoder.decode(line)
            ids = np.array(r.top_indices, np.int64)
            if ids.ndim != 2:
                if len(r.top_indices) and any(r.top_indices):
                    raise ValueError("tokens with no choice at all")
                ids = ids.reshape(len(r.top_indices), 0)
        except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as e:
            if complete:
                told = f"a line that is no router call ({str(e)[:120]}); left out"
                c.odd("bad_record", told, "lost", offset=at)
            else:
                c.odd("cut_record", "the last line is cut; left out", "lost", offset=at)
            continue
        n += 1
        key = (r.block, r.mtp_idx, r.layer, r.rank)
        last, k = calls.get(key, (None, -1))
        k = k + 1 if last == r.step else 0
        if last is not None and r.step < last:
            told = "steps go back: two runs in one file? Their microbatches are numbered anew"
            c.odd("step_goes_back", told, offset=at)
        if len(calls) > MAX_KEYS:
            calls.clear()
        calls[key] = (r.step, k)
        most = max(most, k)
        ranks.add(r.rank)
        if r.logit_offset is not None:
            sides.add(f"logits_rank{r.rank}.bin")
        if r.hs_offset is not None:
            sides.add(f"hidden_states_rank{r.rank}.bin")
        if r.num_tokens is not None and r.num_tokens != len(ids):
            told = f"a call says {r.num_tokens} tokens and lists {len(ids)}; those listed count"
            c.odd("token_count_differs", told, offset=at)
        counted = count(ids)
        tell_odd(counted, c.odd, offset=at)
        rows.add_counted(
            counted,
            step=r.step,
            microbatch=k,
            block=block_name(r.block, r.mtp_idx),
            layer=r.layer,
            rank=r.rank,
        )
        yield from rows.full()
    if not n:
        raise UnusableInput("no line of it is a router call", path=source.name)
    for found in sorted(ranks):
        c.add("ranks", rank=found, clock="none", source=source.name)
    if rank is not None and ranks != {rank}:
        told = f"the records say rank {sorted(ranks)[:3]}, not {rank}; theirs is kept"
        c.odd("rank_differs", told)
    _tell(c, most, sides)
    yield from rows.rest()
    yield from c.rest()


def _tell(c, most: int, sides: set[str]) -> None:
    told = (
        "layers are numbered from 0 within a pipeline chunk, and chunks of one rank share the "
        "numbers: with pipeline parallelism add the stage's first layer"
    )
    c.odd("layer_local_to_chunk", told, "info")
    if most:
        told = (
            f"up to {most + 1} calls of a layer in a step are numbered as microbatches in file "
            "order; activation recomputation and virtual chunks add calls of their own"
        )
        c.odd("microbatch_by_order", told, "info")
    if sides:
        told = f"side files with bfloat16 tensors are not read: {', '.join(sorted(sides)[:4])}"
        c.odd("side_files", told, "info")
