"""The footer of a Parquet file: which columns it has, without a Parquet library."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from .sources import Source

MAGIC = b"PAR1"
MAX_BYTES = 16 << 20
AT_ONCE = 1 << 20
FIRST_ROWS = 1024


def rows_at_once(file: pq.ParquetFile, lists: list[str]) -> int:
    """Rows to read at once, so that columns of lists have about a million values.

    Judged by the first rows: what the file says of its chunks is not asked, as pyarrow ends the
    process where that is damaged.
    """
    for batch in file.iter_batches(FIRST_ROWS, columns=lists) if lists else ():
        values = max((len(c.flatten()) for c in batch.columns if hasattr(c, "flatten")), default=0)
        return max(1, AT_ONCE // max(1, values // max(1, batch.num_rows)))
    return AT_ONCE // 8


def footer(source: Source) -> bytes:
    """The footer's bytes; empty where the file is no Parquet, cut, or has an absurd footer."""
    end = source.tail(65536)
    if end[-4:] != MAGIC or len(end) < 8:
        return b""
    n = int.from_bytes(end[-8:-4], "little")
    if n > MAX_BYTES:
        return b""
    if n + 8 > len(end):
        end = source.tail(n + 8)
    return end[-n - 8 : -8] if n + 8 <= len(end) else b""


def has_columns(found: bytes, names: tuple[str, ...]) -> bool:
    """Whether the schema in a footer names all of these columns (at any depth).

    Thrift writes a name as its length in one byte, then itself.
    """
    return all(bytes([len(n)]) + n.encode() in found for n in names)
