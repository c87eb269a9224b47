"""Chakra execution traces of a job: a file a rank, as simulators and their feeder read them.

Numbers of fields and of enums are those of `schema/protobuf/et_def.proto`. A file is a row of
messages, each behind its length: GlobalMetadata, a METADATA_NODE that lists the process groups,
then nodes in the order of their starts. Ids rise, and a node follows only lower ones, so there are
no cycles. All that a node follows stands in `data_deps`, which every feeder heeds: the activity
before it on its stream, its launch, what its stream or thread waited for, and on a host thread
what came before.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from ...ingest.errors import UnusableInput, UsageError
from ...replay.load import read
from .. import outfile
from . import wire
from .chosen import ON_HOST, Chosen
from .et_nodes import Nodes, of_ranks

if TYPE_CHECKING:
    from ..doors import Job

VERSION = "0.0.4"
METADATA, COMPUTE, SEND, RECV, COLLECTIVE = 1, 4, 5, 6, 7
FIRST = 1
"""Id of the node that lists the groups; the others follow it."""

COMM_TYPES = {
    "all_reduce": 0, "reduce": 1, "all_gather": 2, "gather": 3, "scatter": 4, "broadcast": 5,
    "all_to_all": 6, "reduce_scatter": 7, "barrier": 9,
}  # fmt: skip

INIT = "## process_group:init ##"
MAX_NAME = 1000
MAX_TIME = (1 << 63) - 1


class Group(NamedTuple):
    """A communicator as a trace names it: a number in a text, since simulators read one."""

    name: str
    description: str
    ranks: list[int] | None
    size: int | None


def write(job: Job, folder: Path, chosen: Chosen) -> dict[str, Any]:
    """Writes `trace.RANK.et` for each rank with anything to show, and counts what is in them.

    Returns `path`, `paths`, `format`, `nodes`, `collectives`, `deps`, `bytes`, `warnings`. Raises
    UsageError for a rank or step that there is not, UnusableInput where nothing is left.
    """
    files = job.snapshot.files
    known = sorted(read(files, "ranks")["rank"].unique().to_list())
    for rank in chosen.ranks or ():
        if rank not in known:
            raise UsageError(f"the job has no rank {rank}; it has {known[0]} to {known[-1]}")
    steps = read(files, "steps")["step"].unique().to_list()
    for step in chosen.steps or ():
        if step not in steps:
            raise UsageError(f"the job has no step {step}; it has {sorted(steps) or 'none'}")
    groups = groups_of(read(files, "comms"))
    outfile.folder(folder)
    told = {"paths": [], "nodes": 0, "collectives": 0, "deps": 0, "bytes": 0, "plain": 0, "bare": 0}
    for rank, nodes in of_ranks(files, chosen.ranks or known, job.id):
        parts = read(files, "collectives", pl.col("rank") == rank)
        _write_rank(folder / f"trace.{rank}.et", rank, nodes, parts, groups, chosen, told)
    plain, bare = told.pop("plain"), told.pop("bare")
    if not told["nodes"]:
        raise UnusableInput(f"job {job.id!r} has nothing to replay in these ranks and steps")
    warnings = []
    if plain:
        warnings.append(
            f"{plain} communication kernels name no operation that Chakra has, or no peer: they "
            "are nodes that take their measured time"
        )
    if bare:
        warnings.append(f"{bare} collectives have no known size: they carry no comm_size")
    return {"path": str(folder), "format": "chakra", **told, "warnings": warnings}


def groups_of(comms: pl.DataFrame) -> dict[str, Group]:
    """The communicators by identity. A name that is no number, or that several have, is replaced
    by a number that none has; the description then begins with it."""
    rows = comms.unique("comm", keep="first", maintain_order=True).sort("comm")
    names = [n if n is not None else "" for n in rows["name"].cast(pl.String)]
    fits = [n.isascii() and n.isdecimal() and len(n) < 9 and names.count(n) == 1 for n in names]
    taken = {int(n) for n, fit in zip(names, fits, strict=True) if fit}
    free = (i for i in range(len(names) + len(taken) + 1) if i not in taken)
    found = {}
    for row, name, fit in zip(rows.iter_rows(named=True), names, fits, strict=True):
        about = row["description"] or ""
        number = name if fit else str(next(free))
        about = about if fit else " ".join(w for w in (name, about) if w)
        found[row["comm"]] = Group(number, about[:MAX_NAME], row["ranks"], row["size"])
    return found


def _write_rank(
    path: Path,
    rank: int,
    nodes: Nodes,
    parts: pl.DataFrame,
    groups: dict[str, Group],
    chosen: Chosen,
    told: dict[str, Any],
) -> None:
    wanted = [
        (chosen.steps is None or step in chosen.steps) and not (on_host and not _host(chosen))
        for step, on_host in zip(nodes.step.tolist(), nodes.on_host.tolist(), strict=True)
    ]
    if not any(wanted):
        return
    by_event: dict[int, list[dict[str, Any]]] = {}
    for row in parts.sort("start_ns", "event_id", "collective_id").iter_rows(named=True):
        by_event.setdefault(-1 if row["event_id"] is None else row["event_id"], []).append(row)
    with outfile.writing(path) as out:
        out.write(wire.delimited(wire.text(1, VERSION) + wire.data(2, _number("rank", 9, rank))))
        out.write(wire.delimited(_listing(groups)))
        _write_nodes(out.write, nodes, wanted, by_event, groups, told)
    told["paths"].append(str(path))
    told["bytes"] += path.stat().st_size


def _host(chosen: Chosen) -> bool:
    return chosen.has(*ON_HOST)


def _listing(groups: dict[str, Group]) -> bytes:
    """The node that lists the groups, its value in the form of PyTorch's own."""
    value = [
        {
            "pg_name": g.name,
            "pg_desc": g.description,
            "ranks": g.ranks or [],
            "group_size": g.size or len(g.ranks or []),
        }
        for g in groups.values()
        if g.ranks or g.size
    ]
    values = wire.text(1, "['" + json.dumps(value).replace("'", "\\u0027") + "']", 1 << 24)
    host = wire.data(10, _flag("is_cpu_op", True))
    return _node(FIRST, INIT, METADATA) + wire.data(8, values) + host


