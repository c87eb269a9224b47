"""Offsets, drift and errors of the clocks of hosts, from collectives that end everywhere at once.

A clock domain is a host (or a rank whose host is not known). With e the end of a collective on a
domain, x the correction of that domain and c the moment the collective really ended,
e + x = c + noise for every cross-host collective: weighted least squares over the whole graph,
weights lowered for outliers (Huber) and for long collectives, whose ends lie further apart, started
from a spanning tree of pairwise medians.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .sequences import Offset

DRIFT_SPAN_NS = 10_000_000_000
"""Shorter traces do not tell drift (10 ppm make 100 us in 10 s) from noise."""
DRIFT_COLLECTIVES = 20
"""A domain with fewer collectives gets no drift of its own."""
NOISE_NS = 50_000.0
"""Doubt that a pair of clocks keeps after one collective, when edges are ranked (about 1 skew)."""
SHORT_NS = 100_000.0
"""The ends of shorter collectives lie apart for other reasons than how long they take."""
SHORTEST = 0.1
"""The share of a job's collectives that are its short ones: these count fully."""
GROWTH = 0.75
"""Ends lie apart by this power of the time taken: between chance (0.5) and a fixed share (1)."""
PAIRS = 4_000_000
"""Pairs of members of collectives, or cells of a dense table, that one pass holds at once."""
FEW_OF = 2
"""A collective of fewer than one in so many domains is summed by its pairs, not as a dense row."""
WORK = 2_000_000_000
"""Multiplications that one least-squares pass may take; beyond it collectives are sampled."""


class Clocks(NamedTuple):
    """The correction of each of n clock domains; see `align`."""

    offset_ns: np.ndarray
    """int64[n], added at `anchor_ns`"""
    rate: np.ndarray
    """float64[n], ns per ns to add per ns after the anchor; 0 where drift is not estimated"""
    anchor_ns: np.ndarray
    """int64[n], moment on the domain's own clock at which offset_ns holds"""
    error_ns: np.ndarray
    """float64[n], against the lowest domain of its component"""
    component: np.ndarray
    """int64[n], lowest domain that this one is tied to (itself if none)"""
    drifts: np.ndarray
    """bool[n], whether rate was estimated"""


def untied(anchor_ns: np.ndarray) -> Clocks:
    """Clocks of which nothing is known: no correction, each its own component."""
    n = len(anchor_ns)
    return Clocks(
        np.zeros(n, np.int64), np.zeros(n), anchor_ns.astype(np.int64), np.zeros(n),
        np.arange(n), np.zeros(n, bool),
    )  # fmt: skip


def align(clocks: Clocks, time_ns: np.ndarray, domain: np.ndarray) -> np.ndarray:
    """`time_ns` (int64, on the clock of `domain`) on the common clock, int64 ns."""
    since = (time_ns - clocks.anchor_ns[domain]).astype(np.float64)
    return (
        time_ns + clocks.offset_ns[domain] + np.rint(clocks.rate[domain] * since).astype(np.int64)
    )


def tie(clocks: Clocks, a: int, b: int, found: Offset) -> Clocks:
    """`clocks` with b's component put on a's, given what takes b's clock to a's.

    A component keeps the number of its lowest domain and that domain's own clock as its time.
    """
    if clocks.component[a] > clocks.component[b]:
        back = Offset(
            -found.offset_ns, -found.rate, found.anchor_ns + found.offset_ns, found.spread_ns,
            found.n,
        )  # fmt: skip
        return tie(clocks, b, a, back)
    at = np.array([found.anchor_ns], dtype=np.int64)
    one = np.zeros(1, np.int64)
    on_a = align(clocks, at + found.offset_ns, one + a)
    on_b = align(clocks, at, one + b)
    shift = int((on_a - on_b)[0])
    rate = found.rate + clocks.rate[a] - clocks.rate[b]
    move = clocks.component == clocks.component[b]
    since = align(clocks, clocks.anchor_ns, np.arange(len(move))) - int(on_b[0])
    offset = clocks.offset_ns + np.where(move, shift + np.rint(rate * since).astype(np.int64), 0)
    doubt = found.spread_ns + clocks.error_ns[a] + clocks.error_ns[b]
    return clocks._replace(
        offset_ns=offset,
        rate=clocks.rate + np.where(move, rate, 0.0),
        error_ns=np.where(move, np.maximum(clocks.error_ns, doubt), clocks.error_ns),
        component=np.where(move, clocks.component[a], clocks.component),
    )


