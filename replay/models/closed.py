"""What one collective takes under one algorithm, and where two algorithms take equally long."""

from __future__ import annotations

import numpy as np

from .forms import FORMS, Form, NoModel, floor_power, linear
from .pipelined import PIPELINED, Pipelined, best_pieces, pipelined, time_of

OPS = tuple(dict.fromkeys(f.op for f in FORMS))
ALGOS = tuple(dict.fromkeys(r.algo for r in (*FORMS, *PIPELINED)))

ALIASES = {"ps": "parameter-server", "sharp": "nvls", "rabenseifner": "halving-doubling"}
"""Other words for an algorithm."""


def named(algo: str) -> str:
    """An algorithm's name in the table, from the other ways to write it (`halving_doubling`)."""
    plain = algo.strip().lower().replace("_", "-")
    return ALIASES.get(plain, plain)


def algorithms(op: str) -> tuple[str, ...]:
    """The algorithms with a model of `op`; raises NoModel, saying which operations have some."""
    here = tuple(r.algo for r in (*FORMS, *PIPELINED) if r.op == op)
    if not here:
        raise NoModel(f"no model of operation {op!r}; there are models of {', '.join(OPS)}")
    return here


def row(op: str, algo: str) -> Form | Pipelined:
    """The row of either table; raises NoModel, saying what there is."""
    found = linear(op, algo) or pipelined(op, algo)
    if found is None:
        here = ", ".join(algorithms(op))
        raise NoModel(f"no model of {op} by algorithm {algo!r}; {op} works with {here}")
    return found


def form(op: str, algo: str) -> Form:
    """The line of an algorithm: its row, or of a segmented one what it is with many pieces.

    Many pieces cost nothing of their own there, which understates medium sizes; `time_ns` uses the
    best number of them. Raises NoModel, saying what there is.
    """
    found = row(op, algo)
    if isinstance(found, Form):
        return found
    period = found.period
    return Form(op, algo, found.depth, lambda n: period * (n > 1), found.meaning)


def recorded(algo: str) -> str:
    """The model of an algorithm as NCCL's logs name it: its `tree` is the double binary tree."""
    plain = named(algo)
    return "double-tree" if plain == "tree" else plain


def fits(op: str, algo: str, n: int) -> bool:
    """Whether the algorithm is defined for n ranks."""
    found = row(op, algo)
    return not (isinstance(found, Form) and found.power_of_two and floor_power(n) != n)


def time_ns(
    op: str,
    algo: str,
    n: int,
    size_bytes,
    alpha_ns: float | np.ndarray,
    bandwidth_bytes_per_s: float | np.ndarray,
) -> np.ndarray:
    """Time of one collective in ns (float64, the shape of `size_bytes`).

    `alpha_ns` is the cost of a message, `bandwidth_bytes_per_s` a link's, one direction (each may
    be an array of `size_bytes`' shape: another a size); segmented
    algorithms use their best number of pieces. Raises NoModel for a combination that is in no table
    and for a number of ranks that the algorithm is not defined for.
    """
    found = row(op, algo)
    if n < 1:
        raise NoModel(f"a collective of {n} ranks has no model")
    if not fits(op, algo, n):
        raise NoModel(
            f"{op} by {algo} stands for 2, 4, 8, ... ranks, not for {n}; bruck takes any number"
        )
    size = np.asarray(size_bytes, np.float64)
    if isinstance(found, Form):
        wire = size * 1e9 / bandwidth_bytes_per_s
        return found.messages(n) * alpha_ns + found.volume(n) * wire
    pieces = best_pieces(found, n, size, alpha_ns, bandwidth_bytes_per_s)
    return time_of(found, n, size, alpha_ns, bandwidth_bytes_per_s, pieces)


def crossover_bytes(
    op: str, first: str, second: str, n: int, alpha_ns: float, bandwidth_bytes_per_s: float
) -> float | None:
    """The size at which two algorithms take equally long; None where one always wins.

    Exact between two lines; with a segmented algorithm, by bisection between 1 B and 1 EB.
    """
    a, b = row(op, first), row(op, second)
    if isinstance(a, Form) and isinstance(b, Form):
        fewer_messages = a.messages(n) - b.messages(n)
        more_volume = b.volume(n) - a.volume(n)
        if more_volume == 0 or fewer_messages / more_volume <= 0:
            return None
        return alpha_ns * 1e-9 * bandwidth_bytes_per_s * fewer_messages / more_volume

    def ahead(size: float) -> float:
        pair = [
            float(time_ns(op, algo, n, size, alpha_ns, bandwidth_bytes_per_s))
            for algo in (first, second)
        ]
        return pair[0] - pair[1]

    return bisected(ahead)


def bisected(difference, low: float = 1.0, high: float = 1e18) -> float | None:
    """Where `difference` changes sign between two sizes (once), to 1e-9; None where it does not."""
    ends = difference(low), difference(high)
    if ends[0] * ends[1] >= 0:
        return None
    while high / low > 1 + 1e-9:
        middle = (low * high) ** 0.5
        if difference(middle) * ends[0] > 0:
            low = middle
        else:
            high = middle
    return (low * high) ** 0.5
