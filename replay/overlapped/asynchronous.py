"""Collectives that hold up nothing but what needs their result: which edges go, and where to.

A result of a reduction of gradients is needed by the optimizer: by its first kernel that was
measured after the reduction. Where no kernel is named like an optimizer's, at the step's end;
but where gathers on the same communicator follow in the step (an optimizer in parts, whose kernels
are not known by name), where it was waited for. Only waits that come before are taken away, so
that nothing waits longer than it did. Collectives of one communicator still follow one another:
where only the host held the next one back (it waited for the result), the result itself does now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .. import edges
from ..graph import NULL, Kind, TaskGraph

OPTIMIZERS = ("adam", "sgd", "lamb", "lion", "adagrad", "rmsprop", "multi_tensor_apply",
              "optimizer", "lars", "muon")  # fmt: skip
"""Parts of the names that optimizers' kernels (or recorded operations) have."""

STEP_END = "step"


def is_of(name: str, *ops: str) -> bool:
    """Whether an operation is one of these; recorded ones say more (`grads-reduce-scatter`)."""
    plain = name.replace("-", "_")
    return any(plain == op or plain.endswith(f"_{op}") for op in ops)


def are(graph: TaskGraph, *ops: str) -> np.ndarray:
    """bool [n]: tasks whose operation is one of these (`is_of`)."""
    codes = [i for i, name in enumerate(graph.op_names) if is_of(name, *ops)]
    return np.isin(graph.op, codes)


class Freed(NamedTuple):
    """What `freed` did; counts of participations."""

    graph: TaskGraph
    released: int
    """Now hold up only what needs them."""
    at_optimizer: int
    at_end: int
    as_recorded: int
    """Left, since the optimizer's kernels are not known by name."""


def freed(graph: TaskGraph, transfer: np.ndarray, until: Sequence[str] = ()) -> Freed:
    """The graph in which nothing waits for these transfers (tasks, int64) before it needs them.

    `until` holds parts of names of the kernels that need the results (default OPTIMIZERS), or
    STEP_END alone. Waits of other collectives stay, and so do waits of the host on ranks with a
    device: it asked for the result.
    """
    src, dst = edges.of(graph)
    need, known = _needs(graph, transfer, until)
    place = np.full(graph.n, -1)
    place[transfer] = np.arange(len(transfer))
    mine = np.flatnonzero((place[src] >= 0) & (graph.rank[src] == graph.rank[dst]))
    mine = mine[_holds(graph)[dst[mine]] & known[place[src[mine]]]]
    point = need[place[src[mine]]]
    later = np.where(point < 0, True, graph.start_ns[dst[mine]] < graph.start_ns[point])
    gone = mine[later & (dst[mine] != point)]
    who = np.unique(place[src[gone]])
    added = who[need[who] >= 0]
    keep = np.ones(len(src), bool)
    keep[gone] = False
    made = graph
    if len(gone):
        first, then = _one_after_another(graph, transfer[who])
        made = edges.replaced(
            graph,
            np.concatenate([src[keep], transfer[added], first]),
            np.concatenate([dst[keep], need[added], then]),
        )
    is_end = np.zeros(graph.n + 1, bool)
    is_end[:-1] = graph.extra.get("ends", np.full(graph.n, NULL)) != NULL
    ended = (need[who] < 0) | is_end[need[who]]
    return Freed(made, len(who), int((~ended).sum()), int(ended.sum()), int((~known).sum()))


