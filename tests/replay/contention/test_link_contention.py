"""Collectives that share links slow each other down, relative to what they did when recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from retime.replay import engine, graph, run
from retime.replay.contention import link_demand
from retime.replay.fabric.description import Fabric, LinkClass, Network, Nic, Pcie, ScaleUp
from retime.replay.graph import Kind
from retime.replay.policy import Policy, ReplayJob

GB = 1e9


def two_hosts(nic=25 * GB, nvlink=200 * GB):
    """Two hosts of two GPUs, one NIC a host that both share."""
    return Fabric(
        "two",
        hosts=2,
        gpus_per_host=2,
        scale_up=ScaleUp(LinkClass("nvlink", nvlink), 2),
        pcie=Pcie(LinkClass("pcie", 400 * GB)),
        nic=Nic(LinkClass("nic", nic), count=1, serves=(0, 0), at=(0,)),
        network=Network("tor", hosts_per_leaf=2, uplinks=1),
    )


class Made:
    """A recorded-like job: computation and all-gathers of pairs of ranks, times in us."""

    def __init__(self):
        self.tasks, self.edges, self.last = [], [], {}

    def add(self, kind, rank, dur, after=(), **more):
        self.tasks.append({"kind": kind, "rank": rank, "dur": dur * 1_000, **more})
        self.edges += [(a, len(self.tasks) - 1) for a in after if a is not None]
        return len(self.tasks) - 1

    def work(self, rank, us):
        self.last[rank] = self.add(Kind.COMPUTE, rank, us, [self.last.get(rank)], op=0)

    def gather(self, ranks, us, comm, size):
        code = sum(t["kind"] == Kind.JOIN for t in self.tasks)
        part = {"op": 1, "comm": comm, "collective": code, "bytes": size}
        arrive = [self.add(Kind.ARRIVE, r, 0, [self.last.get(r)], **part) for r in ranks]
        join = self.add(Kind.JOIN, -1, 0, arrive, **part)
        for r in ranks:
            self.last[r] = self.add(Kind.TRANSFER, r, us, [join], **part)

    def job(self, fabric):
        def column(name, none=-1):
            return np.array([t.get(name, none) for t in self.tasks])

        src, dst = np.array(self.edges).T
        draft, _ = graph.build(
            len(self.tasks), src, dst, order_ns=np.arange(len(self.tasks)),
            kind=column("kind"), rank=column("rank"), dur_ns=column("dur"),
            op=column("op"), comm=column("comm"), collective=column("collective"),
            bytes=column("bytes", 0), step=np.zeros(len(self.tasks)),
            op_names=("work", "all_gather"), comm_names=("a", "b"),
        )  # fmt: skip
        start, end = engine.replay(draft)
        made = draft.with_(start_ns=start, end_ns=end)
        ranks = pl.DataFrame(
            {"rank": [0, 1, 2, 3], "host": ["x", "x", "y", "y"], "local_rank": [0, 1, 0, 1]}
        )
        return ReplayJob(made, "made", {"ranks": ranks, "comms": None, "fabric": fabric})


def alone_us(size, nic=25 * GB):
    """An all-gather of two ranks sends half its size from each."""
    return size / 2 / nic * 1e6


SIZE = 50_000_000


def apart(late_us):
    """Ranks 0 and 2 gather, then 1 and 3, `late_us` later: one NIC a host carries both."""
    made = Made()
    for rank in (1, 3):
        made.work(rank, late_us)
    made.gather((0, 2), alone_us(SIZE), 0, SIZE)
    made.gather((1, 3), alone_us(SIZE), 1, SIZE)
    return made.job(two_hosts())


def sooner(us):
    """Work takes `us`."""

    def apply(job):
        dur = np.where(job.graph.kind == Kind.COMPUTE, us * 1_000, job.graph.dur_ns)
        return job.with_graph(dur_ns=dur)

    return Policy("sooner", "", "a test", (), ("none",), apply)


def after(job, policy):
    base = run.baseline(job)
    lines = run.timelines(base, ((policy, {}),))
    took = lines.after_end_ns - lines.after_start_ns
    return took[lines.after.graph.kind == Kind.TRANSFER] / 1_000, lines.after


def test_what_a_collective_asks_of_links():
    job = apart(2_000)
    demand, said = link_demand.of(job, job.facts["fabric"])
    assert said == ()
    kinds = demand.kind[:2]
    # 1 / 2 a byte of size over 25 GB/s: 0.02 ns at the NIC, whatever else it crosses.
    np.testing.assert_allclose(demand.slowest[kinds], 0.02)
    np.testing.assert_allclose(demand.alone_ns(kinds, np.array([SIZE, SIZE])), 1e6, rtol=1e-3)


def test_moved_together_they_share_the_nic():
    # 1 ms each, recorded one after the other; begun at once they need 2 ms between them.
    took, job = after(apart(2_000), sooner(0))
    np.testing.assert_allclose(took, 2_000, rtol=2e-3)
    assert any("share links max-min fairly" in a for a in job.assumptions)


def test_half_overlapped_they_share_for_that_half():
    took, _ = after(apart(2_000), sooner(500))
    # The first is alone for 0.5 ms, then both go at half pace: it ends at 1.5, the other at 2.0.
    np.testing.assert_allclose(sorted(took), [1_500] * 4, rtol=2e-3)


def test_what_was_shared_when_recorded_gains_when_it_is_moved_apart():
    made = Made()
    for rank in (1, 3):
        made.work(rank, 0)
    made.gather((0, 2), 2 * alone_us(SIZE), 0, SIZE)
    made.gather((1, 3), 2 * alone_us(SIZE), 1, SIZE)
    took, _ = after(made.job(two_hosts()), sooner(5_000))
    np.testing.assert_allclose(took, 1_000, rtol=2e-3)


def test_on_links_of_their_own_nothing_changes():
    made = Made()
    for rank in (2, 3):
        made.work(rank, 2_000)
    made.gather((0, 1), 125, 0, SIZE)
    made.gather((2, 3), 125, 1, SIZE)
    took, job = after(made.job(two_hosts()), sooner(0))
    assert set(took) == {125.0}
    assert not any("share links" in a for a in job.assumptions)


def test_an_unchanged_job_keeps_every_nanosecond():
    for late in (0, 137, 500, 999, 2_000):
        job = apart(late)
        base = run.baseline(job)
        lines = run.timelines(base, ((Policy("none", "", "", (), ("none",), lambda j: j), {}),))
        np.testing.assert_array_equal(lines.after_start_ns, base.start_ns)
        np.testing.assert_array_equal(lines.after_end_ns, base.end_ns)


def test_a_wider_nic_that_a_policy_states_contends_less():
    def apply(job):
        from retime.replay.retiming import transfers

        job = sooner(0).apply(job)
        job, rows = transfers.chosen(job)
        half = np.full(len(rows), 0.5)
        return transfers.scaled(job, rows, half, bandwidth_ratio=1 / half)

    # Each alone in 0.5 ms, both at once in 1 ms.
    took, _ = after(apart(2_000), Policy("wider", "", "", (), ("none",), apply))
    np.testing.assert_allclose(took, 1_000, rtol=2e-3)


@pytest.mark.parametrize(
    ("fabric", "says"),
    [
        (replace(two_hosts(), hosts=1), "the job needs 4 GPUs, fabric two has 2"),
        (
            Fabric("one", 4, 1, nic=Nic(LinkClass("nic", GB), count=1, serves=(0,), at=(0,)),
                   network=Network("tor", hosts_per_leaf=4, uplinks=1)),
            "a host has 2 ranks, and one of fabric one 1 GPUs",
        ),
    ],
)  # fmt: skip
def test_a_fabric_that_does_not_hold_the_job_is_said(fabric, says):
    job = apart(2_000)
    job = replace(job, facts={**job.facts, "fabric": fabric})
    (entry,) = run.replay(job, [sooner(0)])["policies"]
    assert f"contention is not modelled: {says}" in entry["warnings"]
