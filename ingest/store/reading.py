"""Parquet files by their addresses, local or in an object store, for every engine in use."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from .addresses import is_address
from .drivers import driver
from .patience import patiently
from .remote_file import TAIL_BYTES, WHOLE_BYTES, RemoteFile, fetched

if TYPE_CHECKING:
    import polars as pl

AT_ONCE = 16
"""Requests of one reader that are on their way at a time."""

KNOWN_SIZES = 1 << 18
_sizes: OrderedDict[str, int] = OrderedDict()
_lock = threading.Lock()

T = TypeVar("T")
R = TypeVar("R")


def know(address: str, size: int) -> None:
    """Remembers the size of an object: files of a warehouse never change under their names."""
    with _lock:
        _sizes[address] = size
        _sizes.move_to_end(address)
        while len(_sizes) > KNOWN_SIZES:
            _sizes.popitem(last=False)


def size_of(address: str) -> int:
    """The size of an object, asked for where it is not known. Raises FileNotFoundError."""
    if (known := _sizes.get(address)) is not None:
        return known
    entry = patiently(lambda: driver(address.partition("://")[0]).head(address), address)
    if entry is None:
        raise FileNotFoundError(f"{address}: not there")
    know(address, entry.bytes)
    return entry.bytes


def source(address: str | os.PathLike[str]) -> str | pa.NativeFile:
    """What `pyarrow.parquet` opens: a path as it is, an object as a file with random access."""
    text = os.fspath(address)
    if not is_address(text):
        return text
    return pa.PythonFile(RemoteFile(text, size_of(text)), mode="r")


def parquet(
    address: str | os.PathLike[str], metadata: pq.FileMetaData | None = None
) -> pq.ParquetFile:
    """An open Parquet file. Of an object only the columns and row groups that are read come.

    `metadata` is its footer, where that was read before.
    """
    text = os.fspath(address)
    if not is_address(text):
        return pq.ParquetFile(text, metadata=metadata)
    return pq.ParquetFile(source(text), metadata=metadata, pre_buffer=True)


def whole(address: str | os.PathLike[str]) -> pq.ParquetFile:
    """An open Parquet file of which everything will be read: an object comes in one request."""
    text = os.fspath(address)
    if not is_address(text):
        return pq.ParquetFile(text)
    size = size_of(text)
    if size > 64 << 20:
        return parquet(text)
    return pq.ParquetFile(pa.BufferReader(fetched(text, 0, size)))


def side_by_side(call: Callable[[T], R], of: Sequence[T], remote: bool) -> list[R]:
    """`call` of each, in order; at once where each waits for an object store."""
    if not remote or len(of) < 2:
        return [call(one) for one in of]
    with ThreadPoolExecutor(min(AT_ONCE, len(of))) as pool:
        return list(pool.map(call, of))


def scan(addresses: Sequence[str | os.PathLike[str]]) -> pl.LazyFrame:
    """A lazy frame over Parquet files; of objects only the columns that are used are fetched."""
    import polars as pl  # only now: a small ingest does without, and saves its import

    texts = [os.fspath(a) for a in addresses]
    if not any(map(is_address, texts)):
        return pl.scan_parquet(texts, hive_partitioning=False, glob=False)
    from polars.io.plugins import register_io_source

    first = parquet(texts[0])
    empty = pl.from_arrow(first.schema_arrow.empty_table())
    assert isinstance(empty, pl.DataFrame)

    def rows(
        columns: list[str] | None, where: pl.Expr | None, most: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        left = most
        for n, text in enumerate(texts):
            file = first if n == 0 else parquet(text)
            for group in range(file.num_row_groups):
                if left is not None and left <= 0:
                    return
                # A predicate's columns are among those asked for.
                found = pl.from_arrow(file.read_row_group(group, columns=columns))
                assert isinstance(found, pl.DataFrame)
                if left is not None:
                    found = found.head(left)
                    left -= len(found)
                yield found if where is None else found.filter(where)

    return register_io_source(rows, schema=empty.schema, validate_schema=False)


ENDS_BYTES = 64 << 20
"""Ends of files (footers, and small files whole) that are held for whoever opens them again."""
_ends: OrderedDict[str, bytes] = OrderedDict()


def _end(address: str, start: int, size: int) -> bytes:
    """An object's bytes from `start` to its end."""
    with _lock:
        if (found := _ends.get(address)) is not None:
            _ends.move_to_end(address)
            return found
    data = fetched(address, start, size)
    with _lock:
        _ends[address] = data
        held = sum(map(len, _ends.values()))
        while held > ENDS_BYTES:
            held -= len(_ends.popitem(last=False)[1])
    return data


class OpenObject:
    """An object that several threads read: `size`, and bytes from any offset."""

    def __init__(self, address: str, size: int | None = None):
        """`size` in bytes where it is known. Raises FileNotFoundError, StoreBusy, StoreRefused."""
        self.address = address
        self.size = size_of(address) if size is None else size

    def read_at(self, n_bytes: int, at: int) -> bytes:
        """Up to `n_bytes` from offset `at`; fewer only at the end."""
        until = min(at + n_bytes, self.size)
        if until <= at:
            return b""
        tail = 0 if self.size <= WHOLE_BYTES else self.size - TAIL_BYTES
        if at < tail:
            return fetched(self.address, at, until)
        return _end(self.address, tail, self.size)[at - tail : until - tail]

    def close(self) -> None:
        """Does nothing: between reads nothing is open."""
