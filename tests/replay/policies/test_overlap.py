"""Communication under computation: small jobs whose answer is worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from retime.replay import engine, graph, run, steps
from retime.replay.graph import Kind
from retime.replay.overlapped import asynchronous, bucketed
from retime.replay.policies import overlap, resolve
from retime.replay.policy import BadParam
from retime.replay.traced import build as kineto

from ..random_jobs import jobs

MS = 1_000


def built(tables, end, *, dim="dp", n=2):
    """The job of a fixture's rows, as one step that ends at `end` us."""
    for rank in range(n):
        tables.step(rank, 0, 0, end)
    job = kineto.build(tables.frames(), "by hand")
    comms = pl.DataFrame({"comm": ["0"], "dim": [dim], "ranks": [list(range(n))]})
    return run.baseline(replace(job, facts={**job.facts, "comms": comms})).job


def estimate(job, spec):
    base = run.baseline(job)
    (tries,) = run.plan([spec])
    return run.estimate(base, tries)


def one_bucket(tables, **more):
    """Three computations of 1 ms, 150 MB reduced in 3 ms, the optimizer for 0.1 ms: 6.1 ms."""
    for rank in range(2):
        for k in range(3):
            tables.kernel(rank, f"gemm{k}", k * MS, (k + 1) * MS, step=0)
        tables.part(rank, "all_reduce", 3 * MS, 6 * MS, instance=1, step=0,
                    in_bytes=150_000_000, out_bytes=150_000_000)  # fmt: skip
        tables.kernel(rank, "adam", 6 * MS, 6.1 * MS, step=0)
    return built(tables, 6.1 * MS, **more)


WHOLE = "backward=1,chunk=50MB"


def test_three_buckets_of_fifty_megabytes(tables):
    # Ready at 1, 2, 3 ms, 1 ms each: sent by 4 ms, 1 ms after the computation (by hand).
    job = one_bucket(tables)
    assert estimate(job, "overlap:chunk=0")["step_ns"] == 6_100_000
    found = estimate(job, f"overlap:{WHOLE},slowdown=1")
    assert found["step_ns"] == pytest.approx(4_100_000, abs=5_000)
    assert found["recovered"]["exposed_ns"] == pytest.approx(2_000_000, abs=5_000)
    assert found["low_ns"] >= found["floors"]["free_communication_ns"] == 3_100_000
    assert any("1 reductions in 3 buckets" in a for a in found["assumptions"])


def test_a_chain_in_chunks(tables):
    # x = 6 ms computed, y = 4 ms reduced, in K = 2 chunks: 3, then 3 beside 2, then 2, which is
    # (x + y)/K + (K-1)/K max(x, y) = 8 ms (deduced); in 4 chunks 7; one is the chain of 10.
    for rank in range(2):
        for k in range(12):
            tables.kernel(rank, f"gemm{k}", 0.5 * k * MS, 0.5 * (k + 1) * MS, step=0)
        tables.part(rank, "all_reduce", 6 * MS, 10 * MS, instance=1, step=0,
                    in_bytes=400_000_000, out_bytes=400_000_000)  # fmt: skip
    job = built(tables, 10 * MS)
    for chunk, took in (("200MB", 8), ("100MB", 7), ("400MB", 10)):
        found = estimate(job, f"overlap:backward=1,slowdown=1,chunk={chunk}")
        assert found["step_ns"] == pytest.approx(took * 1e6, rel=2e-3)


