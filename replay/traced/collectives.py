"""Participations of a traced job: arrive, join over the ranks that were seen, transfer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from ..graph import Kind
from ..models import size_bytes
from .device import Activities
from .draft import Draft
from .residual import PIN_END
from .tables import Tables, dense, ints

FROM_ROOT = ("broadcast", "scatter")
TO_ROOT = ("reduce", "gather")
P2P = ("send", "recv", "send_recv")


@dataclass(frozen=True)
class Participations:
    """One an event (operations coalesced in a kernel together); arrays [p], rows of `frame`."""

    frame: pl.DataFrame
    rank: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    instance: np.ndarray
    """Dense code of the collective; of several in one kernel the first."""
    activity: np.ndarray
    """Row of the device activity, -1 for one on the host."""
    op: np.ndarray
    comm: np.ndarray
    arrive: np.ndarray
    transfer: np.ndarray
    """Tasks."""


def participations(
    draft: Draft, tables: Tables, act: Activities
) -> tuple[Participations, Activities]:
    """Adds the tasks of participations, and of all other device activities.

    Returns the participations, and the activities with the tasks they begin and finish with.
    """
    frame = _one_an_event(tables, act)
    comms = frame["comm"].cast(pl.String).fill_null("?")
    draft.comm_names = comms.unique(maintain_order=True).to_list()
    rank, start = ints(frame["rank"]), ints(frame["start_ns"])
    end = np.maximum(ints(frame["end_ns"]), start)
    columns = {
        "rank": rank,
        "step": ints(frame["step"], -1),
        "op": draft.codes(frame["op"]),
        "comm": ints(comms.cast(pl.Enum(draft.comm_names)).to_physical()),
        "collective": dense(frame, "collective_id"),
        "bytes": ints(frame["size"]),
        "event_id": ints(frame["event_id"], -1),
        "group_size": ints(frame["group_size"], -1),
        "algo": draft.codes(_algorithms(frame, tables.comms)),
        "shape": np.where(frame["activity"].is_null().to_numpy(), -1, 0),
        "start_ns": start,
    }
    n = len(frame)
    part = Participations(
        frame=frame,
        rank=rank,
        start_ns=start,
        end_ns=end,
        instance=columns["collective"],
        activity=ints(frame["activity"], -1),
        op=columns["op"],
        comm=columns["comm"],
        arrive=draft.add(n, kind=Kind.ARRIVE, end_ns=start, **columns),
        transfer=draft.add(n, kind=Kind.TRANSFER, end_ns=end, pin=PIN_END, **columns),
    )
    return part, _with_tasks(draft, act, part)


def _one_an_event(tables: Tables, act: Activities) -> pl.DataFrame:
    """Rows of `collectives`, one an event, with `size`, `event` (the key) and `activity`.

    `instances` lists the collective_id of each peer of a point-to-point kernel, else is empty.
    """
    rows = tables.collectives.sort("start_ns", "event_id", "collective_id")
    op = rows["op"].cast(pl.String).to_numpy()
    size = size_bytes(op, ints(rows["in_bytes"], -1), ints(rows["out_bytes"], -1))
    number = pl.int_range(1, pl.len() + 1)
    rows = rows.with_columns(
        size=pl.Series(size, dtype=pl.Int64), event=pl.col("event_id").fill_null(-number)
    )
    rows = rows.group_by("rank", "event", maintain_order=True).agg(
        pl.exclude("size").first(),
        pl.col("size").sum(),
        pl.col("collective_id")
        .filter(pl.col("op").cast(pl.String).is_in(P2P) & pl.col("collective_id").is_not_null())
        .unique(maintain_order=True)
        .alias("instances"),
    )
    known = act.frame.select("rank", event="event_id").with_row_index("activity")
    rows = rows.join(known, on=["rank", "event"], how="left", maintain_order="left")
    # An instance that nothing was matched with is its own.
    return rows.with_columns(pl.col("collective_id").fill_null(-number))


def _with_tasks(draft: Draft, act: Activities, part: Participations) -> Activities:
    """The activities with their tasks; adds one for each that is no participation."""
    begin, finish = act.begin.copy(), act.finish.copy()
    on_device = part.activity >= 0
    begin[part.activity[on_device]] = part.arrive[on_device]
    finish[part.activity[on_device]] = part.transfer[on_device]
    plain = np.flatnonzero(begin < 0)
    frame = act.frame[plain]
    is_kernel = (frame["kind"].cast(pl.String) == "kernel").to_numpy()
    is_comm = (frame["category"].cast(pl.String) == "comm").fill_null(False).to_numpy()
    begin[plain] = finish[plain] = draft.add(
        len(plain),
        kind=np.where(is_kernel, np.where(is_comm, Kind.OTHER, Kind.COMPUTE), Kind.COPY),
        rank=act.rank[plain],
        step=ints(frame["step"], -1),
        op=draft.codes(frame["name"]),
        bytes=ints(frame["bytes"]),
        start_ns=act.start_ns[plain],
        end_ns=act.end_ns[plain],
        dur_ns=act.end_ns[plain] - act.start_ns[plain],
        event_id=ints(frame["event_id"], -1),
        shape=_shapes(frame),
    )
    if is_comm.any():
        draft.warnings.append(
            f"{int(is_comm.sum())} communication kernels carry nothing to match them by: kept as "
            "tasks of their rank, joined with nobody"
        )
    return replace(act, begin=begin, finish=finish)


def _shapes(frame: pl.DataFrame) -> np.ndarray:
    """A code of each kernel's grid and block size; -1 where the frame has neither."""
    columns = ("grid_blocks", "block_threads")
    if not set(columns) <= set(frame.columns):
        return np.full(len(frame), -1)
    return dense(frame, pl.col(columns).fill_null(-1))


