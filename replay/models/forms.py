"""Alpha-beta cost models: one table of coefficients and one formula.

`time = messages * alpha + volume * bytes / bandwidth`: every classic algorithm is a pair of
coefficients that depend on the number of ranks n alone. Sources: Thakur, Rabenseifner and Gropp
(2005) for the forms, Patarasuk and Yuan (2009) for the ring.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...ingest.errors import UsageError


class Form(NamedTuple):
    """An algorithm of one operation: messages in a row, and their bytes a byte of size."""

    op: str
    algo: str
    messages: Callable[[int], float]
    """n -> how often alpha is paid."""
    volume: Callable[[int], float]
    """n -> bytes of those messages together, in sizes of the operation: what is sent one after
    another. In a tree each level sends on the whole vector only when it has it."""
    meaning: str


def _levels(n: int) -> int:
    return math.ceil(math.log2(n)) if n > 1 else 0


FORMS: tuple[Form, ...] = (
    Form(
        "all_reduce",
        "ring",
        lambda n: 2 * (n - 1),
        lambda n: 2 * (n - 1) / n,
        "reduce-scatter, then all-gather, round a ring: 2(n-1) a + 2(n-1)/n M/B",
    ),
    Form(
        "all_reduce",
        "tree",
        lambda n: 2 * _levels(n),
        lambda n: 2 * _levels(n),
        "up and down a binary tree, not segmented: 2 ceil(lg n) (a + M/B)",
    ),
    Form(
        "all_gather",
        "ring",
        lambda n: n - 1,
        lambda n: (n - 1) / n,
        "n-1 shifts of a shard round a ring: (n-1) a + (n-1)/n M/B",
    ),
    Form(
        "reduce_scatter",
        "ring",
        lambda n: n - 1,
        lambda n: (n - 1) / n,
        "n-1 shifts of a partial sum round a ring: (n-1) a + (n-1)/n M/B",
    ),
)
"""M, the size of an operation, is the whole buffer: what a rank holds before an all-reduce or
reduce-scatter, what it holds after an all-gather."""

OPS = tuple(dict.fromkeys(f.op for f in FORMS))
ALGOS = tuple(dict.fromkeys(f.algo for f in FORMS))
_TABLE = {(f.op, f.algo): f for f in FORMS}


class NoModel(UsageError):
    """No closed form for this operation under this algorithm."""


def form(op: str, algo: str) -> Form:
    """The row of the table; raises NoModel, saying what there is."""
    found = _TABLE.get((op, algo))
    if found is None:
        here = [f.algo for f in FORMS if f.op == op]
        if here:
            raise NoModel(
                f"no model of {op} by algorithm {algo!r}; {op} works with {', '.join(here)}"
            )
        raise NoModel(f"no model of operation {op!r}; there are models of {', '.join(OPS)}")
    return found


def time_ns(
    op: str, algo: str, n: int, size_bytes, alpha_ns: float, bandwidth_bytes_per_s: float
) -> np.ndarray:
    """Time of one collective in ns (float64, the shape of `size_bytes`).

    `alpha_ns` is the cost of a message, `bandwidth_bytes_per_s` a link's, one direction.
    Raises NoModel for a combination that is not in the table.
    """
    row = form(op, algo)
    if n < 1:
        raise NoModel(f"a collective of {n} ranks has no model")
    size = np.asarray(size_bytes, np.float64)
    return row.messages(n) * alpha_ns + row.volume(n) * size * 1e9 / bandwidth_bytes_per_s


def crossover_bytes(
    op: str, first: str, second: str, n: int, alpha_ns: float, bandwidth_bytes_per_s: float
) -> float | None:
    """The size at which two algorithms take equally long; None where one always wins."""
    a, b = form(op, first), form(op, second)
    fewer_messages = a.messages(n) - b.messages(n)
    more_volume = b.volume(n) - a.volume(n)
    if more_volume == 0 or fewer_messages / more_volume <= 0:
        return None
    return alpha_ns * 1e-9 * bandwidth_bytes_per_s * fewer_messages / more_volume


def size_bytes(op, in_bytes, out_bytes) -> np.ndarray:
    """The size M of each participation (int64 [k]) from op, input and output; 0 where unknown.

    The gathering operations are as large as their output, all others as their input; where only
    one of the two is known it stands for both.
    """
    in_bytes, out_bytes = np.asarray(in_bytes, np.int64), np.asarray(out_bytes, np.int64)
    by_output = np.isin(op, ["all_gather", "gather"])
    first = np.where(by_output, out_bytes, in_bytes)
    return np.where(first > 0, first, np.maximum(np.maximum(in_bytes, out_bytes), 0))
