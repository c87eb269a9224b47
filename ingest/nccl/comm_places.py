"""Which global rank a process has that knows its rank in communicators only, and their names."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..classify import buffers as buffers
from ..classify import dim_of_description
from ..errors import UsageError
from ..schema import MAX_RANK

if TYPE_CHECKING:
    from ..collect import Collector

_MAX_PLACES = 100_000


def comm_of_hash(value: int) -> str:
    """A communicator's name from its 64-bit hash, which may come signed."""
    return f"nccl-{value & ((1 << 64) - 1):016x}"


@lru_cache(maxsize=4096)
def comm_of_cut_hex(text: str) -> str | None:
    """A communicator's name from Inspector's id: `0x` and at most the first 14 hex digits.

    With fewer digits the hash is whole; with 14 it may go on (`nccl-<14 digits>*`). None where
    the text is no such id.
    """
    digits = text[2:].lower() if text[:2] in ("0x", "0X") else ""
    if not digits or len(digits) > 16 or any(d not in "0123456789abcdef" for d in digits):
        return None
    if len(digits) == 14:
        return f"nccl-{digits}*"
    return f"nccl-{digits:0>16}"


class Place(NamedTuple):
    """A rank's place in a communicator, as its process says."""

    comm: str
    rank: int
    size: int | None
    name: str | None


class Places:
    """The communicators of one process; after `settle`, the global ranks.

    A process's global rank is its rank in its largest communicator. A process that drives several
    devices has several ranks there: what it does in smaller ones belongs to no one then.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[str, int], Place] = {}
        self._largest: int | None = None
        self._rank: int | None = None
        self._several = False
        self._foreign = False

    def add(self, comm: str, rank: int, size: int | None, name: str | None = None) -> None:
        """Notes a place; a rank or a size that cannot be is passed over."""
        if not 0 <= rank <= MAX_RANK or (size is not None and not 0 < size <= MAX_RANK + 1):
            return
        old = self.known.get((comm, rank))
        if old is None and len(self.known) < _MAX_PLACES:
            self.known[comm, rank] = Place(comm, rank, size, name)
        elif old is not None and (old.size is None or (name and not old.name)):
            self.known[comm, rank] = Place(comm, rank, old.size or size, old.name or name)

    def settle(self, given: int | None, where: str, collector: Collector) -> None:
        """Decides the ranks. Raises UsageError where one is `given` to a process of several."""
        places = list(self.known.values())
        self._largest = max((p.size or 0 for p in places), default=0)
        world = [p for p in places if (p.size or 0) == self._largest]
        if not world:
            self._rank = given
            return
        first = [p for p in world if p.comm == world[0].comm]
        self._several = len(first) > 1
        if given is not None:
            if self._several:
                raise UsageError(f"{where}: holds several ranks of one communicator; drop --rank")
            self._foreign = given != first[0].rank
            self._rank = given
            return
        self._rank = None if self._several else first[0].rank
        size = f"of {self._largest} ranks" if self._largest else "it is most in"
        collector.odd(
            "rank_from_communicator",
            f"the global rank is the one in the largest communicator ({size}); where the job is "
            "larger than that, give --rank",
            "info",
            rank=self._rank,
        )
        if not self._several and len({p.rank for p in world}) > 1:
            collector.odd(
                "rank_ambiguous",
                "communicators of the largest size give different ranks; the first one's is taken "
                "(--rank sets it)",
                rank=self._rank,
            )

    @property
    def largest(self) -> int:
        """Ranks of the process's largest communicator, 0 where none has a size."""
        return self._largest or 0

    def rank_of(self, comm: str, rank: int) -> int | None:
        """The global rank of what a rank of a communicator did; None where nobody knows."""
        if not self._several:
            return self._rank
        place = self.known.get((comm, rank))
        return rank if place is not None and (place.size or 0) == self._largest else None

    def peer_of(self, comm: str, rank: int, peer: int | None) -> int | None:
        """The global rank of a communicator's member; None but in the largest communicators."""
        place = self.known.get((comm, rank))
        if self._foreign or place is None or (place.size or 0) != self._largest or peer is None:
            return None
        if not self._several and place.rank != self._rank:
            return None
        return peer if 0 <= peer < (self._largest or MAX_RANK) else None

    def write(self, collector: Collector, *, sizes_are_guesses: bool = False) -> list[int]:
        """Adds the rows of `comms`; returns the global ranks in order.

        Sizes that were only the lowest that they can be are not written.
        """
        ranks: set[int] = set()
        for place in self.known.values():
            rank = self.rank_of(place.comm, place.rank)
            if rank is not None:
                ranks.add(rank)
            # PyTorch names them description:uid.
            description = place.name.rsplit(":", 1)[0] if place.name else None
            dim = dim_of_description(description)
            collector.add(
                "comms",
                comm=place.comm,
                name=place.name,
                description=description,
                size=None if sizes_are_guesses else place.size,
                dim=dim or "unknown",
                dim_source="description" if dim else "none",
                backend="nccl",
                member=rank,
                member_place=place.rank,
            )
        return sorted(ranks)
