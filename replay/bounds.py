"""Two floors under every estimate: communication that is free, and the busiest link never idle.

Free communication: every transfer takes no time, dependencies stay. A step that begins where it
does in the estimate cannot end before its tasks' critical path without transfers does.

Busiest link: what a rank must send in a step, by any algorithm, over the fastest that its link is
known for: the fabric's, else the device's data sheet; but never less than was seen in this job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..ingest.compiled import compiled
from ..ingest.tasks.codes import alike
from . import engine
from .calibration import calibrate, machines
from .graph import NULL, Kind, TaskGraph
from .policy import ReplayJob
from .retiming.places import Places
from .steps import of_steps

if TYPE_CHECKING:
    from .fabric.description import Fabric

LEVELS = ("intra host", "inter host")


class Floors(NamedTuple):
    """The floors of a step, mean over the chosen steps, ns."""

    free_communication_ns: float
    busiest_link_ns: float
    link: str
    """Which link that is, and what it carries; empty where nothing has a size."""

    @property
    def highest_ns(self) -> float:
        """No step can be shorter."""
        return max(self.free_communication_ns, self.busiest_link_ns)


def floors(
    job: ReplayJob, start: np.ndarray, steps: np.ndarray, seen_bytes_per_s: np.ndarray
) -> Floors:
    """The floors of a replayed job; `start` its tasks', `seen_bytes_per_s` what `seen` gives."""
    free = free_communication(job.graph, start, steps)
    loads = link_loads(job, steps).mean(2)
    if not loads.any():
        return Floors(free, 0.0, "")
    nominal, source = capacities(job)
    capacity = np.maximum(nominal, seen_bytes_per_s)
    spent = 1e9 * loads / capacity[:, None]
    level, rank = np.unravel_index(int(spent.argmax()), spent.shape)
    by = source[level] if capacity[level] == nominal[level] else "as fast as this job has sent"
    words = (
        f"rank {rank}, {LEVELS[level]}: {loads[level, rank] / 1e9:.3g} GB a step at "
        f"{capacity[level] / 1e9:.4g} GB/s ({by})"
    )
    return Floors(free, float(spent[level, rank]), words)


def free_communication(graph: TaskGraph, start: np.ndarray, steps: np.ndarray) -> float:
    """ns: the mean step where transfers take no time, from where its steps begin in `start`.

    Steps that follow each other without a break are taken together: what the last of them ends
    earlier, all of them have saved.
    """
    if "begins" not in graph.extra:
        free = graph.with_(dur_ns=np.where(graph.kind == Kind.TRANSFER, 0, graph.dur_ns))
        _, end = engine.replay(free)
        at, spans = engine.step_spans(graph, start, end)
        return float(np.maximum(spans[np.isin(at, steps)], 0).mean())
    total = 0.0
    for run in _runs(graph, steps):
        first, last = run
        inside = _between(graph, first, last)
        idle = inside & (graph.kind == Kind.TRANSFER)
        begins, _ = engine.replay(graph.with_(dur_ns=np.where(idle, 0, graph.dur_ns)))
        total += max(0.0, _mean_span(graph, start, begins, first, last))
    return total / len(steps)


def _runs(graph: TaskGraph, steps: np.ndarray) -> list[tuple[int, int]]:
    """First and last of chosen steps that follow each other: each ends where the next begins."""
    ends, begins = graph.extra["ends"], graph.extra["begins"]
    both = (ends != NULL) & (begins != NULL)
    joined = {(int(e), int(b)) for e, b in zip(ends[both], begins[both], strict=True)}
    apart = {int(e) for e in ends[(ends != NULL) & (begins == NULL)]}
    runs: list[tuple[int, int]] = []
    for step in np.sort(steps).tolist():
        if runs and (runs[-1][1], step) in joined and runs[-1][1] not in apart:
            runs[-1] = runs[-1][0], step
        else:
            runs.append((step, step))
    return runs


