"""The footer of a Parquet file: which columns it has, without a Parquet library."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sources import Source

MAGIC = b"PAR1"
MAX_BYTES = 16 << 20


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