def estimate(
    instance: np.ndarray,
    domain: np.ndarray,
    start_ns: np.ndarray,
    end_ns: np.ndarray,
    anchor_ns: np.ndarray,
    took_ns: np.ndarray | None = None,
) -> Clocks:
    """Clocks of the domains from participations in barrier-like collectives.

    Arrays of one length: instance (any integers), domain, start and end on the domain's clock;
    `anchor_ns[n]` a moment in the middle of each domain's trace; `took_ns` what each one's
    collective took, where that is not its shortest participation. Domains that no chain of
    collectives ties together are in different components. The error is two standard errors of the
    fit plus the domain's median distance from the common end: the skew that averages cannot remove.
    """
    n = len(anchor_ns)
    clocks = untied(anchor_ns)
    took = (end_ns - start_ns).astype(np.float64) if took_ns is None else took_ns
    cells = _cells(instance, domain, start_ns, end_ns, anchor_ns, took)
    if len(cells.instance) == 0:
        return clocks
    component, coarse = _tree(cells, n)
    fit = _fit(cells, component, coarse, n)
    fit, moved = _respect_causality(cells, component, fit)
    reference = component
    # corrections are on the axis "time since the component's anchor"; back to absolute ns
    offset = np.rint(fit.shift).astype(np.int64) + anchor_ns[reference] - anchor_ns
    return Clocks(
        offset, fit.rate, anchor_ns.astype(np.int64), fit.error + moved, component, fit.drifts
    )


class _Cells(NamedTuple):
    """One row a collective and domain, for collectives that span domains; sorted by both."""

    instance: np.ndarray
    domain: np.ndarray
    end: np.ndarray
    last_start: np.ndarray
    first_end: np.ndarray
    first: np.ndarray
    """index of the first row of each collective"""
    took: np.ndarray
    """what each collective took: the shortest of its rows"""


class _Fit(NamedTuple):
    shift: np.ndarray
    rate: np.ndarray
    error: np.ndarray
    drifts: np.ndarray
    few: np.ndarray


def _cells(
    instance: np.ndarray,
    domain: np.ndarray,
    start_ns: np.ndarray,
    end_ns: np.ndarray,
    anchor_ns: np.ndarray,
    took_ns: np.ndarray,
) -> _Cells:
    order = np.lexsort((end_ns, domain, instance))
    instance, domain = instance[order], domain[order].astype(np.int64)
    start = (start_ns[order] - anchor_ns[domain]).astype(np.float64)
    end = (end_ns[order] - anchor_ns[domain]).astype(np.float64)
    first = _edges(instance, domain)
    empty = np.empty(0, np.int64)
    if len(first) == 0:
        return _Cells(empty, empty, empty, empty, empty, empty, empty)
    count = np.diff(np.append(first, len(instance)))
    inst, dom = instance[first], domain[first]
    mean = np.add.reduceat(end, first) / count
    last_start = np.maximum.reduceat(start, first)
    first_end = np.minimum.reduceat(end, first)
    took = np.minimum.reduceat(took_ns[order], first)
    heads = _edges(inst)
    size = np.repeat(np.diff(np.append(heads, len(inst))), np.diff(np.append(heads, len(inst))))
    keep = size > 1
    inst, dom, mean = inst[keep], dom[keep], mean[keep]
    heads = _edges(inst)
    if len(heads):
        took = np.minimum.reduceat(took[keep], heads)
    inst = np.cumsum(np.isin(np.arange(len(inst)), heads)) - 1
    return _Cells(inst, dom, mean, last_start[keep], first_end[keep], heads, took)


