"""Which work an arrival waited for, and that only that work makes a rank late."""

from __future__ import annotations

import numpy as np
from retime.replay import engine
from retime.replay.arrivals import Waits, Work
from retime.replay.graph import Kind, build
from retime.replay.policies.align_arrivals import POLICY
from retime.replay.policy import ReplayJob


def two_lanes(kernels, host):
    """Ranks that launch (host) and compute (kernel) side by side, then meet; times in ns.

    Tasks: host r, kernel r (both from the start), arrive r after both; one join, a transfer each.
    """
    n = len(kernels)
    kind, rank, dur, edges = [], [], [], []
    for what, lasts in ((Kind.HOST, host), (Kind.COMPUTE, kernels), (Kind.ARRIVE, [0] * n)):
        kind += [what] * n
        rank += range(n)
        dur += lasts
    join = len(kind)
    kind += [Kind.JOIN] + [Kind.TRANSFER] * n
    rank += [-1, *range(n)]
    dur += [0] + [10] * n
    for r in range(n):
        arrive = 2 * n + r
        edges += [(r, arrive), (n + r, arrive), (arrive, join), (join, join + 1 + r)]
    of_collective = np.isin(kind, (Kind.ARRIVE, Kind.JOIN, Kind.TRANSFER))
    src, dst = np.array(edges).T
    total = len(kind)
    graph, order = build(
        total, src, dst, order_ns=np.arange(total), kind=np.array(kind), rank=np.array(rank),
        dur_ns=np.array(dur), step=np.zeros(total), comm=np.where(of_collective, 0, -1),
        collective=np.where(of_collective, 0, -1), op=np.zeros(total), op_names=("all_reduce",),
        comm_names=("c",),
    )  # fmt: skip
    return ReplayJob(graph), np.argsort(order)


def waited_for(graph, end, arrive):
    """For each task the arrival (position in `arrive`) that waited for it, -1 for none."""
    chains, order = graph.chains, graph.chains.order
    every, none = np.ones(graph.n, bool), np.zeros(graph.n, bool)
    waits = Waits(graph, arrive)
    waits.at(end[order])
    # A task is worth its own bit: what a chain spends then says which tasks are on it.
    worth = np.int64(1) << order.astype(np.int64)
    spent = waits.spent(Work(every, none, worth, np.zeros(graph.n, np.int64)))
    assert chains.place[order].tolist() == list(range(graph.n))
    on = spent[:, None] >> np.arange(graph.n) & 1
    assert on.sum(axis=0).max() <= 1
    return np.where(on.any(axis=0), on.argmax(axis=0), -1)


def test_a_host_beside_its_kernels_is_waited_for_by_nobody():
    job, place = two_lanes(kernels=[100, 100, 300], host=[50, 50, 290])
    _, end = engine.replay(job.graph)
    arrive = np.flatnonzero(job.graph.kind == Kind.ARRIVE)
    window = waited_for(job.graph, end, arrive)
    ranks = job.graph.rank[arrive]
    assert [window[place[3 + r]] for r in range(3)] == [int(np.flatnonzero(ranks == r)[0])
                                                        for r in range(3)]  # fmt: skip
    assert [window[place[r]] for r in range(3)] == [-1, -1, -1]


def test_both_lanes_shrink_when_both_hold_the_rank_up():
    # First the kernels (300), then what is left beside them (290): both to the median of 100.
    job, place = two_lanes(kernels=[100, 100, 300], host=[50, 50, 290])
    aligned = POLICY.apply(job).graph
    assert engine.replay(aligned)[1].max() == 110
    assert aligned.dur_ns[place[[3, 4, 5]]].tolist() == [100, 100, 100]
    assert aligned.dur_ns[place[[0, 1, 2]]].tolist() == [50, 50, 100]


def test_a_lane_that_holds_nobody_up_keeps_its_time():
    job, place = two_lanes(kernels=[100, 100, 300], host=[10, 10, 90])
    aligned = POLICY.apply(job).graph
    assert engine.replay(aligned)[1].max() == 110
    # Of 390 ns of work on rank 2 only the 300 that the arrival waited for shrink.
    assert aligned.dur_ns[place[[2, 5]]].tolist() == [90, 100]


def test_the_chain_ends_at_the_arrival_before():
    # Work 0, meet, work 1, meet: the second arrival waited for work 1 and the first transfer.
    kinds = [Kind.COMPUTE, Kind.ARRIVE, Kind.TRANSFER] * 2
    graph, _ = build(
        6, np.arange(5), np.arange(1, 6), order_ns=np.arange(6), kind=np.array(kinds),
        rank=np.zeros(6), dur_ns=np.array([5, 0, 2, 7, 0, 2]), step=np.zeros(6),
    )  # fmt: skip
    _, end = engine.replay(graph)
    assert waited_for(graph, end, np.array([1, 4])).tolist() == [0, 0, 1, 1, 1, -1]


def test_the_chain_goes_on_past_what_the_rank_waited_for_elsewhere():
    # Work, a collective of comm 1 (its transfer follows the join alone), work, one of comm 0.
    kinds = [Kind.COMPUTE, Kind.ARRIVE, Kind.JOIN, Kind.TRANSFER] * 2
    graph, _ = build(
        8, np.arange(7), np.arange(1, 8), order_ns=np.arange(8), kind=np.array(kinds),
        rank=np.array([0, 0, -1, 0] * 2), dur_ns=np.array([5, 0, 0, 2, 7, 0, 0, 2]),
        step=np.zeros(8), collective=np.array([-1, 0, 0, 0, -1, 1, 1, 1]), start_ns=np.arange(8),
    )  # fmt: skip
    _, end = engine.replay(graph)
    assert waited_for(graph, end, np.array([5])).tolist() == [0, 0, -1, 0, 0, 0, -1, -1]
