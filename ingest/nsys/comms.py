"""The communicators of a report: what its payloads tell of their size, members and places."""

from __future__ import annotations

from typing import NamedTuple

from ..collect import Collector
from ..matching.communicators import UNNAMED
from ..nccl.comm_places import comm_of_hash
from .callranges import Calls

WORLD = f"{UNNAMED}/nsys all ranks"
"""Communicator of operations that all ranks take part in where no payload names one: on trial,
until order and time have matched it on all ranks."""

MOST_MEMBERS = 1 << 16


class Comm(NamedTuple):
    """A communicator: its size and members where they are known."""

    size: int | None
    members: tuple[int, ...] | None


class Comms:
    """The communicators that payloads tell of, and rows of `comms`."""

    def __init__(self, calls: Calls, rank_of: dict[int, int], from_payload: bool):
        self._places: dict[int, dict[int, int]] = {}
        self._size: dict[int, int] = {}
        self._known: dict[int, Comm] = {}
        for key, number, size, place in calls.joins():
            comm = number & (2**64 - 1)
            self._size.setdefault(comm, size)
            rank = rank_of.get(key)
            if rank is not None:
                self._places.setdefault(comm, {})[place] = rank
        # Ranks that come from the largest communicator are its places by definition.
        self._whole = max(self._size.values(), default=0) if from_payload else -1

    @property
    def largest(self) -> int | None:
        """Size of the largest communicator."""
        return max(self._size.values(), default=None)

    def of(self, number: int | None) -> Comm:
        """What is known of a communicator."""
        if number is None:
            return Comm(None, None)
        number &= 2**64 - 1
        if number not in self._known:
            size, places = self._size.get(number), self._places.get(number, {})
            members = None
            if size is not None and len(places) == size:
                members = tuple(places[p] for p in sorted(places))
            elif (
                size is not None
                and size == self._whole
                and size <= MOST_MEMBERS
                and all(p == r for p, r in places.items())
            ):
                members = tuple(range(size))
            self._known[number] = Comm(size, members)
        return self._known[number]

    def is_root(self, number: int | None, rank: int, root: int | None) -> bool | None:
        """Whether a rank has the place that a call names as its root; None where that is open."""
        if number is None or root is None:
            return None
        at_root = self._places.get(number & (2**64 - 1), {}).get(root)
        if at_root is not None:
            return at_root == rank
        members = self.of(number).members
        if members is not None:
            return members[root] == rank if 0 <= root < len(members) else None
        places = self._places.get(number & (2**64 - 1), {})
        return False if rank in places.values() else None

    def rows(self, c: Collector, used: set[int]) -> None:
        """A row for each communicator and rank that tells its place; one for those without."""
        for number in sorted(set(self._size) | used):
            known = self.of(number)
            places = self._places.get(number) or {None: None}
            for place, rank in sorted(places.items(), key=lambda p: (p[0] is None, p[0])):
                c.add(
                    "comms",
                    comm=comm_of_hash(number),
                    ranks=list(known.members) if known.members else None,
                    size=known.size,
                    dim="unknown",
                    dim_source="none",
                    backend="nccl",
                    member=rank,
                    member_place=place,
                )
