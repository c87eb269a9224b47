"""The task graph of a traced job from the tasks that lie in its tables, rank by rank."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from ...ingest.schema import TABLES
from ...ingest.store import is_address, reading
from ...ingest.tasks import stored
from ..policy import ReplayJob
from . import memory
from .build import about_lateness
from .merged import FEW, Odd, Words, graph, room

NARROW = {"what": np.int8, "preds": np.int16, "step": np.int32}
"""Columns whose numbers are small: memory takes time to get."""

ROWS_A_BYTE = 8
"""Most that a file of tasks or participations can have: those of real ones take bytes each."""

EDGES_A_TASK = 16
"""Most that there can be: real ones have two or so."""

EDGES_A_PART = 2
"""Most that lead to and from joins for each row of participations."""

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
    if any(len(p) > 1 for p in paths) or not (paths[0] and paths[3]):
        return None
    of_tasks, of_edges, of_parts, of_words = (str(p[0]) if p else "" for p in paths)
    try:
        parts = _read(stored.PARTS, of_parts)
        n = _rows_of(of_tasks)
        all_ = n + _joins(parts)
        most = EDGES_A_TASK * all_
        edges = (_rows_of(of_edges, most) if of_edges else 0) + EDGES_A_PART * len(parts["row"])
        space = room(all_, edges)
        tasks = _columns(stored.TASKS, n) | {"start_ns": space.key[:n]}
        # Arrow gives each thread memory of its own, which takes longer to get than to fill: what is
        # large is read by this one. The other one gets all other memory.
        with ThreadPoolExecutor(1) as other:
            other.submit(memory.get, [space.key, *tasks.values()])
            back = other.submit(_read, stored.EDGES, of_edges, most)
            texts, known = other.submit(_words_of, of_words), other.submit(facts)
            other.submit(memory.get, [*space.aside.values(), *space.kept.values()])
            _read_into(tasks, of_tasks)
            words = texts.result()
            made, late = graph(tasks, back.result()["back"], parts, _words(words), space)
    except (Odd, pa.ArrowException, OSError):
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


def _rows_of(path: str, most: int | None = None) -> int:
    """How many rows a file says it has. Raises Odd for more than `most`, or than its bytes hold."""
    if most is None:
        size = reading.size_of(path) if is_address(path) else os.path.getsize(path)
        most = ROWS_A_BYTE * size
    with reading.parquet(path) as file:
        n = file.metadata.num_rows
    if n > most:
        raise Odd
    return n


def _read(name: str, path: str, most: int | None = None) -> dict[str, np.ndarray]:
    """All columns of a table, of at most so many rows. Raises Odd as `_read_into` does."""
    out = _columns(name, _rows_of(path, most) if path else 0)
    if path:
        _read_into(out, path)
    return out


def _columns(name: str, n: int) -> dict[str, np.ndarray]:
    """Arrays [n] for the columns of a table."""
    schema = TABLES[name].schema
    return memory.arrays({f.name: (_dtype(f.name, f.type), n) for f in schema})


def _read_into(out: Mapping[str, np.ndarray], path: str) -> None:
    """Fills columns of whole numbers, which are all that the file has.

    Raises Odd for others, where there are more or fewer rows, where one is null and where one does
    not fit. Of a row group one column after another, so that each is unpacked into the memory that
    the one before was in: to get memory may take longer than to unpack.
    """
    with reading.parquet(path) as file:
        n = file.metadata.num_rows
        names = file.schema_arrow.names
        if sorted(names) != sorted(out) or any(len(c) != n for c in out.values()):
            raise Odd
        since = 0
        for group in range(file.num_row_groups):
            for some in [[c] for c in out] if n > FEW else [list(out)]:
                found = file.read_row_group(group, some, use_threads=False)
                if since + len(found) > n:
                    raise Odd
                for column in some:
                    target = out[column][since : since + len(found)]
                    target[:] = _fitting(found[column], target.dtype)
            since += file.metadata.row_group(group).num_rows
        if since != n:
            raise Odd


def _dtype(name: str, of: pa.DataType) -> np.dtype:
    return np.dtype(NARROW.get(name) or of.to_pandas_dtype())


def _fitting(column: pa.ChunkedArray, dtype: np.dtype) -> np.ndarray:
    """Whole numbers that all fit a type. Raises Odd for others."""
    if column.null_count or not pa.types.is_integer(column.type):
        raise Odd
    values = column.to_numpy()
    if len(values) and not np.can_cast(values.dtype, dtype):
        fits = np.iinfo(dtype)
        if not fits.min <= values.min() <= values.max() <= fits.max:
            raise Odd
    return values


def _words_of(path: str) -> dict[str, list[Any]]:
    """The columns of the table of words."""
    with reading.whole(path) as file:
        found = file.read(use_threads=False)
    if found.schema.names != TABLES[stored.WORDS].schema.names:
        raise Odd
    texts = {c: found[c].cast(pa.string()) for c in ("what", "text")}
    return {c: texts.get(c, found[c]).to_pylist() for c in found.column_names}


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
