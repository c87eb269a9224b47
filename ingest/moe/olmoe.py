"""OLMoE's routing analysis: pickled Counters of the experts chosen, by layer, a file a data set.

`<model>/expert_counts[_top1]/<data set>.pkl` and `<model>/expert_counts_crosslayer/<..>.pkl`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_PATH = re.compile(
    r"(?:([^/\\!]{1,60})[/\\])?(expert_counts(?:_crosslayer|_top1)?)[/\\]([^/\\!]{1,60})\.pkl"
)


def looks_like(head: bytes, name: str) -> bool:
    """Whether it is a pickle whose first object is a Counter, in a list or a dict."""
    start = head[:160]
    return start[:1] == b"\x80" and b"collections" in start and b"Counter" in start


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields `routing`: choices by layer and expert, all tokens of a data set together.

    `source` says model, kind of count and data set. Of the pairs of layers the sums for each of
    the two are kept. Raises UnusableInput where the pickle holds no Counters of experts, or asks
    for anything but plain values.
    """
    from .olmoe_rows import rows_of

    path = _PATH.search(source.name)
    kind = f"olmoe:{path.group(1) or ''}/{path.group(2)}/{path.group(3)}" if path else "olmoe"
    yield from rows_of(source, kind)
