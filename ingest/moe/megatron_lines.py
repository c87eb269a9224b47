"""What Megatron-LM's two JSON-lines logs have in common: records, blocks and layers' numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from ..texts import lines

if TYPE_CHECKING:
    from ..collect import Collector

MAX_LINE_BYTES = 24 << 20
"""A call of 128,000 tokens with 22 experts each is half of this."""

I64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Small = Annotated[int, msgspec.Meta(ge=0, le=(1 << 23) - 1)]
T = TypeVar("T")


def records(
    c: Collector, read: Callable[[bytes], T], lacking: str, hashed: bool = False
) -> Iterator[tuple[int, T]]:
    """(byte offset, record) of each line that `read` can read; others are told, as `lacking`.

    With `hashed` the source is hashed as it is read.
    """
    for at, line, complete in lines(c.source, c.odd, MAX_LINE_BYTES, hashed):
        if not line.strip():
            continue
        try:
            record = read(line)
        except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as e:
            if complete:
                told = f"a line {lacking} ({str(e)[:120]}); left out"
                c.odd("bad_record", told, "lost", offset=at)
            else:
                c.odd("cut_record", "the last line is cut; left out", "lost", offset=at)
            continue
        yield at, record


def block_name(block: str | None, mtp_idx: int | None) -> str | None:
    """`decoder`, or `mtp.<head>`: heads of a multi-token predictor share their layers' numbers."""
    return block if mtp_idx is None else f"{(block or 'mtp')[:80]}.{mtp_idx}"


def tell_layers(c: Collector) -> None:
    """Notes what a layer's number means."""
    told = (
        "layers are numbered from 0 within a pipeline chunk, and chunks of one rank share the "
        "numbers: with pipeline parallelism add the stage's first layer"
    )
    c.odd("layer_local_to_chunk", told, "info")
