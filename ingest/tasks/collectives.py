"""Participations of a traced job: arrive, join over the ranks that were seen, transfer."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from .codes import distinct
from .device import Activities
from .events import KINDS
from .kinds import NULL, PIN_END, Kind
from .names import OpNames
from .piece import Piece
from .rows import first_of
from .tables import ints

FROM_ROOT = ("broadcast", "scatter")
TO_ROOT = ("reduce", "gather")
P2P = ("send", "recv", "send_recv")


class Participations(NamedTuple):
    """One an event (operations coalesced in a kernel together), by start; arrays [p]."""

    row: np.ndarray
    """The number of each among those of the whole job."""
    rank: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    step: np.ndarray
    op: np.ndarray
    comm: np.ndarray
    instance: np.ndarray
    """Dense code of the collective; of several in one kernel the first."""
    bytes: np.ndarray
    event: np.ndarray
    """`event_id`, or a negative number of its own."""
    event_id: np.ndarray
    """-1 where there is none."""
    group_size: np.ndarray
    algo: np.ndarray
    is_awaited: np.ndarray
    """bool: the others wait for its arrival."""
    waits: np.ndarray
    """bool: its transfer waits for the join."""

    def take(self, rows: np.ndarray) -> Participations:
        """Some of them."""
        return Participations(*(column[rows] for column in self))

    def __len__(self) -> int:
        return len(self.row)


class Collectives(NamedTuple):
    """All participations of a job, and what joins them."""

    parts: Participations
    also_row: np.ndarray
    """Participations of kernels that exchange with several peers, once for each further one."""
    also_instance: np.ndarray
    joins: dict[str, Any]
    """Columns of the join of each instance."""
    comm_names: list[str]
    warnings: list[str]


def collectives(frame: pl.DataFrame, comms: pl.DataFrame | None, ops: OpNames) -> Collectives:
    """The participations of a job from its table, in one clock.

    Every instance is joined over the ranks seen, as its operation waits. A transfer follows its own
    arrival and the join of all. Of a broadcast or scatter the join is the root's arrival, and the
    root follows its own alone; of a reduce or gather only the root follows the join. A kernel that
    exchanges with several peers is in the join with each.
    """
    rows = _one_an_event(frame)
    n = len(rows)
    known_comms = rows["comm"].cast(pl.String).fill_null("?")
    comm_names = known_comms.unique(maintain_order=True).to_list()
    start = ints(rows["start_ns"])
    words = rows["op"].cast(pl.String)
    root = rows["root"]
    rooted = root.is_not_null().to_numpy()
    at_root = (root == rows["rank"]).fill_null(False).to_numpy()
    from_root = words.is_in(FROM_ROOT).fill_null(False).to_numpy() & rooted
    to_root = words.is_in(TO_ROOT).fill_null(False).to_numpy() & rooted
    parts = Participations(
        row=np.arange(n),
        rank=ints(rows["rank"]),
        start_ns=start,
        end_ns=np.maximum(ints(rows["end_ns"]), start),
        step=ints(rows["step"], -1),
        op=ops.codes(rows["op"]),
        comm=ints(known_comms.cast(pl.Enum(comm_names)).to_physical()),
        instance=distinct(ints(rows["collective_id"]))[1],
        bytes=ints(rows["size"]),
        event=ints(rows["event"]),
        event_id=ints(rows["event_id"], -1),
        group_size=ints(rows["group_size"], -1),
        algo=ops.codes(_algorithms(rows, comms)),
        is_awaited=~(from_root & ~at_root),
        waits=~(from_root & at_root) & ~(to_root & ~at_root),
    )
    also_row, also = _further(rows, parts)
    paired = words.is_in(P2P).fill_null(False).to_numpy() & rows["peer"].is_not_null().to_numpy()
    joins, warnings = _joins(parts, also_row, also, paired)
    return Collectives(parts, also_row, also, joins, comm_names, warnings)


def _one_an_event(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of `collectives`, one an event, with `size` and `event` (the key).

    `instances` lists the collective_id of each peer of a point-to-point kernel with several; it is
    not there where no kernel has.
    """
    columns = ("rank", "start_ns", "end_ns", "step", "op", "comm", "collective_id", "event_id",
               "group_size", "algo", "root", "peer", "in_bytes", "out_bytes")  # fmt: skip
    rows = rows.select(columns).sort("start_ns", "event_id", "collective_id")
    op = rows["op"].cast(pl.String).to_numpy()
    size = size_bytes(op, ints(rows["in_bytes"], -1), ints(rows["out_bytes"], -1))
    number = pl.int_range(1, pl.len() + 1)
    rows = rows.with_columns(
        size=pl.Series(size, dtype=pl.Int64), event=pl.col("event_id").fill_null(-number)
    )
    if rows.select(pl.struct("rank", "event").n_unique()).item() < len(rows):
        rows = rows.group_by("rank", "event", maintain_order=True).agg(
            pl.exclude("size").first(),
            pl.col("size").sum(),
            pl.col("collective_id")
            .filter(pl.col("op").cast(pl.String).is_in(P2P) & pl.col("collective_id").is_not_null())
            .unique(maintain_order=True)
            .alias("instances"),
        )
    # An instance that nothing was matched with is its own.
    return rows.with_columns(pl.col("collective_id").fill_null(-number))


