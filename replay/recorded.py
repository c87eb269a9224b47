"""The task graph of a job of recorded operations (pipeline workers, one row an operation).

Two graphs of the same rows:

* `launches=True` (the honest replay): every task keeps the delay that was measured between the
  end of what it waited for and its own start, and follows the computation, send and recv that its
  worker had finished by then. Waits that no row names but every step shows are dependencies too.
  The unchanged replay is all but exact.
* `launches=False` (the straggler study's replay): no delays, and only the dependencies that the
  schedule itself needs. Its distance from the measured step is the time lost to launching.

Dependencies, both: computations of a worker in their recorded order; a collective or a pair of
send and recv starts moving bytes when its last participant has arrived; parameters are gathered
before the first computation; the k-th recv of a direction precedes its k-th computation, whose
end lets the k-th send and the (k+1)-th recv be posted (sends and recvs do not hold up the
computation behind them); collectives of the data-parallel stream follow each other, the first of
those that reduce after the last backward computation, and the optimizer follows the last.
A transfer lasts from the arrival of the last participant to the participation's own end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from ..ingest.compiled import compiled
from ..ingest.errors import RetimeError
from ..ingest.store import reading
from ..ingest.tasks.codes import distinct
from ..ingest.tasks.job_clock import on_job_clock
from .graph import Kind, TaskGraph, build
from .policy import ReplayJob

EVENTS = ["rank", "step", "event_id", "start_ns", "dur_ns", "kind", "name"]
COLLECTIVES = [
    *("event_id", "collective_id", "step", "stream", "peer", "comm", "op", "in_bytes", "out_bytes"),
    *("start_ns", "end_ns"),
]
"""The columns that are read."""

P2P = ("send", "recv")
FORWARD_P2P = ("forward-send", "forward-recv")
FORWARD, BACKWARD, OPTIMIZER = "forward-compute", "backward-compute", "optimizer"


class NoWholeStep(RetimeError):
    """No step of the job has every operation that its schedule needs."""

    exit_code = 3


def load(files: Mapping[str, Sequence[str]], *, job: str = "", launches: bool = True) -> ReplayJob:
    """The replay job of a snapshot's Parquet files by table (`events`, `collectives`, `ranks`)."""

    def table(name: str, columns: list[str] | None = None) -> pl.DataFrame:
        parts = [
            (reading.scan([f]) if columns is None else reading.scan([f]).select(columns)).collect()
            for f in files[name]
        ]
        return pl.concat(parts)

    ranks = table("ranks")
    rows = table("events", EVENTS), table("collectives", COLLECTIVES)
    graph, warnings = graph_of(*rows, ranks, launches=launches)
    facts = {"ranks": ranks, "comms": table("comms") if files.get("comms") else None}
    return ReplayJob(graph, job, facts, warnings=warnings)