@pytest.mark.parametrize(
    ("compute_ms", "size", "took_ms"),
    [
        # 4 ms computed, 6 ms sent: 2, then 2 x 3.1 one after the other.
        (4, 600, (4 + 6) / 2 + 6 / 2 + 2 * 0.1),
        # 6 ms computed, 4 ms sent: the first of them is hidden with its message, so one of them is
        # paid: K a is what the formula has at most, and exact where sending is the longer one.
        (6, 400, (6 + 4) / 2 + 6 / 2 + 1 * 0.1),
    ],
)
def test_a_chain_in_two_chunks_pays_its_messages(tables, compute_ms, size, took_ms):
    """(x + y)/K + (K-1)/K max(x, y) + K a (deduced), by a job whose fit finds a = 50 us twice."""
    for rank in range(2):
        # Told by two sizes: 2 x 50 us and 100 GB/s.
        tables.part(rank, "all_reduce", 0, 110, instance=1, step=0, in_bytes=1_000_000,
                    out_bytes=1_000_000)  # fmt: skip
        for k in range(12):
            begin = 110 + k * compute_ms * MS / 12
            tables.kernel(rank, f"gemm{k}", begin, begin + compute_ms * MS / 12, step=0)
        ready = 110 + compute_ms * MS
        tables.part(rank, "all_reduce", ready, ready + 100 + size * 10, instance=2, step=0,
                    in_bytes=size * 1_000_000, out_bytes=size * 1_000_000)  # fmt: skip
    job = built(tables, ready + 100 + size * 10)
    spec = f"overlap:backward=1,slowdown=1,until=step,chunk={size // 2}MB"
    assert estimate(job, spec)["step_ns"] == pytest.approx(took_ms * 1e6 + 110e3, rel=5e-3)


