"""Collectives on one package or wafer: reductions along rows and columns, die-to-die links.

The row and tree formulas are the spatial model of Luczynski et al., "Near-Optimal Wafer-Scale
Reduce" (HPDC 2024, arXiv 2404.15888): a pattern costs contention C, energy E (link uses), distance
L and depth D; its cycles are `max(C, E / links + L) + (2 T_R + 1) D`. The model is the paper's; the
terms of each pattern are worked out here for a row of P elements. Times in cycles or ns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...ingest.errors import UsageError
from .forms import NoModel

RAMP_CYCLES = 2
"""T_R: cycles between an element and its router, each way."""

LATENCY_REACHED = 0.78
"""Share of the latency bound that a tuned on-package all-gather reached (Maia 200 class)."""

BANDWIDTH_REACHED = 0.94
"""Share of the bandwidth bound that it reached."""


class Terms(NamedTuple):
    """What a pattern costs on the mesh, in wavelets, link uses, hops and rounds."""

    contention: np.ndarray
    energy: np.ndarray
    distance: float
    depth: float
    links: float


def _star(p: int, words: np.ndarray) -> Terms:
    return Terms(words * (p - 1), words * p * (p - 1) / 2, p - 1, 1, p - 1)


def _chain(p: int, words: np.ndarray) -> Terms:
    return Terms(words, words * (p - 1), p - 1, p - 1, p - 1)


def _tree(p: int, words: np.ndarray) -> Terms:
    levels = math.ceil(math.log2(p)) if p > 1 else 0
    return Terms(words * levels, words * p / 2 * levels, p - 1, levels, p - 1)


def _two_phase(p: int, words: np.ndarray) -> Terms:
    group = math.sqrt(p)
    return Terms(2 * words, 2 * words * group * (group - 1), p - 1, 2 * (group - 1), p - 1)


PATTERNS: dict[str, Callable[[int, np.ndarray], Terms]] = {
    "star": _star,
    "chain": _chain,
    "tree": _tree,
    "two-phase": _two_phase,
}
"""Reductions along a row: all to one end at once, hand over hand, in pairs, in groups of sqrt P."""


def pattern(name: str) -> Callable[[int, np.ndarray], Terms]:
    """The terms of a pattern; raises UsageError with the names there are."""
    if name not in PATTERNS:
        raise UsageError(f"no on-package pattern {name!r}; there are {', '.join(PATTERNS)}")
    return PATTERNS[name]


def cycles(terms: Terms, ramp_cycles: float = RAMP_CYCLES) -> np.ndarray:
    """`max(C, E / links + L) + (2 T_R + 1) D`: the paper's model, within 4 % of its machine."""
    if not terms.links:
        return np.zeros_like(terms.contention)
    flow = terms.energy / terms.links + terms.distance
    return np.maximum(terms.contention, flow) + (2 * ramp_cycles + 1) * terms.depth


def reduce_cycles(
    name: str, p: int, words, *, ramp_cycles: float = RAMP_CYCLES, centre: bool = False
) -> np.ndarray:
    """Cycles to reduce `words` 32-bit wavelets an element over a row of `p` to one of them.

    `centre`: the root is in the middle, so the two halves come in from both sides at once (halves
    distance; both halves share the root's ramp, so its contention stays).
    """
    _counted(p)
    words = np.asarray(words, np.float64)
    if p == 1:
        return np.zeros_like(words)
    whole = pattern(name)(p, words)
    if not centre:
        return cycles(whole, ramp_cycles)
    half = pattern(name)(math.ceil((p + 1) / 2), words)
    return cycles(half._replace(contention=whole.contention), ramp_cycles)


def broadcast_cycles(p: int, words, *, ramp_cycles: float = RAMP_CYCLES) -> np.ndarray:
    """Cycles to flood `words` wavelets along a row: `words + P + 2 T_R`, routers multicast."""
    _counted(p)
    words = np.asarray(words, np.float64)
    return words + p + 2 * ramp_cycles if p > 1 else np.zeros_like(words)


def mesh_reduce_cycles(
    name: str,
    rows: int,
    columns: int,
    words,
    *,
    ramp_cycles: float = RAMP_CYCLES,
    centre: bool = False,
) -> np.ndarray:
    """A 2-D mesh: all rows at once, each to its end, then the column of their ends."""
    along = [
        reduce_cycles(name, p, words, ramp_cycles=ramp_cycles, centre=centre)
        for p in (columns, rows)
    ]
    return along[0] + along[1]


