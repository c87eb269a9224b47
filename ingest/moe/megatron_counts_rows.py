"""Rows of Megatron-LM's tokens-per-expert log: tokens that arrived at a rank's experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from ..collect import Collector
from ..errors import UnusableInput
from .counted import MAX_EXPERTS
from .megatron_lines import I64, Small, block_name, records, tell_layers
from .tally import Routing

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

Tokens = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62) - 1)]


class Record(msgspec.Struct):
    """One layer's counts in one iteration, as written."""

    iter: I64
    layer: Small
    tpe: list[list[Tokens]]
    block: str | None = None
    mtp_idx: Small | None = None


def rows_of(source: Source, own: int) -> Iterator[tuple[str, pa.RecordBatch]]:
    """All counts of the file of rank `own`; see `megatron_counts.parse`."""
    c = Collector(source)
    rows = Routing("megatron-counts")
    some = False
    for at, r in records(c, msgspec.json.Decoder(Record).decode, "without counts"):
        some = True
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
    if not some:
        raise UnusableInput("no line of it has tokens per expert", path=source.name)
    c.add("ranks", rank=own, clock="none", source=source.name)
    told = (
        "experts are known by their place on the rank: physical_expert is rank * local experts + "
        "place, and the logical expert needs the expert group's layout; counts are of tokens that "
        "arrived, rows padded for alignment among them"
    )
    c.odd("local_experts", told, "info")
    tell_layers(c)
    yield from rows.rest()
    yield from c.rest()
