"""Ascend NPU profiles (torch_npu, MindSpore): detection, rank and parser.

One rank's profile is a folder `<worker>_<time>_ascend_pt` (or `_ascend_ms`) with
`profiler_info_<rank>.json` and `ASCEND_PROFILER_OUTPUT/`: `trace_view.json` has the timeline,
`communication.json` each operation's transit and wait time. They are read together; each of the
two is read alone too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import RankUnknown, UnusableInput
from ..schema import MAX_RANK
from ..values import rank_in_name

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_PROCESS = re.compile(
    rb'"process_name"[^{}]{0,200}\{[ \t\r\n]*"name"[ \t\r\n]*:[ \t\r\n]*'
    rb'"(Ascend Hardware|CANN|HCCL|Communication|Overlap Analysis|AI Core Freq|MindSpore)"'
)
_FLOWS = re.compile(rb'"(async_npu|async_task_queue|torch_to_npu|enqueue_to_dequeue)"')
_COMMUNICATION = re.compile(rb'"step[^"]{0,20}"\s{0,9}:\s{0,9}\{\s{0,9}"(p2p|collective)"\s{0,9}:')
_OUTPUT = re.compile(
    r"(?P<folder>.*?[^/\\!]*_ascend_(?:pt|ms))[/\\]"
    r"(?:ASCEND_PROFILER_OUTPUT[/\\][^/\\]+|profiler_info(?:_\d+)?\.json|profiler_metadata\.json)",
)
_ALONE = re.compile(r"(?P<folder>.*?ASCEND_PROFILER_OUTPUT)[/\\][^/\\]+")
_RANK_FILE = re.compile(
    r"(?:profiler_info|ascend_(?:pytorch|mindspore)_profiler)_(\d{1,7})\.(?:json|db)"
)


def looks_like(head: bytes, name: str) -> bool:
    """Whether a file is an Ascend `trace_view.json` or `communication.json`, by what is in it."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] == b"[":
        if b'"ph"' not in text:
            return False
        named = re.split(r"[/\\!]", name)[-1].startswith("trace_view.json")
        return named or bool(_PROCESS.search(text) or _FLOWS.search(text))
    return text[:1] == b"{" and _COMMUNICATION.match(text[1:].lstrip()) is not None


def bundle_of(path: str) -> str | None:
    """The folder of one rank's profile, for what is in its `ASCEND_PROFILER_OUTPUT` or beside."""
    found = _OUTPUT.fullmatch(path) or _ALONE.fullmatch(path)
    return found["folder"] if found else None


def peek_rank(source: Source) -> int | None:
    """The rank that a name of one of the files holds (`profiler_info_3.json`), else None."""
    for member in source.members:
        found = _RANK_FILE.fullmatch(re.split(r"[/\\!]", member.name)[-1])
        if found and int(found[1]) <= MAX_RANK:
            return int(found[1])
    return rank_in_name(source.name)


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields (table name, batch): events, steps, collectives, comms, transfers, counters, ranks.

    `communication.json`'s Transit, Wait, Synchronization and Idle Time become `counters` named
    `hccl.transit_ns`, `hccl.wait_ns`, ..., with the start of their operation as time; its bytes by
    link become `transfers`. Raises UnusableInput where neither file is there or readable,
    RankUnknown where no name says a rank and none is given.
    """
    from .ascend_tables import tables_of

    trace, communication, others = None, None, []
    for member in source.members or (source,):
        name = re.split(r"[/\\!]", member.name)[-1]
        if re.fullmatch(r"trace_view\.json(\.gz)?", name):
            trace = member
        elif re.fullmatch(r"communication\.json(\.gz)?", name):
            communication = member
        elif source.members:
            others.append(name)
        elif member.head(4).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":
            trace = member
        else:
            communication = member
    if trace is None and communication is None:
        raise UnusableInput(
            "an Ascend profile without trace_view.json: make it with "
            "torch_npu.profiler.profiler.analyse(folder), export_type text",
            path=source.name,
        )
    said = peek_rank(source)
    found = said if said is not None else rank
    if found is None:
        raise RankUnknown(
            "no profiler_info_<rank>.json lies beside it and no name says a rank: "
            "give it with --rank N",
            path=source.name,
        )
    yield from tables_of(source, found, rank, trace, communication, others)
