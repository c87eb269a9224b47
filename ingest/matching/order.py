"""Instances without sequence numbers: ranks laid side by side on their communicator."""

from __future__ import annotations

import numpy as np

from . import clocks as clock
from . import sequences
from .instances import LONE, ORDER, Instances
from .participations import Comms, Rows, runs


def by_order(rows: Rows, state: Instances, clocks: clock.Clocks, known: Comms) -> clock.Clocks:
    """Instances of comms without numbers, laid side by side rank by rank."""
    numbered = np.zeros(len(known.names) + 1, dtype=bool)
    numbered[rows.comm[(rows.seq >= 0) & rows.timed]] = True
    index = np.flatnonzero(
        (rows.comm >= 0) & (state.group < 0) & (state.how == LONE) & ~rows.p2p & ~rows.loose
        & ~rows.recorded & ~numbered[rows.comm] & rows.timed
    )  # fmt: skip
    order, first = runs(rows.comm[index], rows.rank[index])
    parts = np.split(index[order], first[1:]) if len(index) else []
    lines: dict[int, list[np.ndarray]] = {}
    for part in parts:
        # lexsort is stable: the rows of a rank are still in time order
        lines.setdefault(int(rows.comm[part[0]]), []).append(part)
    # comms with much evidence tie clocks first
    work = sorted(lines, key=lambda c: (-min(len(p) for p in lines[c]), c))
    for comm in work:
        clocks = _tie_domains(rows, lines[comm], clocks)
    ambiguous = 0
    for comm in work:
        ambiguous += _lay(rows, state, lines[comm], clocks)
    state.say(
        "ambiguous_match",
        "operations without sequence numbers fit equally well at more than one place in their "
        "communicator's order (or hosts' clocks could not be tied); they stand alone",
        ambiguous,
    )
    return clocks


def _tie_domains(rows: Rows, lines: list[np.ndarray], clocks: clock.Clocks) -> clock.Clocks:
    """Tie clocks of hosts that share this comm and that nothing ties yet."""
    domain = np.array([int(rows.domain[p[0]]) for p in lines])
    if len(np.unique(clocks.component[domain])) == 1:
        return clocks
    length = np.array([len(p) for p in lines])
    best: dict[int, int] = {}
    for i in np.lexsort((np.arange(len(lines)), -length)).tolist():
        best.setdefault(int(domain[i]), i)
    centre = best[int(domain.min())]
    for d in sorted(best):
        if clocks.component[d] == clocks.component[domain[centre]]:
            continue
        tied = [t for t in best if clocks.component[t] == clocks.component[domain[centre]]]
        for t in tied[:4]:
            a, b = rows.sequence(lines[best[t]]), rows.sequence(lines[best[d]])
            found = sequences.find_offset(a, b)
            if found is not None:
                clocks = clock.tie(clocks, t, d, found)
                break
    return clocks


def _lay(rows: Rows, state: Instances, lines: list[np.ndarray], clocks: clock.Clocks) -> int:
    """Join the ranks' operations on one comm; returns how many were left for being ambiguous.

    Each rank is laid beside the longest; what the longest lacks is laid beside the longest rest.
    """
    ambiguous = 0
    domain = np.array([int(rows.domain[p[0]]) for p in lines])
    component = clocks.component[domain]
    for c in np.unique(component).tolist():
        rest = [p for p, k in zip(lines, component.tolist(), strict=True) if k == c]
        if len(rest) < len(lines) and len(rest) == 1:
            ambiguous += len(rest[0])
        for _ in range(4):
            rest = [p for p in rest if len(p)]
            if len(rest) < 2:
                break
            longest = max(range(len(rest)), key=lambda i: (len(rest[i]), -i))
            base = rest[longest]
            a = rows.sequence(base, clocks)
            index, label, left, stuck = [], [], [], 0
            hit = np.zeros(len(base), dtype=bool)
            for i, part in enumerate(rest):
                if i == longest:
                    continue
                error = float(
                    clocks.error_ns[rows.domain[base[0]]] + clocks.error_ns[rows.domain[part[0]]]
                )
                if rows.domain[base[0]] == rows.domain[part[0]]:
                    error = 0.0
                pairs = sequences.align(a, rows.sequence(part, clocks), error)
                if pairs.ambiguous:
                    stuck += len(part)
                    continue
                got = pairs.index >= 0
                index.append(part[got])
                label.append(pairs.index[got])
                hit[pairs.index[got]] = True
                left.append(part[~got])
            ambiguous += stuck
            index.append(base[hit])
            label.append(np.flatnonzero(hit))
            state.join(np.concatenate(index), np.concatenate(label), ORDER)
            if not hit.any():
                break
            rest = left
    return ambiguous