def _between(graph: TaskGraph, first: int, last: int) -> np.ndarray:
    """bool [n]: tasks measured from where step `first` begins on their rank to where `last` ends.

    Joins are of no rank and left out: they take no time.
    """
    n_ranks = int(graph.rank.max(initial=-1)) + 1
    low = np.full(n_ranks + 1, np.iinfo(np.int64).max)
    high = np.full(n_ranks + 1, np.iinfo(np.int64).min)
    opens = np.flatnonzero(graph.extra["begins"] == first)
    closes = np.flatnonzero(graph.extra["ends"] == last)
    low[graph.rank[opens]] = graph.start_ns[opens]
    high[graph.rank[closes]] = graph.start_ns[closes]
    inside = (graph.start_ns >= low[graph.rank]) & (graph.start_ns < high[graph.rank])
    # What a policy added was never measured: its step says where it is.
    added = (graph.start_ns == NULL) & (graph.rank >= 0)
    return inside | (added & (graph.step >= first) & (graph.step <= last))


def _mean_span(graph, start, free, first, last) -> float:
    opens = np.flatnonzero(graph.extra["begins"] == first)
    closes = np.flatnonzero(graph.extra["ends"] == last)
    if not len(opens) or not len(closes):
        return 0.0
    return float(free[closes].mean() - start[opens].mean())


def link_loads(job: ReplayJob, steps: np.ndarray) -> np.ndarray:
    """Bytes that each rank must send: float64 [2, ranks, steps] by level.

    By whatever algorithm: an all-reduce sends 2(n-1)/n of its size, a gathering or scattering
    (n-1)/n, and so on. Over the network a host's ranks share what must cross: 2(h-1)/h of an
    all-reduce's size among h hosts, spread over its ranks there. A transfer whose link a policy
    made faster (`bandwidth_ratio` in `extra`) counts by so much less.
    """
    graph = job.graph
    task = _sized(graph, steps)
    n_ranks = int(graph.rank.max(initial=-1)) + 1
    out = np.zeros((len(LEVELS), n_ranks, len(steps)))
    if not len(task):
        return out
    level, each = _shares(job, task)
    size = graph.bytes[task] * each
    faster = graph.extra.get("bandwidth_ratio")
    if faster is not None:
        size = size / faster[task]
    at = np.searchsorted(steps, graph.step[task])
    np.add.at(out, (level, graph.rank[task], at), size)
    return out


def _sized(graph: TaskGraph, steps: np.ndarray) -> np.ndarray:
    """The transfers of these steps whose size and communicator are known."""
    known = (graph.kind == Kind.TRANSFER) & (graph.bytes > 0) & (graph.comm >= 0)
    return np.flatnonzero(known & of_steps(graph, steps))