def _edges(*keys: np.ndarray) -> np.ndarray:
    """Indices at which a run of equal keys begins."""
    if len(keys[0]) == 0:
        return np.empty(0, np.int64)
    new = np.zeros(len(keys[0]), dtype=bool)
    new[0] = True
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(new)


def _group_median(
    group: np.ndarray, value: np.ndarray, weight: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Groups in order and the (lower) median of each, with weights above 0 if given."""
    order = np.lexsort((value, group))
    first = _edges(group[order])
    count = np.diff(np.append(first, len(group)))
    if weight is None:
        return group[order][first], value[order][first + (count - 1) // 2]
    # Shares of each group's weight, so that one sum over all groups loses nothing of a light one.
    which = np.repeat(np.arange(len(first)), count)
    share = weight[order] / np.add.reduceat(weight[order], first)[which]
    middle = np.searchsorted(np.cumsum(share), np.arange(len(first)) + 0.5 - 1e-9)
    return group[order][first], value[order][np.clip(middle, first, first + count - 1)]


def _spread(cells: _Cells) -> np.ndarray:
    """How far apart each collective's ends may lie, against those of a short one: 1 and more.

    It grows with the time that a collective takes: what delays its last rank (a queue, a shared
    link, another process's turn) happens as often as there is time, and a chain of messages ends in
    its order.
    """
    short = max(float(np.quantile(cells.took, SHORTEST)), SHORT_NS)
    return np.maximum(cells.took / short, 1.0) ** GROWTH


def _tree(cells: _Cells, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Component of each domain, and a first correction from the best pairwise medians."""
    centre = np.repeat(cells.first, np.diff(np.append(cells.first, len(cells.instance))))
    spoke = np.flatnonzero(centre != np.arange(len(centre)))
    pair = cells.domain[centre[spoke]] * n + cells.domain[spoke]
    gap = cells.end[centre[spoke]] - cells.end[spoke]
    pairs, middle = _group_median(pair, gap, _spread(cells)[cells.instance[spoke]] ** -2)
    _, spread = _group_median(pair, np.abs(gap - middle[np.searchsorted(pairs, pair)]))
    count = np.bincount(np.searchsorted(pairs, pair))
    doubt = (spread + NOISE_NS) / np.sqrt(count)
    parent = np.arange(n)
    shift = np.zeros(n)
    for e in np.lexsort((pairs, doubt)).tolist():
        a, b = divmod(int(pairs[e]), n)
        if parent[a] == parent[b]:
            continue
        # b's whole tree moves so that b + gap = a; the tree of the lower domain stays
        move = float(middle[e]) + shift[a] - shift[b]
        if parent[a] < parent[b]:
            tree = parent == parent[b]
            shift[tree] += move
            parent[tree] = parent[a]
        else:
            tree = parent == parent[a]
            shift[tree] -= move
            parent[tree] = parent[b]
    return parent, shift


def _fit(cells: _Cells, component: np.ndarray, coarse: np.ndarray, n: int) -> _Fit:
    """Least squares over all cells, Huber weights; a drift where the trace is long enough."""
    inst, dom = cells.instance, cells.domain
    size = np.diff(np.append(cells.first, len(inst)))
    n_inst = len(size)
    end = cells.end + coarse[dom]
    when = np.add.reduceat(end, cells.first) / size
    per_domain = np.bincount(dom, minlength=n)
    span = np.where(per_domain > 0, _span(dom, when[inst], n), 0.0)
    scale = max(float(span.max()), 1.0)
    free = component != np.arange(n)
    drifts = free & (span > DRIFT_SPAN_NS) & (per_domain >= DRIFT_COLLECTIVES)
    unknowns = np.concatenate([np.flatnonzero(free), n + np.flatnonzero(drifts)])
    tau = when / scale
    spread = _spread(cells)[inst]
    factor = np.sqrt(size / (size - 1.0))[inst]
    work = np.where(size * FEW_OF < n, size * size, float(n * n)).sum()
    stride = max(1, int(work // WORK))
    sample = (inst % stride) == 0
    solution = np.zeros(2 * n)
    inverse = np.zeros((len(unknowns), len(unknowns)))
    residual, weight, sigma = _judge(inst, n_inst, end, 1 / spread**2, factor, spread)
    for _ in range(6):
        matrix, right = _normal(inst, dom, end, weight * sample, tau, n, bool(drifts.any()))
        inverse = np.linalg.pinv(matrix[np.ix_(unknowns, unknowns)], hermitian=True)
        solution = np.zeros(2 * n)
        solution[unknowns] = -inverse @ right[unknowns]
        corrected = end + solution[dom] + solution[n + dom] * tau[inst]
        residual, weight, sigma = _judge(inst, n_inst, corrected, weight, factor, spread)
    shift, rate = coarse + solution[:n], solution[n:] / scale
    # the fit's tau = 0 is the reference's anchor; the domain's own anchor is at its `shift`
    at = shift / scale
    shift = shift + solution[n:] * at
    variance = np.zeros(n)
    column = {int(u): i for i, u in enumerate(unknowns)}
    for d in np.flatnonzero(free).tolist():
        i = column[d]
        variance[d] = inverse[i, i]
        if n + d in column:
            j = column[n + d]
            variance[d] += 2 * at[d] * inverse[i, j] + at[d] ** 2 * inverse[j, j]
    skew = np.zeros(n)
    seen, middle = _group_median(dom, np.abs(residual))
    skew[seen] = middle
    few = 1 + 8 / np.maximum(per_domain, 1)
    error = np.where(free, 2 * sigma * few * np.sqrt(np.maximum(variance, 0)) + skew, 0.0)
    return _Fit(shift, rate, error, drifts, free & (per_domain < 3))


def _judge(
    inst: np.ndarray,
    n_inst: int,
    end: np.ndarray,
    weight: np.ndarray,
    factor: np.ndarray,
    spread: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Residual of each cell to its collective's centre, its next weight, and their robust scale.

    `spread` is how far apart ends may lie, against those of a short collective: the scale is of
    residuals over it. Weights fall with the square of the residual beyond 1.5 scales (Cauchy
    tails): a collective whose ends lie far apart says nothing about clocks.
    """
    total = np.bincount(inst, weight, minlength=n_inst)
    centre = np.bincount(inst, weight * end, minlength=n_inst) / total
    residual = (end - centre[inst]) * factor
    relative = np.abs(residual) / spread
    sigma = 1.4826 * float(np.median(relative))
    near = 1.5 * max(sigma, 1.0) / np.maximum(relative, 1e-9)
    return residual, np.minimum(1.0, near**2) / spread**2, sigma


def _span(group: np.ndarray, value: np.ndarray, n: int) -> np.ndarray:
    high, low = np.full(n, -np.inf), np.full(n, np.inf)
    np.maximum.at(high, group, value)
    np.minimum.at(low, group, value)
    return high - low


def _normal(
    inst: np.ndarray,
    dom: np.ndarray,
    end: np.ndarray,
    weight: np.ndarray,
    tau: np.ndarray,
    n: int,
    slopes: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Normal equations of shift and slope by domain, each collective's true end eliminated."""
    n_inst = len(tau)
    blocks = ((0, (0, 0)), (1, (0, n)), (2, (n, n))) if slopes else ((0, (0, 0)),)
    matrix, right = np.zeros((2 * n, 2 * n)), np.zeros(2 * n)
    total = np.bincount(inst, weight, minlength=n_inst)
    share = 1 / np.where(total > 0, total, 1.0)
    mean = np.bincount(inst, weight * end, minlength=n_inst) * share
    off = weight * (end - mean[inst])
    right[:n] = np.bincount(dom, off, minlength=n)
    right[n:] = np.bincount(dom, off * tau[inst], minlength=n)
    for power, (row, col) in blocks:
        diagonal = np.bincount(dom, weight * tau[inst] ** power, minlength=n)
        matrix[row : row + n, col : col + n] = np.diag(diagonal)
    size = np.bincount(inst, minlength=n_inst)
    first = np.cumsum(size) - size
    for k in np.unique(size[size > 0]).tolist():
        these = np.flatnonzero(size == k)
        block = max(1, PAIRS // (k * k if k * k < n * n else n))
        for lo in range(0, len(these), block):
            some = these[lo : lo + block]
            cell = first[some][:, None] + np.arange(k)
            w, d = weight[cell], dom[cell]
            for power, (row, col) in blocks:
                scaled = w * (share[some] * tau[some] ** power)[:, None]
                matrix[row : row + n, col : col + n] -= _products(scaled, w, d, n)
    matrix[n:, :n] = matrix[:n, n:].T
    return matrix, right


def _products(a: np.ndarray, b: np.ndarray, domain: np.ndarray, n: int) -> np.ndarray:
    """Sum over collectives of a (x) b at their domains; arrays are [collectives, members]."""
    m, k = domain.shape
    if k * FEW_OF < n:
        at = domain[:, :, None] * n + domain[:, None, :]
        product = a[:, :, None] * b[:, None, :]
        return np.bincount(at.ravel(), product.ravel(), minlength=n * n).reshape(n, n)
    row = np.arange(m)[:, None]
    left, right = np.zeros((m, n)), np.zeros((m, n))
    left[row, domain], right[row, domain] = a, b
    return left.T @ right


def _respect_causality(cells: _Cells, component: np.ndarray, fit: _Fit) -> tuple[_Fit, np.ndarray]:
    """Corrections moved, within their errors, until no domain ends before another starts.

    Returns the fit and how far each domain was moved (to be added to its error). A domain with
    one or two collectives has no residual to judge by: its error is the room causality leaves.
    """
    inst, dom, first = cells.instance, cells.domain, cells.first
    shift = fit.shift.copy()
    n = len(shift)
    drift = fit.rate[dom]
    start, end = cells.last_start * (1 + drift), cells.first_end * (1 + drift)
    room = np.maximum(fit.error, 1.0)
    for _ in range(50):
        s, e = start + shift[dom], end + shift[dom]
        ready = np.maximum.reduceat(s, first)
        ended = np.minimum.reduceat(e, first)
        late = s > ended[inst]
        early = e < ready[inst]
        if not late.any():
            break
        down, up = np.zeros(n), np.zeros(n)
        np.maximum.at(down, dom[late], (s - ended[inst])[late])
        np.maximum.at(up, dom[early], (ready[inst] - e)[early])
        step = (up - down) / 2
        step[component == np.arange(n)] = 0.0
        moved = np.clip(shift + step, fit.shift - room, fit.shift + room)
        if np.abs(moved - shift).max() < 1:
            break
        shift = moved
    error = fit.error
    if fit.few.any():
        s, e = start + shift[dom], end + shift[dom]
        up = np.full(n, np.inf)
        np.minimum.at(up, dom, np.abs(np.minimum.reduceat(e, first)[inst] - s))
        down = np.full(n, np.inf)
        np.minimum.at(down, dom, np.abs(e - np.maximum.reduceat(s, first)[inst]))
        error = np.where(fit.few, np.maximum(error, np.maximum(up, down)), error)
    return fit._replace(shift=shift, error=error), np.abs(shift - fit.shift)
