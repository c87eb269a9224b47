"""Which counts of the routing log stand for a recorded all-to-all, and what a new placement costs.

The log's steps are the job's where their numbers meet; else every all-to-all stands for all of
them. Likewise its layer, where it could be told, else all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .exchange import Exchange, Found, sides
from .routed import Routing

Placement = Callable[[int, int], "np.ndarray | None"]
"""(step, layer) -> the part of each expert that each member holds, float64 [e, n]; None: as was."""


class Times(NamedTuple):
    """Of the counts behind one all-to-all, added up."""

    old_ns: float
    new_ns: float
    before: list[tuple[np.ndarray, np.ndarray]]
    """Bytes out of and into each member, one entry a pair of step and layer."""
    after: list[tuple[np.ndarray, np.ndarray]]
    matrix: np.ndarray | None = None
    """Bytes from member to member afterwards, mean over the pairs; None where there are none."""


def behind(
    routing: Routing, one: Exchange, steps: Sequence[int] | None = None
) -> list[tuple[int, int]]:
    """(step, layer) pairs of the log that stand for an all-to-all, of `steps` only if given."""
    at = one.demand
    own = (at.step,) if at.step in routing.steps else routing.steps
    layers = (at.layer,) if at.layer is not None else routing.layers_of(at.members)
    wanted = own if steps is None else [s for s in own if s in set(steps)]
    return [(s, layer) for s in wanted for layer in layers if (s, layer) in routing.parts]


def times(
    found: Found, one: Exchange, pairs: Sequence[tuple[int, int]], placement: Placement
) -> Times:
    """What the busiest port needs under the log's placement and under another, over the pairs.

    Bytes a choice are the recorded bytes over the log's choices. Pairs without a placement, old or
    new, count as they were.
    """
    routing = found.routing
    assert routing is not None
    members = one.demand.members
    olds = [routing.matrix(s, layer, members) for s, layer in pairs]
    total = float(np.mean([0.0 if m is None else m.sum() for m in olds])) if olds else 0.0
    sent = float(one.demand.matrix.sum())
    scale = sent / total if total > 0 and sent > 0 else 1.0
    out = Times(0.0, 0.0, [], [])
    moved: list[np.ndarray] = []
    for (s, layer), old in zip(pairs, olds, strict=True):
        if old is None:
            continue
        place = placement(s, layer)
        new = old if place is None else routing.counts(s, layer, members) @ place
        if one.demand.combines:
            old, new = old.T, new.T
        out.before.append(sides(old * scale))
        out.after.append(sides(new * scale))
        moved.append(new * scale)
        out = out._replace(
            old_ns=out.old_ns + one.ports_ns(found.speeds, old * scale),
            new_ns=out.new_ns + one.ports_ns(found.speeds, new * scale),
        )
    return out._replace(matrix=np.mean(moved, axis=0)) if moved else out