def graph_of(
    events: pl.DataFrame, collectives: pl.DataFrame, ranks: pl.DataFrame, *, launches: bool = True
) -> tuple[TaskGraph, tuple[str, ...]]:
    """The graph of the three tables' rows, and warnings about what it leaves out.

    `extra` has stage, dp_rank, event_id (-1 for joins). Steps are independent of each other and
    released at their first measured start. A step in which the sends or recvs of a worker do not
    pair with its computations (lost rows, an interleaved schedule) is left out, with a warning.
    Raises NoWholeStep when that leaves nothing, GraphCycle for contradictory dependencies.
    """
    compute, part = _rows(events, collectives, ranks)
    bad = _broken_steps(compute, part)
    warnings: tuple[str, ...] = ()
    if bad:
        warnings = (
            f"{len(bad)} steps left out (from {bad[0]} on): sends, recvs and "
            "computations of a worker do not pair (rows lost, or an interleaved schedule, which "
            "this replay does not know)",
        )
        compute = compute.filter(~pl.col("step").is_in(bad))
        part = part.filter(~pl.col("step").is_in(bad))
        part = part.with_columns(instance=pl.col("instance").rank("dense").cast(pl.Int64) - 1)
    if compute.is_empty():
        raise NoWholeStep("no step has recorded operations that pair; see `retime problems`")

    n_c, n_p = len(compute), len(part)
    compute = compute.with_columns(task=pl.int_range(n_c, dtype=pl.Int64))
    part = part.with_columns(
        transfer=pl.int_range(n_c, n_c + n_p, dtype=pl.Int64),
        arrive=pl.int_range(n_c + n_p, n_c + 2 * n_p, dtype=pl.Int64),
        join=n_c + 2 * n_p + pl.col("instance"),
    )
    joins = (
        part.group_by("join", "instance")
        .agg(
            ready_ns=pl.col("start_ns").max(),
            bytes=pl.col("bytes").max(),
            **{c: pl.col(c).first() for c in ("step", "name", "comm")},
        )
        .sort("join")
    )
    part = part.join(joins.select("join", "ready_ns"), on="join", maintain_order="left")
    part = part.with_columns(moved_ns=pl.min_horizontal("ready_ns", "end_ns"))

    edges = _edges(compute, part, launches=launches)
    src, dst = (np.concatenate([e[i] for e in edges]) for i in (0, 1))

    def column(c: str, p_transfer: str, p_arrive: str, join: np.ndarray) -> np.ndarray:
        return np.concatenate(
            [compute[c].to_numpy(), part[p_transfer].to_numpy(), part[p_arrive].to_numpy(), join]
        )

    def same(c: str, join: np.ndarray) -> np.ndarray:
        return column(c, c, c, join)

    none = np.full(len(joins), -1)
    start = column("start_ns", "moved_ns", "start_ns", joins["ready_ns"].to_numpy())
    end = column("end_ns", "end_ns", "start_ns", joins["ready_ns"].to_numpy())
    step = same("step", joins["step"].to_numpy())
    instances = [part["instance"].to_numpy()] * 2 + [joins["instance"].to_numpy()]
    op_names = _names(compute["name"], part["name"])
    comm_names = _names(part["comm"])
    op = [_codes(frame["name"], op_names) for frame in (compute, part, part, joins)]
    comm = [_codes(frame["comm"], comm_names) for frame in (part, part, joins)]
    kinds = np.where(compute["kind"] == "kernel", Kind.COMPUTE, Kind.HOST)
    others = np.repeat([Kind.TRANSFER, Kind.ARRIVE, Kind.JOIN], [n_p, n_p, len(joins)])
    steps, step_index = np.unique(step, return_inverse=True)
    release = np.full(len(steps), np.iinfo(np.int64).max)
    np.minimum.at(release, step_index, start)
    graph, _ = build(
        len(start),
        src,
        dst,
        order_ns=start,
        op_names=op_names,
        comm_names=comm_names,
        extra={
            "stage": same("stage", none),
            "dp_rank": same("dp_rank", none),
            "event_id": same("event_id", none),
        },
        dur_ns=end - start,
        gap_ns=_gaps(src, dst, start, end, release[step_index], n_c, n_p) if launches else None,
        release_ns=release[step_index],
        kind=np.concatenate([kinds, others]),
        rank=same("rank", none),
        step=step,
        op=np.concatenate(op),
        comm=np.concatenate([np.full(n_c, -1), *comm]),
        collective=np.concatenate([np.full(n_c, -1), *instances]),
        bytes=np.concatenate([np.zeros(n_c, int), part["bytes"], part["bytes"], joins["bytes"]]),
        start_ns=start,
        end_ns=end,
    )
    return graph, warnings


def _names(*columns: pl.Series) -> tuple[str, ...]:
    """The different values of some categorical columns, sorted."""
    return tuple(sorted({name for c in columns for name in c.unique().drop_nulls()}))


def _codes(names: pl.Series, known: tuple[str, ...]) -> np.ndarray:
    """int64: the place of each name of a categorical column among those known; -1 for null."""
    place = {name: i for i, name in enumerate(known)}
    used = names.unique().drop_nulls()
    numbers = used.to_physical().to_numpy()
    code = np.full(int(numbers.max(initial=0)) + 2, -1)
    code[numbers] = [place[name] for name in used]
    return code[names.to_physical().fill_null(len(code) - 1).to_numpy()]


