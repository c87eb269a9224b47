"""Who is who in an NCCL debug log: communicators by name over processes, and global ranks."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import UsageError
from ..schema import MAX_RANK
from . import debug_log_state as of
from .debug_log_comms import NULL
from .debug_log_names import name_comms
from .debug_log_survey import signed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..collect import Collector
    from .debug_log_survey import Process, Survey

_U64 = (1 << 64) - 1
_MOST_MEMBERS = 1 << 17


class Members:
    """The communicators over all processes: arrays by code of the name, as `Comms.names` has them.

    Of a name the places whose global ranks are told are `place[ends[k]:ends[k + 1]]`, rising, with
    those ranks in `rank`; with `is_world` the ranks are the places.
    """

    def __init__(self, found: Survey, by_place: bool):
        comms = found.comms
        self.names = comms.names
        _, first = np.unique(comms.name, return_index=True)
        self.size = comms.column(of.Q_SIZE)[first]
        rank = np.array([NULL if p.rank is None else p.rank for p in found.in_order], np.int64)
        rank = rank[comms.column(of.Q_PROCESS)]
        told = np.flatnonzero(rank != NULL)
        name, place = comms.name[told], comms.column(of.Q_PLACE)[told]
        order = np.lexsort((place, name))  # of several that tell of a place the first comes first
        name, place = name[order], place[order]
        new = np.append(True, (name[1:] != name[:-1]) | (place[1:] != place[:-1]))[: len(name)]
        name, self.place, self.rank = name[new], place[new], rank[told[order[new]]]
        self.ends = np.searchsorted(name, np.arange(len(self.names) + 1))
        n_told = np.diff(self.ends)
        elsewhere = np.bincount(name[self.place != self.rank], minlength=len(self.names))
        world = comms.column(of.Q_SIZE).max(initial=0)
        self.is_world = by_place & (self.size == world) & (n_told > 0) & (elsewhere == 0)
        self._looked_at: dict[int, dict[int, int]] = {}

    @cached_property
    def codes(self) -> dict[str, int]:
        """Names by their text."""
        return {name: k for k, name in enumerate(self.names)}

    def rank_of(self, name: int, place: int) -> int | None:
        """Global rank at a place; None where no process says it."""
        told = self._looked_at.get(name)
        if told is None:
            its = slice(self.ends[name], self.ends[name + 1])
            told = dict(zip(self.place[its].tolist(), self.rank[its].tolist(), strict=True))
            self._looked_at[name] = told
        known = told.get(place)
        if known is None and self.is_world[name] and place < self.size[name]:
            return place
        return known

    def ranks(self) -> list[list[int] | None]:
        """Of each name all members in order, or None where one of them is unknown."""
        may = (np.diff(self.ends) >= self.size) | self.is_world
        may &= self.size <= _MOST_MEMBERS
        place, rank, ends, size = (
            c.tolist() for c in (self.place, self.rank, self.ends, self.size)
        )  # fmt: skip
        found: list[list[int] | None] = [None] * len(ends[1:])
        for name in np.flatnonzero(may).tolist():
            start, end, n = ends[name], ends[name + 1], size[name]
            # Places differ and are in order: they are all, if the last is where it would be.
            if end - start == n and place[end - 1] == n - 1:
                found[name] = rank[start:end]
                continue
            its = [self.rank_of(name, k) for k in range(n)]
            found[name] = None if None in its else its  # type: ignore[assignment]
        return found


class _First(NamedTuple):
    """The first of a process's largest communicators."""

    process: Process
    place: int
    begun: int


def child_hash(parent: int, count: int, color: int) -> int:
    """The 64-bit identity that NCCL (2.23 on) gives a communicator split off another.

    It hashes the parent's identity (8 bytes), the number of the split and the color (4 bytes
    each), and prints neither that nor a commId for such a communicator; the other tools (NVTX,
    profiler, Inspector) show it. Source: src/include/utils.h and initTransportsRank's caller in
    src/init.cc.
    """
    a, b = 1, 1
    for value, n_bytes in ((parent, 8), (count, 4), (color, 4)):
        a ^= n_bytes
        a = (a + b) & _U64
        b ^= a
        a = ((a ^ (a >> 31)) * 0x9DE62BBC8CEF3CE3) & _U64
        b = ((b ^ (b >> 32)) * 0x485CD6311B599E79) & _U64
        a = (a + (value & ((1 << (8 * n_bytes)) - 1))) & _U64
    a = ((a ^ (a >> 31)) * 0xBAC3BD562846DE6B) & _U64
    a = (a + b) & _U64
    return ((a ^ (a >> 32)) * 0x995A187A14E7B445) & _U64


