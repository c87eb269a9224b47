"""Communicators of a rank: from pg_config and from what collectives' arguments say of groups."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import pyarrow as pa

from .. import classify
from ..schema import TABLES
from .header import MAX_MEMBERS, Group, as_size, parse_rank_list, rebuild_ranks
from .problems import Tally


class Comm(NamedTuple):
    """A communicator: identity, and its members in order (None where not all are known)."""

    comm: str
    name: str
    description: str | None
    ranks: tuple[int, ...] | None
    size: int | None
    backend: str | None


def identity(name: str, ranks: tuple[int, ...] | None, size: int | None) -> str:
    """`<name>@<8 hex of the sorted members>`: names repeat, so members are always part of it.

    Without members `<name>@size<N>`, without a size `<name>@unknown`.
    """
    if ranks is not None:
        text = ",".join(map(str, sorted(ranks)))
        return f"{name}@{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return f"{name}@size{size}" if size else f"{name}@unknown"


class Comms:
    """The communicators met in one trace; asked by what the arguments of a collective say."""

    def __init__(self, listed: list[Group], world_size: int | None, tally: Tally):
        self._tally = tally
        self._world = world_size
        self._listed: dict[str, list[Group]] = {}
        self._known: dict[str, Comm] = {}
        self._asked: dict[tuple, Comm | None] = {}
        for g in listed:
            self._listed.setdefault(g.name, []).append(g)
            self._remember(g.name, g.description, g.ranks, g.size, g.backend)

    def _remember(
        self,
        name: str,
        description: str | None,
        ranks: tuple[int, ...] | None,
        size: int | None,
        backend: str | None,
    ) -> Comm:
        new = Comm(identity(name, ranks, size), name, description, ranks, size, backend)
        old = self._known.get(new.comm)
        if old is not None:
            new = old._replace(
                description=old.description or description, backend=old.backend or backend
            )
        self._known[new.comm] = new
        return new

    def of_backend(self, backend: str) -> tuple[Comm | None, tuple[int, ...] | None]:
        """The communicator of a backend if it has one only, and the members that all of them have.

        A communicator would be a guess where several share a backend, even with the same members:
        what a group is for is not who is in it.
        """
        fitting = [c for c in self._known.values() if backend in (c.backend or "").split("+")]
        members = {c.ranks for c in fitting}
        return (
            fitting[0] if len(fitting) == 1 else None,
            members.pop() if len(members) == 1 else None,
        )

    def of(
        self,
        name: str | None,
        description: str | None,
        ranks_text: str | None,
        size: int | None,
        start: int | None,
        stride: int | None,
    ) -> Comm | None:
        """The communicator that a collective's arguments mean; None where they name none.

        Members come from the list in the arguments if it is whole; else from the entry of that
        name and size in pg_config; else from start and stride, or an evenly spaced list that was
        cut; else they stay unknown.
        """
        if name is None and not ranks_text:
            return None
        key = (name, description, ranks_text, size, start, stride)
        if key not in self._asked:
            self._asked[key] = self._find(*key)
        return self._asked[key]

    def _find(
        self,
        name: str | None,
        description: str | None,
        ranks_text: str | None,
        size: int | None,
        start: int | None,
        stride: int | None,
    ) -> Comm:
        size = as_size(size)
        shown, whole = parse_rank_list(ranks_text) if ranks_text else ((), False)
        if ranks_text and not shown and not whole:
            self._tally.add("bad_member_list")
        ranks = shown if whole and shown and (size is None or len(shown) == size) else None
        entries = self._listed.get(name or "", [])
        fitting = [e for e in entries if size is None or e.size in (None, size)]
        if entries and not fitting:
            self._tally.add("group_mismatch")
        backend = fitting[0].backend if fitting else None
        if ranks is None:
            listed = [
                e.ranks for e in fitting if e.ranks is not None and _agrees(e.ranks, shown, whole)
            ]
            ranks = listed[0] if len(set(listed)) == 1 else None
        if ranks is None and not whole:
            ranks = rebuild_ranks(shown, size, start, stride)
        if ranks is None and size and size == self._world and size <= MAX_MEMBERS:
            ranks = tuple(range(size))
        if ranks is None:
            self._tally.add("members_unknown")
        size = len(ranks) if ranks is not None else size
        return self._remember(name or "", description, ranks, size, backend)

    def batch(self) -> pa.RecordBatch | None:
        """Rows of `comms`; None where there are none."""
        rows = list(self._known.values())
        if not rows:
            return None
        dims = [
            classify.dim_of_description(c.description) or classify.dim_of_description(c.name)
            for c in rows
        ]
        return TABLES["comms"].batch(
            {
                "comm": [c.comm for c in rows],
                "name": [c.name for c in rows],
                "description": [c.description for c in rows],
                "ranks": pa.array([c.ranks for c in rows], pa.list_(pa.int32())),
                "size": [c.size for c in rows],
                "dim": [d or "unknown" for d in dims],
                "dim_source": ["description" if d else "none" for d in dims],
                "backend": [c.backend for c in rows],
            }
        )


def _agrees(ranks: tuple[int, ...], shown: tuple[int, ...], whole: bool) -> bool:
    """A cut list's visible members do not contradict the full one."""
    if whole or not shown:
        return True
    return ranks[: len(shown) - 1] == shown[:-1] and ranks[-1] == shown[-1]
