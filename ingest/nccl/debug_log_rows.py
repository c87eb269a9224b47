"""An NCCL debug log as rows: a pass over it for who is who, and one for what they say."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ..collect import Collector
from ..schema import TABLES
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
    from ..sources import Source


def tables_of(
    source: Source, rank: int | None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """All rows of a log; nothing at all where no message is in it.

    Raises UsageError as `identify` does, and RankUnknown where there are collectives and nobody
    says whose.
    """
    c = Collector(source)
    compiled = debug_log_readers.compiled(source, threads)
    with uncollected():
        found = survey(source, c, read_lines if compiled is None else compiled.survey)
        if not found.has_message:
            return
        members = identify(found, rank, c)
    yield from _identities(c, found, members, rank)
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


def _identities(
    c: Collector, found: Survey, members: Members, rank: int | None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows of `ranks` and `comms`."""
    version = found.versions.most_common(1)[0][0] if found.versions else None
    if version is not None:
        c.odd("library_version", f"the library is {version}", "info",
              count=found.versions.total())  # fmt: skip
    if len(found.versions) > 1:
        told = ", ".join(sorted(found.versions)[:8])
        c.odd("several_versions", f"ranks name different libraries: {told}", "warning")
    by_rank = {p.rank: p for p in found.in_order if p.rank is not None}
    for number, p in sorted(by_rank.items()):
        c.add("ranks", rank=number, host=p.host, host_source="recorded", pid=p.pid,
              device=p.device, local_rank=p.local_rank, device_name=p.device_name,
              world_size=int(found.comms.largest[p.number]), clock="none",
              source=c.source.name)  # fmt: skip
    if not by_rank and rank is not None:
        c.add("ranks", rank=rank, clock="none", source=c.source.name)
    if found.comms.n:
        yield "comms", _comms(found, members, version or "nccl")


def _comms(found: Survey, members: Members, backend: str) -> pa.RecordBatch:
    """A row a communicator where its members are known or nobody tells any, else one a member."""
    ranks, n_told = members.ranks(), np.diff(members.ends)
    by_name = np.array([its is not None for its in ranks], bool) | (n_told == 0)
    name = np.repeat(np.arange(len(ranks)), np.where(by_name, 1, n_told))
    told, alone = np.repeat(~by_name, n_told), by_name[name]
    columns = {}
    for column, its in (("member", members.rank), ("member_place", members.place)):
        values = np.zeros(len(name), np.int32)
        values[~alone] = its[told]
        columns[column] = pa.array(values, mask=alone)
    constant = {"dim": "unknown", "dim_source": "none", "backend": backend}
    whole = pa.array(ranks, pa.list_(pa.int32()))
    return TABLES["comms"].batch({
        "comm": pa.DictionaryArray.from_arrays(pa.array(name, pa.int32()), pa.array(members.names)),
        "description": pa.array(_descriptions(found, len(ranks)), pa.string()).take(pa.array(name)),
        "ranks": whole.take(pa.array(name)),
        "size": pa.array(members.size[name], pa.int32()),
        **columns,
        **{c: pa.DictionaryArray.from_arrays(np.zeros(len(name), np.int32), pa.array([text]))
           for c, text in constant.items()},
    })  # fmt: skip


def _descriptions(found: Survey, n: int) -> list[str | None]:
    """Of each of `n` names what the last line that has it says of a split."""
    described: list[str | None] = [None] * n
    comms = found.comms
    if comms.parents:
        last = np.empty(n, np.int64)
        last[comms.name] = np.arange(comms.n)  # of several the last one stays
        for number, said in comms.parents.items():
            name = int(comms.name[number])
            if said.color is not None and last[name] == number:
                described[name] = f"split, color {said.color}"
    return described
