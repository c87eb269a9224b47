"""PyTorch Flight Recorder dumps, pickle and JSON, versions 1.4 to 2.10: detection and parser.

A dump is a process's ring of the collectives that it enqueued last, written when a watchdog found
a hang or somebody asked. It says what was enqueued, started and completed; its times are those of
enqueuing and of the watchdog's polls, so none of its participations has a kernel's start and end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import RankUnknown

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_PROTOCOLS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_ENDINGS = re.compile(r"(\.(gz|pkl|pickle|json|bin|dump|txt))+$", re.I)
_DIGITS = re.compile(r"(?<!\d)\d{1,7}$", re.ASCII)


def looks_like(head: bytes, name: str) -> bool:
    """Whether the first bytes are those of a dump: a pickle or a JSON object with its keys."""
    if head[:2] in _PROTOCOLS:
        start = head[:4096]
        return (b"pg_config" in start and b"version" in start) or (
            b"entries" in start and b"record_id" in head and b"profiling_name" in head
        )
    if head.lstrip()[:1] != b"{":
        return False
    if b'"entries"' in head and b'"profiling_name"' in head and b'"record_id"' in head:
        return True
    return b'"pg_config"' in head and b'"pg_status"' in head


def rank_of_name(name: str) -> int | None:
    """The number that a dump's name ends in (`..._rank_7`, `_dump_7.json`); None without one."""
    base = _ENDINGS.sub("", re.split(r"[/\\!]", name)[-1])
    found = _DIGITS.search(base)
    if found is None or base[: found.start()].endswith("_-"):
        return None  # a negative number is no rank
    return int(found.group())


def peek_rank(source: Source) -> int | None:
    """The rank of a source by its name."""
    return rank_of_name(source.name)


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields (table name, batch) of one dump: ranks, comms, collectives, progress and problems.

    The rank is the one given, else the number that the name ends in, else the one member that all
    of the dump's groups share. `seq` is the group's own number for collectives; for sends and
    receives it is null. `event_id` is the entry's record_id in a space of its own. Raises
    UnusableInput for what is no dump, Damaged for one that is cut, RankUnknown.
    """
    from ..collect import Collector
    from .read import read
    from .rows import add_rows

    c = Collector(source)
    dump = read(source, c)
    own = dump.common_member
    found = rank if rank is not None else rank_of_name(source.name)
    if found is None:
        found = own
        if own is not None:
            told = f"its name has no rank; rank {own} is the only member of all of its groups"
            c.odd("rank_from_groups", told, "info", rank=own)
    if found is None:
        raise RankUnknown(
            "a Flight Recorder dump says its rank in its name only: end the name in the rank "
            "(..._7) or give --rank N",
            path=source.name,
        )
    yield from add_rows(dump, found, c)
