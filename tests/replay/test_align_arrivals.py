"""align-arrivals: closed forms, who and what is moved, and waits of random arrivals."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.replay import engine
from retime.replay.costs.lateness import expected_maximum, useful_bandwidth
from retime.replay.graph import Kind, build
from retime.replay.policies import align_arrivals
from retime.replay.policies.align_arrivals import POLICY
from retime.replay.policy import BadParam, ReplayJob

US = 1_000
MS = 1_000_000


def meetings(*rounds, op="all_reduce", step=None):
    """A job of collectives one after another; each is (comm, transfer_ns, {rank: (gap, work)}).

    A rank's work follows its last transfer, and its arrival follows its work.
    """
    cols = {c: [] for c in ("kind", "rank", "comm", "collective", "gap_ns", "dur_ns", "op")}
    edges, last = [], {}

    def task(kind, rank, comm=-1, number=-1, gap=0, dur=0, after=()):
        values = (kind, rank, comm, number, gap, dur, 0 if kind == Kind.COMPUTE else 1)
        for column, value in zip(cols.values(), values, strict=True):
            column.append(value)
        n = len(cols["kind"]) - 1
        edges.extend((a, n) for a in after)
        return n

    for number, (comm, transfer_ns, ranks) in enumerate(rounds):
        arrivals = []
        for rank, (gap, work) in ranks.items():
            before = [last[rank]] if rank in last else []
            done = task(Kind.COMPUTE, rank, gap=gap, dur=work, after=before)
            arrivals.append(task(Kind.ARRIVE, rank, comm, number, after=[done]))
        join = task(Kind.JOIN, -1, comm, number, after=arrivals)
        for rank in ranks:
            last[rank] = task(Kind.TRANSFER, rank, comm, number, dur=transfer_ns, after=[join])
    src, dst = np.array(edges).T
    n = len(cols["kind"])
    graph, _ = build(
        n, src, dst, order_ns=np.arange(n), op_names=("work", op),
        comm_names=tuple(f"c{i}" for i in range(9)),
        step=np.zeros(n) if step is None else step, **{k: np.array(v) for k, v in cols.items()},
    )  # fmt: skip
    return ReplayJob(graph)


def step_ns(job) -> int:
    return int(engine.replay(job.graph)[1].max())


def waits_ns(job) -> list[int]:
    """The wait of every participation, in order of collective and rank."""
    graph = job.graph
    start, end = engine.replay(graph)
    ready = {int(graph.collective[i]): start[i] for i in np.flatnonzero(graph.kind == Kind.JOIN)}
    arrive = np.flatnonzero(graph.kind == Kind.ARRIVE)
    arrive = arrive[np.lexsort((graph.rank[arrive], graph.collective[arrive]))]
    return [int(ready[int(graph.collective[i])] - end[i]) for i in arrive]


def one_late(transfer_ns=400 * US, late=(0, 2 * MS)):
    return meetings((0, transfer_ns, {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: late}))


def test_three_ready_at_0_and_one_at_2_ms():
    job = one_late()
    assert step_ns(job) == 2_400 * US
    assert waits_ns(job) == [2 * MS, 2 * MS, 2 * MS, 0]
    aligned = POLICY.apply(job)
    assert step_ns(aligned) == 400 * US
    assert waits_ns(aligned) == [0, 0, 0, 0]
    assert step_ns(job) == 2_400 * US, "the given job is not touched"


def test_half_the_bandwidth_moves_the_transfer_only():
    job = one_late(transfer_ns=800 * US)
    assert waits_ns(job) == waits_ns(one_late())
    assert step_ns(job) == 2_800 * US
    assert step_ns(POLICY.apply(job)) == 800 * US


@pytest.mark.parametrize(("factor", "expected"), [(0.0, 0.4), (0.5, 1.4), (1.0, 2.4), (2.0, 4.4)])
def test_the_factor_scales_lateness(factor, expected):
    assert step_ns(POLICY.apply(one_late(), factor=factor)) == expected * MS


@pytest.mark.parametrize(
    ("cause", "by_work", "by_launch"),
    [("compute", 0.4, 2.4), ("launch", 2.4, 0.4), ("all", 0.4, 0.4)],
)
def test_only_the_cause_that_is_asked_for_shrinks(cause, by_work, by_launch):
    assert step_ns(POLICY.apply(one_late(late=(0, 2 * MS)), cause=cause)) == by_work * MS
    assert step_ns(POLICY.apply(one_late(late=(2 * MS, 0)), cause=cause)) == by_launch * MS


def test_only_the_ranks_that_are_asked_for():
    assert step_ns(POLICY.apply(one_late(), ranks=(3,))) == 400 * US
    assert step_ns(POLICY.apply(one_late(), ranks=(0, 1))) == 2_400 * US


def two_of_four_late():
    """Ranks 0 and 3 work 2 and 3 ms longer than the others' 1 ms: 4.4 ms, and 1.4 without."""
    ready = {0: (0, 3 * MS), 1: (0, 1 * MS), 2: (0, 1 * MS), 3: (0, 4 * MS)}
    return meetings((0, 400 * US, ready))


