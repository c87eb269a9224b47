"""What a rank did where it is late itself: its stretches, and its longest gaps in these."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ..schema import TABLES, TEXT
from . import causes
from .compared import IDLE, FirstStep, Marks, Stretches, marked
from .segmented import LEAST, runs
from .walk import Gaps

STRETCHES = "_made_stretches"
GAPS = "_made_longest_gaps"

MOST = 8
"""Gaps of each class."""


def stretches(s: Stretches, key: int) -> Stretches:
    """Those in which the rank is late itself; `key` is its own (see `compared.blamed`)."""
    its = np.flatnonzero(s.key == key)
    return Stretches(*(column[its] for column in s))


def rows(rank: int, s: Stretches) -> pa.RecordBatch:
    """The rows of `STRETCHES` of a rank."""
    return TABLES[STRETCHES].batch(
        {
            "rank": pa.array(np.full(len(s.key), rank)),
            "key": pa.array(s.key),
            "from_ns": pa.array(s.from_ns),
            "until_ns": pa.array(s.until_ns),
            "late_ns": pa.array(s.late_ns, mask=s.late_ns == LEAST),
        }
    )


def of_gaps(
    s: Stretches, gaps: Gaps, kind: np.ndarray, launch_ns: np.ndarray, first: FirstStep | None,
    marks: Marks,
) -> np.ndarray:  # fmt: skip
    """int64[5, n]: class (of `IDLE`), time of that class, start of the gap, and from when to when
    the host could have launched what ended it; of those of these gaps that begin in the stretches,
    which are of one key.

    `kind` is the class of each gap (of `causes.CLASSES`), `launch_ns` when its end was launched
    (`LEAST` not known). The time before the `first` step is one of them; what of a gap lies beside
    `marks` is one, too, of their class.
    """
    start, end = gaps.start_ns, gaps.end_ns
    free = np.minimum(gaps.free_ns, start)
    kind = kind.astype(np.int64)
    if first is not None and first.host_ns < first.device_ns:
        start, end = np.append(start, first.host_ns), np.append(end, first.device_ns)
        free, launch_ns = np.append(free, first.host_ns), np.append(launch_ns, first.device_ns)
        kind = np.append(kind, causes.LAUNCH)
    held = s.until_ns > s.from_ns
    begin, until = s.from_ns[held], s.until_ns[held]
    at = np.searchsorted(begin, start, "right") - 1
    rows = np.flatnonzero((at >= 0) & (start < np.append(until, LEAST)[at]))
    row, a, b, what = marked(start, end, rows[kind[rows] != causes.STREAM], marks)
    of = np.concatenate([rows, row])
    late = launch_ns[of] > free[of]
    return longest(
        np.stack([
            np.concatenate([kind[rows], what]),
            np.concatenate([(end - start)[rows], b - a]),
            start[of],
            np.where(late, free[of], start[of]),
            np.where(late, launch_ns[of], end[of]),
        ])
    )  # fmt: skip


def longest(found: np.ndarray) -> np.ndarray:
    """Of rows as `of_gaps` has them the `MOST` longest of each class, the first of equal ones."""
    order = np.lexsort((found[2], -found[1], found[0]))
    by = runs(found[0][order])
    nth = np.arange(len(order)) - by.first[by.run]
    return found[:, order[nth < MOST]]


def gap_rows(rank: int, found: np.ndarray) -> pa.RecordBatch:
    """The rows of `GAPS` of a rank, of which this is what `of_gaps` gives."""
    kind, _, gap, start, end = found
    return TABLES[GAPS].batch(
        {
            "rank": pa.array(np.full(len(kind), rank)),
            "class": pa.DictionaryArray.from_arrays(
                pa.array(kind.astype(np.int32)), pa.array(IDLE)
            ).cast(TEXT),
            "gap_ns": pa.array(gap),
            "start_ns": pa.array(start),
            "end_ns": pa.array(end),
        }
    )
