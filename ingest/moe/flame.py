"""FLAME-MoE's routing traces: a Parquet file a layer and checkpoint, a row a token.

`actives/iter_<N>/layer_<NN>.parquet` with `scores` (descending) and `indices`, lists of six.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..parquet_footer import MAGIC, footer, has_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_LAYER = re.compile(r"(?:iter_(\d{1,12})[/\\])?layer_(\d{1,5})\.parquet$")
_COLUMNS = ("scores", "indices")


def looks_like(head: bytes, name: str) -> bool:
    """Whether a small Parquet file is named after a layer and has the two columns."""
    whole = head[:4] == MAGIC and head[-4:] == MAGIC
    return whole and _LAYER.search(name) is not None and has_columns(head, _COLUMNS)


def looks_like_further(source: Source) -> bool:
    """The same of a larger one, whose columns stand beyond its head."""
    if _LAYER.search(source.name) is None or source.head(4) != MAGIC:
        return False
    return has_columns(footer(source), _COLUMNS)


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields `routing`: tokens and score sums by expert of one layer at one iteration.

    Step and layer come from the path. Streams the rows. Raises UnusableInput where the columns
    are not lists of integers and numbers.
    """
    from .flame_rows import rows_of

    place = _LAYER.search(source.name)
    step = int(place.group(1)) if place and place.group(1) else None
    yield from rows_of(source, step, int(place.group(2)) if place else None, rank)
