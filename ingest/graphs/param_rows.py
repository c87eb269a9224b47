"""Rows of a PARAM basic communication trace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from .. import classify
from ..collect import Collector
from ..errors import UnusableInput
from ..kineto.comms import Comm
from ..kineto.header import parse_rank_list
from ..schema import event_id
from ..values import as_int, as_size, integer
from .et_calls import MOST_ROWS, P2P, ROOTED
from .groups import Groups
from .json_items import Items
from .names import rank_told

if TYPE_CHECKING:
    from ..sources import Source

OPENS = re.compile(rb"\A[\xef\xbb\xbf \t\r\n]*\[")
STARTS = re.compile(rb'\{[ \t\r\n]*"\w{1,40}"[ \t\r\n]*:')
MAX_REQUESTS = 1 << 20
MAX_NAME = 1000

Batch = tuple[str, pa.RecordBatch]


def tables_of(source: Source, rank: int | None) -> Iterator[Batch]:
    """The tables of one trace; see `param_comms.parse`."""
    found = rank_told(source, rank, "PARAM")
    c = Collector(source)
    groups = Groups()
    requests: dict[int, int] = {}
    n = lost = 0
    for offset, raw in Items(source, OPENS, STARTS, c.odd):
        place, n = n, n + 1
        name = raw.get("comms")
        if isinstance(name, str):
            _comms(c, groups, requests, raw, name[:MAX_NAME], place, found)
        elif isinstance(raw.get("compute"), str):
            _node(c, raw, place, found, raw["compute"][:MAX_NAME], "compute")
        else:
            lost += 1
            c.odd("lost_node", "an entry that is neither comms nor compute; left out", "lost",
                  offset=offset)  # fmt: skip
        if not n % 4096:
            yield from c.full()
    if n == lost:
        raise UnusableInput("has no entry that can be read", path=source.name)
    groups.add_rows(c, found, None)
    yield from c.rest()


def _comms(
    c: Collector, groups: Groups, requests: dict[int, int], raw: dict, name: str, place: int,
    rank: int,
) -> None:  # fmt: skip
    bare = re.sub(r"[^a-z]", "", name.lower())
    group = as_int(raw.get("pg_id"))
    request = as_int(raw.get("req"))
    if bare == "init":
        if group is not None:
            ranks = raw.get("global_ranks")
            groups.add(
                {
                    "pg_name": str(group),
                    "ranks": ranks if isinstance(ranks, list) else [],
                    "group_size": raw.get("world_size"),
                }
            )
        _node(c, raw, place, rank, name, "metadata")
        return
    if bare == "wait":
        on = requests.get(request) if request is not None else None
        _node(c, raw, place, rank, name, "other", deps=None if on is None else [on])
        return
    op = classify.op_of_collective_name(name)
    if op is None or bare.startswith("batch"):  # the end of a group moves nothing of its own
        _node(c, raw, place, rank, name, "other")
        return
    if request is not None and len(requests) < MAX_REQUESTS:
        requests[request] = place
    size = as_size(raw.get("world_size"))
    comm = groups.only() if group is None else groups.of(str(group), None, size)
    dtype = classify.dtype_of(raw["dtype"][:100]) if isinstance(raw.get("dtype"), str) else None
    if raw.get("dtype") is not None and dtype is None:
        c.odd("unknown_dtype", "an element type that is not known; bytes are null")
    sizes = [_bytes(integer(raw.get(k)), dtype) for k in ("in_msg_size", "out_msg_size")]
    moved = max((b for b in sizes if b is not None), default=None)
    kind = op if op in ("send", "recv") else "collective"
    _node(c, raw, place, rank, name, kind, comm=comm, op=op, moved=moved)
    c.add(
        "collectives",
        rank=rank,
        comm=None if comm is None else comm.comm,
        op=op,
        dtype=None if dtype is None else dtype.name,
        in_bytes=sizes[0],
        out_bytes=sizes[1],
        group_size=comm.size if comm is not None else size,
        root=_rank(raw.get("root")) if op in ROOTED else None,
        peer=_rank(raw.get("src_rank" if op == "recv" else "dst_rank")) if op in P2P else None,
        in_splits=_splits(c, raw.get("in_split")),
        out_splits=_splits(c, raw.get("out_split")),
        event_id=event_id(rank, "param", place),
        source="param",
    )


def _rank(value: object) -> int | None:
    number = as_size(as_int(value))
    return number if number is not None else 0 if as_int(value) == 0 else None


def _bytes(nelems: int | None, dtype: classify.Dtype | None) -> int | None:
    return None if nelems is None or dtype is None or nelems < 0 else nelems * dtype.itemsize


def _splits(c: Collector, value: object) -> list[int] | None:
    if not isinstance(value, list) or not value:
        return None
    numbers, whole = parse_rank_list(value, MOST_ROWS)
    if not whole:
        c.odd("splits_truncated", "a list of splits with impossible numbers; null")
        return None
    return list(numbers)


def _node(
    c: Collector, raw: dict, place: int, rank: int, name: str, kind: str, *,
    comm: Comm | None = None, op: str | None = None, moved: int | None = None,
    deps: list[int] | None = None,
) -> None:  # fmt: skip
    c.add(
        "graph_nodes",
        rank=rank,
        node_id=place,
        name=name,
        kind=kind,
        data_deps=deps,
        start_ns=integer(raw.get("startTime_ns")),
        comm=None if comm is None else comm.comm,
        op=op,
        bytes=moved,
        source="param",
    )
