"""How the members of a communicator lie in the world: stride, hosts, place in a mesh of degrees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

DIMS = ("dp", "tp", "pp", "ep", "cp", "fsdp")
"""Dimensions that a mesh may have; a communicator may also be `world` or `unknown`."""

_MOST_SHOWN = 8


def stride_of(members: Sequence[int]) -> int | None:
    """Distance of neighbours in members in rising order; None where it varies or there is one."""
    if len(members) < 2:
        return None
    step = members[1] - members[0]
    even = all(b - a == step for a, b in pairwise(members))
    return step if even and step > 0 else None


def form(members: Sequence[int] | None) -> str | None:
    """Members in rising order as text: `0-7`, `0-60/4` (every fourth), `0,1,4,5`; None unknown."""
    if members is None:
        return None
    stride = stride_of(members)
    if stride is None or len(members) < 3 < stride:
        shown = ",".join(map(str, members[:_MOST_SHOWN]))
        return shown + (",..." if len(members) > _MOST_SHOWN else "")
    return f"{members[0]}-{members[-1]}" + (f"/{stride}" if stride > 1 else "")


def in_mesh(members: Sequence[int], degrees: Mapping[str, int]) -> list[str]:
    """Dimensions of the mesh along which exactly these ranks (in rising order) lie.

    `degrees` go from the fastest-varying dimension to the slowest: rank = sum of coordinate times
    the product of the degrees before. More than one only for a group of one rank.
    """
    found = []
    stride = 1
    world = math.prod(degrees.values())
    for dim, n in degrees.items():
        fits = len(members) == n and members[0] >= 0 and members[-1] < world
        if fits and members[0] // stride % n == 0 and (n == 1 or stride_of(members) == stride):
            found.append(dim)
        stride *= n
    return found


def partitions(groups: Sequence[Sequence[int]], ranks: Sequence[int]) -> bool:
    """Whether no rank is in two of the groups, and each of `ranks` is in one."""
    seen: set[int] = set()
    for members in groups:
        if not seen.isdisjoint(members):
            return False
        seen.update(members)
    return seen.issuperset(ranks)
