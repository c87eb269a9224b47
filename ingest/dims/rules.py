"""What the operations of a communicator say of its dimension: one rule a dimension.

Each rule takes the communicator's members and profile and gives a Finding or None. A Finding
without a dimension names those that it might be. The marks:

* pp: sends and receives only, between neighbours, both ways (activations go, gradients come), or
  one way over a whole chain (inference); a ring that goes round one way is cp (ring attention).
* ep: all-to-alls of unequal parts that are others each time, as routed tokens are. Equal parts may
  be capacity-padded experts, Ulysses (cp) or sharded tables.
* tp: neighbours in one host that add up activations: many all-reduces of one size in each step,
  from its beginning on.
* dp: all-reduces of at least 2^18 elements that only come after the forward pass, in groups that
  cover all ranks.
* fsdp: gathers of several sizes, each reduced and scattered again, more gathers than reductions
  (parameters are gathered for the backward pass too), across hosts or with a stride; or any such
  group whose shards a group across it then adds up (which is dp).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .layout import stride_of
from .profile import P2P, Profile

MOST = 0.9
"""Share of the operations that a rule must account for."""
MANY_A_STEP = 16
"""Operations a step from which on they are of layers, not of the step."""
FORWARD = 0.3
"""Part of a step that is forward pass in any case: gradients do not exist before."""
GRADIENT_ELEMENTS = 1 << 18
"""Gradient buckets have at least so many elements in the main (1 MiB of float32)."""


class Group(NamedTuple):
    """What is known of a communicator: its members in rising order, hosts, use."""

    members: tuple[int, ...] | None
    size: int
    n_hosts: int | None
    """machines of the members; None where the machine of one is not known"""
    profile: Profile | None

    @property
    def close(self) -> bool:
        """Consecutive ranks of one host."""
        return self.n_hosts == 1 and self.members is not None and stride_of(self.members) == 1


class Finding(NamedTuple):
    """A dimension and why; without one, those that it might be."""

    dim: str | None
    why: str


def by_operations(group: Group) -> Finding | None:
    """What one communicator's own operations say; None where they say nothing."""
    p = group.profile
    if p is None or group.size < 2:
        return None
    return _pipeline(group, p) or _experts(p) or _tensor(group, p) or _sharded(group, p)


def chain(edges: frozenset[tuple[int, int]], members: Sequence[int]) -> Finding | None:
    """What sends and receives between these ranks (in order of the pipeline) say."""
    place = {r: i for i, r in enumerate(members)}
    n = len(members)
    hops = {(place[a], place[b]) for a, b in edges if a in place and b in place}
    if not hops or len(hops) < len(edges):
        return None
    wraps = {h for h in hops if n > 2 and abs(h[0] - h[1]) == n - 1}
    if any(abs(a - b) != 1 for a, b in hops - wraps):
        return None
    two_way = any((b, a) in hops for a, b in hops)
    if n > 2 and two_way:
        return Finding("pp", "sends to neighbours and back")
    forth = {(i, i + 1) for i in range(n - 1)}
    if not two_way and wraps and len(hops) == n:
        return Finding("cp", "a ring of sends that goes round one way")
    if not two_way and not wraps and hops in (forth, {(b, a) for a, b in forth}):
        return Finding("pp", "sends one way, from the first to the last")
    return Finding(None, "pp or cp: sends between neighbours")


def _pipeline(group: Group, p: Profile) -> Finding | None:
    if set(p.calls) - set(P2P) or sum(p.calls.values()) < 2:
        return None
    if group.members is None or not p.edges:
        return Finding(None, "pp or cp: sends and receives only")
    return chain(p.edges, group.members)


def _experts(p: Profile) -> Finding | None:
    if p.large.get("all_to_all", 0) < MOST * sum(p.large.values()) or not p.large:
        return None
    if p.uneven:
        return Finding("ep", "all-to-alls of unequal parts, others each time")
    return Finding(None, "ep or cp: all-to-alls of equal parts")


def _tensor(group: Group, p: Profile) -> Finding | None:
    """Many all-reduces of one size in each step, also in its first part."""
    n = p.large.get("all_reduce", 0)
    if n < MOST * sum(p.large.values()) or not n or not group.close:
        return None
    at = p.places.get("all_reduce", np.empty(0))
    usual = max(p.sizes["all_reduce"].values())
    if n < MANY_A_STEP or usual < 0.8 * n:
        return None
    if not p.steps:
        return Finding(
            None, "tp or dp: all-reduces of one size in one host, no steps to place them"
        )
    early = np.count_nonzero(at < FORWARD)
    if p.a_step >= MANY_A_STEP and early >= 0.1 * n:
        a_step = round(p.a_step)
        return Finding(
            "tp", f"{a_step} all-reduces a step of one size, all through it, in one host"
        )
    return None


def late_sums(p: Profile | None) -> bool:
    """Whether all it does in bulk is to add up gradients: large sums, none in the forward pass."""
    if p is None or not p.steps or p.large.get("all_reduce", 0) < MOST * sum(p.large.values()):
        return False
    at = p.places.get("all_reduce", np.empty(0))
    sizes = p.sizes.get("all_reduce", {})
    gradients = sum(n for size, n in sizes.items() if size >= GRADIENT_ELEMENTS)
    return len(at) > 0 and bool(at.min() >= FORWARD) and 2 * gradients >= sum(sizes.values())


def _sharded(group: Group, p: Profile) -> Finding | None:
    n_gather, n_scatter = p.large.get("all_gather", 0), p.large.get("reduce_scatter", 0)
    if not n_gather or not n_scatter or n_gather + n_scatter < MOST * sum(p.large.values()):
        return None
    gathered, scattered = set(p.sizes["all_gather"]), set(p.sizes["reduce_scatter"])
    several = len(scattered) > 1 and scattered <= gathered
    if group.close or group.members is None or group.n_hosts is None:
        return Finding(None, "fsdp or tp: gathers and reduce-scatters")
    if several and 2 * n_gather >= 3 * n_scatter:
        return Finding("fsdp", "gathers of several sizes, again for the backward pass")
    return Finding(None, "fsdp, dp or cp: gathers and reduce-scatters")


def sums_shards(shards: Profile | None, sums: Profile | None) -> bool:
    """Whether what one communicator scatters is what another, across it, then adds up.

    That is sharded data parallelism within replicas: the first is fsdp, the second dp.
    """
    if shards is None or sums is None:
        return False
    made = shards.shards.get("reduce_scatter", frozenset())
    n = shards.large.get("reduce_scatter", 0)
    same = made == frozenset(sums.sizes.get("all_reduce", {})) and len(made) > 1
    return same and n == sums.large.get("all_reduce", 0) and "all_gather" in shards.large
