"""Communicators: what ranks know of one, and one for rows that name none."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import schema
from .instances import LONE, Instances
from .participations import Comms, Rows

UNNAMED = "unnamed"
"""First part of the identity of a communicator that no rank names."""


def merge(comms: pa.Table) -> tuple[dict[str, dict], Comms]:
    """One record a communicator: what any rank knew about it, the lowest text where they differ."""
    merged: dict[str, dict] = {}
    unique = comms.select(
        ["comm", "name", "description", "ranks", "size", "dim", "dim_source", "backend"]
    ).to_pylist()
    for row in sorted(unique, key=lambda r: tuple("" if v is None else str(v) for v in r.values())):
        if row["comm"] is None:
            continue
        into = merged.setdefault(row["comm"], dict(row))
        for key, value in row.items():
            if into[key] is None or (key in ("dim", "dim_source") and into["dim"] == "unknown"):
                into[key] = value
    texts = sorted(merged)
    members = [_members(merged[t]["ranks"]) for t in texts]
    size = np.array(
        [
            len(m) if m is not None else max(merged[t]["size"] or -1, -1)
            for t, m in zip(texts, members, strict=True)
        ],
        dtype=np.int64,
    )
    return merged, Comms(texts, members, size)


def _members(ranks: list[int | None] | None) -> tuple[int, ...] | None:
    """Members in order of rank; None where a place has none, or one has two: nobody knows then."""
    if ranks is None or len(set(ranks)) < len(ranks):
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
    rows: Rows, known: Comms, names: dict[str, dict], world: int | None
) -> tuple[Rows, Comms, dict[str, dict]]:
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
        names = names | {
            text: {
                "comm": text, "name": None, "description": None, "ranks": list(range(world)),
                "size": world, "dim": "world", "dim_source": "members", "backend": None,
            }
        }  # fmt: skip
    return rows._replace(comm=comm), Comms(texts, members, size), names


def drop_unproven(rows: Rows, state: Instances, known: Comms) -> Rows:
    """Rows without the trial communicators that order did not confirm.

    An instance of one stands only if every rank that has operations on that stream is in it.
    """
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


def comms_table(
    names: dict[str, dict], known: Comms, world: int | None, used: set[int]
) -> pa.Table:
    """One row a comm; dim `world` where the members are all ranks of the job."""
    out = []
    for code, text in enumerate(known.names):
        row = names.get(text)
        if row is None:
            row = dict.fromkeys(schema.COMMS.schema.names) | {"comm": text}
        if text.startswith(f"{UNNAMED}/") and code not in used:
            continue
        members = known.members[code]
        if row["dim"] in (None, "unknown"):
            whole = members is not None and world is not None and 0 < world == len(members)
            whole = whole and members == tuple(range(len(members or ())))
            row = row | {
                "dim": "world" if whole else "unknown",
                "dim_source": "members" if whole else "none",
            }
        if row["size"] is None and known.size[code] > 0:
            row = row | {"size": int(known.size[code])}
        out.append(row)
    columns: dict[str, object] = {c: [r.get(c) for r in out] for c in schema.COMMS.schema.names}
    return pa.Table.from_batches([schema.COMMS.batch(columns)])
