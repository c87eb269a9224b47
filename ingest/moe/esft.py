"""ESFT's expert weight logs: a line a forward pass, its tokens' expert ids, then their weights.

`expert_weights_<layer>.txt` (ids and weights tab-separated, a double tab between the two) and the
`summary.json` that its authors averaged over all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_NAME = re.compile(r"expert_weights_(\d{1,5})\.txt")
IDS = re.compile(rb"\d{1,5}(?:\t\d{1,5})*")
_WEIGHT = re.compile(rb"[0-9.]{1,24}(?:e-?\d{1,3})?[\t\n]")
_SUMMARY = re.compile(rb'\s*\{\s*"(?:token|gate)_scores"\s*:\s*\{\s*"\d+"\s*:\s*\{\s*"\d+"\s*:')


def looks_like(head: bytes, name: str) -> bool:
    """Whether a line of ids (and, where it is short enough, a double tab and weights) starts it.

    The name decides where the first 64 KiB do not reach the weights.
    """
    if _SUMMARY.match(head):
        return True
    ids = IDS.match(head)
    if ids is None or ids.end() < 3:
        return False
    if ids.end() < len(head) - 8:
        rest = head[ids.end() :]
        return rest.startswith(b"\t\t") and _WEIGHT.match(rest, 2) is not None
    return _NAME.search(name) is not None


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields `routing`: tokens and gate weights by expert and forward pass (`step`, from 0).

    The layer comes from the name, the rank from a folder `rank_<R>`. Of the authors' summary the
    averages go to `counters`. Raises UnusableInput where nothing fits.
    """
    from .esft_rows import log_rows, summary_rows

    if _SUMMARY.match(source.head(4096)):
        yield from summary_rows(source)
        return
    named = _NAME.search(source.name)
    yield from log_rows(source, int(named.group(1)) if named else None, rank)
