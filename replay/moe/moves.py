"""A new host and rank for each expert of each layer, made from some steps and judged by others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..policy import BadParam
from . import placing
from .exchange import Exchange
from .groups import hit_probability
from .routed import Routing


class Moves:
    """Placements by layer for the members of one communicator.

    `why` says in one sentence why nothing can move; empty where it can. `copies_before` and
    `copies_now` are choices that cross hosts in the steps held out, all layers; with `top_k`
    choices a token, copies of tokens that do, sent once to each host. `moved` is how many experts
    have another rank.
    """

    def __init__(
        self, routing: Routing, one: Exchange, seen: Sequence[int], held_out: Sequence[int],
        top_k: int = 0,
    ):  # fmt: skip
        self.routing, self.members, self.why = routing, one.demand.members, ""
        self.held_out, self.top_k = tuple(held_out), top_k
        self.copies_before = self.copies_now = 0.0
        self.moved = 0
        self.placed: dict[int, np.ndarray] = {}
        self.held = routing.holders(self.members)
        if one.where is None:
            self.why = "hosts of ranks are not known: record host names, or give local=GPUs a host"
        elif one.where.hosts < 2:
            self.why = "experts of one host have no other to move to: left as measured"
        elif self.held is None or not np.isin(self.held, (0.0, 1.0)).all():
            self.why = "the log says no one rank for each expert: left as measured"
        if self.why:
            return
        assert one.where is not None
        wanted = 0
        for layer in routing.layers_of(self.members):
            wanted += self._layer(layer, one.where.host, one.where.hosts, seen)
        if not wanted:
            self.why = (
                "no rank's tokens prefer an expert of another host (a log that sums over ranks "
                "cannot tell): record the routing by source rank"
            )

    def _layer(self, layer: int, host: np.ndarray, hosts: int, seen: Sequence[int]) -> int:
        """Places one layer's experts; how many copies the steps seen would save."""
        assert self.held is not None
        holder = self.held.argmax(axis=1)
        now = host[holder]
        home = self._wanted(layer, host, hosts, seen)
        later = self._wanted(layer, host, hosts, self.held_out)
        expert = np.arange(len(now))
        none = np.zeros((len(now), len(now)))
        found = placing.place(now, hosts, none, home)
        best = max(found, key=lambda to: float(home[expert, to].sum()))
        crossing, after = (self._crossing(later, to) for to in (now, best))
        saved = int(home[expert, best].sum() - home[expert, now].sum())
        self.copies_before += crossing
        if saved <= 0 or after >= crossing:
            self.copies_now += crossing
            return max(saved, 0)
        self.copies_now += after
        load = home.sum(axis=1)
        to = holder.copy()
        for h in range(hosts):
            to[best == h] = self._within(np.flatnonzero(best == h), load, holder, host == h)
        self.placed[layer] = np.eye(len(self.members))[to]
        self.moved += int((to != holder).sum())
        return saved

    def _wanted(self, layer: int, host: np.ndarray, hosts: int, steps: Sequence[int]) -> np.ndarray:
        """Choices float64 [e, h] of each expert by the tokens of each host."""
        counts = sum(self.routing.counts(s, layer, self.members) for s in steps)
        out = np.zeros((hosts, self.routing.experts))
        np.add.at(out, host, counts)
        return out.T

    def _crossing(self, wanted: np.ndarray, host_of: np.ndarray) -> float:
        """What crosses hosts with experts on `host_of` [e]: choices, or copies of tokens."""
        if not self.top_k:
            return float(wanted.sum() - wanted[np.arange(len(host_of)), host_of].sum())
        out = 0.0
        for home, choices in enumerate(wanted.T):
            tokens = choices.sum() / self.top_k
            if choices.max(initial=0.0) > tokens * (1 + 1e-9):
                raise BadParam(
                    f"policy place-experts: top_k={self.top_k}: one expert has "
                    f"{choices.max() / choices.sum():.3g} of a host's choices, and no token "
                    f"chooses one twice: at most {int(choices.sum() / choices.max())}"
                )
            if tokens > 0:
                share = np.minimum(choices / tokens, 1.0)
                hit = hit_probability(share, self.top_k, host_of, wanted.shape[1])
                out += tokens * float(hit.sum() - hit[home])
        return out

    def _within(
        self, experts: np.ndarray, load: np.ndarray, holder: np.ndarray, here: np.ndarray
    ) -> np.ndarray:
        """The rank of each of a host's experts: those that were there stay, the rest fill up.

        A newcomer goes, by falling load, to the rank that is loaded least of those with room.
        """
        ranks = np.flatnonzero(here)
        room = np.array([(holder == r).sum() for r in ranks])
        total = np.zeros(len(ranks))
        to = np.where(np.isin(holder[experts], ranks), holder[experts], -1)
        for i, r in enumerate(ranks):
            room[i] -= (to == r).sum()
            total[i] = load[experts[to == r]].sum()
        for e in sorted(np.flatnonzero(to < 0), key=lambda e: -load[experts[e]]):
            i = int(np.argmin(np.where(room > 0, total, np.inf)))
            to[e] = ranks[i]
            room[i] -= 1
            total[i] += load[experts[e]]
        return to

    def __call__(self, step: int, layer: int) -> np.ndarray | None:
        """The part of each expert that each member holds, float64 [e, n]; None: as it was."""
        return self.placed.get(layer)

    def received(self, layer: int) -> float:
        """Experts that the busiest member fetches."""
        place = self.placed.get(layer)
        if place is None or self.held is None:
            return 0.0
        return float(((place > 0) & ~(self.held > 0)).sum(axis=0).max())

    def loads(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Choices that each member's experts take in a step of the job: before, and after."""
        assert self.held is not None
        was, now = np.zeros(len(self.members)), np.zeros(len(self.members))
        numbered = step in self.routing.steps
        for s in (step,) if numbered else self.held_out:
            if s not in self.held_out:
                continue
            for layer in self.routing.layers_of(self.members):
                load = self.routing.counts(s, layer, self.members).sum(axis=0)
                was += load @ self.held
                now += load @ self.placed.get(layer, self.held)
        return was, now
