"""Copies of experts by step and layer, planned from the counts that were known by then."""

from __future__ import annotations

import math

import numpy as np

from ..policy import BadParam
from . import eplb


class Plans:
    """Copies by (step, layer) for the members of one communicator; made when first asked for."""

    def __init__(self, routing, one, budget: int | None, when: str, window: int, groups: int):
        self.routing, self.members, self.hosts = routing, one.demand.members, max(one.hosts, 1)
        self.when, self.window, self.groups = when, window, groups
        self.held = routing.holders(self.members)
        n, experts = len(self.members), routing.experts
        self.budget = n - experts % n if budget is None else budget
        if (experts + self.budget) % n:
            fits = math.ceil((experts + self.budget) / n) * n - experts
            raise BadParam(
                f"policy replicate-experts: {experts} experts and {self.budget} copies do not "
                f"divide over {n} ranks; take budget={fits}"
            )
        self.made: dict[tuple[int, int], np.ndarray | None] = {}

    def __call__(self, step: int, layer: int) -> np.ndarray | None:
        """The part of each expert that each member holds; None where there is no plan (yet)."""
        if self.held is None:
            return None
        first, seen = self._window(step)
        key = (first, layer)
        if key not in self.made:
            self.made[key] = self._plan(seen, layer)
        return self.made[key]

    def _window(self, step: int) -> tuple[int, tuple[int, ...]]:
        """What names the window of a step, and the steps that its plan is made from."""
        steps = self.routing.steps
        if self.when == "runtime":
            return step, (step,)
        at = steps.index(step) // self.window
        return at, steps[max(0, at - 1) * self.window : at * self.window]

    def _plan(self, seen: tuple[int, ...], layer: int) -> np.ndarray | None:
        counts = [self.routing.counts(s, layer, self.members) for s in seen]
        load = np.sum(counts, axis=(0, 1)) if counts else np.zeros(self.routing.experts)
        if not load.sum() > 0:
            return None
        n = len(self.members)
        if self.when == "runtime":
            assert self.held is not None
            copies = eplb.added(load, self.held, max(1, self.budget // n))
            return copies / copies.sum(axis=1, keepdims=True)
        slots = eplb.plan(
            load[None], self.routing.experts + self.budget, gpus=n, groups=self.groups,
            nodes=self.hosts,
        )  # fmt: skip
        return eplb.spread(slots[0], n, self.routing.experts)

    def loads(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Choices that each member's experts take in a step of the job: as held, and as planned."""
        steps = (step,) if step in self.routing.steps else self.routing.steps
        was, now = np.zeros(len(self.members)), np.zeros(len(self.members))
        if self.held is None:
            return was, now
        for s in steps:
            for layer in self.routing.layers_of(self.members):
                place = self(s, layer)
                load = self.routing.counts(s, layer, self.members).sum(axis=0)
                was += load @ self.held
                now += load @ (self.held if place is None else place)
        return was, now

    def received(self, step: int, layer: int) -> float:
        """Experts that the busiest member fetches in a step: against what it holds, or held."""
        now = self(step, layer)
        if now is None:
            return 0.0
        assert self.held is not None
        had = self.held
        if self.when == "ingest":
            at = self.routing.steps.index(step)
            if at % self.window:
                return 0.0
            earlier = self(self.routing.steps[at - 1], layer) if at else None
            had = self.held if earlier is None else earlier
        return float(((now > 0) & ~(had > 0)).sum(axis=0).max())
