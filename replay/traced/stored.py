"""The task graph of a traced job from the tasks that lie in its tables, rank by rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...ingest.schema import TABLES
from ...ingest.store import reading
from ...ingest.tasks import stored
from ..policy import ReplayJob
from .build import about_lateness
from .merged import Odd, Words, graph

NAMES = (stored.TASKS, stored.EDGES, stored.PARTS, stored.WORDS)


def of_files(
    files: Mapping[str, Sequence[Any]], facts: Mapping[str, Any], job: str = ""
) -> ReplayJob | None:
    """The replay job of traced ranks from the tables that `ingest.made.tasks` wrote, if it did.

    The same, to the bit, as `build.of_shares` makes of the events; None as well where the tables
    contradict themselves, or where collectives wait for each other in a circle.
    """
    paths = [list(files.get(name) or ()) for name in NAMES]
    if any(len(p) != 1 for p in paths):
        return None
    try:
        tasks, edges, parts, rows = (
            _read(name, str(p[0])) for name, p in zip(NAMES, paths, strict=True)
        )
        tasks, edges, parts = (_numbers(table) for table in (tasks, edges, parts))
        words = {name: column.to_pylist() for name, column in _columns(rows)}
        made, late = graph(tasks, edges["back"], parts, _words(words))
    except Odd:
        return None
    said = (*_texts(words, stored.WARNING), *about_lateness(made, late))
    assumed = tuple(_texts(words, stored.ASSUMPTION))
    return ReplayJob(made, job, {**facts, "late_ns": late}, assumed, said)


def _read(name: str, path: str) -> pa.Table:
    """A table. Raises Odd for one with other columns than it should have."""
    with reading.whole(path) as file:
        found = file.read()
    if found.schema.names != TABLES[name].schema.names:
        raise Odd
    return found


def _columns(table: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    return zip(table.column_names, table.columns, strict=True)


def _numbers(table: pa.Table) -> dict[str, np.ndarray]:
    """Columns of whole numbers. Raises Odd where one is null."""
    if any(column.null_count for column in table.columns):
        raise Odd
    return {name: _array(column) for name, column in _columns(table)}


def _array(column: pa.ChunkedArray) -> np.ndarray:
    """Nobody may write to it, be it Arrow's memory or a copy: to the compiler that is one type."""
    values = column.to_numpy()
    values.flags.writeable = False
    return values


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
