"""A job from tables that were made of its frames, as deriving makes them."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from retime.ingest.made import tasks
from retime.ingest.writer import PartWriter
from retime.replay.traced import stored


def written(frames, folder: Path, of=lambda table, rows: rows) -> dict[str, list[str]]:
    """The tables' files; `of` says what of a table's rows (an Arrow table) is to be in them."""
    rows = {name: frame.to_arrow() for name, frame in frames.items()}
    events = folder / "events.parquet"
    pq.write_table(rows["events"], events)
    writer = PartWriter(folder)
    assert tasks.of_files(writer, [str(events)], len(rows["events"]), rows)
    files = {}
    for w in writer.close():
        path = folder / w.file
        pq.write_table(of(w.table, pq.read_table(path)), path)
        files[w.table] = [str(path)]
    return files


def loaded(frames, of=lambda table, rows: rows):
    """The replay job of what is stored of some frames; None where it cannot be made."""
    with tempfile.TemporaryDirectory() as folder:
        return stored.of_files(written(frames, Path(folder), of), dict)


def same(one, other):
    """Two replay jobs are equal in all their arrays, names and words."""
    a, b = one.graph, other.graph
    for field in dataclasses.fields(a):
        if field.name == "extra":
            continue
        x, y = getattr(a, field.name), getattr(b, field.name)
        assert np.array_equal(x, y), field.name
        assert getattr(x, "dtype", None) == getattr(y, "dtype", None), field.name
    assert list(a.extra) == list(b.extra)
    for name, values in a.extra.items():
        assert np.array_equal(values, b.extra[name]), name
        assert values.dtype == b.extra[name].dtype, name
    assert np.array_equal(one.facts["late_ns"], other.facts["late_ns"])
    assert (one.assumptions, one.warnings) == (other.assumptions, other.warnings)
