"""What a Kineto trace says about itself: rank, time base, devices, host and process groups."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from ..errors import RankUnknown
from ..schema import MAX_RANK, Problem
from ..sources import Source
from ..values import as_int, as_size, rank_in_name
from .envelope import Envelope, parse_object

PROBE_BYTES = 1 << 20
"""How much of each end is looked at for what the other end does not say."""

EPOCH_FLOOR_NS = 10**17
"""Times from here on (1973) are absolute; Kineto's relative ones stay under 91 days."""

LATEST_NS = 1 << 62
"""Times beyond this (2116) are no times; below it sums of two fit 64 bits."""

MAX_MEMBERS = 1 << 20
"""Members of a larger group are not written out: a number in a file must not fill memory."""


class Header(NamedTuple):
    """What must be known before the first row: the rank, and what to add to times."""

    rank: int
    base_ns: int
    meta: dict
    problems: tuple[Problem, ...]


class Group(NamedTuple):
    """A process group as the metadata lists it; `ranks` is None where the list is incomplete."""

    name: str
    description: str | None
    ranks: tuple[int, ...] | None
    size: int | None
    backend: str | None


def short(value: object) -> str:
    """A value of any kind and length for a message."""
    try:
        text = str(value)
    except ValueError:  # an integer of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def distributed_info(meta: dict) -> dict:
    """`distributedInfo`, which some writers give as JSON text; empty where there is none."""
    info = meta.get("distributedInfo")
    if isinstance(info, str):
        try:
            info = json.loads(info)
        except (ValueError, RecursionError):
            return {}
    return info if isinstance(info, dict) else {}


def rank_in(meta: dict) -> int | None:
    """The rank the metadata states; None where it states none from 0 to MAX_RANK."""
    rank = as_int(distributed_info(meta).get("rank"))
    return rank if rank is not None and 0 <= rank <= MAX_RANK else None


_TAIL_KEY = re.compile(
    rb'(?<!\\)"(distributedInfo|baseTimeNanoseconds|host_name|deviceProperties)"'
    rb"[ \t\r\n]*:[ \t\r\n]*"
)


def metadata_in_text(text: bytes) -> dict:
    """The wanted metadata keys found in a piece of a trace, the last of each."""
    out: dict = {}
    for m in _TAIL_KEY.finditer(text):
        try:
            rest = text[m.end() :].decode("utf-8", "replace")
            out[m[1].decode()] = json.JSONDecoder(strict=False).raw_decode(rest)[0]
        except (ValueError, RecursionError):
            continue
    return out


def peek_rank(source: Source) -> int | None:
    """The rank a source seems to be of, cheaply: its head, its tail if that is a seek, its name.

    None where they do not say. Reading the whole file may find it in a compressed tail.
    """
    head = source.head()
    if b'"traceEvents"' not in head:
        head = source.head(PROBE_BYTES)
    rank = rank_in(_head_metadata(head))
    if rank is None and source.mmap_path is not None:
        rank = rank_in(metadata_in_text(source.tail(PROBE_BYTES)))
    return rank if rank is not None else rank_in_name(source.name)


def _head_metadata(head: bytes) -> dict:
    events = head.find(b'"traceEvents"')
    return parse_object(head[:events] + b"}") if events >= 0 else metadata_in_text(head)


def read_header(
    source: Source, envelope: Envelope, some_time_ns: int | None, rank: int | None
) -> Header:
    """Rank and time base, from the head of the trace, else its tail, else the name, else `rank`.

    `some_time_ns` is a time of the first events as written. Raises RankUnknown where nothing
    says the rank and none is given.
    """
    problems: list[Problem] = []
    meta = envelope.parse()
    relative = some_time_ns is not None and some_time_ns < EPOCH_FLOOR_NS
    base_ns = as_int(meta.get("baseTimeNanoseconds"))
    if (rank_in(meta) is None and not envelope.bare) or (relative and base_ns is None):
        from_tail = metadata_in_text(source.tail(PROBE_BYTES))
        info = {**distributed_info(from_tail), **distributed_info(meta)}
        meta = {**from_tail, **meta, "distributedInfo": info}
        base_ns = as_int(meta.get("baseTimeNanoseconds"))
    if base_ns is not None and not 0 <= base_ns <= LATEST_NS:
        what = f"baseTimeNanoseconds is {short(base_ns)}, which is no time: not used"
        problems.append(Problem("bad_time_base", what))
        base_ns = None

    stated = rank_in(meta)
    claimed = distributed_info(meta).get("rank")
    if stated is None and claimed is not None:
        what = f"the trace says it is of rank {short(claimed)}, which is none (0 to {MAX_RANK})"
        problems.append(Problem("bad_rank", what))
    if stated is not None and rank is not None and rank != stated:
        problems.append(
            Problem(
                "rank_disagrees",
                f"the trace says it is of rank {stated}, --rank said {rank}: the trace is believed",
            )
        )
    found = stated if stated is not None else rank_in_name(source.name)
    if stated is None and found is not None and rank is not None and rank != found:
        problems.append(
            Problem(
                "rank_disagrees",
                f"the name says rank {found}, --rank said {rank}: --rank is believed, "
                "because the trace itself does not say",
            )
        )
        found = rank
    if found is None:
        found = rank
    world = distributed_info(meta).get("world_size")
    if world is not None and ((size := as_size(world)) is None or (stated or 0) >= size):
        what = f"world_size is {short(world)}, which does not go with rank {found}"
        problems.append(Problem("bad_world_size", what))
    if found is None:
        raise RankUnknown(
            ("" if claimed is None else f"it says rank {short(claimed)}, which is none; ")
            + "neither its content nor its name says which rank wrote it: give it with --rank N",
            path=source.name,
        )
    if relative and base_ns is None:
        problems.append(
            Problem(
                "no_time_base",
                "times are relative and no baseTimeNanoseconds is left to make them absolute: "
                "they are kept as they are, and other ranks' times may not be comparable",
            )
        )
    if some_time_ns is not None and not relative and base_ns:
        problems.append(
            Problem(
                "time_base_unused",
                f"baseTimeNanoseconds is {base_ns} but times are absolute already: not added",
                "info",
            )
        )
    return Header(found, (base_ns or 0) if relative else 0, meta, tuple(problems))


