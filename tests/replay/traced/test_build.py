"""The task graph of traced jobs on rows small enough to replay by hand (times in us)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from retime.replay import engine, steps
from retime.replay.graph import NULL, Kind
from retime.replay.spending import communication
from retime.replay.traced import build as kineto

from .stored_jobs import loaded, same

US = 1_000


@pytest.fixture(autouse=True)
def also_stored(monkeypatch):
    """Whatever is built here is also put together from stored tasks: the same comes of it."""
    build = kineto.build

    def both(frames, job=""):
        made = build(frames, job)
        if made.graph.n and not any("circle" in w for w in made.warnings):
            same(made, loaded(frames))
        return made

    monkeypatch.setattr(kineto, "build", both)


def task(graph, name, kind=None, rank=None):
    """The one task of an operation."""
    found = graph.ops(name)
    if kind is not None:
        found &= graph.kind == kind
    if rank is not None:
        found &= graph.rank == rank
    (index,) = np.flatnonzero(found)
    return index


def preds(graph, index):
    """Indices of the predecessors of a task."""
    return graph.pred[graph.pred_ptr[index] : graph.pred_ptr[index + 1]].tolist()


def shortened(graph, index, by_us):
    """Start and end (us) of a replay with one task shorter."""
    dur = graph.dur_ns.copy()
    dur[index] -= by_us * US
    start, end = engine.replay(graph.with_(dur_ns=dur))
    return start / US, end / US


def assert_identical(graph):
    """The unchanged replay ends every measured task when it ended."""
    _, end = engine.replay(graph)
    known = graph.start_ns != NULL
    np.testing.assert_array_equal(end[known], graph.end_ns[known])


def launch(tables, rank, correlation, at, **more):
    """A launch call of 4 us."""
    tables.call(rank, "cudaLaunchKernel", at, at + 4, correlation=correlation, **more)


def test_launch_and_stream_order(tables):
    launch(tables, 0, 1, 0)
    launch(tables, 0, 2, 10)
    tables.kernel(0, "A", 20, 120, correlation=1)
    tables.kernel(0, "B", 122, 200, correlation=2)
    graph = kineto.build(tables.frames()).graph
    a, b = task(graph, "A"), task(graph, "B")
    calls = np.flatnonzero(graph.kind == Kind.HOST)
    assert graph.dur_ns[calls].tolist() == [0, 10 * US]
    assert preds(graph, a) == [calls[0]]
    assert sorted(preds(graph, b)) == sorted([calls[1], a])
    assert (graph.gap_ns[a], graph.gap_ns[b]) == (20 * US, 2 * US)
    assert_identical(graph)
    start, _ = shortened(graph, a, 50)
    assert start[b] == 72
    # However short A is, B is not launched before 10 us.
    start, _ = shortened(graph, a, 100)
    assert start[b] == 22


def test_a_kernel_that_overlaps_its_predecessor_is_not_forced_later(tables):
    tables.kernel(0, "first", 0, 50)
    tables.kernel(0, "under", 60, 120)
    tables.kernel(0, "over", 110, 150)
    tables.kernel(0, "last", 151, 160)
    graph = kineto.build(tables.frames()).graph
    assert_identical(graph)
    over = task(graph, "over")
    assert preds(graph, over) == [task(graph, "first")]
    assert preds(graph, task(graph, "last")) == [over]


def test_a_kernel_that_overlaps_a_collective_starts_after_it_arrived(tables):
    for rank in (0, 1):
        tables.part(rank, "all_reduce", 10, 100, instance=1, stream=7)
        tables.kernel(rank, "over", 90, 120)
    graph = kineto.build(tables.frames()).graph
    arrive = task(graph, "all_reduce", Kind.ARRIVE, 0)
    assert preds(graph, task(graph, "over", rank=0)) == [arrive]
    assert graph.gap_ns[task(graph, "over", rank=0)] == 80 * US


def test_synchronisation_returns_when_the_device_is_done(tables):
    launch(tables, 0, 1, 0)
    tables.kernel(0, "A", 20, 200, correlation=1)
    tables.call(0, "cudaDeviceSynchronize", 50, 205)
    launch(tables, 0, 2, 210)
    tables.kernel(0, "C", 220, 230, correlation=2)
    graph = kineto.build(tables.frames()).graph
    assert_identical(graph)
    start, _ = shortened(graph, task(graph, "A"), 100)
    assert start[task(graph, "C")] == 120
    # Shorter still, the call itself is what the thread waits for: it is not entered before 50.
    start, _ = shortened(graph, task(graph, "A"), 180)
    assert start[task(graph, "C")] == 70


def test_a_thread_hands_over_to_another(tables):
    launch(tables, 0, 1, 0, thread="main")
    launch(tables, 0, 2, 150, thread="autograd")
    launch(tables, 0, 3, 160, thread="autograd")
    launch(tables, 0, 4, 400, thread="main")
    for i, at in enumerate((10, 160, 170, 410), 1):
        tables.kernel(0, f"K{i}", at, at + 5, correlation=i, stream=i)
    job = kineto.build(tables.frames())
    graph = job.graph
    calls = np.flatnonzero(graph.kind == Kind.HOST)
    assert graph.end_ns[calls].tolist() == [0, 150 * US, 160 * US, 400 * US]
    # 0 -> 150 (other thread's first), 150 -> 160 (its own), then back to main.
    assert [sorted(preds(graph, c)) for c in calls] == [
        [], [calls[0]], [calls[1]], sorted([calls[0], calls[2]]),
    ]  # fmt: skip
    assert graph.dur_ns[calls].tolist() == [0, 150 * US, 10 * US, 240 * US]
    assert any("host thread" in a for a in job.assumptions)


def two_ranks(tables, op="all_reduce", **more):
    """Rank 1 arrives at 300, rank 0 at 100; both leave at 400 and compute for 50."""
    for rank, busy in ((0, 100), (1, 300)):
        tables.kernel(rank, "before", 0, busy, step=1)
        tables.part(rank, op, busy, 400, instance=9, stream=7, step=1, **more)
        tables.kernel(rank, "after", 400, 450, step=1)
        tables.step(rank, 1, 0, 450)


def test_collective_joins_its_ranks(tables):
    two_ranks(tables)
    job = kineto.build(tables.frames())
    graph = job.graph
    assert job.warnings == ()
    assert_identical(graph)
    moved = graph.kind == Kind.TRANSFER
    assert graph.dur_ns[moved].tolist() == [100 * US, 100 * US]
    assert graph.bytes[moved].tolist() == [1000, 1000]
    start, end = shortened(graph, task(graph, "before", rank=1), 200)
    assert end[task(graph, "all_reduce", Kind.TRANSFER, 0)] == 200
    assert start[task(graph, "after", rank=0)] == 200
    # Rank 0 was not what was waited for.
    start, _ = shortened(graph, task(graph, "before", rank=0), 50)
    assert start[task(graph, "after", rank=1)] == 400


def test_what_communication_costs(tables):
    two_ranks(tables)
    graph = kineto.build(tables.frames()).graph
    start, end = engine.replay(graph)
    cost = communication(graph, start, end, np.array([1]))
    # Waits 200 and 0, transfers 100 each, exposed 300 and 100: means over two ranks.
    assert cost == (100 * US, 100 * US, 200 * US)


def test_root_of_a_broadcast_waits_for_nobody(tables):
    for rank, (start, end) in enumerate(((100, 150), (20, 160))):
        tables.part(rank, "broadcast", start, end, instance=1, root=0, stream=7)
    for rank, (start, end) in enumerate(((300, 340), (200, 320))):
        tables.part(rank, "broadcast", start, end, instance=2, root=1, stream=7)
    graph = kineto.build(tables.frames()).graph
    assert_identical(graph)
    by_rank = {
        r: graph.dur_ns[(graph.kind == Kind.TRANSFER) & (graph.rank == r)].tolist() for r in (0, 1)
    }
    # Instance 1: the root moves for 50, the other from the root's start at 100 to 160.
    # Instance 2: the root from its own start, the other (later) from its own.
    assert by_rank == {0: [50 * US, 40 * US], 1: [60 * US, 120 * US]}


def test_reduce_makes_only_the_root_wait(tables):
    for rank, (start, end) in enumerate(((0, 160), (100, 150))):
        tables.part(rank, "reduce", start, end, instance=1, root=0, stream=7)
    graph = kineto.build(tables.frames()).graph
    moved = [graph.dur_ns[task(graph, "reduce", Kind.TRANSFER, r)] for r in (0, 1)]
    assert moved == [60 * US, 50 * US]


def test_unmatched_participation_joins_nobody(tables):
    two_ranks(tables)
    tables.part(0, "all_reduce", 500, 700, instance=None, stream=7, step=1)
    job = kineto.build(tables.frames())
    joins = np.flatnonzero(job.graph.kind == Kind.JOIN)
    assert [len(preds(job.graph, j)) for j in joins] == [2, 1]
    assert any("1 of 2 collectives were not seen on all their ranks" in w for w in job.warnings)


def test_what_is_outside_all_steps_counts_among_what_was_not_seen_whole(tables):
    two_ranks(tables)
    for step, start in ((1, 500), (None, 800)):
        tables.part(0, "all_reduce", start, start + 90, instance=None, stream=7, step=step,
                    group_size=2)  # fmt: skip
    job = kineto.build(tables.frames())
    said = "2 of 3 collectives were not seen on all their ranks (1 of them outside all steps)"
    assert any(said in w for w in job.warnings)


def test_clock_error_shows_in_the_replay(tables):
    # Rank 0 leaves at 290, before rank 1 came at 300: no barrier can do that.
    for rank, (start, end) in enumerate(((100, 290), (300, 400))):
        tables.part(rank, "all_reduce", start, end, instance=1, stream=7, step=1)
        tables.kernel(rank, "after", end + 200, end + 250, step=1)
        tables.step(rank, 1, start, end + 250)
    job = kineto.build(tables.frames())
    late = job.facts["late_ns"]
    assert late[task(job.graph, "all_reduce", Kind.TRANSFER, 0)] == 10 * US
    # What follows has slack enough to take it in.
    assert late[task(job.graph, "after", rank=0)] == 0


def test_clock_offsets_align_the_ranks(tables):
    two_ranks(tables)
    frames = tables.frames()
    base = kineto.build(frames).graph
    tables.offsets = {1: -5_000 * US}
    for table in ("events", "collectives", "steps"):
        for row in tables.rows[table]:
            for column in ("start_ns", "end_ns"):
                if row["rank"] == 1 and column in row:
                    row[column] += 5_000 * US
    shifted = kineto.build(tables.frames()).graph
    np.testing.assert_array_equal(base.dur_ns, shifted.dur_ns)
    np.testing.assert_array_equal(base.start_ns, shifted.start_ns)


def waiting_streams(tables, *, sync_rows=False, side_by_side=True):
    """A on stream 7, then a collective on 20 that waits for it, then B on 7 that waits for that."""
    for rank in (0, 1):
        c = 10 * rank
        launch(tables, rank, c + 1, 0)
        tables.kernel(rank, "A", 10, 200, correlation=c + 1)
        if side_by_side:
            tables.call(rank, "cudaEventRecord", 8, 9, correlation=c + 2)
            tables.call(rank, "cudaStreamWaitEvent", 10, 11, correlation=c + 3)
        launch(tables, rank, c + 4, 12)
        tables.part(rank, "all_reduce", 206, 300, instance=1, correlation=c + 4)
        tables.call(rank, "cudaEventRecord", 17, 18, correlation=c + 5)
        launch(tables, rank, c + 6, 20)
        tables.kernel(rank, "free", 201, 220, correlation=c + 6)
        tables.call(rank, "cudaStreamWaitEvent", 25, 26, correlation=c + 7)
        launch(tables, rank, c + 8, 30)
        tables.kernel(rank, "B", 304, 350, correlation=c + 8)
        if sync_rows:
            for at, stream, waits, record, wait in ((10, 20, 7, 2, 3), (25, 7, 20, 5, 7)):
                tables._event(
                    rank, "sync", "Stream Wait Event", at, at, stream=stream, wait_stream=waits,
                    wait_correlation=c + record, correlation=c + wait,
                )  # fmt: skip


@pytest.mark.parametrize("sync_rows", [True, False])
def test_streams_wait_for_each_other(tables, sync_rows):
    waiting_streams(tables, sync_rows=sync_rows)
    job = kineto.build(tables.frames())
    graph = job.graph
    assert_identical(graph)
    a, b = task(graph, "A", rank=0), task(graph, "B", rank=0)
    arrive = task(graph, "all_reduce", Kind.ARRIVE, 0)
    assert a in preds(graph, arrive)
    assert task(graph, "all_reduce", Kind.TRANSFER, 0) in preds(graph, b)
    # The kernel that only the stream holds back does not wait for the collective.
    free = task(graph, "free", rank=0)
    assert a in preds(graph, free)
    assert arrive not in preds(graph, free)
    assert any("inferred" in text for text in job.assumptions) is not sync_rows


def test_a_start_that_only_another_stream_explains(tables):
    waiting_streams(tables, side_by_side=False)
    graph = kineto.build(tables.frames()).graph
    assert task(graph, "A", rank=0) in preds(graph, task(graph, "all_reduce", Kind.ARRIVE, 0))


def gloo(tables, late_us=0):
    """Two ranks without a device: sleep, all-reduce on a worker thread, sleep, for two steps."""
    for rank in (0, 1):
        at = 0.0
        for step in (1, 2):
            begins = at
            own = 1000 + (late_us if rank == 1 else 0)
            asked = at + own
            ready = at + 1000 + late_us
            done = ready + 200
            tables.host(rank, "c10d::allreduce_", asked, asked + 10, step=step)
            event = tables.host(
                rank, "gloo:all_reduce", asked + 20, done, thread="worker", kind="annotation",
                step=step,
            )  # fmt: skip
            tables.part(
                rank, "all_reduce", asked + 20, done, instance=step, event=event, stream=None,
                step=step,
            )  # fmt: skip
            at = done + 500
            tables.host(rank, f"ProfilerStep#{step}", begins, at, kind="annotation", step=step)
            tables.step(rank, step, begins, at)


def test_host_collective_blocks_its_caller(tables):
    gloo(tables, late_us=300)
    graph = kineto.build(tables.frames()).graph
    assert_identical(graph)
    number, times = steps.step_times(graph, *engine.replay(graph))
    assert number.tolist() == [1, 2]
    assert times.tolist() == [2000 * US, 2000 * US]
    # Make rank 1 as quick as rank 0: the segment of 1300 before it asks becomes 1000.
    dur = graph.dur_ns.copy()
    late = (graph.rank == 1) & (graph.kind == Kind.HOST) & (dur == 1300 * US)
    assert late.sum() == 2
    dur[late] -= 300 * US
    _, times = steps.step_times(graph, *engine.replay(graph.with_(dur_ns=dur)))
    assert times.tolist() == [1700 * US, 1700 * US]


def test_asynchronous_host_collective_does_not_block(tables):
    for rank in (0, 1):
        event = tables.host(rank, "gloo:all_reduce", 10, 2000, thread="worker", kind="annotation")
        tables.host(rank, "c10d::allreduce_", 0, 5)
        tables.host(rank, "compute", 100, 5000)
        tables.part(rank, "all_reduce", 10, 2000, instance=1, event=event, stream=None)
    graph = kineto.build(tables.frames()).graph
    assert_identical(graph)
    start, end = shortened(graph, task(graph, "all_reduce", Kind.TRANSFER, 0), 1000)
    assert end[task(graph, "compute", rank=0)] == 5000
    assert start[task(graph, "compute", rank=0)] == 100


def test_marks_measure_the_steps_windows(tables):
    for rank in (0, 1):
        for step, at in ((3, 0), (4, 100 + rank), (5, 200)):
            tables.kernel(rank, "work", at, at + 60, step=step)
        tables.step(rank, 3, 0, 100 + rank)
        tables.step(rank, 4, 100 + rank, 200)
        tables.step(rank, 5, 200, 260)
    graph = kineto.build(tables.frames()).graph
    number, times = steps.measured(graph)
    assert number.tolist() == [3, 4, 5]
    assert times.tolist() == [100.5 * US, 99.5 * US, 60 * US]
    np.testing.assert_array_equal(steps.step_times(graph, *engine.replay(graph))[1], times)


def test_without_steps_the_whole_trace_is_one(tables):
    tables.kernel(0, "A", 5, 10)
    tables.kernel(0, "B", 20, 45)
    job = kineto.build(tables.frames())
    number, times = steps.measured(job.graph)
    assert (number.tolist(), times.tolist()) == ([0], [40 * US])
    assert any("no steps" in w for w in job.warnings)


def test_coalesced_rows_of_one_kernel_are_one_participation(tables):
    for rank in (0, 1):
        event = tables.kernel(rank, "nccl", 10, 50, stream=20, category="comm")
        for _ in range(3):
            tables.part(rank, "all_reduce", 10, 50, instance=1, event=event, coalesced=3)
    graph = kineto.build(tables.frames()).graph
    moved = graph.kind == Kind.TRANSFER
    assert graph.bytes[moved].tolist() == [3000, 3000]


def test_a_kernel_with_several_peers_waits_for_each_and_for_nobody_else(tables):
    # Ranks in a line, each exchanging with its neighbours; who came when, and instances by pair.
    begins, ends = (0, 10, 30, 40), (15, 35, 45, 45)
    pairs = {0: [(1, 1)], 1: [(1, 0), (2, 2)], 2: [(2, 1), (3, 3)], 3: [(3, 2)]}
    for rank, peers in pairs.items():
        event = tables.kernel(
            rank, "nccl", begins[rank], ends[rank], stream=20, category="comm", step=1
        )
        for instance, peer in peers:
            tables.part(
                rank, "send_recv", begins[rank], ends[rank], instance=instance, event=event,
                peer=peer, group_size=4, coalesced=2 * len(peers), step=1,
            )  # fmt: skip
    job = kineto.build(tables.frames())
    start, _ = engine.replay(job.graph)
    moved = np.flatnonzero(job.graph.kind == Kind.TRANSFER)
    by_rank = moved[np.argsort(job.graph.rank[moved])]
    begun = (start[by_rank] - start[by_rank].min()) // US
    assert begun.tolist() == [0, 20, 30, 30]
    assert (job.graph.kind == Kind.JOIN).sum() == 3
    assert not any("not seen on all" in w for w in job.warnings)


def test_collectives_that_wait_in_a_circle_are_taken_apart(tables):
    # The same two collectives, in opposite order on each rank's one stream.
    for rank, order in ((0, (1, 2)), (1, (2, 1))):
        for k, instance in enumerate(order):
            tables.part(rank, "all_reduce", 100 * k, 100 * k + 50, instance=instance, stream=7)
    job = kineto.build(tables.frames())
    assert any("circle" in w for w in job.warnings)


ACTIVITY = st.tuples(
    st.integers(0, 2),  # rank
    st.integers(0, 2),  # stream
    st.integers(0, 400),  # start
    st.integers(0, 60),  # duration
    st.integers(0, 40),  # launched so long before
    st.sampled_from(["main", "other"]),
)


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(ACTIVITY, max_size=30), st.lists(st.integers(0, 90), min_size=2, max_size=6))
def test_identity_replay_is_exact(tables, activities, waits):
    tables = type(tables)()
    for i, (rank, stream, start, dur, ahead, thread) in enumerate(activities):
        launch(tables, rank, i, start - ahead, thread=thread)
        tables.kernel(rank, f"k{i % 4}", start, start + dur, stream=stream, correlation=i)
    for rank in range(3):
        at = 0
        for k, wait in enumerate(waits):
            ready = 100 * (k + 1)
            at = ready - (wait if rank != k % 3 else 0)
            tables.part(rank, "all_gather", at, ready + 5 + rank, instance=k, stream=30)
    graph = kineto.build(tables.frames()).graph
    assert_identical(graph)
    assert (graph.pred < np.repeat(np.arange(graph.n), np.diff(graph.pred_ptr))).all()
    assert (graph.gap_ns >= 0).all()
    assert (graph.dur_ns >= 0).all()


def test_a_step_twice_on_a_rank_is_taken_once(tables):
    for rank in (0, 1):
        tables.kernel(rank, "work", 0, 100, step=3)
        tables.kernel(rank, "work", 100, 180, step=4)
        tables.step(rank, 3, 0, 100)
        tables.step(rank, 4, 100, 180)
    tables.step(1, 3, 0, 100)
    tables.step(1, 4, 120, 180)
    job = kineto.build(tables.frames(), "twice")
    assert [x.tolist() for x in steps.measured(job.graph)] == [[3, 4], [100_000, 80_000]]
    assert any("2 windows of steps that their rank has already" in w for w in job.warnings)


def test_steps_that_end_together_each_have_their_end(tables):
    for rank in (0, 1):
        tables.kernel(rank, "work", 0, 100, step=0)
        tables.kernel(rank, "work", 100, 180, step=2)
        tables.step(rank, 0, 0, 100)
        tables.step(rank, 1, 60, 100)
        tables.step(rank, 2, 100, 180)
    graph = kineto.build(tables.frames(), "nested").graph
    assert [x.tolist() for x in steps.measured(graph)] == [[0, 1, 2], [100_000, 40_000, 80_000]]