def test_named_ranks_are_aligned_with_the_others():
    job = two_of_four_late()
    # Of all four the median is (1 + 3) / 2 ms, late itself.
    assert step_ns(POLICY.apply(job)) == 2_400 * US
    assert step_ns(POLICY.apply(job, ranks=(0, 3))) == 1_400 * US
    assert step_ns(POLICY.apply(job, ranks=(0, 3), factor=0.5)) == 2_900 * US
    # Where all are named, there are no others.
    assert step_ns(POLICY.apply(job, ranks=(0, 1, 2, 3))) == 2_400 * US


def test_ranks_in_halves_are_told():
    (said,) = POLICY.apply(two_of_four_late()).warnings
    assert "2 of 4 ranks of c0 have 2 ms more work" in said
    assert "ranks=0+3 aligns them with the others" in said
    assert not POLICY.apply(two_of_four_late(), ranks=(0, 3)).warnings
    assert not POLICY.apply(one_late()).warnings
    spread = {r: (0, (10 + r) * MS) for r in range(8)}
    assert not POLICY.apply(meetings((0, 0, spread))).warnings


def test_only_the_operations_that_are_asked_for():
    assert step_ns(POLICY.apply(one_late(), op=("work",))) == 400 * US
    assert POLICY.apply(one_late(), op=("play",)).warnings


def test_arrivals_spread_out_meet_at_their_median():
    job = meetings((0, 0, {0: (0, 0), 1: (0, 1000), 2: (0, 2000), 3: (0, 3000)}))
    aligned = POLICY.apply(job)
    assert step_ns(aligned) == 1500
    assert waits_ns(aligned) == [0, 0, 0, 0]
    # Nobody is early by launch delays, so nobody is held for them either.
    assert waits_ns(POLICY.apply(job, cause="launch")) == waits_ns(job) == [3000, 2000, 1000, 0]


def caught_lateness():
    """Rank 0 is slow before comm 0; rank 1 brings its lateness to comm 1, having no work."""
    return meetings(
        (0, 0, {0: (0, 2 * MS), 1: (0, 0), 4: (0, 0)}),
        (1, 0, {1: (0, 0), 2: (0, 0), 3: (0, 0)}),
    )


def test_lateness_caught_from_another_goes_with_its_cause_only():
    job = caught_lateness()
    assert step_ns(job) == 2 * MS
    assert step_ns(POLICY.apply(job, ranks=(1,))) == 2 * MS
    assert step_ns(POLICY.apply(job, ranks=(0,))) == 0
    assert step_ns(POLICY.apply(job)) == 0