def identify(found: Survey, rank: int | None, c: Collector) -> Members:
    """Sets the rank of each process and the name of each communicator; who is in these.

    `rank` is the global rank the user gave. Raises UsageError where it is given and the log has
    several processes.
    """
    if rank is not None and rank > MAX_RANK:
        raise UsageError(f"{c.source.name}: a rank is at most {MAX_RANK}, not {rank}")
    if rank is not None and len(found.processes) > 1:
        raise UsageError(
            f"{c.source.name}: the log has {len(found.processes)} processes, which name their "
            "ranks; drop --rank"
        )
    _hash_children(found)
    rounds, by_place = _rank_processes(found, rank, c)
    name_comms(found, rounds, c)
    _local_ranks(found.in_order)
    return Members(found, by_place)


def _hash_children(found: Survey) -> None:
    comms = found.comms
    for number in sorted(comms.parents):  # in the order of the log: a parent comes before these
        said, row = comms.parents[number], comms.rows[number]
        if row[of.Q_HASH] or said.count is None or said.color is None:
            continue
        process = found.in_order[int(row[of.Q_PROCESS])]
        parent = found.at_pointer(process.host, process.pid, said.pointer, int(row[of.Q_BEGUN]))
        if (
            parent is not None
            and parent != number
            and (whole := int(comms.rows[parent, of.Q_HASH]))
        ):
            row[of.Q_HASH] = signed(child_hash(whole, said.count, said.color))


def _rank_processes(found: Survey, rank: int | None, c: Collector) -> tuple[dict[int, int], bool]:
    """Global ranks from the places in the largest communicators.

    Returns which run of the job a process (by number) belongs to, 0 but for restarts, and whether
    the ranks are the places.
    """
    if rank is not None:
        for process in found.in_order:
            process.rank = rank
        return {}, False
    world, firsts = _firsts(found)
    rounds: dict[int, int] = {}
    seen: Counter[int] = Counter()
    for one in sorted(firsts, key=lambda k: k.begun):
        rounds[one.process.number] = seen[one.place]
        seen[one.place] += 1
    if not _one_after_another(firsts, rounds):
        labels = {p.label for p in found.in_order}
        usable = all(label is not None and label <= MAX_RANK for label in labels)
        if usable and len(labels) == len(found.processes):
            for process in found.in_order:
                process.rank = process.label
            c.odd(
                "rank_from_launcher",
                f"no communicator holds all ranks (the largest have {world}): global ranks are "
                "the task numbers that the launcher put before the lines",
                "warning",
                count=len(labels),
            )
            return rounds, False
        c.odd(
            "rank_unknown",
            f"several communicators of {world} ranks side by side and none of all: the processes' "
            "global ranks are unknown. Ingest logs one by one with --rank, or with another source "
            "of the job",
            "warning",
            count=len(found.processes),
        )
        return rounds, False
    if max(seen.values(), default=0) > 1:
        c.odd(
            "restarted",
            f"the log holds {max(seen.values())} runs one after another; the last one's processes "
            "are kept as the ranks",
            "warning",
        )
    for one in firsts:
        one.process.rank = one.place
    if firsts:
        c.odd(
            "rank_from_communicator",
            f"global ranks are the processes' ranks in their largest communicator ({world} ranks)",
            "info",
            count=len(firsts),
        )
    if small := len(found.in_order) - len(firsts):
        c.odd(
            "rank_unknown",
            f"processes that are in no communicator of {world} ranks: their ranks are unknown",
            "warning",
            count=small,
        )
    return rounds, True


def _firsts(found: Survey) -> tuple[int, list[_First]]:
    """The size of the largest communicators, and the first that each process has of them."""
    comms = found.comms
    size, process = comms.column(of.Q_SIZE), comms.column(of.Q_PROCESS)
    world = int(size.max(initial=0))
    largest = np.flatnonzero(size == world)
    _, first = np.unique(process[largest], return_index=True)
    rows = comms.rows[largest[first]].tolist()
    return world, [
        _First(found.in_order[r[of.Q_PROCESS]], r[of.Q_PLACE], r[of.Q_BEGUN]) for r in rows
    ]


def _one_after_another(firsts: Iterable[_First], rounds: dict[int, int]) -> bool:
    """Whether processes that share a rank are later runs, on the same devices as the earlier."""
    spans: dict[int, tuple[int, int]] = {}
    places: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)
    for one in firsts:
        n = rounds[one.process.number]
        low, high = spans.get(n, (one.begun, one.begun))
        spans[n] = min(low, one.begun), max(high, one.begun)
        places[n].add((one.process.host, one.process.device))
    return all(
        spans[n - 1][1] < spans[n][0] and len(places[n] & places[n - 1]) * 2 >= len(places[n])
        for n in range(1, len(spans))
    )


def _local_ranks(processes: Iterable[Process]) -> None:
    """Where no line says it: the device's number, if no two processes of a host share one."""
    hosts: defaultdict[str, list[Process]] = defaultdict(list)
    for process in processes:
        hosts[process.host].append(process)
    for here in hosts.values():
        devices = {p.device for p in here}
        if len(devices) == len(here) and len(here) > 1:
            for process in here:
                if process.local_rank is None:
                    process.local_rank = process.device
