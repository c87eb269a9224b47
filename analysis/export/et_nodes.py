"""Nodes of one rank's execution trace: its activities, participations and host segments, and
what each of them follows.

From the rank's own task graph (`replay.traced`, for recorded operations `replay.recorded`), which
is built without the other ranks: that a collective waits for them is what a simulator adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from ...ingest.tasks.tables import DEVICE, HOST, kind_is, timed
from ...replay import recorded
from ...replay.graph import NULL, Kind, TaskGraph
from ...replay.load import read, source
from ...replay.steps import participations
from ...replay.traced import build as kineto

COLUMNS = (
    "rank", "event_id", "kind", "name", "stream", "device", "thread", "start_ns", "dur_ns",
    "correlation", "category", "bytes", "wait_stream", "wait_correlation", "step",
)  # fmt: skip


class Nodes(NamedTuple):
    """n nodes in the order they are written, which is that of their starts; arrays are [n].

    `deps[deps_ptr[i] : deps_ptr[i + 1]]` are the nodes that node i follows, all before it.
    """

    name: list[str]
    start_ns: np.ndarray
    dur_ns: np.ndarray
    on_host: np.ndarray
    """bool: it ran on a host thread."""
    part: np.ndarray
    """bool: it is a participation."""
    stream: np.ndarray
    """-1 off the device."""
    device: np.ndarray
    thread: np.ndarray
    """The rank's n-th host thread; -1 elsewhere."""
    event_id: np.ndarray
    """-1 where no row of `events` is behind it."""
    step: np.ndarray
    bytes: np.ndarray
    deps_ptr: np.ndarray
    deps: np.ndarray


def of_ranks(
    files: Mapping[str, Sequence[Any]], ranks: Sequence[int], job: str
) -> Iterator[tuple[int, Nodes]]:
    """The nodes of each rank, one rank at a time."""
    if source(files) == "recorded":
        graph = recorded.load(files, job=job).graph
        none = {}
        for rank in ranks:
            yield rank, _nodes(graph, rank, none)
        return
    small = {name: read(files, name) for name in ("ranks", "steps", "comms")}
    for rank in ranks:
        frames = _of_rank(files, small, rank)
        ran = frames["events"].filter(kind_is(*DEVICE))
        ran = ran.select("event_id", "stream", "device", pl.col("name").cast(pl.String))
        on = {e: (s, d, n) for e, s, d, n in ran.iter_rows()}
        if len(frames["events"]) or len(frames["collectives"]):
            yield rank, _nodes(kineto.build(frames, job).graph, rank, on)


def _of_rank(
    files: Mapping[str, Sequence[Any]], small: Mapping[str, pl.DataFrame], rank: int
) -> dict[str, pl.DataFrame]:
    """The tables of one rank, as `kineto.build` takes them."""
    mine = pl.col("rank") == rank
    parts = read(files, "collectives", mine & timed())
    events = read(files, "events", mine & kind_is(*DEVICE, *HOST, "sync"), COLUMNS)
    device = events.filter(kind_is(*DEVICE))
    known = events.filter(kind_is(*DEVICE, "runtime", "sync"))["event_id"]
    on_host = parts.filter(~pl.col("event_id").is_in(known.to_list()).fill_null(False))
    if len(device) and not len(on_host):
        events = events.filter(kind_is(*DEVICE, "runtime", "sync"))
    return {
        "ranks": small["ranks"],
        "steps": small["steps"].filter(mine),
        "comms": small["comms"],
        "collectives": parts,
        "events": events,
    }


def _nodes(graph: TaskGraph, rank: int, on: Mapping[int, tuple[Any, Any, Any]]) -> Nodes:
    mine = (graph.rank == rank) & (graph.start_ns != NULL)
    kind = graph.kind
    event = graph.extra.get("event_id", np.full(graph.n, -1, np.int64))
    arrive, transfer = participations(graph)
    arrive, transfer = arrive[mine[transfer]], transfer[mine[transfer]]
    marks = (kind == Kind.OTHER) & (event < 0)
    is_node = mine & ~marks & ~np.isin(kind, (Kind.JOIN, Kind.TRANSFER))
    task = np.flatnonzero(is_node)
    # A participation is one node, with the place of its arrival.
    of = np.full(graph.n, -1, np.int64)
    of[task] = task
    of[transfer] = arrive
    end = graph.end_ns.copy()
    end[arrive] = graph.end_ns[transfer]
    order = task[np.lexsort((task, graph.start_ns[task]))]
    number = np.full(graph.n, -1, np.int64)
    number[order] = np.arange(len(order))
    followed = _followed(graph, mine, of, number, arrive)
    stream = np.full(len(order), -1, np.int64)
    device = np.full(len(order), -1, np.int64)
    names = [*graph.op_names, "?"]
    name = [names[o] for o in graph.op[order].tolist()]
    for i, e in enumerate(event[order].tolist()):
        if e in on:
            # A participation's task has the name of its operation; its kernel says more.
            s, d, called = on[e]
            stream[i], device[i] = -1 if s is None else s, -1 if d is None else d
            name[i] = called or name[i]
    _chain(followed, np.isin(event[order], list(on)), stream, device)
    counts = [len(f) for f in followed]
    return Nodes(
        name=name,
        start_ns=graph.start_ns[order],
        dur_ns=np.maximum(end[order] - graph.start_ns[order], 0),
        on_host=kind[order] == Kind.HOST,
        part=kind[order] == Kind.ARRIVE,
        stream=stream,
        device=device,
        thread=graph.extra.get("thread", np.full(graph.n, -1, np.int64))[order],
        event_id=event[order],
        step=graph.step[order],
        bytes=graph.bytes[order],
        deps_ptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        deps=np.array([d for f in followed for d in sorted(f)], np.int64),
    )


def _followed(
    graph: TaskGraph, mine: np.ndarray, of: np.ndarray, number: np.ndarray, arrive: np.ndarray
) -> list[set[int]]:
    """For each node the nodes that it follows, through tasks that are no nodes of their own.

    What follows an arrival alone began beside the collective, not after it: it is left to the
    order of its stream. Only what comes earlier in the order of starts is followed.
    """
    arrives = np.zeros(graph.n, bool)
    arrives[arrive] = True
    found: list[set[int]] = [set() for _ in range(int((number >= 0).sum()))]
    through: dict[int, set[int]] = {}
    ptr, pred, node_of = graph.pred_ptr.tolist(), graph.pred.tolist(), of.tolist()
    numbers, is_arrival = number.tolist(), arrives.tolist()
    for t in np.flatnonzero(mine | (graph.kind == Kind.JOIN)).tolist():
        node = node_of[t]
        into = through.setdefault(t, set()) if node < 0 else found[numbers[node]]
        for p in pred[ptr[t] : ptr[t + 1]]:
            if is_arrival[p]:
                continue
            source = node_of[p]
            into |= through.get(p, set()) if source < 0 else {numbers[source]}
    for i, f in enumerate(found):
        found[i] = {d for d in f if d < i}
    return found


def _chain(
    followed: list[set[int]], on_device: np.ndarray, stream: np.ndarray, device: np.ndarray
) -> None:
    """Makes each activity follow the one before it on its stream, also one that it overlaps."""
    last: dict[tuple[int, int], int] = {}
    for i in np.flatnonzero(on_device).tolist():
        key = int(device[i]), int(stream[i])
        if key in last:
            followed[i].add(last[key])
        last[key] = i
