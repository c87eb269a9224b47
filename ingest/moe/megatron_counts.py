"""Megatron-LM's tokens-per-expert log: what each local expert received, by microbatch.

Written as `tokens_per_expert/rank<R>.jsonl`, one JSON line an iteration and layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from ..errors import RankUnknown, UnusableInput
from ..texts import lines
from .megatron import I64, MAX_LINE_BYTES, Small, block_name
from .tally import MAX_EXPERTS, Routing

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_NAME = re.compile(r"(?:^|[/\\!])rank(\d{1,6})\.jsonl(?:\.gz)?$")
Tokens = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62) - 1)]


class Record(msgspec.Struct):
    """One layer's counts in one iteration, as written."""

    iter: I64
    layer: Small
    tpe: list[list[Tokens]]
    block: str | None = None
    mtp_idx: Small | None = None


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
    from ..collect import Collector

    own = peek_rank(source) if rank is None else rank
    if own is None:
        told = "its name does not say the rank (rank<R>.jsonl); give it with --rank"
        raise RankUnknown(told, path=source.name)
    c = Collector(source)
    rows = Routing("megatron-counts")
    decoder = msgspec.json.Decoder(Record)
    n = 0
    for at, line, complete in lines(source, c.odd, MAX_LINE_BYTES):
        if not line.strip():
            continue
        try:
            r = decoder.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as e:
            if complete:
                told = f"a line without counts ({str(e)[:120]}); left out"
                c.odd("bad_record", told, "lost", offset=at)
            else:
                c.odd("cut_record", "the last line is cut; left out", "lost", offset=at)
            continue
        n += 1
        for k, tokens in enumerate(r.tpe):
            if len(tokens) > MAX_EXPERTS:
                told = f"more than {MAX_EXPERTS} experts; left out"
                c.odd("expert_out_of_range", told, "lost", offset=at)
                continue
            place = np.arange(len(tokens))
            rows.add(
                np.array(tokens, np.int64),
                physical=place + own * len(tokens),
                expert_rank=own,
                step=r.iter,
                microbatch=k,
                block=block_name(r.block, r.mtp_idx),
                layer=r.layer,
            )
            yield from rows.full()
    if not n:
        raise UnusableInput("no line of it has tokens per expert", path=source.name)
    c.add("ranks", rank=own, clock="none", source=source.name)
    told = (
        "experts are known by their place on the rank: physical_expert is rank * local experts + "
        "place, and the logical expert needs the expert group's layout; counts are of tokens that "
        "arrived, rows padded for alignment among them"
    )
    c.odd("local_experts", told, "info")
    told = (
        "layers are numbered from 0 within a pipeline chunk, and chunks of one rank share the "
        "numbers: with pipeline parallelism add the stage's first layer"
    )
    c.odd("layer_local_to_chunk", told, "info")
    yield from rows.rest()
    yield from c.rest()