def _write_nodes(
    write: Any,
    nodes: Nodes,
    wanted: list[bool],
    by_event: dict[int, list[dict[str, Any]]],
    groups: dict[str, Group],
    told: dict[str, Any],
) -> None:
    # A kernel that sends and receives is several nodes: what follows it follows all of them.
    ids: list[list[int]] = []
    lane_of: dict[int, tuple[int, int, int]] = {}
    next_id = FIRST + 1
    streams: dict[tuple[int, int], bytes] = {}
    start, dur = nodes.start_ns.tolist(), nodes.dur_ns.tolist()
    ptr, deps = nodes.deps_ptr.tolist(), nodes.deps.tolist()
    events, sizes = nodes.event_id.tolist(), nodes.bytes.tolist()
    stream, device, thread = nodes.stream.tolist(), nodes.device.tolist(), nodes.thread.tolist()
    on_host, is_part = nodes.on_host.tolist(), nodes.part.tolist()
    host_op = wire.data(10, _flag("is_cpu_op", True))
    device_op = wire.data(10, _flag("is_cpu_op", False))
    for i, name in enumerate(nodes.name):
        before = sorted({d for j in deps[ptr[i] : ptr[i + 1]] for d in ids[j]})
        if not wanted[i]:
            # What is left out passes on what it followed, so that the order stays: the last of
            # each stream and thread, which follows those before it there.
            last = {lane_of[d]: d for d in before}
            ids.append(list(last.values()))
            continue
        where = b""
        if stream[i] >= 0:
            key = device[i], stream[i]
            if key not in streams:
                streams[key] = wire.data(10, _number("stream", 9, stream[i]))
                if device[i] >= 0:
                    streams[key] += wire.data(10, _number("device", 9, device[i]))
            where = streams[key]
        elif thread[i] >= 0:
            where = wire.data(10, _number("tid", 9, thread[i]))
        pieces: list[tuple[int, str, bytes]] = []
        if is_part[i]:
            pieces = _communication(by_event.get(events[i], []), groups, told)
            told["plain"] += not pieces
        if not pieces:
            moved = wire.data(10, _number("tensor_size", 13, sizes[i])) if sizes[i] > 0 else b""
            pieces = [(COMPUTE, name, (host_op if on_host[i] else device_op) + moved)]
        else:
            pieces = [(kind, label or name, device_op + attrs) for kind, label, attrs in pieces]
            told["collectives"] += 1
        times = wire.number(6, max(start[i], 0) // 1000) + wire.number(7, (dur[i] + 500) // 1000)
        followed = wire.packed(5, before)
        mine = []
        for kind, label, attrs in pieces:
            write(
                wire.delimited(
                    _node(next_id, label, kind) + followed + times + attrs + where
                )
            )  # fmt: skip
            mine.append(next_id)
            lane_of[next_id] = (device[i], stream[i], thread[i])
            next_id += 1
        ids.append(mine)
        told["nodes"] += len(mine)
        told["deps"] += len(before) * len(mine)


def _communication(
    rows: list[dict[str, Any]], groups: dict[str, Group], told: dict[str, Any]
) -> list[tuple[int, str, bytes]]:
    """Type, name ("" for the kernel's own) and attributes of the nodes of a participation.

    A collective is one node, with the bytes of all that share its kernel; each send and receive
    is one. None where Chakra has no word for it.
    """
    found: list[tuple[int, str, bytes]] = []
    first = rows[0] if rows else {}
    group = groups.get(first.get("comm") or "")
    named = wire.data(10, _text("pg_name", group.name)) if group is not None else b""
    if first.get("op") in COMM_TYPES:
        sizes = [r["in_bytes"] if r["in_bytes"] is not None else r["out_bytes"] for r in rows]
        attrs = wire.data(10, _number("comm_type", 9, COMM_TYPES[first["op"]])) + named
        if all(s is not None for s in sizes):
            attrs += wire.data(10, _number("comm_size", 9, sum(sizes)))
        elif first["op"] != "barrier":
            told["bare"] += 1
        return [(COLLECTIVE, "", attrs + _dtype(first))]
    for row in rows:
        if row["peer"] is None or row["op"] not in ("send", "recv", "send_recv"):
            return []
        for kind, op, key, end, size in (
            (SEND, "send", "comm_dst", "comm_src", row["in_bytes"]),
            (RECV, "recv", "comm_src", "comm_dst", row["out_bytes"]),
        ):
            if row["op"] in (op, "send_recv"):
                attrs = wire.data(10, _number(key, 7, row["peer"])) + named + _dtype(row)
                attrs += wire.data(10, _number(end, 7, row["rank"]))
                attrs += wire.data(10, _number("comm_tag", 7, 0))
                if size is not None:
                    attrs += wire.data(10, _number("comm_size", 9, size))
                else:
                    told["bare"] += 1
                found.append((kind, "" if row["op"] == op else op, attrs))
    return found


def _dtype(row: dict[str, Any]) -> bytes:
    return wire.data(10, _text("dtype", row["dtype"])) if row["dtype"] else b""


def _node(ident: int, name: str, kind: int) -> bytes:
    return wire.number(1, ident) + wire.text(2, name, MAX_NAME) + wire.number(3, kind)


def _number(name: str, field: int, value: int) -> bytes:
    """An AttributeProto with an integer: field 7 (int32), 9 (int64) or 13 (uint64)."""
    return wire.text(1, name) + wire.number(field, value)


def _flag(name: str, value: bool) -> bytes:
    return wire.text(1, name) + wire.number(27, int(value))


def _text(name: str, value: str) -> bytes:
    return wire.text(1, name) + wire.text(29, value)