def test_buckets_move_the_same_bytes_in_the_same_time(tables):
    job = one_bucket(tables)
    code = int(job.graph.collective.max())
    made = bucketed.split(job.graph, {code: 3}, {code: 1 / 3}, backward=1.0)
    moved = made.graph.kind == Kind.TRANSFER
    assert sorted(made.graph.bytes[moved]) == [50_000_000] * 6
    start, end = engine.replay(made.graph)
    assert sorted(set((end[moved] // 1_000_000).tolist())) == [2, 3, 4]
    assert (made.graph.dur_ns[moved] == 1_000_000).all()
    _, spans = steps.step_times(made.graph, start, end)
    assert spans.tolist() == [4_100_000]
    assert (made.graph.dur_ns[made.place] >= 0).all()
    assert (made.graph.kind[made.place] == job.graph.kind).all()


def test_computation_beside_buckets_runs_slower(tables):
    # At 1.25 the second computation does 0.8 ms until 2 ms, ends at 2.2; its bucket 3.2; the third
    # computation ends at 3.2 - 0.2 + 0.2 + 0.2 = 3.4, its bucket at 4.4, the optimizer at 4.5.
    found = estimate(one_bucket(tables), f"overlap:{WHOLE},slowdown=1.25")
    assert found["step_ns"] == pytest.approx(4_500_000, abs=10_000)
    assert any("1.25 times as long" in a for a in found["assumptions"])


def test_without_a_comparison_the_published_slowdown_is_taken(tables):
    # arXiv 2507.03114: 18.9 % on the mean.
    found = estimate(one_bucket(tables), f"overlap:{WHOLE}")
    assert 4_100_000 < found["step_ns"] < 4_500_000
    assert any("1.19 times" in a and "assumed" in a for a in found["assumptions"])


def test_a_first_bucket_begins_with_the_backward_pass(tables):
    # Of 3 ms the last 2/3: two buckets of 75 MB ready at 2 and 3 ms, 1.5 ms each: 5 ms.
    found = estimate(one_bucket(tables), "overlap:chunk=75MB,slowdown=1")
    assert found["step_ns"] == pytest.approx(5_100_000, abs=5_000)


def waiting(tables, *, then="norm", op="all_reduce", gather=False, **more):
    """1 ms computed, 1 ms reduced while all waits, 1 ms computed, then the optimizer or not."""
    for rank in range(2):
        tables.kernel(rank, "gemm", 0, MS, step=0)
        tables.part(rank, op, MS, 2 * MS, instance=1, step=0)
        tables.kernel(rank, "next", 2 * MS, 3 * MS, step=0)
        if gather:
            tables.part(rank, "all_gather", 3 * MS, 3.1 * MS, instance=2, step=0)
        else:
            tables.kernel(rank, then, 3 * MS, 3.1 * MS, step=0)
    return built(tables, 3.1 * MS, **more)


def test_nothing_waits_but_the_optimizer(tables):
    job = waiting(tables, then="FusedAdam")
    found = estimate(job, "overlap:slowdown=1")
    assert found["step_ns"] == 2_100_000
    assert found["recovered"]["exposed_ns"] == 1_000_000
    assert any("optimizer 2, at the step's end 0" in a for a in found["assumptions"])


def test_the_optimizer_waits_for_what_it_needs(tables):
    # Reduced for 3 ms instead of 1: until 4 ms, the optimizer after it.
    job = waiting(tables, then="FusedAdam")
    task = job.graph.kind == Kind.TRANSFER
    job = job.with_graph(dur_ns=np.where(task, 3_000_000, job.graph.dur_ns))
    policy, values = resolve("overlap:slowdown=1")
    after = policy.apply(replace(job, facts={**job.facts, "measured": job.graph}), **values)
    start, _ = engine.replay(after.graph)
    optimizer = [after.graph.op_names[o] == "FusedAdam" for o in after.graph.op]
    nexts = [after.graph.op_names[o] == "next" for o in after.graph.op]
    assert start[optimizer].tolist() == [4_000_000] * 2
    assert start[nexts].tolist() == [1_000_000] * 2


def on_hosts(comms, *, op="all_reduce"):
    """Ranks without devices compute 1 ms, reduce for 3, again on the next communicator, then adam.

    Each waits for the result before it goes on: 1 ms + 3 + 1 + 3 + 0.1. No stream orders anything.
    """
    names = ("work", op, "adam")
    rows, src, dst = [], [], []

    def task(kind, rank, what, start_ms, dur_ms, after, comm=-1, number=-1):
        n = len(rows)
        at = graph.NULL if kind == Kind.JOIN else round(start_ms * MS) * 1_000
        end = graph.NULL if kind == Kind.JOIN else at + round(dur_ms * MS) * 1_000
        rows.append((kind, rank, names.index(what), comm, number, at, end, dur_ms * 1_000_000))
        src.extend(after)
        dst.extend([n] * len(after))
        return n

    last = {0: [], 1: []}
    worked = {}
    for number, comm in enumerate(comms):
        since = 4 * number
        worked = {
            r: [task(Kind.HOST, r, "work", since, 1, [*last[r], *worked.get(r, [])])] for r in last
        }
        came = [task(Kind.ARRIVE, r, op, since + 1, 0, worked[r], comm, number) for r in last]
        join = task(Kind.JOIN, -1, op, since + 1, 0, came, comm, number)
        last = {r: [task(Kind.TRANSFER, r, op, since + 1, 3, [join], comm, number)] for r in last}
    for r, before in last.items():
        task(Kind.HOST, r, "adam", 4 * len(comms), 0.1, before)
    kind, rank, what, comm, number, at, end, dur = (np.array(c) for c in zip(*rows, strict=True))
    made, _ = graph.build(
        len(rows), np.array(src), np.array(dst), order_ns=np.arange(len(rows)), kind=kind,
        rank=rank, op=what, comm=comm, collective=number, start_ns=at, end_ns=end, dur_ns=dur,
        step=np.zeros(len(rows)), op_names=names, comm_names=("a", "b"),
    )  # fmt: skip
    return made


@pytest.mark.parametrize(
    ("comms", "op", "took_ms"),
    [((0, 0), "all_reduce", 7.1), ((0, 1), "all_reduce", 5.1), ((0, 0), "send", 5.1)],
)
def test_collectives_of_one_communicator_follow_one_another(comms, op, took_ms):
    """Freed, the second reduction is asked for at 2 ms: its communicator carries the first one
    until 4, so it ends at 7. Another communicator's ends at 5, and sends wait for no other."""
    before = on_hosts(comms, op=op)
    freed = asynchronous.freed(before, np.flatnonzero(before.kind == Kind.TRANSFER))
    assert int(engine.replay(before)[1].max()) == 8_100_000
    assert int(engine.replay(freed.graph)[1].max()) == took_ms * 1_000_000


def test_where_no_optimizer_is_named_the_step_ends_with_it(tables):
    found = estimate(waiting(tables), "overlap:slowdown=1")
    assert found["step_ns"] == 2_100_000
    assert any("at the step's end 2" in a for a in found["assumptions"])
    other = estimate(waiting(type(tables)()), "overlap:slowdown=1,until=norm")
    assert any("optimizer 2" in a for a in other["assumptions"])


def test_an_optimizer_in_parts_that_no_name_tells_stays(tables):
    found = estimate(waiting(tables, op="reduce_scatter", gather=True), "overlap:slowdown=1")
    assert found["step_ns"] == 3_100_000
    assert any("until=part of its name" in w for w in found["warnings"])
    assert any("nothing changes" in w for w in found["warnings"])
    freed = estimate(
        waiting(type(tables)(), op="reduce_scatter", gather=True), "overlap:slowdown=1,until=step"
    )
    assert freed["step_ns"] < 3_100_000


def test_results_that_the_next_layer_needs_stay(tables):
    found = estimate(waiting(tables, dim="tp"), "overlap")
    assert found["step_ns"] == 3_100_000
    assert any("no reductions outside of layers" in w for w in found["warnings"])


def test_slowdown_of_what_now_runs_beside(tables):
    # Same tasks, other edges: `next` runs beside the reduction, 1 ms at 1.25 is 0.8 done, then 0.2.
    found = estimate(waiting(tables, then="adam"), "overlap:slowdown=1.25")
    assert found["step_ns"] == pytest.approx(2_300_000, abs=5_000)


@pytest.mark.parametrize("spec", ["chunk=0", "chunk=500", "chunk=0,until=step"])
def test_what_ran_beside_communication_keeps_its_time(tables, spec):
    # `under` ran beside the reduction as recorded: a slow-down that is given is for what moves.
    for rank in range(2):
        tables.kernel(rank, "gemm", 0, MS, step=0)
        tables.part(rank, "all_reduce", MS, 2 * MS, instance=1, step=0)
        tables.kernel(rank, "under", MS, 1.5 * MS, step=0)
        tables.kernel(rank, "next", 2 * MS, 3 * MS, step=0)
        tables.kernel(rank, "adam", 3 * MS, 3.1 * MS, step=0)
    job = built(tables, 3.1 * MS)
    base = run.baseline(job)
    (tries,) = run.plan([f"overlap:slowdown=1,{spec}"])
    after = run.timelines(base, tries).after.graph
    under = [after.op_names[o] == "under" for o in after.op]
    assert after.dur_ns[under].tolist() == [500_000] * 2


def gathers(tables):
    """Gather 100 us, compute 200 us on it, three times over: 900 us."""
    for rank in range(2):
        for k in range(3):
            at = 300 * k
            tables.part(rank, "all_gather", at, at + 100, instance=k, step=0)
            tables.kernel(rank, f"layer{k}", at + 100, at + 300, step=0)
    return built(tables, 900)


def test_gathers_ahead(tables):
    # The second and third gather run beside a layer: 100 + 3 x 200 (by hand).
    found = estimate(gathers(tables), "overlap:depth=1,slowdown=1")
    assert found["step_ns"] == 700_000
    assert any("begin where the one 1 before" in a for a in found["assumptions"])
    assert estimate(gathers(type(tables)()), "overlap:depth=0")["step_ns"] == 900_000


def pipeline(order):
    """Rank 0 of a pipeline: recorded operations in an order, and a send that holds up the next."""
    names = ("forward-compute", "backward-compute", "send")
    n = len(order)
    at = np.arange(n) * 10
    made, _ = graph.build(
        n + 1, np.arange(n), np.arange(1, n + 1), op_names=names,
        kind=np.array([Kind.COMPUTE] * n + [Kind.TRANSFER]),
        op=np.array([names.index(f"{o}-compute") for o in order] + [2]),
        rank=np.zeros(n + 1), step=np.zeros(n + 1), start_ns=np.append(at, 10 * n),
        end_ns=np.append(at, 10 * n) + 10, dur_ns=np.full(n + 1, 10), collective=np.append(
            np.full(n, -1), 0),
    )  # fmt: skip
    return made


def test_pipelines_are_told_by_their_order():
    all_first = pipeline(["forward"] * 4 + ["backward"] * 4)
    assert asynchronous.pipeline_order(all_first) == "all forwards run first"
    mixed = pipeline(["forward", "forward", "backward", "forward", "backward", "backward"])
    assert asynchronous.pipeline_order(mixed) == "it runs 1F1B"


def test_a_send_holds_up_only_who_receives():
    # send of rank 0 (10 to 30) precedes its next computation (30 to 40); freed it ends at 20.
    made, _ = graph.build(
        3, np.array([0, 1]), np.array([1, 2]), op_names=("work", "send"),
        kind=np.array([Kind.COMPUTE, Kind.TRANSFER, Kind.COMPUTE]), op=np.array([0, 1, 0]),
        rank=np.zeros(3), step=np.zeros(3), start_ns=np.array([0, 10, 30]),
        end_ns=np.array([10, 30, 40]), dur_ns=np.array([10, 20, 10]),
        collective=np.array([-1, 0, -1]),
    )  # fmt: skip
    freed = asynchronous.freed(made, np.array([1]), (asynchronous.STEP_END,))
    assert freed.released == 1
    # Nothing else precedes it, so it starts where it was measured.
    assert engine.replay(freed.graph)[0].tolist() == [0, 10, 30]


def test_what_is_out_of_range(tables):
    job = waiting(tables)
    for spec, says in (
        ("op=broadcast", "op takes all_reduce, reduce_scatter, send"),
        ("dim=tp", "tile-overlap"),
        ("slowdown=0.5", "1 or more"),
        ("backward=0", "above 0"),
        ("depth=-1", "0 or more"),
    ):
        with pytest.raises(BadParam, match=says):
            estimate(job, f"overlap:{spec}")


def test_neutral_changes_nothing(tables):
    job = one_bucket(tables)
    policy, values = resolve(("overlap", overlap.NEUTRAL))
    assert policy.apply(job, **values) is job


QUIET = settings(
    deadline=None, max_examples=8, suppress_health_check=list(HealthCheck), derandomize=True
)


@QUIET
@given(jobs(), st.sampled_from(["", "chunk=1MiB", "chunk=64KiB,until=step", "chunk=0,depth=2"]))
def test_never_under_the_floors(job, spec):
    found = estimate(job, f"overlap:{spec}")
    floors = found["floors"]
    assert found["step_ns"] >= floors["free_communication_ns"] - 1
    assert found["step_ns"] >= floors["busiest_link_ns"] - 1


@QUIET
@given(jobs(), st.sampled_from(["until=step", "depth=1", "depth=3,until=step"]))
def test_waits_that_go_never_lengthen_a_step(job, spec):
    assert estimate(job, f"overlap:chunk=0,slowdown=1,{spec}")["gain_pct"] >= 0


def test_recorded_operations_are_known_by_their_ends():
    assert asynchronous.is_of("grads-reduce-scatter", "reduce_scatter", "all_reduce")
    assert asynchronous.is_of("forward-send", "send")
    assert asynchronous.is_of("all_reduce", "all_reduce")
    assert not asynchronous.is_of("resend", "send")
