"""Copies of experts by step and layer, planned from the counts that were known by then."""

from __future__ import annotations

import math

import numpy as np

from ..policy import BadParam
from . import eplb


class Plans:
    """Copies by (step, layer) for the members of one communicator; made when first asked for."""

    def __init__(self, routing, one, budget: int | None, when: str, window: int, groups: int):
        self.routing, self.members = routing, one.demand.members
        n, experts = len(self.members), routing.experts
        self.host = np.zeros(n, np.int64) if one.where is None else one.where.host
        self.when, self.window, self.groups = when, window, groups
        self.held = routing.holders(self.members)
        self.budget = n - experts % n if budget is None else budget
        if budget is not None and budget > experts * n:
            raise BadParam(
                f"policy replicate-experts: budget={budget}: {experts} experts on {n} ranks have "
                f"use for {experts * n} copies at most"
            )
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
        if self.when == "runtime":
            return self._once((step, layer), (step,), self.held)
        now = None
        for window in range(1, self._window(step) + 1):
            seen = self.routing.steps[(window - 1) * self.window : window * self.window]
            found = self._once((window, layer), seen, self.held if now is None else now)
            now = now if found is None else found
        return now

    def _window(self, step: int) -> int:
        return self.routing.steps.index(step) // self.window

    def _once(self, key: tuple[int, int], seen: tuple[int, ...], had: np.ndarray):
        if key not in self.made:
            self.made[key] = self._plan(seen, key[1], had)
        return self.made[key]

    def _plan(self, seen: tuple[int, ...], layer: int, had: np.ndarray) -> np.ndarray | None:
        counts = [self.routing.counts(s, layer, self.members) for s in seen]
        load = np.sum(counts, axis=(0, 1))
        if not load.sum() > 0:
            return None
        n = len(self.members)
        if self.when == "runtime":
            copies = eplb.added(load, had, max(1, self.budget // n))
            return copies / copies.sum(axis=1, keepdims=True)
        hosts = len(np.unique(self.host))
        slots = eplb.plan(
            load[None], self.routing.experts + self.budget, gpus=n, groups=self.groups, nodes=hosts
        )[0]  # fmt: skip
        by_host = np.argsort(self.host, kind="stable")
        part = np.empty((self.routing.experts, n))
        part[:, by_host] = eplb.spread(slots, n, self.routing.experts)
        alike = self.host if self.groups % hosts == 0 else np.zeros(n, np.int64)
        return eplb.settled(part, had, alike)

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
        """Experts that the busiest member fetches for its plan: against what it had before."""
        now = self(step, layer)
        if now is None or self.held is None:
            return 0.0
        had = None
        if self.when == "ingest":
            had = self.made.get((self._window(step) - 1, layer))
        had = self.held if had is None else had
        return float(((now > 0) & ~(had > 0)).sum(axis=0).max())
