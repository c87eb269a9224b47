"""Process groups that an execution trace names, as the communicators that Kineto's would be."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

from ..classify import dim_of_description
from ..kineto.comms import Comm, Comms, identity
from ..kineto.header import MAX_MEMBERS, Group, backend_of, parse_rank_list
from ..kineto.problems import Tally
from ..values import as_int, as_size

if TYPE_CHECKING:
    from ..collect import Collector

INIT = "## process_group:init ##"
MAX_NAME = 1000

MAX_ALL_MEMBERS = 8 << 20
"""Members of all groups together that are written out; further groups have a size only."""

MAX_WORK = 4 << 20
"""Groups and members gone through again as listings come; after that no more are listed."""


@lru_cache(maxsize=8)
def _first(n: int) -> tuple[int, ...]:
    return tuple(range(n))


class Groups:
    """The groups listed by `## process_group:init ##` nodes, and those that calls name.

    `world` is the size of the group of all ranks, where one is listed.
    """

    def __init__(self) -> None:
        self._listed: dict[Group, None] = {}
        self._by_id: dict[int, str] = {}
        self._tally = Tally()
        self._comms: Comms | None = None
        self._seen: dict[str, Comm] = {}
        self._asked: dict[tuple, Comm | None] = {}
        self._room = MAX_ALL_MEMBERS
        self._work = MAX_WORK
        self.world: int | None = None

    def learn(self, text: str) -> bool:
        """Adds the groups of one init node's JSON text; False where it cannot be read.

        A list of members that is empty means all ranks.
        """
        try:
            config = json.loads(text)
        except (ValueError, RecursionError):
            return False
        if not isinstance(config, list):
            return False
        for entry in config:
            if isinstance(entry, dict):
                self.add(entry)
        return True

    def add(self, entry: dict) -> None:
        """Adds one group: `pg_name`, `pg_desc`, `ranks`, `group_size`, `backend_config`."""
        if not isinstance(entry.get("pg_name"), str | int) or self._work < 0:
            return
        name = str(entry["pg_name"])[:MAX_NAME]
        size = as_size(entry.get("group_size"))
        ranks, whole = parse_rank_list(entry.get("ranks"))
        members: tuple[int, ...] | None = None
        if whole and ranks and size in (None, len(ranks)):
            members = ranks
        elif whole and not ranks and size and size <= MAX_MEMBERS:
            members = _first(size) if self._may(size) else None
            self.world = max(size, self.world or 0)
        description = entry.get("pg_desc")
        group = Group(
            name,
            description if isinstance(description, str) else None,
            members,
            size or (len(members) if members else None),
            backend_of(entry.get("backend_config")),
        )
        if group not in self._listed:
            self._listed[group] = None
            self._comms = None
            self._asked = {}
        # Before 2.4 calls name a group by the number of its back end.
        for key in ("backend_id", "uid"):
            number = as_int(entry.get(key))
            if number is not None:
                self._by_id[number] = name

    def _now(self) -> Comms:
        if self._comms is None:
            self._comms = Comms(list(self._listed), self.world, self._tally)
            self._work -= sum(1 + len(g.ranks or ()) for g in self._listed)
        return self._comms

    def of(
        self,
        name: str | None,
        description: str | None,
        size: int | None,
        start: int | None = None,
        stride: int | None = None,
        number: int | None = None,
    ) -> Comm | None:
        """The communicator that a call means; None where it names none that is known by name."""
        if name is None and number is not None:
            name = self._by_id.get(number)
        if not name:
            return None
        key = (name[:MAX_NAME], description, size, start, stride)
        if key not in self._asked:
            self._asked[key] = self._find(*key)
        comm = self._asked[key]
        if comm is not None:
            self._seen[comm.comm] = comm
        return comm

    def _find(
        self,
        name: str,
        description: str | None,
        size: int | None,
        start: int | None,
        stride: int | None,
    ) -> Comm | None:
        if self._may(size or 0):
            return self._now().of(name, description, None, size, start, stride)
        self._tally.add("members_unknown")
        return Comm(identity(name, None, size), name, description, None, size, None)

    def _may(self, size: int) -> bool:
        """Whether a group of this size may still be written out."""
        self._room -= max(size, 0)
        return self._room >= 0

    def only(self) -> Comm | None:
        """The communicator where the trace lists a single one."""
        if len(self._listed) != 1:
            return None
        group = next(iter(self._listed))
        return self.of(group.name, group.description, group.size)

    def shared(self) -> tuple[int, ...] | None:
        """The members that all listed groups have; None where they differ or are not known."""
        members = {g.ranks for g in self._listed}
        return members.pop() if len(members) == 1 else None

    def all(self) -> list[Comm]:
        """Every communicator, listed or named by a call."""
        for group in self._listed:
            self.of(group.name, group.description, group.size)
        return list(self._seen.values())

    def add_rows(self, c: Collector, rank: int, pid: int | None) -> None:
        """Adds a row of `comms` for each communicator, what was odd, and the row of `ranks`."""
        for comm in self.all():
            dim = dim_of_description(comm.description) or dim_of_description(comm.name)
            c.add(
                "comms",
                comm=comm.comm,
                name=comm.name,
                description=comm.description,
                ranks=None if comm.ranks is None else list(comm.ranks),
                size=comm.size,
                dim=dim or "unknown",
                dim_source="description" if dim else "none",
                backend=comm.backend,
            )
        for p in self._tally.problems():
            c.odd(p.code, p.message, p.severity, offset=p.offset, count=p.count)
        c.add(
            "ranks",
            rank=rank,
            host_source="unknown",
            world_size=self.world,
            clock="none",
            pid=pid,
            source=c.source.name,
        )
