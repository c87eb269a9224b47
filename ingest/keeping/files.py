"""Files of a job held against what a manifest says of them: bytes, rows, columns, SHA-256."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import WarehouseError, line_of
from ..manifest import Part
from ..schema import PARTS, TABLES

if TYPE_CHECKING:
    from ..store import Folder

AT_ONCE = 8
"""Files looked at side by side."""

BLOCK_BYTES = 1 << 20

TABLE_FOLDERS = frozenset(PARTS) | frozenset(TABLES)
"""Folders of a job that hold a table's files."""

Looked = Callable[[int], None]
"""Called with the bytes of a file that was looked at."""


def wrong(
    folder: Folder,
    sizes: Mapping[str, int],
    claims: Sequence[tuple[str, Part]],
    *,
    deep: bool = False,
    looked: Looked | None = None,
) -> Iterator[tuple[int, str]]:
    """What is wrong with files: place in `claims` (table, part) and what, in their order.

    `sizes` are the bytes of the files that are there. Footers are read, with `deep` all bytes.
    """

    def look(claim: tuple[str, Part]) -> str:
        found = _wrong(folder, sizes, *claim, deep)
        if looked is not None:
            looked(claim[1].bytes)
        return found

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for n, what in enumerate(pool.map(look, claims)):
            if what:
                yield n, what


def _wrong(folder: Folder, sizes: Mapping[str, int], table: str, part: Part, deep: bool) -> str:
    size = sizes.get(part.file)
    if size is None:
        return "missing"
    if size != part.bytes:
        return f"{size:,} bytes, and its manifest says {part.bytes:,}"
    try:
        if deep and _digest(folder, part.file) != part.sha256:
            return "its SHA-256 is not the one in its manifest"
        with folder.open(part.file) as data:
            file = pq.ParquetFile(data, thrift_string_size_limit=64 << 20)
            rows, schema = file.metadata.num_rows, file.schema_arrow
    except FileNotFoundError:
        return "missing"
    except (pa.ArrowException, OSError, ValueError, MemoryError, WarehouseError) as e:
        return f"cannot be read as Parquet: {line_of(e)}"
    if rows != part.rows:
        return f"{rows:,} rows, and its manifest says {part.rows:,}"
    return _schema(table, schema)


def _digest(folder: Folder, file: str) -> str:
    digest = hashlib.sha256()
    with folder.open(file) as data:
        while block := data.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _schema(table: str, found: pa.Schema) -> str:
    """What is wrong with a file's columns; fewer than there are by now is no fault."""
    known = {f.name: _plain(f.type) for f in TABLES[table].schema}
    strange = [n for n in found.names if n not in known]
    if strange:
        return f"a column {strange[0][:40]!r} that {table} does not have"
    for field in found:
        if _plain(field.type) != known[field.name]:
            return f"column {field.name} is {field.type}, and {table} has {known[field.name]}"
    return ""


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return pa.list_(kind.value_type) if pa.types.is_list(kind) else kind


def stem(file: str) -> str:
    """What a Parquet file's name says of whose it is: a source, a pack or a generation."""
    name = file.rpartition("/")[2].removesuffix(".parquet")
    return name if name.startswith("derived-") else name.split("-")[0]
