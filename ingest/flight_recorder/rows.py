"""Rows of a Flight Recorder dump: participations, coalesced blocks folded, groups and progress."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .. import classify
from ..kineto.comms import identity
from ..schema import MAX_RANK, event_id
from .read import Dump, Entry, Group

if TYPE_CHECKING:
    import pyarrow as pa

    from ..collect import Collector

SPACE = "flight-recorder"
_ENDS = re.compile(r"(send|recv)\s+(\d{1,9})\s*(->|<-)\s*(\d{1,9})", re.ASCII)


class Operation(NamedTuple):
    """One participation: its entries (several where a block of equal collectives is one), the
    entry that tells its state and times, and how many share them."""

    entries: list[Entry]
    told_by: Entry
    coalesced: int | None


def add_rows(dump: Dump, rank: int, c: Collector) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields the batches of a dump that `rank` wrote."""
    groups = _named(dump)
    polled = False
    for e in dump.entries:
        if e.group is not None and e.group not in groups:
            told = "an entry of a group that pg_config does not list: its members stay unknown"
            c.odd("group_not_listed", told, rank=rank)
            groups[e.group] = Group(e.group, e.description, None)
    backends = {e.group: e.name.split(":", 1)[0] for e in dump.entries if ":" in e.name}
    _add_comms(groups.values(), backends, rank, c)
    mixed = {e.group_id for e in dump.entries if e.is_p2p}
    done = {s.group_id: s.completed for s in dump.status
            if s.completed is not None and s.group_id not in mixed}  # fmt: skip
    for operation in operations(dump.entries):
        polled |= _add(operation, groups, done, rank, c)
        yield from c.full()
    _add_progress(dump, groups, rank, c)
    world = _world(dump)
    if world is not None and rank >= world:
        told = f"rank {rank} of a world of {world}: does its name end in the rank?"
        c.odd("rank_beyond_world", told, rank=rank)
    elif dump.common_members and rank not in dump.common_members:
        told = f"its groups are not those of rank {rank}: does its name end in the rank?"
        c.odd("rank_not_in_groups", told, rank=rank)
    c.add("ranks", rank=rank, world_size=world, clock="host" if polled else "none",
          source=c.source.name)  # fmt: skip
    _tell(dump, rank, c)
    yield from c.rest()


def _named(dump: Dump) -> dict[str, Group]:
    """The groups by name. Gloo's are recorded before they have one: if there is only one group,
    the nameless members are its."""
    groups = {g.name: g for g in dump.groups}
    used = {(e.group, e.description) for e in dump.entries}
    if set(groups) == {""} and len(used) == 1:
        name, description = used.pop()
        if name is not None:
            return {name: Group(name, description, groups[""].ranks)}
    return groups


def operations(entries: list[Entry]) -> Iterator[Operation]:
    """Participations of entries in the order of recording; each entry is in one at most.

    A coalesced block is its members, which have no times, and a closing entry of the same group
    and number whose name ends in `coalesced`. Members of one kind of collective are one
    participation; others are one each, and share the closing entry's state and times.
    """
    open_blocks: dict[tuple, list[int]] = {}
    closed: dict[int, tuple[list[int], int]] = {}
    for i, e in enumerate(entries):
        key = (e.group_id, e.group)
        block = open_blocks.get(key, [])
        same = [j for j in block if _number(entries[j]) == _number(e)]
        if _closes(e) and same:
            for j in same:
                closed[j] = (same, i)
            closed[i] = ([], i)
            open_blocks[key] = []
        else:
            open_blocks[key] = [*same, i]
    for i, e in enumerate(entries):
        members, closing = closed.get(i, ([i], i))
        if not members:
            continue
        inside = [entries[j] for j in members]
        one = len({m.name for m in inside}) == 1 and not e.is_p2p
        n = len(inside) if len(inside) > 1 else None
        if not one:
            yield Operation([e], entries[closing], n)
        elif i == members[0]:
            yield Operation(inside, entries[closing], n)


def _number(e: Entry) -> tuple[int | None, int | None]:
    return e.collective_seq, e.p2p_seq


def _closes(e: Entry) -> bool:
    return e.name.rsplit(":", 1)[-1].endswith("coalesced")


def _add(
    operation: Operation,
    groups: dict[str, Group],
    done: dict[int, int],
    rank: int,
    c: Collector,
) -> bool:
    """Adds one participation; gives whether a watchdog saw it start and complete."""
    e, told = operation.entries[0], operation.told_by
    group = groups.get(e.group) if e.group is not None else None
    op = classify.op_of_collective_name(e.name) or "unknown"
    if _closes(e) and op == "send_recv" and not e.is_p2p:
        op = "unknown"  # a block whose members were not recorded (before PyTorch 2.7)
    peer = None
    if e.is_p2p or op in ("send", "recv"):
        peer = _peer(e, op, group, rank, c)
    in_bytes, in_dtype = _bytes([(x.in_sizes, x.in_dtypes) for x in operation.entries])
    out_bytes, out_dtype = _bytes([(x.out_sizes, x.out_dtypes) for x in operation.entries])
    if (in_bytes is None and e.in_sizes) or (out_bytes is None and e.out_sizes):
        c.odd("size_unknown", "an operation whose element type is not known; its bytes are null",
              rank=rank)  # fmt: skip
    state = told.state
    numbered = not e.is_p2p and op not in ("send", "recv", "send_recv")
    last = done.get(e.group_id) if e.group_id is not None else None
    if state == "scheduled" and numbered and last is not None and (e.collective_seq or 0) <= last:
        # An entry without an event of its own never learns that it has completed.
        state = "completed"
    # A poll comes long after what it finds: even where the duration was measured apart, no start or
    # end of the kernel follows from it.
    start, end, timing = None, None, None
    if told.started_ns and told.completed_ns and told.completed_ns >= told.started_ns:
        start, end, timing = told.started_ns, told.completed_ns, "watchdog"
    exec_ns = None if told.duration_ms is None else round(told.duration_ms * 1e6)
    c.add(
        "collectives",
        comm=_comm(group, e),
        seq=e.collective_seq if numbered else None,
        rank=rank,
        op=op,
        dtype=in_dtype or out_dtype,
        in_bytes=in_bytes,
        out_bytes=out_bytes,
        group_size=len(group.ranks) if group is not None and group.ranks else None,
        peer=peer,
        start_ns=start,
        end_ns=end,
        event_id=event_id(rank, SPACE, e.record_id),
        coalesced=operation.coalesced,
        exec_ns=exec_ns,
        enqueued_ns=e.created_ns,
        state=state,
        timing=timing,
        clock="host" if timing else None,
        source=SPACE,
    )
    return timing is not None


