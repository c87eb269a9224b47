"""Communicators: what ranks know of one, and one for rows that name none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from .. import schema
from .instances import LONE, Instances
from .lists import coded
from .participations import Comms, Rows, codes, ints, runs

_pc: Any = pyarrow.compute
_NULL = -(1 << 63)

UNNAMED = "unnamed"
"""First part of the identity of a communicator that no rank names."""


def merge(comms: pa.Table) -> tuple[pa.Table, Comms]:
    """One row a communicator: what any rank knew about it, the lowest text where they differ.

    The rows are by identity, texts plain; the second has the same communicators in this order.
    """
    comms = _plain(comms.select(_KNOWN))
    if not comms.num_rows:
        return comms, Comms([], [], np.zeros(0, np.int64))
    comm, texts = codes(comms.column("comm"))
    order, first = runs(comm)
    named = comm[order[first]] >= 0
    many = np.diff(np.append(first, len(order)))
    merged = comms.take(pa.array(order[first[named]]))
    several = np.flatnonzero(named & (many > 1))
    if len(several):
        rows = [comms.take(pa.array(order[first[i] : first[i] + many[i]])) for i in several]
        made = _plain_rows([_one(r.to_pylist()) for r in rows])
        merged = with_rows(merged, comm[order[first[several]]], made)
    lists = coded(merged.column("ranks"))
    held = [*(_members(ranks) for ranks in lists.distinct), None]
    members = [held[k] for k in lists.code.tolist()]
    n_members = np.array([-1 if m is None else len(m) for m in held], np.int64)[lists.code]
    size = np.where(n_members >= 0, n_members, np.maximum(ints(merged, "size"), 0))
    size[(size == 0) & (n_members < 0)] = -1
    return merged, Comms(texts, members, size)


_KNOWN = ["comm", "name", "description", "ranks", "size", "dim", "dim_source", "backend"]


def _plain(rows: pa.Table) -> pa.Table:
    """With texts as they are, for which no dictionary has to fit."""
    kinds = [(f.name, pa.string() if f.type == schema.TEXT else f.type) for f in rows.schema]
    return rows.cast(pa.schema(kinds))


def _plain_rows(rows: list[dict]) -> pa.Table:
    columns = {c: [r.get(c) for r in rows] for c in _KNOWN}
    return _plain(pa.Table.from_batches([schema.COMMS.batch(columns)]).select(_KNOWN))


def with_rows(table: pa.Table, at: np.ndarray, rows: pa.Table) -> pa.Table:
    """The table with these rows in place of those `at`."""
    index = np.arange(len(table))
    index[at] = len(table) + np.arange(len(at))
    return pa.concat_tables([table, rows]).take(pa.array(index))


def _one(rows: list[dict]) -> dict:
    """What several rows say of one communicator."""
    rows.sort(key=lambda r: tuple("" if v is None else str(v) for v in r.values()))
    into = dict(rows[0])
    for row in rows:
        for key, value in row.items():
            if into[key] is None or (key in ("dim", "dim_source") and into["dim"] == "unknown"):
                into[key] = value
    return into


def _members(ranks: list[int | None]) -> tuple[int, ...] | None:
    """Members in order of rank; None where a place has none, or one has two: nobody knows then."""
    if len(set(ranks)) < len(ranks):
        return None
    known = [r for r in ranks if r is not None]
    return tuple(sorted(known)) if len(known) == len(ranks) else None


def extended(known: Comms) -> Comms:
    """With nothing known of the names that came after those that `merge` gave."""
    more = len(known.names) - len(known.members)
    size = np.append(known.size, np.full(more, -1, dtype=np.int64))
    return Comms(known.names, [*known.members, *([None] * more)], size)


def world_size(ranks: pa.Table) -> int | None:
    """Ranks of the job, where the sources agree on it."""
    sizes = [v for v in set(ranks.column("world_size").to_pylist()) if v is not None]
    return int(sizes[0]) if len(sizes) == 1 else None


def lend(rows: Rows, known: Comms) -> np.ndarray:
    """comm of each row, those without one getting their stream's where it serves one comm only.

    A rank without any named row on a stream may borrow what that stream serves on every other
    rank, if it is a member. Whether the row really belongs there is for order and time to say.
    """
    comm = rows.comm.copy()
    lack = (comm < 0) & (rows.stream >= 0) & ~rows.recorded & ~rows.p2p & ~rows.loose & rows.timed
    have = (comm >= 0) & (rows.stream >= 0)
    if not lack.any() or not have.any():
        return comm
    places = np.unique(np.stack([rows.rank[have], rows.stream[have], comm[have]], 1), axis=0)
    one: dict[tuple[int, int], set[int]] = {}
    anywhere: dict[int, set[int]] = {}
    for r, s, c in places.tolist():
        one.setdefault((r, s), set()).add(c)
        anywhere.setdefault(s, set()).add(c)
    for r, s in np.unique(np.stack([rows.rank[lack], rows.stream[lack]], 1), axis=0).tolist():
        choice = one.get((r, s))
        if choice is None:
            choice = {c for c in anywhere.get(s, ()) if r in (known.members[c] or ())}
            if choice != anywhere.get(s):
                continue
        if len(choice) == 1:
            comm[lack & (rows.rank == r) & (rows.stream == s)] = next(iter(choice))
    return comm


def unnamed_world(
    rows: Rows, known: Comms, names: pa.Table, world: int | None
) -> tuple[Rows, Comms, pa.Table]:
    """A trial communicator of all ranks for streams on which no rank names one.

    Only where most ranks of the job are here and each has operations on that stream; it is kept
    only where every operation on it is then found on all ranks that are here (`drop_unproven`).
    """
    if world is None or world < 2:
        return rows, known, names
    free = ~rows.recorded & ~rows.p2p & ~rows.loose & rows.timed
    lack = (rows.comm < 0) & (rows.stream >= 0) & free
    named = set(np.unique(rows.stream[(rows.comm >= 0)]).tolist())
    comm = rows.comm.copy()
    texts, members, size = list(known.names), list(known.members), known.size
    for stream in sorted(set(np.unique(rows.stream[lack]).tolist()) - named):
        here = lack & (rows.stream == stream)
        seen = np.unique(rows.rank[here])
        if 2 * len(seen) < world or len(seen) < 2 or len(seen) < len(np.unique(rows.rank)):
            continue
        text = f"{UNNAMED}/stream {stream}"
        comm[here] = len(texts)
        texts.append(text)
        members.append(tuple(range(world)))
        size = np.append(size, world)
        row = {"comm": text, "ranks": list(range(world)), "size": world, "dim": "world",
               "dim_source": "members"}  # fmt: skip
        names = pa.concat_tables([names, _plain_rows([row])])
    return rows._replace(comm=comm), Comms(texts, members, size), names


def drop_unproven(rows: Rows, state: Instances, known: Comms) -> Rows:
    """Rows without the trial communicators that order did not confirm.

    An instance of one stands only if every rank that has operations on that stream is in it.
    """
    if not len(rows.comm):  # communicators without operations there may be many of
        return rows
    trial = np.array([t.startswith(f"{UNNAMED}/") for t in known.names] + [False])
    index = np.flatnonzero(trial[rows.comm])
    if len(index) == 0:
        return rows
    present = np.zeros(len(known.names), dtype=np.int64)
    pairs = np.unique(np.stack([rows.comm[index], rows.rank[index]], 1), axis=0)
    np.add.at(present, pairs[:, 0], 1)
    joined = index[state.group[index] >= 0]
    seen = np.bincount(state.group[joined], minlength=1)
    short = joined[seen[state.group[joined]] < present[rows.comm[joined]]]
    state.group[short] = -1
    state.how[short] = LONE
    comm = rows.comm.copy()
    comm[index[state.group[index] < 0]] = -1
    return rows._replace(comm=comm)


def comms_table(names: pa.Table, known: Comms, world: int | None, used: set[int]) -> pa.Table:
    """One row a comm; dim `world` where the members are all ranks of the job.

    `names` are the rows that `merge` and `unnamed_world` gave; communicators that only rows of
    operations name follow those of `merge`.
    """
    if not known.names:
        return schema.COMMS.empty
    texts = pa.array(known.names, pa.string())
    keep = ~_pc.starts_with(texts, f"{UNNAMED}/").to_numpy(zero_copy_only=False)
    keep[sorted(used)] = True
    kept = np.flatnonzero(keep)
    place = _pc.index_in(texts, names.column("comm").combine_chunks())
    rest = texts.filter(place.is_null())
    at = place.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    at[place.is_null().to_numpy(zero_copy_only=False)] = len(names) + np.arange(len(rest))
    more = _plain_rows([{"comm": text} for text in rest.to_pylist()])
    rows = pa.concat_tables([names, more]).take(pa.array(at[kept]))
    whole = np.zeros(len(known.names), bool)
    for code in np.flatnonzero(known.size == (world or -1)).tolist():
        whole[code] = _is_world(known.members[code], world)
    whole = pa.array(whole[kept])
    said = ints(rows, "size", _NULL)
    size = np.where((said == _NULL) & (known.size[kept] > 0), known.size[kept], said)
    dim, source = (rows.column(c).combine_chunks() for c in ("dim", "dim_source"))
    open_ = _pc.or_(_pc.is_null(dim), _pc.equal(dim, "unknown").fill_null(True))
    columns = {c: rows.column(c).combine_chunks() for c in _KNOWN} | {
        "size": pa.array(size, pa.int32(), mask=size == _NULL),
        "dim": _pc.if_else(open_, _pc.if_else(whole, "world", "unknown"), dim),
        "dim_source": _pc.if_else(open_, _pc.if_else(whole, "members", "none"), source),
    }
    return pa.Table.from_batches([schema.COMMS.batch(columns)])


def _is_world(members: tuple[int, ...] | None, world: int | None) -> bool:
    """Whether members (in order, each once) are all ranks of the job."""
    if not members or len(members) != world:
        return False
    return members[0] == 0 and members[-1] == len(members) - 1
