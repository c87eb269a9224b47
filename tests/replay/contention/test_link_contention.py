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


OPS = ("work", "all_gather", "all_reduce", "grads-reduce-scatter", "all_to_all")


def two_hosts(nic=25 * GB, nvlink=200 * GB, *, nics=1, **of_nic):
    """Two hosts of two GPUs, one NIC a host that both share, or a NIC for each."""
    return Fabric(
        "two",
        hosts=2,
        gpus_per_host=2,
        scale_up=ScaleUp(LinkClass("nvlink", nvlink), 2),
        pcie=Pcie(LinkClass("pcie", 400 * GB)),
        nic=Nic(LinkClass("nic", nic, **of_nic), count=nics, serves=(0, nics - 1), at=(0,) * nics),
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

    def gather(self, ranks, us, comm, size, op=1):
        code = sum(t["kind"] == Kind.JOIN for t in self.tasks)
        part = {"op": op, "comm": comm, "collective": code, "bytes": size}
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
            op_names=OPS, comm_names=("a", "b"),
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


# Graphs of other tasks than were recorded: buckets.


def behind_work(fabric, *, early=False):
    """Ranks 0 and 2 compute for 8 ms, then reduce 100 MB in 4 ms; 1 and 3 gather from 4 to 8 ms.

    Two buckets are ready at 4 and 8 ms, when one of computation's halves ends. With `early` all
    four gather first, at once: 1 ms each that took 2.
    """
    made = Made()
    if early:
        for pair, comm in (((0, 2), 0), ((1, 3), 1)):
            made.gather(pair, 2 * alone_us(SIZE), comm, SIZE)
    for rank in range(4):
        for _ in range(8 if rank in (0, 2) else 4):
            made.work(rank, 1_000)
    made.gather((1, 3), alone_us(4 * SIZE), 1, 4 * SIZE)
    made.gather((0, 2), 2 * alone_us(2 * SIZE), 0, 2 * SIZE, op=2)
    return made.job(fabric)


BUCKETS = "overlap:chunk=50MB,backward=1,until=recorded,op=all_reduce"


def in_buckets(job, spec=BUCKETS):
    """Replayed times of transfers in us, by communicator and start; and what it was before."""
    base = run.baseline(job)
    lines = run.timelines(base, run.plan([spec])[0])
    made = lines.after.graph
    found = {}
    for comm in (0, 1):
        task = np.flatnonzero((made.kind == Kind.TRANSFER) & (made.comm == comm))
        start, end = lines.after_start_ns[task] / 1e3, lines.after_end_ns[task] / 1e3
        order = np.argsort(start, kind="stable")
        found[comm] = np.stack([start[order], (end - start)[order]], axis=1)
    return base, lines, found


def test_two_buckets_share_the_nic_with_another_communicator():
    # Buckets of 50 MB take 2 ms alone, the gather 4. From 4 ms on they share the NIC in halves: the
    # first bucket until 8 ms, the second (ready then) until 12, the gather until 12: each twice as
    # long as alone (by hand).
    job = behind_work(two_hosts())
    _, lines, found = in_buckets(job)
    np.testing.assert_allclose(found[0], [[4_000, 4_000]] * 2 + [[8_000, 4_000]] * 2, rtol=2e-3)
    np.testing.assert_allclose(found[1], [[4_000, 8_000]] * 2, rtol=2e-3)
    assert any("share links max-min fairly" in a for a in lines.after.assumptions)
    (entry,) = run.replay(job, [BUCKETS])["policies"]
    assert entry["step_ns"] == pytest.approx(12e6, rel=2e-3)
    assert not any("contention" in w for w in entry["warnings"])


def test_buckets_with_a_nic_of_their_own_keep_their_time():
    # To the nanosecond what the policy gave them; the step is as long as its work and a bucket.
    _, lines, found = in_buckets(behind_work(two_hosts(nics=2)))
    np.testing.assert_allclose(found[0], [[4_000, 2_000]] * 2 + [[8_000, 2_000]] * 2, rtol=2e-3)
    assert set(found[1][:, 1]) == {4_000}
    start, end = engine.replay(lines.after.graph)
    np.testing.assert_array_equal(lines.after_end_ns - lines.after_start_ns, end - start)
    assert not any("share links" in a for a in lines.after.assumptions)


def test_what_was_shared_when_recorded_stays_so_beside_buckets():
    _, _, found = in_buckets(behind_work(two_hosts(), early=True))
    for comm in (0, 1):
        assert set(found[comm][:2, 1]) == {2_000}
    np.testing.assert_allclose(found[0][2:], [[6_000, 4_000]] * 2 + [[10_000, 4_000]] * 2,
                               rtol=2e-3)  # fmt: skip


@pytest.mark.parametrize(
    "spec", ["overlap:until=recorded,chunk=0,depth=0", "overlap:until=recorded,chunk=1GB"]
)
def test_neutral_buckets_keep_every_nanosecond(spec):
    base, lines, _ = in_buckets(behind_work(two_hosts(), early=True), spec)
    np.testing.assert_array_equal(lines.after_start_ns, base.start_ns)
    np.testing.assert_array_equal(lines.after_end_ns, base.end_ns)


# Recorded operations, and incast.


def test_recorded_operations_with_sizes_contend():
    made = Made()
    for rank in (1, 3):
        made.work(rank, 2_000)
    for pair, comm in (((0, 2), 0), ((1, 3), 1)):
        made.gather(pair, alone_us(SIZE), comm, SIZE, op=3)
    took, job = after(made.job(two_hosts()), sooner(0))
    np.testing.assert_allclose(took, 2_000, rtol=2e-3)
    assert link_demand.plain("grads-reduce-scatter") == "reduce_scatter"
    assert link_demand.plain("forward-send") == "send"
    assert link_demand.plain("exp") == "exp"
    assert not any("contend with nobody" in w for w in job.warnings)


def test_operations_without_a_size_are_said():
    made = Made()
    made.gather((0, 2), 1_000, 0, 0, op=3)
    made.gather((1, 3), alone_us(SIZE), 1, SIZE)
    _, said = link_demand.of((job := made.job(two_hosts())), job.facts["fabric"])
    assert said[0].startswith("1 collectives contend with nobody")
    bare = Made()
    bare.gather((0, 2), 1_000, 0, 0, op=3)
    demand, said = link_demand.of((job := bare.job(two_hosts())), job.facts["fabric"])
    assert demand is None
    assert "ranks and size" in said[0]


def test_senders_that_meet_at_a_port_lose_more_than_a_share():
    # Into a NIC push the two GPUs of the other host: with gamma = 0.5 beyond the first sender the
    # port carries 1 / 1.5. Two gathers begun at once take 2 x 1.5 ms instead of 1 (by hand).
    made = Made()
    for rank in (1, 3):
        made.work(rank, 2_000)
    made.gather((0, 2), alone_us(SIZE), 0, SIZE)
    made.gather((1, 3), alone_us(SIZE), 1, SIZE)
    took, _ = after(made.job(two_hosts(incast_gamma=0.5)), sooner(0))
    np.testing.assert_allclose(took, 3_000, rtol=2e-3)
    none, _ = after(made.job(two_hosts(incast_gamma=0.5, incast_free=2)), sooner(0))
    np.testing.assert_allclose(none, 2_000, rtol=2e-3)


def test_a_collective_with_incast_of_its_own_keeps_its_measured_time():
    # An all-to-all of four: two senders of the other host into each NIC, as recorded.
    made = Made()
    made.gather(range(4), 5_000, 0, SIZE, op=4)
    made.work(0, 1_000)
    base = run.baseline(made.job(two_hosts(incast_gamma=0.5)))
    lines = run.timelines(base, ((sooner(0), {}),))
    moved = lines.after.graph.kind == Kind.TRANSFER
    assert set((lines.after_end_ns - lines.after_start_ns)[moved]) == {5_000_000}