def size_bytes(op, in_bytes, out_bytes) -> np.ndarray:
    """The size M of each participation (int64 [k]) from op, input and output; 0 where unknown.

    The gathering operations are as large as their output, all others as their input; where only
    one of the two is known it stands for both.
    """
    in_bytes, out_bytes = np.asarray(in_bytes, np.int64), np.asarray(out_bytes, np.int64)
    by_output = np.isin(op, ["all_gather", "gather"])
    first = np.where(by_output, out_bytes, in_bytes)
    return np.where(first > 0, first, np.maximum(np.maximum(in_bytes, out_bytes), 0))


def _further(rows: pl.DataFrame, parts: Participations) -> tuple[np.ndarray, np.ndarray]:
    """Rows of kernels with several peers, and the code of each instance after their first."""
    if "instances" not in rows.columns:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    each = rows.select("collective_id", "instances").with_row_index("row")
    each = each.explode("instances").filter(pl.col("instances") != pl.col("collective_id"))
    known = rows.select(instances="collective_id", code=pl.Series(parts.instance))
    each = each.join(known.unique("instances"), on="instances", how="left", maintain_order="left")
    # an instance that is no kernel's first has no code yet
    many = int(parts.instance.max(initial=-1)) + 1
    new = many + distinct(ints(each["instances"]))[1]
    code = ints(each["code"], -1)
    code = np.where(code < 0, new, code)
    above = code >= many
    code[above] = many + distinct(code[above])[1]
    return ints(each["row"]), code


def _joins(
    parts: Participations, also_row: np.ndarray, also: np.ndarray, paired: np.ndarray
) -> tuple[dict[str, Any], list[str]]:
    """The columns of the joins, and what to say of collectives that were not seen whole."""
    n = len(parts)
    rows = np.concatenate([np.arange(n), also_row])
    instance = np.concatenate([parts.instance, also])
    many = int(instance.max(initial=-1)) + 1
    ready = np.full(many, np.iinfo(np.int64).min)
    np.maximum.at(ready, instance, parts.start_ns[rows])
    first = np.full(many, n)
    np.minimum.at(first, instance, rows)
    joins = {
        "kind": int(Kind.JOIN),
        "step": parts.step[first],
        "op": parts.op[first],
        "comm": parts.comm[first],
        "collective": np.arange(many),
        "release_ns": 0,
        "order_ns": ready,
    }
    wanted = np.where(paired, 2, parts.group_size)[rows]
    partial = np.bincount(instance)[instance] < wanted
    in_steps = parts.step[rows] >= 0
    k = len(distinct(instance[partial])[0])
    outside = k - len(distinct(instance[partial & in_steps])[0])
    if k == outside:
        return joins, []
    of_them = f" ({outside} of them outside all steps)" if outside else ""
    return joins, [
        f"{k} of {many} collectives were not seen on all their ranks{of_them}: they join the ranks "
        "seen, and what was spent waiting for the others counts as transfer"
    ]


