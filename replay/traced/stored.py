"""The task graph of a traced job from the tasks that lie in its tables, rank by rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...ingest.schema import TABLES
from ...ingest.store import reading
from ...ingest.tasks import stored
from ..policy import ReplayJob
from .build import about_lateness
from .gathered import empty
from .merged import Odd, Words, graph, room

NAMES = (stored.TASKS, stored.EDGES, stored.PARTS, stored.WORDS)


def of_files(
    files: Mapping[str, Sequence[Any]], facts: Callable[[], Mapping[str, Any]], job: str = ""
) -> ReplayJob | None:
    """The replay job of traced ranks from the tables that `ingest.made.tasks` wrote, if it did.

    The same, to the bit, as `build.of_shares` makes of the events; None as well where the tables
    contradict themselves, or where collectives wait for each other in a circle. `facts` gives those
    of the job.
    """
    paths = [list(files.get(name) or ()) for name in NAMES]
    if any(len(p) != 1 for p in paths):
        return None
    of_tasks, of_edges, of_parts, of_words = (str(p[0]) for p in paths)
    try:
        parts = _read(stored.PARTS, of_parts)
        with reading.parquet(of_tasks) as file:
            n = file.metadata.num_rows + _joins(parts)
        # Arrow gives each thread memory of its own, which takes longer to get than to fill.
        with ThreadPoolExecutor(1) as other:
            columns, known = other.submit(room, n), other.submit(facts)
            tasks, edges = _read(stored.TASKS, of_tasks), _read(stored.EDGES, of_edges)
            words = _rows(of_words)
        made, late = graph(tasks, edges["back"], parts, _words(words), columns.result())
    except Odd:
        return None
    said = (*_texts(words, stored.WARNING), *about_lateness(made, late))
    assumed = tuple(_texts(words, stored.ASSUMPTION))
    return ReplayJob(made, job, {**known.result(), "late_ns": late}, assumed, said)


def _joins(parts: Mapping[str, np.ndarray]) -> int:
    """How many collectives there are. Raises Odd where there cannot be so many."""
    joins = int(parts["collective"].max(initial=-1)) + 1
    if joins > len(parts["collective"]):
        raise Odd
    return joins


def _read(name: str, path: str) -> dict[str, np.ndarray]:
    """Columns of whole numbers. Raises Odd for other columns, and where one is null.

    Row group by row group, so that each is unpacked into the memory that the one before was in: to
    get memory may take longer than to unpack.
    """
    with reading.whole(path) as file:
        if file.schema_arrow.names != TABLES[name].schema.names:
            raise Odd
        groups = range(file.num_row_groups)
        if len(groups) == 1:
            return {name: _array(values) for name, values in _columns(file, 0)}
        n = file.metadata.num_rows
        out = {c.name: _empty(n, c.type) for c in TABLES[name].columns}
        since = 0
        for group in groups:
            for column, values in _columns(file, group):
                out[column][since : since + len(values)] = _array(values)
            since += file.metadata.row_group(group).num_rows
    for values in out.values():
        values.flags.writeable = False  # as what Arrow has: to the compiler that is one type
    return out


def _columns(file: pq.ParquetFile, group: int) -> Iterable[tuple[str, pa.ChunkedArray]]:
    found = file.read_row_group(group, use_threads=False)
    return zip(found.column_names, found.columns, strict=True)


def _empty(n: int, of: pa.DataType) -> np.ndarray:
    dtype = np.dtype(of.to_pandas_dtype())
    return empty(n * dtype.itemsize).view(dtype)


def _array(column: pa.ChunkedArray) -> np.ndarray:
    if column.null_count or not pa.types.is_integer(column.type):
        raise Odd
    return column.to_numpy()


def _rows(path: str) -> dict[str, list[Any]]:
    """The columns of the table of words."""
    with reading.whole(path) as file:
        found = file.read(use_threads=False)
    if found.schema.names != TABLES[stored.WORDS].schema.names:
        raise Odd
    return found.to_pydict()


def _words(rows: Mapping[str, list[Any]]) -> Words:
    shapes = [
        (blocks, threads)
        for what, blocks, threads in zip(rows["what"], rows["blocks"], rows["threads"], strict=True)
        if what == stored.SHAPE
    ]
    first = [
        n for what, n in zip(rows["what"], rows["number"], strict=True) if what == stored.FIRST
    ]
    texts = (_texts(rows, what) for what in (stored.NAME, stored.OP, stored.COMM))
    names, ops, comms = texts
    return Words(names, first, ops, comms, np.array(shapes, np.int64).reshape(-1, 2))


def _texts(rows: Mapping[str, list[Any]], what: str) -> list[str]:
    return [text for w, text in zip(rows["what"], rows["text"], strict=True) if w == what]