def devices(meta: dict) -> list[dict]:
    """The devices listed in the metadata (`computeProperties` in traces of 2021)."""
    listed = meta.get("deviceProperties") or meta.get("computeProperties") or []
    return [d for d in listed if isinstance(d, dict)] if isinstance(listed, list) else []


def parse_rank_list(text: object, most: int = MAX_RANK) -> tuple[tuple[int, ...], bool]:
    """Numbers of a list given as a list or as text, and whether all are there.

    Text of more than 30 numbers is cut by its writer to `[a, b, ..., z]`. A list with a number
    that is negative or over `most` says nothing.
    """
    if isinstance(text, list):
        numbers = [as_int(v) for v in text]
        whole = None not in numbers
    elif isinstance(text, str):
        numbers = [as_int(v) for v in re.findall(r"-?\d+", text, re.ASCII)]
        whole = "..." not in text and text.rstrip().endswith("]")
    else:
        return (), False
    known = tuple(n for n in numbers if n is not None)
    strange = any(not 0 <= n <= most for n in known)
    if strange or (isinstance(text, str) and len(known) < len(numbers)):
        return (), False
    return known, whole


def rebuild_ranks(
    visible: tuple[int, ...], size: int | None, start: int | None = None, stride: int | None = None
) -> tuple[int, ...] | None:
    """All members of a group from what a cut list shows: an evenly spaced one, checked at each end.

    `start` and `stride` are the writer's own where it gives them. None where the visible members
    and the size do not agree with even spacing.
    """
    if not size or size < 0 or size > MAX_MEMBERS:
        return None
    if start is None or start < 0 or stride is None or stride <= 0:
        if len(visible) < 3:
            return None
        start, stride = visible[0], visible[1] - visible[0]
    members = range(start, start + size * stride, stride) if stride > 0 else range(0)
    if len(members) != size or members[-1] > MAX_RANK:
        return None
    if visible:
        shown = visible[:-1]
        if tuple(members[: len(shown)]) != shown or members[-1] != visible[-1]:
            return None
    return tuple(members)


def groups(meta: dict) -> list[Group]:
    """The process groups of `pg_config`, their members rebuilt where the list was cut."""
    info = distributed_info(meta)
    config = info.get("pg_config")
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except ValueError:
            config = None
    if isinstance(config, dict):
        config = [{"pg_name": k, **v} for k, v in config.items() if isinstance(v, dict)]
    out = []
    world = as_size(info.get("world_size"))
    for entry in config if isinstance(config, list) else []:
        if not isinstance(entry, dict) or entry.get("pg_name") is None:
            continue
        description = entry.get("pg_desc")
        size = as_size(entry.get("pg_size"))
        ranks, whole = parse_rank_list(entry.get("ranks"))
        if size is None and whole and ranks:
            size = len(ranks)
        members: tuple[int, ...] | None = ranks if whole and ranks and len(ranks) == size else None
        if members is None and not whole:
            members = rebuild_ranks(ranks, size)
        if members is None and size and size == world and size <= MAX_MEMBERS:
            members = tuple(range(size))
        out.append(
            Group(
                str(entry["pg_name"]),
                description if isinstance(description, str) else None,
                members,
                size,
                backend_of(entry.get("backend_config")),
            )
        )
    return out


def backend_of(config: object) -> str | None:
    """`nccl` from `cuda:nccl`; with several, those of devices before the CPU's, joined by `+`."""
    if not isinstance(config, str) or not config:
        return None
    pairs = [p.rpartition(":") for p in config.split(",")]
    pairs.sort(key=lambda p: p[0] == "cpu")
    return "+".join(dict.fromkeys(backend.strip() for _, _, backend in pairs))