def participations(piece: Piece, part: Participations, act: Activities) -> np.ndarray:
    """Adds the tasks of participations, and of all other device activities.

    Returns the row of the activity of each participation, int64 [p], -1 for one on the host.
    """
    rank = piece.place(part.rank)
    of = first_of(rank, part.event, act.rank, act.events.event_id, int(NULL))
    activity = np.full(len(part), -1, np.int64)
    on_device = np.flatnonzero(of >= 0)
    activity[of[on_device]] = on_device
    columns = {
        "rank": part.rank,
        "step": part.step,
        "op": part.op,
        "comm": part.comm,
        "collective": part.instance,
        "bytes": part.bytes,
        "event_id": part.event_id,
        "group_size": part.group_size,
        "algo": part.algo,
        "shape": np.where(activity < 0, -1, 0),
        "start_ns": part.start_ns,
        "release_ns": part.start_ns,
    }
    n = len(part)
    arrive = piece.add("arrive", n, kind=int(Kind.ARRIVE), end_ns=part.start_ns, **columns)
    transfer = piece.add(
        "transfer", n, kind=int(Kind.TRANSFER), end_ns=part.end_ns, pin=PIN_END, **columns
    )
    piece.edge(arrive, transfer)
    piece.edge(~part.instance[part.waits], transfer[part.waits])
    _with_tasks(piece, act, of, arrive, transfer)
    return activity


def _with_tasks(
    piece: Piece, act: Activities, of: np.ndarray, arrive: np.ndarray, transfer: np.ndarray
) -> None:
    """What begins and ends each activity; adds a task for each that is no participation."""
    plain = np.flatnonzero(of < 0)
    rows = act.events.take(plain)
    is_kernel = rows.kind == KINDS.index("kernel")
    start, end = act.start_ns[plain], act.end_ns[plain]
    tasks = piece.add(
        "activity",
        len(plain),
        kind=np.where(is_kernel, np.where(rows.is_comm, Kind.OTHER, Kind.COMPUTE), Kind.COPY),
        rank=rows.rank,
        step=rows.step,
        op=rows.name,
        bytes=rows.bytes,
        start_ns=start,
        release_ns=start,
        end_ns=end,
        dur_ns=end - start,
        event_id=np.where(rows.event_id == NULL, -1, rows.event_id),
        shape=piece.shaped(rows.grid_blocks, rows.block_threads),
    )
    piece.unmatched += int(rows.is_comm.sum())
    piece.begin, piece.finish = np.empty(len(act), np.int64), np.empty(len(act), np.int64)
    piece.begin[plain] = piece.finish[plain] = tasks
    on_device = np.flatnonzero(of >= 0)
    piece.begin[on_device] = arrive[of[on_device]]
    piece.finish[on_device] = transfer[of[on_device]]


def _algorithms(frame: pl.DataFrame, comms: pl.DataFrame | None) -> pl.Series:
    """The algorithm of each participation: what the source says, gloo's ring, else null."""
    algo = frame["algo"].cast(pl.String).str.to_lowercase()
    if comms is None or not len(comms):
        return algo
    gloo = comms.filter(pl.col("backend").cast(pl.String).str.contains("gloo"))
    is_gloo = frame["comm"].cast(pl.String).is_in(gloo["comm"].cast(pl.String).to_list())
    both = pl.DataFrame({"algo": algo, "gloo": is_gloo.fill_null(False)})
    ring = pl.coalesce("algo", pl.lit("ring"))
    return both.select(pl.when("gloo").then(ring).otherwise("algo")).to_series()