def _one_after_another(graph: TaskGraph, transfer: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges from each of these transfers to its rank's next arrival on the same communicator.

    Not to one that had come before the transfer's end as recorded, and not between sends and
    receives, which do not wait for each other.
    """
    pairs = are(graph, "send", "recv")
    arrive = np.flatnonzero((graph.kind == Kind.ARRIVE) & (graph.comm >= 0) & ~pairs)
    transfer = transfer[(graph.comm[transfer] >= 0) & ~pairs[transfer]]
    comms = len(graph.comm_names) or int(graph.comm.max(initial=0)) + 1
    queue = graph.rank[arrive].astype(np.int64) * comms + graph.comm[arrive]
    order = np.argsort(queue, kind="stable")
    arrive, queue = arrive[order], queue[order]
    mine = graph.rank[transfer].astype(np.int64) * comms + graph.comm[transfer]
    low, high = (np.searchsorted(queue, mine, side) for side in ("left", "right"))
    src, dst = [], []
    for t, a, b in zip(transfer.tolist(), low.tolist(), high.tolist(), strict=True):
        i = a + int(np.searchsorted(arrive[a:b], t))
        # Added tasks were never measured: their order says that they come after.
        while i < b and NULL != graph.start_ns[arrive[i]] < graph.end_ns[t]:
            i += 1
        if i < b:
            src.append(t)
            dst.append(int(arrive[i]))
    return np.array(src, np.int64), np.array(dst, np.int64)


def posted_ahead(graph: TaskGraph, arrive: np.ndarray, depth: int) -> TaskGraph:
    """The graph in which each participation begins where the one `depth` before it did.

    `arrive` are tasks of one kind of collective. Of a rank, communicator and step each one's waits
    for computation, copies and the host become those of the one `depth` before (or of the first);
    its place behind other communication stays.
    """
    order = np.lexsort((graph.start_ns[arrive], graph.comm[arrive], graph.step[arrive],
                        graph.rank[arrive]))  # fmt: skip
    arrive = arrive[order]
    key = np.stack([graph.rank[arrive], graph.step[arrive], graph.comm[arrive]])
    first = np.ones(len(arrive), bool)
    first[1:] = (key[:, 1:] != key[:, :-1]).any(axis=0)
    begins = np.maximum.accumulate(np.where(first, np.arange(len(arrive)), 0))
    of = np.maximum(np.arange(len(arrive)) - depth, begins)
    earlier = np.full(graph.n, -1)
    earlier[arrive] = arrive[of]
    src, dst = edges.of(graph)
    mine = (earlier[dst] >= 0) & (graph.rank[src] == graph.rank[dst])
    mine &= np.isin(graph.kind[src], (Kind.COMPUTE, Kind.COPY, Kind.HOST))
    by = np.flatnonzero(mine)
    by = by[np.argsort(dst[by], kind="stable")]
    low, high = (np.searchsorted(dst[by], earlier[arrive], side) for side in ("left", "right"))
    rows = [by[a:b] for a, b in zip(low, high, strict=True)]
    more_src = np.concatenate([src[r] for r in rows]) if rows else np.empty(0, np.int64)
    more_dst = np.repeat(arrive, high - low)
    return edges.replaced(
        graph, np.concatenate([src[~mine], more_src]), np.concatenate([dst[~mine], more_dst])
    )


def _holds(graph: TaskGraph) -> np.ndarray:
    """bool [n]: work that a transfer may hold up in vain; the host's on ranks without a device."""
    on_device = np.isin(graph.kind, (Kind.COMPUTE, Kind.COPY))
    bare = ~np.isin(graph.rank, np.unique(graph.rank[on_device]))
    return on_device | ((graph.kind == Kind.HOST) & bare)


def _needs(
    graph: TaskGraph, transfer: np.ndarray, until: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The task that needs each result (-1: none of its step does), and whether it is known."""
    need = np.full(len(transfer), -1)
    known = np.ones(len(transfer), bool)
    names = () if tuple(until) == (STEP_END,) else tuple(until) or OPTIMIZERS
    found = _named(graph, names)
    closes = np.flatnonzero(graph.extra.get("ends", np.full(graph.n, NULL)) != NULL)
    gathers = np.flatnonzero((graph.kind == Kind.ARRIVE) & are(graph, "all_gather"))
    for rank in np.unique(graph.rank[transfer]).tolist():
        at = np.flatnonzero(graph.rank[transfer] == rank)
        kernel = _by_start(graph, found[graph.rank[found] == rank])
        end = closes[graph.rank[closes] == rank]
        ends = {int(graph.extra["ends"][c]): int(c) for c in end}
        gathered = gathers[graph.rank[gathers] == rank]
        for i in at.tolist():
            task = transfer[i]
            step = graph.step[task]
            after = kernel[np.searchsorted(graph.start_ns[kernel], graph.end_ns[task]) :]
            after = after[(graph.step[after] == step) & (after > task)]
            if len(after):
                need[i] = after[0]
                continue
            same = (graph.step[gathered] == step) & (graph.comm[gathered] == graph.comm[task])
            if (
                tuple(until) != (STEP_END,)
                and (same & (graph.start_ns[gathered] > graph.start_ns[task])).any()
            ):
                known[i] = False
                continue
            last = ends.get(int(step), -1)
            need[i] = last if last > task else -1
    return need, known


def _named(graph: TaskGraph, names: Sequence[str]) -> np.ndarray:
    """Work whose operation has one of these in its name."""
    parts = [n.lower() for n in names]
    codes = [i for i, op in enumerate(graph.op_names) if any(p in op.lower() for p in parts)]
    work = np.isin(graph.kind, (Kind.COMPUTE, Kind.HOST)) & (graph.start_ns != NULL)
    return np.flatnonzero(work & np.isin(graph.op, codes))


def _by_start(graph: TaskGraph, task: np.ndarray) -> np.ndarray:
    return task[np.argsort(graph.start_ns[task], kind="stable")]


def pipeline_order(graph: TaskGraph) -> str:
    """Whether a pipeline of recorded operations runs all forwards first, or 1F1B; "": no pipeline.

    Told by the rank that begins its backwards soonest (in 1F1B the last stage, after one forward).
    """
    if not ((graph.kind == Kind.TRANSFER) & are(graph, "send", "recv")).any():
        return ""
    names = [name.lower() for name in graph.op_names]
    ways = []
    for way in ("forward", "backward"):
        codes = [i for i, name in enumerate(names) if name.startswith(way) and "compute" in name]
        ways.append(np.flatnonzero(np.isin(graph.op, codes) & (graph.kind == Kind.COMPUTE)))
    forward, backward = ways
    if not len(forward) or not len(backward):
        return "forward and backward passes are not told apart by name"
    step = graph.step[backward].min()
    forward, backward = (w[graph.step[w] == step] for w in ways)
    first = np.full(int(graph.rank.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, graph.rank[backward], graph.start_ns[backward])
    early = graph.start_ns[forward] < first[graph.rank[forward]]
    all_of_it = np.bincount(graph.rank[forward])
    before = np.bincount(graph.rank[forward], early)
    some = all_of_it > 1
    first_of_all = some.any() and (before[some] == all_of_it[some]).all()
    return "all forwards run first" if first_of_all else "it runs 1F1B"