def _comm(group: Group | None, e: Entry) -> str | None:
    if group is not None:
        ranks = group.ranks
        return identity(group.name, ranks, len(ranks) if ranks else None)
    return None if e.group is None else identity(e.group, None, None)


def _peer(e: Entry, op: str, group: Group | None, rank: int, c: Collector) -> int | None:
    """The global rank of the other end, which the name tells as its place in the group."""
    found = _ENDS.search(e.name)
    if found is None:
        if op in ("send", "recv"):
            c.odd("peer_unknown", "a send or receive whose name does not tell the other end",
                  rank=rank)  # fmt: skip
        return None
    if group is None or group.ranks is None:
        return None
    mine, other = int(found.group(2)), int(found.group(4))
    if max(mine, other) >= len(group.ranks):
        c.odd("peer_unknown", "a send or receive between places that its group does not have",
              rank=rank)  # fmt: skip
        return None
    if group.ranks[mine] != rank:
        told = f"an operation of rank {group.ranks[mine]}: does its name end in the rank?"
        c.odd("rank_not_in_groups", told, rank=rank)
    return group.ranks[other]


def _bytes(tensors: list[tuple]) -> tuple[int | None, str | None]:
    """Bytes of all tensors, and the element type of the first; None where not known."""
    total, first = 0, None
    known = False
    for sizes, dtypes in tensors:
        if sizes is None or dtypes is None or len(sizes) != len(dtypes):
            return None, first
        for shape, name in zip(sizes, dtypes, strict=True):
            dtype = classify.dtype_of(name)
            if dtype is None:
                return None, first
            first = first or dtype.name
            total += math.prod(shape) * dtype.itemsize
            known = True
    return (total if known else None), first


def _add_comms(groups, backends: dict, rank: int, c: Collector) -> None:
    for g in groups:
        ranks = g.ranks
        dim = classify.dim_of_description(g.description) or classify.dim_of_description(g.name)
        c.add(
            "comms",
            comm=identity(g.name, ranks, len(ranks) if ranks else None),
            name=g.name,
            description=g.description,
            ranks=list(ranks) if ranks else None,
            size=len(ranks) if ranks else None,
            dim=dim or "unknown",
            dim_source="description" if dim else "none",
            backend=backends.get(g.name),
            member=rank,
            member_place=ranks.index(rank) if ranks and rank in ranks else None,
        )


def _add_progress(dump: Dump, groups: dict[str, Group], rank: int, c: Collector) -> None:
    """A group's status goes by a number that only its entries join to a name."""
    names: dict[int, set[str]] = {}
    for e in dump.entries:
        if e.group_id is not None and e.group is not None:
            names.setdefault(e.group_id, set()).add(e.group)
    unnamed = 0
    for s in dump.status:
        found = names.get(s.group_id, set())
        group = groups[next(iter(found))] if len(found) == 1 else None
        unnamed += group is None
        ranks = group.ranks if group else None
        c.add(
            "progress",
            rank=rank,
            comm=identity(group.name, ranks, len(ranks) if ranks else None) if group else None,
            group_id=s.group_id,
            last_enqueued=s.enqueued,
            last_started=s.started,
            last_completed=s.completed,
            source=SPACE,
        )
    if unnamed:
        told = "groups with a status but without an entry here: which ones they are is not said"
        c.odd("groups_without_entry", told, "info", rank=rank, count=unnamed)


def _world(dump: Dump) -> int | None:
    default = [g for g in dump.groups if g.ranks and g.description == "default_pg"]
    default = default or [g for g in dump.groups if g.ranks and g.name == "0"]
    size = len(default[0].ranks or ()) if default else 0
    return size if 0 < size <= MAX_RANK + 1 else None


def _tell(dump: Dump, rank: int, c: Collector) -> None:
    """What the dump does not hold."""
    entries = dump.entries
    if not entries:
        told = "nothing was under way on this rank, or its recorder held nothing"
        c.odd("no_entries", told, "info", rank=rank)
        return
    first, last = entries[0].record_id, entries[-1].record_id
    missing = last - first + 1 - len({e.record_id for e in entries})
    if missing > 0 and not any(e.state == "completed" for e in entries):
        told = f"only operations that had not completed are in it, from number {first} on"
        c.odd("only_active", told, "info", rank=rank, count=missing)
    elif missing > 0:
        told = "numbers of operations that are left out between the others"
        c.odd("entries_missing", told, "warning", rank=rank, count=missing)
    if first > 0:
        told = f"what it holds begins at operation {first}: ranks may begin at different ones"
        c.odd("window", told, "info", rank=rank)
    if dump.n_frames:
        told = "stacks of the calls that enqueued operations are not stored"
        c.odd("frames_not_stored", told, "info", rank=rank, count=dump.n_frames)