def joins(draft: Draft, part: Participations) -> None:
    """Joins every instance over the ranks seen, as its operation waits.

    A transfer follows its own arrival and the join of all. Of a broadcast or scatter the join is
    the root's arrival, and the root follows its own alone; of a reduce or gather only the root
    follows the join. A kernel that exchanges with several peers is in the join with each.
    """
    draft.edge(part.arrive, part.transfer)
    n = len(part.rank)
    if not n:
        return
    op = part.frame["op"].cast(pl.String).to_numpy()
    root = part.frame["root"]
    rooted = root.is_not_null().to_numpy()
    at_root = (root == part.frame["rank"]).fill_null(False).to_numpy()
    from_root = np.isin(op, FROM_ROOT) & rooted
    to_root = np.isin(op, TO_ROOT) & rooted
    step = ints(part.frame["step"], -1)
    row, further = _further(part)
    rows = np.concatenate([np.arange(n), row])
    instance = np.concatenate([part.instance, further])
    many = int(instance.max()) + 1
    ready = np.full(many, np.iinfo(np.int64).min)
    np.maximum.at(ready, instance, part.start_ns[rows])
    first = np.full(many, n)
    np.minimum.at(first, instance, rows)
    join = draft.add(
        many,
        kind=Kind.JOIN,
        step=step[first],
        op=part.op[first],
        comm=part.comm[first],
        collective=np.arange(many),
        order_ns=ready,
        release_ns=0,
    )
    mine = join[part.instance]
    draft.edge(np.where(from_root & ~at_root, -1, part.arrive), mine)
    follows = ~(from_root & at_root) & ~(to_root & ~at_root)
    draft.edge(np.where(follows, mine, -1), part.transfer)
    draft.edge(part.arrive[row], join[further])
    draft.edge(join[further], part.transfer[row])
    paired = np.isin(op, P2P) & part.frame["peer"].is_not_null().to_numpy()
    wanted = np.where(paired, 2, ints(part.frame["group_size"], -1))[rows]
    partial = (np.bincount(instance)[instance] < wanted) & (step[rows] >= 0)
    k = len(np.unique(instance[partial]))
    if k:
        draft.warnings.append(
            f"{k} of {many} collectives were not seen on all their ranks: they join the ranks "
            "seen, and what was spent waiting for the others counts as transfer"
        )


def _further(part: Participations) -> tuple[np.ndarray, np.ndarray]:
    """Rows of kernels with several peers, and the code of each instance after their first."""
    each = part.frame.select("collective_id", "instances").with_row_index("row")
    each = each.explode("instances").filter(pl.col("instances") != pl.col("collective_id"))
    known = part.frame.select(instances="collective_id", code=pl.Series(part.instance))
    each = each.join(known.unique("instances"), on="instances", how="left", maintain_order="left")
    # an instance that is no kernel's first has no code yet
    new = int(part.instance.max()) + 1 + dense(each, "instances")
    code = ints(each["code"], -1)
    return ints(each["row"]), _without_gaps(np.where(code < 0, new, code), part.instance)


def _without_gaps(code: np.ndarray, used: np.ndarray) -> np.ndarray:
    """The codes above those used, numbered on from these without a gap."""
    many = int(used.max()) + 1
    above = code >= many
    out = code.copy()
    out[above] = many + np.unique(code[above], return_inverse=True)[1]
    return out


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