def _rows(
    events: pl.DataFrame, collectives: pl.DataFrame, ranks: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Computations and participations in the job's clock, numbered among their like (`k`)."""

    def text(*names: str) -> list[pl.Expr]:
        return [pl.col(c).cast(pl.Categorical) for c in names]

    where = ranks.select(
        "rank",
        pl.col("stage").fill_null(-1),
        pl.col("dp_rank").fill_null(-1),
    ).unique("rank")
    at = ["rank", "step", "start_ns", "event_id"]
    rows = (
        on_job_clock(
            events.filter(pl.col("step").is_not_null())
            .select("rank", "step", "event_id", "start_ns", "dur_ns", *text("kind", "name"))
            .with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns")),
            ranks,
            "start_ns",
            "end_ns",
        )
        .join(where, on="rank")
        .sort(at)
    )
    columns = (rows["rank"], rows["step"], rows["name"].to_physical())
    rows = rows.with_columns(k=_among_like(*(c.to_numpy() for c in columns)))
    has_times = pl.col("start_ns").is_not_null() & pl.col("end_ns").is_not_null()
    part = collectives.filter(pl.col("step").is_not_null() & has_times).select(
        "event_id",
        "collective_id",
        "stream",
        "peer",
        *text("comm", "op"),
        bytes=pl.max_horizontal("in_bytes", "out_bytes").fill_null(0),
    )
    compute = rows.join(part, on="event_id", how="anti").filter(
        pl.col("kind").is_in(["kernel", "host_op"])
    )
    part = rows.join(part, on="event_id", maintain_order="left")
    # A participation that was matched with nothing is an instance of its own.
    instance = part.select(pl.coalesce("collective_id", -1 - pl.col("event_id"))).to_series()
    return compute, part.with_columns(instance=distinct(instance.to_numpy())[1])


@compiled
def _among_like(rank, step, name):  # pragma: no cover - compiled
    """int64 [n]: how many rows of a worker's step before this one have its name. Rows of a worker's
    step stand together; names are codes from 0 on."""
    k, seen = np.empty(len(rank), np.int64), np.zeros(0, np.int64)
    if len(name):
        seen = np.zeros(np.int64(name.max()) + 1, np.int64)
    since = 0
    for i in range(len(rank)):
        if i and (rank[i] != rank[i - 1] or step[i] != step[i - 1]):
            for j in range(since, i):
                seen[name[j]] = 0
            since = i
        k[i] = seen[name[i]]
        seen[name[i]] += 1
    return k


def _broken_steps(compute: pl.DataFrame, part: pl.DataFrame) -> list[int]:
    """Steps where a worker has sends or recvs, but not one for each of its computations, or where
    one end of a pair is not there though its worker is."""
    n_compute = (
        compute.filter(pl.col("name").is_in([FORWARD, BACKWARD]))
        .group_by("rank", "step", way=pl.col("name") == FORWARD)
        .agg(n=pl.len())
    )
    n_moved = (
        part.filter(pl.col("op").is_in(P2P))
        .group_by("rank", "step", "name", way=pl.col("name").is_in(FORWARD_P2P))
        .agg(moved=pl.len())
    )
    paired = n_moved.join(n_compute, on=["rank", "step", "way"], how="left")
    bad = paired.filter(pl.col("n").is_null() | (pl.col("n") != pl.col("moved")))
    lonely = part.filter(
        pl.col("op").is_in(P2P),
        pl.col("peer").is_in(part["rank"].unique().implode()),
        pl.len().over("instance") == 1,
    )
    return sorted({*bad["step"], *lonely["step"]})


def _edges(compute: pl.DataFrame, part: pl.DataFrame, *, launches: bool) -> list:
    """Pairs (source tasks, destination tasks), one a rule of the module's docstring."""
    worker = ["rank", "step"]

    works, moves = compute.lazy(), part.lazy()

    def pairs(frame: pl.LazyFrame, a: str, b: str) -> pl.LazyFrame:
        return frame.select(a, b).drop_nulls()

    def linked(left: pl.LazyFrame, right: pl.LazyFrame, a: str, b: str, on=worker):
        return pairs(left.select(*on, a).join(right.select(*on, b), on=on), a, b)

    def one(frame: pl.LazyFrame, what: str, pick) -> pl.LazyFrame:
        return frame.group_by(worker, maintain_order=True).agg(pick(what))

    edges = [
        pairs(moves, "arrive", "join"),
        pairs(moves, "join", "transfer"),
        pairs(works.with_columns(before=pl.col("task").shift().over(worker)), "before", "task"),
    ]
    group = moves.filter(~pl.col("op").is_in(P2P))
    edges.append(
        pairs(
            group.with_columns(before=pl.col("transfer").shift().over(*worker, "stream")),
            "before",
            "arrive",
        )
    )
    gathers = group.filter(pl.col("op") == "all_gather")
    reduces = group.filter(pl.col("op") != "all_gather")
    edges.append(linked(gathers, one(works, "task", pl.first), "transfer", "task"))
    last_backward = one(works.filter(pl.col("name") == BACKWARD), "task", pl.last)
    edges.append(linked(last_backward, one(reduces, "arrive", pl.first), "task", "arrive"))
    optimizer = works.filter(pl.col("name") == OPTIMIZER)
    edges.append(linked(one(reduces, "transfer", pl.last), optimizer, "transfer", "task"))
    for way in (FORWARD, BACKWARD):
        work = works.filter(pl.col("name") == way)
        send = moves.filter(pl.col("name") == way.replace("compute", "send"))
        recv = moves.filter(pl.col("name") == way.replace("compute", "recv"))
        later = recv.with_columns(pl.col("k") - 1)
        edges.append(linked(recv, work, "transfer", "task", [*worker, "k"]))
        edges.append(linked(work, send, "task", "arrive", [*worker, "k"]))
        edges.append(linked(work, later, "task", "arrive", [*worker, "k"]))
        edges.append(linked(gathers, recv.filter(pl.col("k") == 0), "transfer", "arrive"))
    found = [tuple(e.to_numpy().T) for e in pl.collect_all(edges)]
    if launches:
        found += [_posted_after(compute, part), *_sends_finished(compute, part)]
        found += _unrecorded_waits(compute, part)
    return found


def _last_before(
    passed: pl.DataFrame, source: str, posted: pl.DataFrame, task: str
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (a, b): for each posted task b, the last of its worker's `passed` before its start."""
    posted = posted.select("rank", "step", task, at="start_ns").sort("at")
    passed = passed.select("rank", "step", source, "at").sort("at")
    found = posted.join_asof(passed, on="at", by=["rank", "step"], check_sortedness=False)
    found = found.drop_nulls(source)
    return found[source].to_numpy(), found[task].to_numpy()


def _posted_after(compute: pl.DataFrame, part: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Each participation after the last computation that was past its middle when it was posted.

    The middle, because clocks of host and device and a float32 put a start some microseconds
    before the end of what it follows.
    """
    middle = (pl.col("start_ns") + pl.col("end_ns")) // 2
    return _last_before(compute.with_columns(at=middle), "task", part, "arrive")


def _sends_finished(compute: pl.DataFrame, part: pl.DataFrame) -> list:
    """What a worker starts after a send or recv past its middle comes after it: they block."""
    middle = pl.max_horizontal((pl.col("moved_ns") + pl.col("end_ns")) // 2, "ready_ns")
    moved = part.filter(pl.col("op").is_in(P2P)).with_columns(at=middle)
    return [
        _last_before(moved, "transfer", part, "arrive"),
        _last_before(moved, "transfer", compute, "task"),
    ]


def _unrecorded_waits(compute: pl.DataFrame, part: pl.DataFrame) -> list:
    """Waits between the backward pass and what reduces its gradients, for ranks that no row names.

    Real jobs synchronise there without leaving an operation (the loss is averaged over the data
    parallel workers of the last stage, one pipeline gathers its log). A worker is taken to wait
    for the backward passes of its stage, of its pipeline or of the whole job where in no step it
    went on before all of them had ended, and where that explains most of the delay.
    """
    worker = ["rank", "step"]
    done = (
        compute.filter(pl.col("name") == BACKWARD)
        .group_by([*worker, "stage", "dp_rank"], maintain_order=True)
        .agg(pl.last("task"), done_ns=pl.last("end_ns"))
    )
    first = (
        part.filter(~pl.col("op").is_in([*P2P, "all_gather"]))
        .group_by(worker, maintain_order=True)
        .agg(pl.first("arrive"), pl.first("start_ns"))
        .join(done, on=worker)
    )
    edges = []
    for group in (["step", "stage"], ["step", "dp_rank"], ["step"]):
        waits = first.with_columns(all_done_ns=pl.col("done_ns").max().over(group))
        holds = waits.group_by("rank").agg(
            never_before=(pl.col("start_ns") >= pl.col("all_done_ns")).all(),
            delay=(pl.col("start_ns") - pl.col("done_ns")).sum(),
            left=(pl.col("start_ns") - pl.col("all_done_ns")).sum(),
        )
        held = holds.filter("never_before", pl.col("left") < pl.col("delay") / 2)["rank"]
        pairs = (
            first.filter(pl.col("rank").is_in(held.implode()))
            .select(*group, "arrive")
            .join(done.select(*group, "task"), on=group)
        )
        edges.append((pairs["task"].to_numpy(), pairs["arrive"].to_numpy()))
    return edges


def _gaps(src, dst, start, end, release, n_c: int, n_p: int) -> np.ndarray:
    """Measured delay of computations and arrivals behind their last predecessor (or release).

    Clamped at 0 where a task began before the end of what it is taken to wait for.
    """
    before = np.full(len(start), np.iinfo(np.int64).min)
    np.maximum.at(before, dst, end[src])
    has_none = before == np.iinfo(np.int64).min
    before[has_none] = release[has_none]
    gap = np.maximum(start - before, 0)
    gap[n_c : n_c + n_p] = 0
    gap[n_c + 2 * n_p :] = 0
    return gap
