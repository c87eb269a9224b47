"""Retime's plain form of routing, as CSV, JSON lines or Parquet: see docs/routing.md.

A row is a token with its experts, or a count of tokens of an expert.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..parquet_footer import MAGIC, footer, has_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

COLUMNS = ("step", "microbatch", "block", "layer", "rank", "token", "count", "tokens", "experts",
           "expert", "physical_expert", "expert_rank", "weights", "weight_sum", "token_class",
           "id_space", "source")  # fmt: skip
EXPERTS = ("experts", "expert", "physical_expert")
AMOUNTS = ("token", "count", "tokens")
PLACES = ("step", "rank")
HASHES = True
"""`parse` has a source hashed: nobody else has to."""
_KEY = re.compile(rb'"([a-z_]{1,20})"\s*:')


def is_plain(names: set[str]) -> bool:
    """Whether columns are those of the plain form: layer, experts, amount, and step or rank."""
    groups = (("layer",), EXPERTS, AMOUNTS, PLACES)
    return all(any(n in names for n in group) for group in groups)


def looks_like(head: bytes, name: str) -> bool:
    """Whether a header line, the first object or a small Parquet file has the columns."""
    if head[:4] == MAGIC:
        return head[-4:] == MAGIC and is_plain(_named(head))
    line = head[:4096].lstrip(b"\xef\xbb\xbf").partition(b"\n")[0].strip()
    if line.startswith(b"{"):
        return is_plain({k.decode() for k in _KEY.findall(line)})
    return b"," in line and is_plain(set(header(line)))


def looks_like_further(source: Source) -> bool:
    """The same of a larger Parquet file, whose columns stand beyond its head."""
    return source.head(4) == MAGIC and is_plain(_named(footer(source)))


def _named(found: bytes) -> set[str]:
    return {n for n in COLUMNS if has_columns(found, (n,))}


def header(line: bytes) -> list[str]:
    """The names of a CSV header."""
    text = line.decode("utf-8", "replace").lstrip("\ufeff")
    return [n.strip().strip('"').strip().lower() for n in text.split(",")]


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields `routing` (summed while streaming), `ranks` for those named, and `problems`.

    `rank` stands for rows that name none. Raises UnusableInput where there is no usable row.
    """
    from .plain_read import blocks
    from .plain_sums import sums_of

    yield from sums_of(source, blocks, rank, threads)
