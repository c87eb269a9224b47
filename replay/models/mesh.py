"""Collectives on a 2-D mesh without wraparound: what its busiest link carries, and how far.

Routing is dimension-ordered: along the row, then along the column (Dally and Towles, "Principles
and Practices of Interconnection Networks", 2004). Ranks lie row by row, the root of a collective is
rank 0, in a corner. Gathering and scattering go by dimension (Barnett et al., "Building a
High-Performance Collective Communication Library", 1994): lines of dies pass shards on both ways,
so that the end of a line of p takes p - 1 shards over its one link. Link loads are counted, and
held to the simulation of the same flows; sizes M as in `forms.FORMS`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .forms import NoModel


class Phase(NamedTuple):
    """Messages that are under way together; phases follow each other. Sizes are float64 [k]."""

    link: np.ndarray
    """Bytes on the busiest link, one direction."""
    port: np.ndarray
    """Bytes into (or out of) the busiest die, all links together."""
    energy: np.ndarray
    """Bytes times hops, over all links."""
    hops: np.ndarray | float
    """Of the farthest message, or messages one after another of one hop each."""
    depth: np.ndarray | float
    """Rounds that wait for what the round before brought."""
    links: float
    """Directed links of the lines that take part."""


OPS = (
    "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "scatter", "gather", "broadcast",
    "reduce", "send", "recv", "send_recv",
)  # fmt: skip


def phases(op: str, rows: int, columns: int, size_bytes) -> tuple[Phase, ...]:
    """The phases of a collective on a mesh, () for one die; raises NoModel for other operations.

    all_gather: shards of M/n along rows, then M/rows along columns; reduce_scatter the same
    backwards, all_reduce one after the other. all_to_all, scatter, gather and send: all messages at
    once. broadcast and reduce: in pieces along the root's row, then along all columns (or back).
    A message (send) goes from corner to corner, the farthest there is: `message` takes two dies.
    """
    if op not in OPS:
        raise NoModel(f"no mesh model of {op!r}; there are {', '.join(OPS)}")
    size = np.asarray(size_bytes, np.float64)
    n = rows * columns
    if n < 2:
        return ()
    if op == "all_to_all":
        return (_even(rows, columns, size / n),)
    if op in ("scatter", "gather"):
        return (_rooted(rows, columns, size / n, gathers=op == "gather"),)
    if op in ("send", "recv", "send_recv"):
        return (message(rows - 1 + columns - 1, size),)
    if op in ("broadcast", "reduce"):
        lines = [_flood(columns, 1, size), _flood(rows, columns, size)]
    else:
        lines = [_shift(columns, rows, size / n), _shift(rows, columns, size / rows)]
    gathered = tuple(phase for phase in lines if phase is not None)
    if op in ("all_gather", "broadcast"):
        return gathered
    # Partial sums must be added at each hop before they are sent on.
    back = tuple(p._replace(depth=p.hops) for p in gathered[::-1])
    return (*back, *gathered) if op == "all_reduce" else back


def uneven(rows: int, columns: int, matrix) -> Phase:
    """An all-to-all of any demand, bytes float64 [n, n] from rank to rank, all at once.

    Bytes over each link by XY routing: along the source's row to the destination's column, then
    down or up that. With equal blocks the same as `phases("all_to_all", ...)`.
    """
    off = np.array(matrix, np.float64)
    np.fill_diagonal(off, 0.0)
    d = off.reshape(rows, columns, rows, columns)
    along, down = d.sum(axis=2), d.sum(axis=1)
    # [row, from column, to column] and [from row, to row, column].
    loads = [
        _crossing(line) for line in (*along, *np.moveaxis(down, 2, 0)) if len(line) > 1
    ]  # fmt: skip
    row, column = np.divmod(np.arange(rows * columns), columns)
    far = abs(row[:, None] - row) + abs(column[:, None] - column)
    link = max((float(x.max(initial=0.0)) for x in loads), default=0.0)
    port = max(off.sum(axis=0).max(initial=0.0), off.sum(axis=1).max(initial=0.0))
    return Phase(
        np.array(link), np.array(port), np.array((off * far).sum()),
        float(far[off > 0].max(initial=0)), 1.0, _links(rows, columns),
    )  # fmt: skip


def message(hops: np.ndarray | float, size_bytes) -> Phase:
    """One message over so many hops: alone on them, so that each link carries it once."""
    size = np.asarray(size_bytes, np.float64)
    return Phase(size, size, size, hops, 1.0, 1.0)


def beside(every: tuple[Phase, ...]) -> Phase:
    """Several phases of one mesh as one of arrays [k], none waiting for another."""
    made = [np.array([getattr(p, name) for p in every]) for name in Phase._fields[:-1]]
    return Phase(*made, links=every[0].links)


def hops(rows: int, columns: int, one: int, other: int) -> int:
    """Links between two ranks by XY routing."""
    (a, x), (b, y) = divmod(one, columns), divmod(other, columns)
    return abs(a - b) + abs(x - y)


def time_ns(parts: tuple[Phase, ...], alpha_ns: float, link_bytes_per_s: float) -> np.ndarray:
    """`sum of hops a + busiest link / B` over phases, ns: links of B, each hop costs a."""
    return np.sum(
        [p.hops * alpha_ns + p.link * 1e9 / link_bytes_per_s for p in parts] or [0.0], axis=0
    )


def cycles(parts: tuple[Phase, ...], ramp_cycles: float, word_bytes: float) -> np.ndarray:
    """The wafer's spatial model, summed over phases: `max(C, E/links + L) + (2 T_R + 1) D`.

    A link, and a die's ramp to its router, carry a word a cycle each (Luczynski et al. 2024,
    arXiv 2404.15888); C is the busier of the two.
    """
    out = np.zeros(())
    for p in parts:
        contention = np.maximum(p.link, p.port) / word_bytes
        flow = p.energy / p.links / word_bytes + p.hops
        out = out + np.maximum(contention, flow) + (2 * ramp_cycles + 1) * p.depth
    return out


def bound_ns(
    op: str, rows: int, columns: int, size_bytes, alpha_ns: float, link_bytes_per_s: float
) -> np.ndarray:
    """What no algorithm beats on this mesh: the farthest hops, and the narrowest cuts, ns.

    Cuts: a corner die (2 links, 1 in a row) and, for an all-to-all, the middle of either side
    (the bisection). Raises NoModel.
    """
    size = np.asarray(size_bytes, np.float64)
    if op not in OPS:
        raise NoModel(f"no mesh model of {op!r}; there are {', '.join(OPS)}")
    n = rows * columns
    if n < 2:
        return np.zeros_like(size)
    degree = (rows > 1) + (columns > 1)
    whole = op in ("all_reduce", "broadcast", "reduce", "send", "recv", "send_recv")
    cut = size * (1.0 if whole else (n - 1) / n) / degree
    if op == "all_reduce":
        # 2 (n-1) M in all, over all links.
        cut = np.maximum(cut, 2 * (n - 1) * size / _links(rows, columns))
    if op == "all_to_all":
        cut = np.maximum(cut, _even(rows, columns, size / n).link)
    return np.maximum(cut * 1e9 / link_bytes_per_s, (rows - 1 + columns - 1) * alpha_ns)


def _links(rows: int, columns: int) -> float:
    return float(2 * (rows * (columns - 1) + columns * (rows - 1)))


def _even(rows: int, columns: int, block: np.ndarray) -> Phase:
    """Blocks from each die to each other: the middle link of a line of p carries floor(p/2)
    ceil(p/2) of them for each die of the other side."""
    across = rows * (columns // 2) * -(-columns // 2)
    down = columns * (rows // 2) * -(-rows // 2)
    far = rows * rows * _distances(columns) + columns * columns * _distances(rows)
    n = rows * columns
    return Phase(
        block * max(across, down), block * (n - 1), block * far,
        float(rows - 1 + columns - 1), 1.0, _links(rows, columns),
    )  # fmt: skip


def _distances(p: int) -> float:
    """Sum of |i - j| over all ordered pairs of a line."""
    return p * (p * p - 1) / 3


def _rooted(rows: int, columns: int, shard: np.ndarray, *, gathers: bool) -> Phase:
    """A shard from the corner to each die, or back.

    Scattered, all that is not of the corner's column leaves it over its row; gathered, all that is
    not of its row comes in over its column.
    """
    n = rows * columns
    far = rows * columns * (columns - 1) / 2 + columns * rows * (rows - 1) / 2
    turned = (columns, rows) if gathers else (rows, columns)
    link = max((turned[1] - 1) * turned[0], turned[0] - 1)
    return Phase(
        shard * link, shard * (n - 1), shard * far,
        float(rows - 1 + columns - 1), 1.0, _links(rows, columns),
    )  # fmt: skip


def _shift(p: int, lines: int, shard: np.ndarray) -> Phase | None:
    """Each die of a line of p passes shards on, both ways, on all lines at once."""
    if p < 2:
        return None
    return Phase(
        shard * (p - 1), shard * (p - 1), shard * lines * p * (p - 1), float(p - 1), 1.0,
        float(2 * lines * (p - 1)),
    )  # fmt: skip


def _flood(p: int, lines: int, size: np.ndarray) -> Phase | None:
    """A buffer from the end of a line of p to all its dies, in many pieces."""
    if p < 2:
        return None
    return Phase(size, size, size * lines * (p - 1), float(p - 1), 1.0, float(lines * (p - 1)))


def _crossing(line: np.ndarray) -> np.ndarray:
    """Bytes over each link of a line, both directions, [2, p - 1], from [p, p] bytes along it."""
    p = len(line)
    at = np.arange(p)
    forth = [line[: x + 1, x + 1 :].sum() for x in at[:-1]]
    back = [line[x + 1 :, : x + 1].sum() for x in at[:-1]]
    return np.array([forth, back])