def _shares(job: ReplayJob, task: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Level (into LEVELS) and least volume in sizes of the operation, [k] each, of transfers.

    Where the host of a member is not known the faster level is taken.
    """
    graph = job.graph
    places = Places.of(job)
    paired = np.isin(graph.op[task], [i for i, o in enumerate(graph.op_names) if o in P2P])
    pair = np.where(paired, graph.collective[task], -1)
    members = _members(graph, task)
    one, of = alike(graph.comm[task], graph.op[task], members, pair)
    # The ranks of each kind, found by one sort.
    order = np.lexsort((graph.rank[task], of))
    first = np.searchsorted(of[order], np.arange(len(one) + 1))
    level, share = np.zeros(len(one), np.int64), np.zeros(len(one))
    columns = (graph.comm[task][one], graph.op[task][one], members[one], pair[one])
    for k, (comm, op, n, single) in enumerate(np.stack(columns, axis=1).tolist()):
        ranks = graph.rank[task[order[first[k] : first[k + 1]]]]
        if single < 0 and len(np.unique(ranks)) < n:
            ranks = calibrate.ranks_of(job, graph.comm_names[comm])
        name = graph.op_names[op] if op >= 0 else ""
        hosts = places.hosts_of(ranks)
        level[k] = hosts > 1
        share[k] = least_share(name, n, hosts)
    return level[of], share[of]


P2P = ("send", "recv")


def least_share(op: str, n: int, hosts: int) -> float:
    """What each of n ranks sends at least, in sizes: to other hosts where they are on several.

    A host's share of that is spread over its ranks (and so with any other equal parts of them).
    """
    if hosts < 2:
        return least_volume(op, n)
    alone = 1.0 if op in (*P2P, "all_to_all") else n / hosts
    return least_volume(op, hosts) / alone


def least_volume(op: str, n: int) -> float:
    """What a member of n must send, by any algorithm that switches do not help, in sizes."""
    if n < 2:
        return 0.0
    if op == "all_reduce":
        return 2 * (n - 1) / n
    if op in ("all_gather", "reduce_scatter", "all_to_all"):
        return (n - 1) / n
    return 1.0 if op == "send" else 0.0


def _members(graph: TaskGraph, task: np.ndarray) -> np.ndarray:
    """int64 [k]: ranks of each transfer's communicator, as its source says, else those seen."""
    said = graph.extra.get("group_size", np.full(graph.n, -1))[task]
    seen = np.bincount(graph.collective[task])[graph.collective[task]]
    return np.where(said > 0, said, seen)


def capacities(job: ReplayJob) -> tuple[np.ndarray, tuple[str, ...]]:
    """bytes/s of a rank's link within its host and out of it, float64 [2]; and where from.

    Where the device is not known, the fastest that any machine has. In a domain wider than a host
    the link out of a host is at least that of the domain.
    """
    fabric = job.facts.get("fabric")
    known = machines.device(job)
    if known is not None:
        rate, wide = [known.intra_bytes_per_s, known.nic_bytes_per_s], known.wide
        words = f"{known.name}'s, by the device's name"
    else:
        rate = [max(m[1] for m in machines.MACHINES), max(m[2] for m in machines.MACHINES)]
        wide, words = False, "the fastest of any device: this one is not known"
    said = [words, words]
    if fabric is not None:
        found = fabric_rates(fabric)
        for level, one in enumerate(found):
            if one is not None:
                rate[level], said[level] = one, f"fabric {fabric.name}"
        if found[0] is not None:
            wide = fabric.domain_gpus > fabric.gpus_per_host
    if wide and rate[0] > rate[1]:
        rate[1], said[1] = rate[0], said[0]
    return np.array(rate), tuple(said)


def fabric_rates(fabric: Fabric) -> tuple[float | None, float | None]:
    """bytes/s of a GPU's scale-up link and of its part of its NICs; None for what there is not."""
    up, served = fabric.scale_up, max(1, -(-fabric.gpus_per_host // max(fabric.rails, 1)))
    return (
        None if up is None else up.link.bandwidth_bytes_per_s,
        None if fabric.nic is None else fabric.rail_bytes_per_s / served,
    )


def seen(
    job: ReplayJob, start: np.ndarray, end: np.ndarray, steps: np.ndarray, step_ns: float
) -> np.ndarray:
    """bytes/s, float64 [2]: the fastest that any rank sent over a step's communication, by level.

    What it must send in a step over the time in which it was sending anything; and no less than
    what its mean step (`step_ns`) carried.
    """
    loads = link_loads(job, steps)
    graph = job.graph
    task = _sized(graph, steps)
    if not len(task):
        return np.zeros(len(LEVELS))
    level, _ = _shares(job, task)
    at = np.searchsorted(steps, graph.step[task])
    busy = np.zeros(loads.shape)
    order = np.lexsort((start[task], at, graph.rank[task], level))
    t = task[order]
    _union(level[order], graph.rank[t].astype(np.int64), at[order], start[t], end[t], busy)
    rate = np.divide(loads, busy, out=np.zeros_like(loads), where=busy > 0).max((1, 2))
    return 1e9 * np.maximum(rate, loads.mean(2).max(1) / step_ns)


@compiled
def _union(level, rank, at, start, end, busy):  # pragma: no cover - compiled
    last = np.int64(0)
    for i in range(len(level)):
        fresh = i == 0 or level[i] != level[i - 1] or rank[i] != rank[i - 1] or at[i] != at[i - 1]
        begin = start[i] if fresh else max(start[i], last)
        last = end[i] if fresh else max(end[i], last)
        if last > begin:
            busy[level[i], rank[i], at[i]] += last - begin
