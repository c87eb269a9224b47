"""Who is who in an NCCL debug log: communicators by name over processes, and global ranks."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..schema import MAX_RANK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..collect import Collector
    from .debug_log_survey import Comm, Process, Survey

_U64 = (1 << 64) - 1
_MOST_MEMBERS = 1 << 17
_LONG_NAME = 200


class Members:
    """A communicator over all processes: global rank by place, and its size."""

    def __init__(self, size: int):
        self.size = size
        self.by_place: dict[int, int] = {}
        self.is_world = False

    def rank_of(self, place: int) -> int | None:
        """Global rank at a place; None where no process says it."""
        known = self.by_place.get(place)
        return place if known is None and self.is_world and place < self.size else known

    def ranks(self) -> list[int] | None:
        """All members in order, or None where one of them is unknown."""
        if self.size > _MOST_MEMBERS or (len(self.by_place) < self.size and not self.is_world):
            return None
        found = [self.rank_of(place) for place in range(self.size)]
        return None if None in found else found  # type: ignore[return-value]


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


def identify(found: Survey, rank: int | None, c: Collector) -> dict[str, Members]:
    """Sets the rank of each process and the name of each communicator; members by name.

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
    _name_comms(found, rounds, c)
    world = max((comm.size for comm in found.comms), default=0)
    members: dict[str, Members] = {}
    for comm in found.comms:
        known = members.get(comm.name)
        if known is None:
            known = members[comm.name] = Members(comm.size)
        if comm.process.rank is not None:
            known.by_place.setdefault(comm.place, comm.process.rank)
    for known in members.values():
        known.is_world = (
            by_place
            and known.size == world
            and bool(known.by_place)
            and all(place == number for place, number in known.by_place.items())
        )
    _local_ranks(found.processes.values())
    return members


def _hash_children(found: Survey) -> None:
    for comm in found.comms:  # in the order of the log: a parent comes before its children
        if comm.hash_ is not None or comm.parent is None:
            continue
        host, pid = comm.process.host, comm.process.pid
        parent = found.comm_of_pointer(host, pid, comm.parent, comm.begun)
        if parent is None or parent is comm or parent.hash_ is None:
            continue
        if comm.child_count is not None and comm.color is not None:
            comm.hash_ = child_hash(parent.hash_, comm.child_count, comm.color)


def _rank_processes(found: Survey, rank: int | None, c: Collector) -> tuple[dict[int, int], bool]:
    """Global ranks from the places in the largest communicators.

    Returns which run of the job a process (by `id`) belongs to, 0 but for restarts, and whether
    the ranks are the places.
    """
    world = max((comm.size for comm in found.comms), default=0)
    firsts: list[Comm] = []
    small: list[Process] = []
    for process in found.processes.values():
        largest = max(process.comms, key=lambda k: k.size)
        if largest.size == world:
            firsts.append(largest)
        else:
            small.append(process)
    if rank is not None:
        for process in found.processes.values():
            process.rank = rank
        return {}, False
    rounds: dict[int, int] = {}
    seen: Counter[int] = Counter()
    for comm in sorted(firsts, key=lambda k: k.begun):
        rounds[id(comm.process)] = seen[comm.place]
        seen[comm.place] += 1
    if not _one_after_another(firsts, rounds):
        labels = {p.label for p in found.processes.values()}
        usable = all(label is not None and label <= MAX_RANK for label in labels)
        if usable and len(labels) == len(found.processes):
            for process in found.processes.values():
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
    for comm in firsts:
        comm.process.rank = comm.place
    if firsts:
        c.odd(
            "rank_from_communicator",
            f"global ranks are the processes' ranks in their largest communicator ({world} ranks)",
            "info",
            count=len(firsts),
        )
    if small:
        c.odd(
            "rank_unknown",
            f"processes that are in no communicator of {world} ranks: their ranks are unknown",
            "warning",
            count=len(small),
        )
    return rounds, True


def _one_after_another(firsts: Iterable[Comm], rounds: dict[int, int]) -> bool:
    """Whether processes that share a rank are later runs, on the same devices as the earlier."""
    spans: dict[int, tuple[int, int]] = {}
    places: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)
    for comm in firsts:
        n = rounds[id(comm.process)]
        low, high = spans.get(n, (comm.begun, comm.begun))
        spans[n] = min(low, comm.begun), max(high, comm.begun)
        places[n].add((comm.process.host, comm.process.device))
    return all(
        spans[n - 1][1] < spans[n][0] and len(places[n] & places[n - 1]) * 2 >= len(places[n])
        for n in range(1, len(spans))
    )


def _name_comms(found: Survey, rounds: dict[int, int], c: Collector) -> None:
    world = max((comm.size for comm in found.comms), default=0)
    unnamed: defaultdict[tuple[int, int, int], list[Comm]] = defaultdict(list)
    for process in found.processes.values():
        run, children = rounds.get(id(process), 0), Counter[object]()
        of_size: dict[int, int] = {}
        for comm in process.comms:
            if comm.hash_ is not None:
                comm.name = f"nccl-{comm.hash_:016x}"
            elif comm.parent is not None:
                _name_child(found, comm, children)
            else:
                n = of_size[comm.size] = of_size.get(comm.size, -1) + 1
                unnamed[run, comm.size, n].append(comm)
    by_order, alone = 0, 0
    for (run, size, n), comms in unnamed.items():
        base = f"nccl-log-{size}-{n}" + (f"-run{run}" if run else "")
        if size > 1 and (_whole(comms, size) or (size == world and _apart(comms))):
            by_order += 1
            for comm in comms:
                comm.name = base
            continue
        hosts: defaultdict[str, list[Comm]] = defaultdict(list)
        for comm in comms:
            hosts[comm.process.host].append(comm)
        for host, here in hosts.items():
            together = size > 1 and _whole(here, size)
            by_order += together
            alone += 0 if together or size == 1 else len(here)
            for comm in here:
                comm.name = f"{base}-{host}" if together else f"{base}-{_own(comm.process)}"
    if by_order:
        c.odd(
            "comm_by_order",
            "the library (before NCCL 2.17) does not name its communicators: they were told apart "
            "by size, order and host",
            "info",
            count=by_order,
        )
    if alone:
        c.odd(
            "comm_unmatched",
            "communicators without a name that several groups of ranks made: each process's is "
            "kept by itself, and its other members are unknown",
            "warning",
            count=alone,
        )


def _name_child(found: Survey, comm: Comm, ordinal: Counter[object]) -> None:
    process = comm.process
    parent = found.comm_of_pointer(process.host, process.pid, comm.parent or b"", comm.begun)
    if parent is None or parent is comm or not parent.name:
        n = ordinal["orphan"]
        ordinal["orphan"] += 1
        comm.name = f"nccl-log-orphan-{_own(process)}-{n}"
        return
    n = comm.child_count
    if n is None:
        n = ordinal[id(parent)]
        ordinal[id(parent)] += 1
    name = f"nccl-log-{parent.name.removeprefix('nccl-')}-{n}-{comm.color}"
    if len(name) > _LONG_NAME:  # a family tree of splits
        name = f"nccl-log-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    comm.name = name


def _whole(comms: list[Comm], size: int) -> bool:
    return len(comms) == size and _apart(comms)


def _apart(comms: list[Comm]) -> bool:
    return len({comm.place for comm in comms}) == len(comms)


def _own(process: Process) -> str:
    if process.rank is not None:
        return f"r{process.rank}"
    return f"{process.host}-{process.pid}-{process.device}"


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