def mesh_all_reduce_cycles(
    name: str, rows: int, columns: int, words, *, ramp_cycles: float = RAMP_CYCLES
) -> np.ndarray:
    """Reduce over the mesh, then flood back: down the column, along the rows."""
    back = [broadcast_cycles(p, words, ramp_cycles=ramp_cycles) for p in (rows, columns)]
    there = mesh_reduce_cycles(name, rows, columns, words, ramp_cycles=ramp_cycles)
    return there + back[0] + back[1]


class Bounds(NamedTuple):
    """The two floors of a collective over direct links, ns; no algorithm is under either."""

    latency_ns: float
    bandwidth_ns: np.ndarray

    @property
    def floor_ns(self) -> np.ndarray:
        """The larger of the two."""
        return np.maximum(self.latency_ns, self.bandwidth_ns)


def bounds(
    op: str, n: int, size_bytes, alpha_ns: float, link_bytes_per_s: float, links: float = 0.0
) -> Bounds:
    """Floors of a collective over `n` chips with `links` each (0: one to each other).

    Nobody is done before one message arrived (alpha), nor before what a chip must send or take
    went through all of its links: (n-1)/n of the size, or all of it where each chip must end with
    a result that the others have part in. A tuned all-gather reaches 78 % of the first and 94 % of
    the second (published). Raises NoModel for operations without a direct form.
    """
    _counted(n)
    direct(op)
    size = np.asarray(size_bytes, np.float64)
    if n == 1:
        return Bounds(0.0, np.zeros_like(size))
    whole = op in ("all_reduce", *ONE_LINK)
    volume = size * (1.0 if whole else (n - 1) / n)
    return Bounds(alpha_ns, volume * 1e9 / ((links or n - 1) * link_bytes_per_s))


PASSES = {
    "all_gather": 1, "reduce_scatter": 1, "all_reduce": 2, "all_to_all": 1, "scatter": 1,
    "gather": 1,
}  # fmt: skip
"""Operations whose (n-1)/n of the size go over all links at once, so often."""

ONE_LINK = ("broadcast", "reduce", "send", "recv", "send_recv")
"""Those in which a link to a peer carries the whole buffer."""


def direct(op: str) -> float:
    """How often an operation passes a chip's direct links; raises NoModel without a form."""
    if op not in PASSES and op not in ONE_LINK:
        raise NoModel(f"no direct form of {op!r}; there are of {', '.join((*PASSES, *ONE_LINK))}")
    return PASSES.get(op, 1)


def direct_ns(
    op: str, n: int, size_bytes, alpha_ns: float, link_bytes_per_s: float, links: float = 0.0
) -> np.ndarray:
    """All peers at once over direct links, ns: alpha + (n-1)/n S / (g b) a pass, g links of b.

    broadcast, reduce and send: alpha + S / b, as each peer's link carries the buffer. Raises
    NoModel.
    """
    _counted(n)
    passes, size = direct(op), np.asarray(size_bytes, np.float64)
    if n == 1:
        return np.zeros_like(size)
    if op in ONE_LINK:
        return alpha_ns + size * 1e9 / link_bytes_per_s
    return passes * all_gather_ns("direct", n, size, alpha_ns, link_bytes_per_s, links or None)


def all_gather_ns(
    topology: str,
    n: int,
    size_bytes,
    alpha_ns: float,
    link_bytes_per_s: float,
    links: float | None = None,
) -> np.ndarray:
    """An all-gather over `n` chips: `direct` (all peers at once) or `ring` (n-1 shifts), in ns.

    direct: alpha + (n-1) S / (n g b), over g links of b; ring: (n-1) (alpha + S / (n b_ring)),
    where both links of a chip on the ring carry half each way if it has two or more.
    """
    _counted(n)
    size = np.asarray(size_bytes, np.float64)
    ports = float(n - 1 if links is None else links) or 1.0
    if n == 1:
        return np.zeros_like(size)
    if topology == "direct":
        return alpha_ns + (n - 1) * size * 1e9 / (n * ports * link_bytes_per_s)
    if topology == "ring":
        ring = min(ports, 2.0) * link_bytes_per_s
        return (n - 1) * (alpha_ns + size * 1e9 / (n * ring))
    raise UsageError(f"no on-package topology {topology!r}; there are direct, ring")


def _counted(p: int) -> None:
    if p < 1:
        raise UsageError(f"a package of {p} elements has no model: 1 or more")
