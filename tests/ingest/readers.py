"""The three readers, and their batches as plain rows to compare."""

from __future__ import annotations

import numpy as np
from retime.ingest.kineto import lenient, quick, scanner
from retime.ingest.kineto.rawbatch import NULL, Envelope, RawBatch
from retime.ingest.schema import Problem

READERS = {"lenient": lenient, "quick": quick, "scanner": scanner}


def rows(batches: list[RawBatch]) -> list[dict]:
    """One dict an event; absent values left out, symbols as their text, extras under "extra"."""
    out = []
    for b in batches:
        columns = {}
        for name, values in b.cols.items():
            assert len(values) == b.n
            if values.dtype == np.int32:
                columns[name] = [None if c == -1 else b.symbols.text(c) for c in values.tolist()]
            else:
                absent = 0 if name == "ph" else NULL
                columns[name] = [None if v == absent else v for v in values.tolist()]
        for i in range(b.n):
            row = {c: v[i] for c, v in columns.items() if v[i] is not None}
            if "ph" in row:
                row["ph"] = chr(row["ph"])
            if i in b.extras:
                row["extra"] = b.extras[i]
            out.append(row)
    return out


def read(reader: str, data: bytes, **options) -> tuple[list[dict], Envelope, list[Problem]]:
    """Rows, envelope and problems of a whole trace by one reader."""
    envelope = Envelope()
    problems: list[Problem] = []
    batches = list(READERS[reader].read_events(data, envelope, problems.append, **options))
    return rows(batches), envelope, problems