def test_a_late_receiver_is_no_straggler():
    # A pipeline's receiver waits by design: sends and recvs are not aligned.
    job = meetings((0, 0, {0: (0, 5 * MS), 1: (0, 0)}), op="send")
    assert step_ns(POLICY.apply(job)) == 5 * MS


def test_independent_steps_keep_their_own_lateness():
    # Rank 0 is late in step 0 only; its long work after that step's collective is no cause.
    job = meetings((0, 10, {0: (0, 700), 1: (0, 100), 2: (0, 100)}))
    again = meetings((0, 10, {0: (0, 100), 1: (0, 100), 2: (0, 100)}))
    a, b = job.graph, again.graph
    both = a.with_(
        **{
            c: np.concatenate([getattr(a, c), getattr(b, c)])
            for c in ("gap_ns", "dur_ns", "kind", "rank", "op", "comm", "bytes", "start_ns",
                      "end_ns")
        },
        pred=np.concatenate([a.pred, b.pred + a.n]),
        pred_ptr=np.concatenate([a.pred_ptr, b.pred_ptr[1:] + a.pred_ptr[-1]]),
        release_ns=np.repeat([0, 10_000], a.n),
        step=np.repeat([0, 1], a.n),
        collective=np.concatenate([a.collective, np.where(b.collective < 0, -1, 1)]),
    )  # fmt: skip
    aligned = POLICY.apply(ReplayJob(both)).graph
    _, spans = engine.step_spans(aligned, *engine.replay(aligned))
    assert spans.tolist() == [110, 110]


def test_to_ideal_gives_everybody_the_mean_and_the_median():
    job = meetings((0, 0, {0: (3, 10), 1: (5, 20), 2: (9, 60)}))
    # Work: mean 30; delays: median 5.
    assert step_ns(POLICY.apply(job, to="ideal")) == 35
    assert step_ns(POLICY.apply(job, to="ideal", cause="compute")) == 39
    assert step_ns(POLICY.apply(job, to="ideal", cause="launch")) == 65
    assert step_ns(POLICY.apply(job, to="ideal", ranks=(2,))) == 35
    assert step_ns(POLICY.apply(job, to="ideal", factor=0.5)) == 52
    assert step_ns(POLICY.apply(job, to="ideal", factor=1.0)) == step_ns(job) == 69


def test_ideal_transfers_take_their_median_and_work_its_mean():
    # Three all-reduces of 10, 20 and 90 us, each after work of 30, 0 and 60: 20 and 30 each.
    job = meetings(*((0, t * US, {0: (0, w * US), 1: (0, w * US)})
                     for t, w in ((10, 30), (20, 0), (90, 60))))  # fmt: skip
    assert step_ns(job) == 210 * US
    ideal = POLICY.apply(job, to="ideal")
    moved = ideal.graph.kind == Kind.TRANSFER
    assert set(ideal.graph.dur_ns[moved].tolist()) == {20 * US}
    assert set(ideal.graph.dur_ns[ideal.graph.kind == Kind.COMPUTE].tolist()) == {30 * US}
    assert step_ns(ideal) == 150 * US


rounds = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 50),
        st.dictionaries(
            st.integers(0, 4), st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1
        ),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(rounds, st.sampled_from(["compute", "launch", "all"]))
def test_aligning_never_makes_a_task_later_and_factor_1_changes_nothing(drawn, cause):
    job = meetings(*drawn)
    same = POLICY.apply(job, factor=1.0, cause=cause).graph
    assert (same.dur_ns == job.graph.dur_ns).all()
    assert (same.gap_ns == job.graph.gap_ns).all()
    aligned = POLICY.apply(job, cause=cause).graph
    assert (aligned.dur_ns >= 0).all()
    assert (aligned.gap_ns >= 0).all()
    moves = (job.graph.kind == Kind.JOIN) | (job.graph.kind == Kind.TRANSFER)
    before, after = engine.replay(job.graph)[1], engine.replay(aligned)[1]
    assert (after <= before)[moves].all()


