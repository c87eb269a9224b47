"""An NCCL debug log as rows: a pass over it for who is who, and one for what they say."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ..collect import Collector
from ..texts import lines
from . import debug_log_readers
from .debug_log_calls import Calls
from .debug_log_identity import Members, identify
from .debug_log_lines import MAX_LINE_BYTES
from .debug_log_links import Links
from .debug_log_places import Places
from .debug_log_reader import Reader
from .debug_log_survey import Survey, read_lines, survey, uncollected
from .nccl_tests_text import TableReader

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source


def tables_of(source: Source, rank: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """All rows of a log; nothing at all where no message is in it.

    Raises UsageError as `identify` does, and RankUnknown where there are collectives and nobody
    says whose.
    """
    c = Collector(source)
    compiled = debug_log_readers.compiled(source)
    with uncollected():
        found = survey(source, c, read_lines if compiled is None else compiled.survey)
        if not found.has_message:
            return
        members = identify(found, rank, c)
        _identities(c, found, members, rank)
    places = Places(found, members, rank)
    # Rows of benchmark tables may be cut by other lines, so that each line counts.
    if compiled is None or found.has_table:
        yield from _all_lines(source, c, places)
    else:
        yield from compiled.rows(source, c, places)
    yield from c.rest()


def _all_lines(
    source: Source, c: Collector, places: Places
) -> Iterator[tuple[str, pa.RecordBatch]]:
    links = partial(Links, add=partial(c.add, "topology"), add_moved=partial(c.add, "transfers"))
    reader = Reader(c, places, Calls(c, places, partial(c.add, "collectives")), links)
    table = TableReader(source.name) if places.found.has_table else None
    for offset, line, _ in lines(source, c.odd, MAX_LINE_BYTES):
        if table is not None:
            table.feed(line.decode("utf-8", "replace"), offset)
        if b" NCCL " in line:
            reader.line(line, offset)
            yield from c.full()
    reader.finish()
    if table is not None:
        table.rows(c)


def _identities(c: Collector, found: Survey, members: dict[str, Members], rank: int | None) -> None:
    """Rows of `ranks` and `comms`."""
    version = found.versions.most_common(1)[0][0] if found.versions else None
    if version is not None:
        c.odd("library_version", f"the library is {version}", "info",
              count=found.versions.total())  # fmt: skip
    if len(found.versions) > 1:
        told = ", ".join(sorted(found.versions)[:8])
        c.odd("several_versions", f"ranks name different libraries: {told}", "warning")
    by_rank = {p.rank: p for p in found.processes.values() if p.rank is not None}
    for number, p in sorted(by_rank.items()):
        c.add("ranks", rank=number, host=p.host, host_source="recorded", pid=p.pid,
              device=p.device, local_rank=p.local_rank, device_name=p.device_name,
              world_size=max((k.size for k in p.comms), default=None), clock="none",
              source=c.source.name)  # fmt: skip
    if not by_rank and rank is not None:
        c.add("ranks", rank=rank, clock="none", source=c.source.name)
    _comms(c, found, members, version or "nccl")


def _comms(c: Collector, found: Survey, members: dict[str, Members], backend: str) -> None:
    one_of = {k.name: k for k in found.comms}
    names: list[str] = []
    said: dict[str, list] = {t: [] for t in ("size", "description", "ranks", "member",
                                             "member_place")}  # fmt: skip
    for name, known in members.items():
        color = one_of[name].color
        ranks = known.ranks()
        whole = ranks is not None or not known.by_place
        places = [(None, None)] if whole else sorted(known.by_place.items())
        for place, member in places:
            names.append(name)
            said["size"].append(known.size)
            said["description"].append(None if color is None else f"split, color {color}")
            said["ranks"].append(ranks)
            said["member"].append(member)
            said["member_place"].append(place)
    n = len(names)
    c.add_all("comms", n, comm=names, dim=["unknown"] * n, dim_source=["none"] * n,
              backend=[backend] * n, **said)  # fmt: skip
