"""The profiler plugin's files of a folder: which process and rank each is, and their rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..collect import Collector
from ..errors import UnusableInput
from ..texts import lines
from .comm_places import Places, comm_of_hash
from .profiler_events import FileEvents, Own

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_NAMED = re.compile(r"([^/\\!]{0,200})_(\d{1,20})_(\d{1,7})\.json\Z")
_HOSTED = re.compile(r"[^/\\!]{0,200}?-([A-Za-z][\w.-]{0,63})-(\d{1,9})\.txt\Z")
_PLACE = re.compile(rb'"CommHash": ?(\d{1,20}), ?"Rank": ?(\d{1,7})')
_PEER = re.compile(rb'"Peer": ?(\d{1,7})')
_PID = re.compile(rb'"pid": ?(\d{1,9})')


class _File:
    """What one file tells about itself."""

    def __init__(self, source: Source):
        self.source = source
        self.pid: int | None = None
        self.host: str | None = None
        self.places: set[tuple[int, int]] = set()
        self.most = -1
        prefix = ""
        if m := _NAMED.search(source.name):
            prefix = source.name[: m.start(2) - 1]
            if int(m[2]) < 1 << 64:
                self.places.add((int(m[2]), int(m[3])))
        elif m := _HOSTED.search(source.name):
            self.host = m[1]
        for _, line, _ in lines(source, lambda *a, **k: None, 4 << 20):
            text = line[:2048]
            if self.pid is None and (m := _PID.search(text)):
                self.pid = int(m[1])
            if m := _PLACE.search(text):
                if int(m[1]) < 1 << 64 and len(self.places) < 1000:
                    self.places.add((int(m[1]), int(m[2])))
                self.most = max(self.most, int(m[2]))
            if m := _PEER.search(text):
                self.most = max(self.most, int(m[1]))
        # Pids of several hosts may be equal: what a dump is named sets them apart.
        self.process = (prefix, self.host, self.pid)


def tables_of(source: Source, rank: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields the batches of a file or a bundle; every file is read twice."""
    collector = Collector(source)
    files = [_File(member) for member in source.members or (source,)]
    sizes, whole = _sizes(files, collector)
    processes: dict[tuple, Places] = {}
    for file in files:
        places = processes.setdefault(file.process, Places())
        for hash_, place in sorted(file.places):
            places.add(comm_of_hash(hash_), place, sizes[hash_])
    where = source.name
    largest = max(sizes.values(), default=0)
    for places in processes.values():
        places.settle(rank if len(processes) == 1 else None, where, collector)
        if places.known and places.largest < largest:
            collector.odd(
                "rank_from_small_communicator",
                f"a process has no file of the largest communicator ({largest} ranks): its rank in "
                f"one of {places.largest} stands for the global one, and may be another's",
            )
    if rank is not None and len(processes) > 1:
        collector.odd(
            "rank_not_used",
            f"--rank {rank} is one rank, but the files are of {len(processes)} processes: their "
            "communicators tell the ranks",
        )
    spans: dict[int, Own] = {}
    n = 0
    for file in files:
        reader = FileEvents(
            collector, processes[file.process], file.places, spans, sizes if whole else {}
        )
        yield from reader.read(file.source)
        reader.tell(file.host, file.pid)
        n += reader.n_events
    if not n:
        raise UnusableInput("no event of NCCL's profiler plugin in it", path=source.name)
    written: set[int] = set()
    for places in processes.values():
        for of in places.write(collector, sizes_are_guesses=not whole):
            if of in written:
                collector.odd("rank_twice", "two processes seem to be the same rank", rank=of)
                continue
            written.add(of)
            own = spans.get(of, Own())
            collector.add(
                "ranks",
                rank=of,
                host=own.host,
                host_source="recorded" if own.host else "unknown",
                pid=own.pid,
                start_ns=own.start,
                end_ns=own.end,
                clock="process" if own.start is not None else "none",
                source=source.name,
            )
    yield from collector.rest()


def _sizes(files: list[_File], collector: Collector) -> tuple[dict[int, int], bool]:
    """(size of each communicator by hash, whether these are its real sizes).

    The plugin prints no sizes: one more than the highest rank or peer is the least it can be. It
    is the size where every rank up to that has a file.
    """
    most: dict[int, int] = {}
    seen: dict[int, set[int]] = {}
    for file in files:
        for hash_, place in file.places:
            high = max(place, file.most) if len(file.places) == 1 else place
            most[hash_] = max(most.get(hash_, 0), high)
            seen.setdefault(hash_, set()).add(place)
    whole = bool(seen) and all(len(seen[h]) == most[h] + 1 > 1 for h in seen)
    if seen and not whole:
        collector.odd(
            "size_unknown",
            "the plugin writes no sizes of communicators, and not every rank's file is here: "
            "sizes are null, the largest communicator is the one with the highest rank or peer",
            "info",
        )
    return {h: n + 1 for h, n in most.items()}, whole