E_N = {2: 0.5642, 4: 1.0294, 8: 1.4236, 16: 1.7660, 64: 2.3437, 72: 2.3879, 576: 3.0795}


@pytest.mark.parametrize("n", E_N)
def test_the_mean_of_the_largest_of_n(n):
    assert expected_maximum(n) == pytest.approx(E_N[n], abs=1e-4)


@pytest.mark.parametrize(("n", "wait_us"), [(8, 142), (72, 239)])
def test_mean_wait_of_normal_arrivals(n, wait_us):
    """sigma = 100 us: the mean wait is sigma E_n, aligned nothing, and half at factor 0.5."""
    times, sigma_ns = 16_000 // n, 100 * US
    arrivals = np.random.default_rng(7).normal(10 * MS, sigma_ns, (times, n)).astype(int)
    job = meetings(*((0, 0, {r: (0, int(w)) for r, w in enumerate(row)}) for row in arrivals))
    mean = float(np.mean(waits_ns(job))) / US
    # The standard error of the largest of n, under 0.6 sigma, over that many times.
    assert mean == pytest.approx(wait_us, abs=3 * 60 / times**0.5)
    assert np.max(waits_ns(POLICY.apply(job))) <= 1
    half = float(np.mean(waits_ns(POLICY.apply(job, factor=0.5)))) / US
    assert half == pytest.approx(mean / 2, abs=0.01)


def test_useful_bandwidth_falls_as_the_domain_grows():
    # 1 GB with 1 ms of wait: at 1 TB/s the transfer is 1 ms, and twice that saves a quarter.
    assert useful_bandwidth(1e9, latency_ns=0, wait_ns=MS, worth=0.25) == pytest.approx(1e12)
    by_n = [
        useful_bandwidth(1e9, latency_ns=0, wait_ns=100 * US * expected_maximum(n))
        for n in (2, 8, 72, 576)
    ]
    assert by_n == sorted(by_n, reverse=True)
    with pytest.raises(ValueError, match="between 0 and 1/2"):
        useful_bandwidth(1e9, latency_ns=0, wait_ns=MS, worth=0.5)


def test_parameters_as_typed():
    values = POLICY.values({"ranks": "0-2+7", "factor": "0.5", "op": "a+b"})
    assert values["ranks"] == (0, 1, 2, 7)
    assert (values["factor"], values["op"], values["to"]) == (0.5, ("a", "b"), "none")
    with pytest.raises(BadParam, match="expected one of none, ideal"):
        POLICY.values({"to": "heaven"})
    for factor in (-1, float("nan"), float("inf"), 1e18):
        with pytest.raises(BadParam, match="expected 0 to 1000"):
            POLICY.apply(one_late(), factor=factor)
    with pytest.raises(BadParam, match="ranks=17 is not in this job; it has 0 to 3"):
        POLICY.apply(one_late(), ranks=(0, 17))
    with pytest.raises(BadParam, match="more than 1000000 numbers"):
        POLICY.values({"ranks": "0-4000000000"})
    with pytest.raises(BadParam, match="no parameter 'rank'"):
        POLICY.values({"rank": "3"})
    with pytest.raises(BadParam, match="ranks='x'"):
        POLICY.values({"ranks": "x"})


def test_it_says_what_it_assumes():
    assert POLICY.apply(one_late()).assumptions == (align_arrivals.SHED.format(""),)
    assert POLICY.apply(one_late(), to="ideal").assumptions == (align_arrivals.IDEAL,)


def test_what_a_sweep_shares_does_not_hold_the_graph():
    job = one_late()
    graph = weakref.ref(job.graph)
    POLICY.apply(job, factor=0.5)
    gc.disable()  # a circle would go with the next collection: late, for gigabytes
    try:
        del job
        assert graph() is None
    finally:
        gc.enable()
