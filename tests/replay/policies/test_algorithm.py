"""The algorithm policy and the fit under it, on jobs whose alpha and bandwidth are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from retime.replay import models, run
from retime.replay.calibration import calibrate
from retime.replay.graph import Kind
from retime.replay.policies import resolve
from retime.replay.policy import BadParam
from retime.replay.traced import build as kineto

ALPHA_NS, BANDWIDTH = 822.0, 450e9
N = 8
SIZES = (10 << 10, 1 << 20, 80 << 20)


def ring_job(tables, sizes=SIZES, *, op="all_reduce", steps=4, ranks=N, noise=None, **more):
    """Ranks of a group of 8 that ran rings of known cost."""
    seen = {"group_size": N, **more}
    at = 0.0
    for step in range(steps):
        begin = at
        for k, size in enumerate(sizes):
            took = float(models.time_ns(op, "ring", N, size, ALPHA_NS, BANDWIDTH)) / 1e3
            took *= 1.0 if noise is None else noise[step * len(sizes) + k]
            for rank in range(ranks):
                tables.kernel(rank, "work", at, at + 50, step=step)
                tables.part(
                    rank, op, at + 50, at + 50 + took, instance=step * 10 + k, stream=7,
                    step=step, in_bytes=size, out_bytes=size, **seen,
                )  # fmt: skip
            at = round(at + 50 + took, 3)
        for rank in range(ranks):
            tables.step(rank, step, begin, at)
    return kineto.build(tables.frames(), "rings")


def applied(job, spec):
    """The job under one policy."""
    policy, values = resolve(spec)
    return policy.apply(run.baseline(job).job, **values)


def transfers(job, size):
    """Transfer times (ns) of the collectives of a size."""
    graph = job.graph
    return graph.dur_ns[(graph.kind == Kind.TRANSFER) & (graph.bytes == size)]


def test_fit_finds_what_made_the_times(tables):
    rows = calibrate.instances(ring_job(tables).graph)
    fit = calibrate.fit(rows, "ring")
    assert (fit.n, fit.instances, fit.separated) == (N, 12, True)
    assert (fit.min_bytes, fit.max_bytes) == (SIZES[0], SIZES[-1])
    assert fit.alpha_ns == pytest.approx(ALPHA_NS, rel=1e-3)
    assert fit.bandwidth_bytes_per_s == pytest.approx(BANDWIDTH, rel=1e-3)


def test_fit_is_not_carried_away_by_outliers(tables):
    noise = np.ones(12)
    noise[[1, 5]] = 10.0
    fit = calibrate.fit(calibrate.instances(ring_job(tables, noise=noise).graph), "ring")
    assert fit.alpha_ns == pytest.approx(ALPHA_NS, rel=0.02)
    assert fit.bandwidth_bytes_per_s == pytest.approx(BANDWIDTH, rel=0.02)


def test_errors_of_the_fit_cover_the_truth(tables):
    noise = np.exp(np.random.default_rng(1).normal(0, 0.05, 120))
    fit = calibrate.fit(calibrate.instances(ring_job(tables, steps=40, noise=noise).graph), "ring")
    assert 0 < fit.alpha_error_ns < 0.1 * ALPHA_NS
    assert abs(fit.alpha_ns - ALPHA_NS) < 3 * fit.alpha_error_ns
    assert 0 < fit.bandwidth_error_bytes_per_s < 0.1 * BANDWIDTH
    assert abs(fit.bandwidth_bytes_per_s - BANDWIDTH) < 3 * fit.bandwidth_error_bytes_per_s


def rows_of(sizes, times_ns):
    """Rings of two ranks: a time is 2 alpha and the size once over the link."""
    k = len(sizes)
    return pl.DataFrame(
        {
            "comm": ["c"] * k,
            "op": ["all_reduce"] * k,
            "n": [2] * k,
            "bytes": sizes,
            "transfer_ns": [float(t) for t in times_ns],
        }
    )


def test_alpha_is_not_negative_where_noise_would_make_it_so():
    # 1 ns a byte, some more, some less; the line through them starts just below zero.
    sizes = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000]
    times = [s * f for s, f in zip(sizes, [0.95, 1.0, 1.3, 0.8, 1.1, 1.0], strict=True)]
    fit = calibrate.fit(rows_of(sizes, times), "ring")
    assert fit.alpha_ns == 0
    assert fit.bandwidth_bytes_per_s == pytest.approx(1e9, rel=0.1)


@pytest.mark.parametrize(
    ("sizes", "times", "given", "why"),
    [
        # 5 ns a byte less 4 us.
        ([1_000, 2_000, 4_000, 8_000], [1_000, 6_000, 16_000, 36_000], {}, "a message would take"),
        # The larger, the quicker.
        ([1_000, 2_000, 4_000, 8_000], [8_000, 7_000, 5_000, 1_000], {}, "a byte would take"),
        ([1_000, 2_000, 4_000, 8_000], [5_000] * 4, {}, "larger ones took no longer"),
        ([1_000], [1_000], {"alpha_ns": 5_000.0}, "their messages"),
        ([1_000], [1_000], {"bandwidth_bytes_per_s": 1e8}, "their bytes"),
        ([0], [1_000], {}, "none has both"),
    ],
)
def test_no_fit_where_none_is_possible(sizes, times, given, why):
    with pytest.raises(calibrate.NoFit, match=why):
        calibrate.fit(rows_of(sizes, times), "ring", **given)


def test_collectives_that_cannot_be_fitted_are_left(tables):
    # Each of a size takes a tenth of what the smaller one did.
    quicker = np.tile([1.0, 0.1, 1e-4], 4)
    job = ring_job(tables, noise=quicker)
    after = applied(job, "algorithm")
    np.testing.assert_array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert any("no fit of alpha and bandwidth is possible" in w for w in after.warnings)


@pytest.mark.parametrize(
    ("size", "ring_us", "tree_us"), [(10 << 10, 11.548, 5.069), (80 << 20, 337.7, 1123.4)]
)
def test_ring_to_tree(tables, size, ring_us, tree_us):
    job = ring_job(tables)
    assert transfers(job, size)[0] / 1e3 == pytest.approx(ring_us, rel=2e-3)
    assert transfers(applied(job, "algorithm"), size)[0] / 1e3 == pytest.approx(tree_us, rel=2e-3)


def test_a_biased_model_cancels(tables):
    # All transfers twice as long as any ring of these constants: so are the trees.
    given = "algorithm:alpha=0.822us,bandwidth=450GB/s"
    slow = applied(ring_job(tables, noise=np.full(12, 2.0)), given)
    assert transfers(slow, 10 << 10)[0] / 1e3 == pytest.approx(2 * 5.069, rel=2e-3)


def test_the_same_algorithm_changes_nothing(tables):
    job = ring_job(tables)
    np.testing.assert_array_equal(
        applied(job, "algorithm:algo=ring").graph.dur_ns, job.graph.dur_ns
    )
    np.testing.assert_array_equal(
        applied(job, "algorithm:algo=tree,from=tree").graph.dur_ns, job.graph.dur_ns
    )


def test_input_is_untouched(tables):
    job = ring_job(tables)
    before = job.graph.dur_ns.copy()
    applied(job, "algorithm")
    np.testing.assert_array_equal(job.graph.dur_ns, before)


def test_sizes_too_alike_say_what_was_assumed(tables):
    job = applied(ring_job(tables, sizes=(1 << 20,)), "algorithm")
    (said,) = [w for w in job.warnings if "too alike" in w]
    # n = 8: 6 messages for 14, and 6 volumes for 1.75.
    assert "tree takes 0.43 to 3.43 times as long" in said
    # One ring took 15.59 us in 14 messages: alpha is at most half of a message.
    assert "alpha taken as 0.557 us" in said


def test_unknown_algorithm_is_taken_to_be_a_ring(tables):
    job = applied(ring_job(tables), "algorithm")
    assert any("do not say their algorithm: taken to be ring" in a for a in job.assumptions)
    assert any("0.822 us, bandwidth 450 GB/s" in a for a in job.assumptions)


def test_algorithm_without_a_model_is_left(tables):
    job = ring_job(tables, algo="collnet_chain")
    after = applied(job, "algorithm")
    np.testing.assert_array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert any("ran as 'collnet-chain': left as measured" in w for w in after.warnings)


def test_collectives_without_a_size_are_left(tables):
    job = ring_job(tables, sizes=(0, 1 << 20, 80 << 20))
    after = applied(job, "algorithm")
    np.testing.assert_array_equal(transfers(after, 0), transfers(job, 0))
    assert any("have no size: left as measured" in w for w in after.warnings)


def test_collectives_seen_on_some_ranks_are_left(tables):
    job = ring_job(tables, ranks=2)
    after = applied(job, "algorithm")
    np.testing.assert_array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert any("12 of 12 all_reduce were not seen on all their ranks" in w for w in after.warnings)
    whole = applied(ring_job(type(tables)()), "algorithm")
    assert not any("not seen on all" in w for w in whole.warnings)


def test_a_rank_alone_gets_no_estimate(tables):
    (entry,) = run.replay(ring_job(tables, ranks=1), ["algorithm"])["policies"]
    assert entry["gain_pct"] == 0
    assert any("left as measured" in w for w in entry["warnings"])


def test_a_job_without_the_operation_says_what_it_has(tables):
    job = ring_job(tables, op="all_gather")
    after = applied(job, "algorithm")
    assert after.warnings[-1] == "the job has no all_reduce: it has all_gather"
    np.testing.assert_array_equal(after.graph.dur_ns, job.graph.dur_ns)


def test_combinations_without_a_model(tables):
    job = ring_job(tables, op="all_gather")
    with pytest.raises(models.NoModel, match="all_gather works with ring"):
        applied(job, "algorithm:op=all_gather,algo=tree")
    with pytest.raises(models.NoModel, match="there are models of all_reduce"):
        applied(job, "algorithm:op=alltoallw")
    with pytest.raises(BadParam):
        applied(job, "algorithm:from=star")


@pytest.mark.parametrize(
    ("algo", "small_us", "large_us"),
    [
        # Arithmetic on the closed forms, n = 8: see tests/replay/models/test_closed.py.
        ("recursive-doubling", 2.534, 561.7),
        ("halving_doubling", 4.972, 331.2),
        ("double-tree", 5.069, 426.5),
        ("direct", 1.684, 327.9),
        ("ps", 1.963, 2611.4),
    ],
)
def test_every_algorithm_of_the_table(tables, algo, small_us, large_us):
    after = applied(ring_job(tables), f"algorithm:algo={algo}")
    assert transfers(after, 10 << 10)[0] / 1e3 == pytest.approx(small_us, rel=3e-3)
    assert transfers(after, 80 << 20)[0] / 1e3 == pytest.approx(large_us, rel=3e-3)


def test_small_ones_favour_a_tree_and_large_ones_a_ring(tables):
    after = applied(ring_job(tables), "algorithm:algo=tree")
    assert transfers(after, 10 << 10)[0] < 11_548 < 337_700 < transfers(after, 80 << 20)[0]


@pytest.mark.parametrize(
    "spec", ["algo=ring", "algo=ring,protocol=keep", "algo=keep", "algo=tree,dim=pp"]
)
def test_neutral_parameters_change_nothing(tables, spec):
    job = ring_job(tables)
    after = applied(job, f"algorithm:{spec}")
    np.testing.assert_array_equal(after.graph.dur_ns, job.graph.dur_ns)


def test_an_algorithm_that_is_not_for_so_many_ranks_is_left(tables):
    job = ring_job(tables, op="all_gather", group_size=6, ranks=6)
    after = applied(job, "algorithm:op=all_gather,algo=halving-doubling")
    np.testing.assert_array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert any("stands for 2, 4, 8, ... ranks, not for 6" in w for w in after.warnings)


def on_one_host(job, device="NVIDIA H100 80GB HBM3"):
    """The job with ranks that are known to be GPUs of one host."""
    ranks = pl.DataFrame(
        {"rank": range(N), "host": ["h"] * N, "local_rank": range(N), "device_name": [device] * N}
    )
    return run.baseline(replace(job, facts={**job.facts, "ranks": ranks})).job


def changed(job, spec):
    policy, values = resolve(spec)
    return policy.apply(job, **values)


def test_a_protocol_by_nccls_tuning_model(tables):
    # 80 MiB, 8 H100, ring: it ran as Simple, 56 us + M/205.71 GB/s (LL128 takes 40.6 us +
    # M/189.26 GB/s, 4 % more); LL: 15 us + M/80.57 GB/s.
    job = on_one_host(ring_job(tables))
    after = changed(job, "algorithm:algo=keep,protocol=LL")
    m = 80 << 20
    ran = 56e3 + m / (360 * 8 / 14)
    ratio = (15e3 + m / (141 * 8 / 14)) / ran
    assert transfers(after, m)[0] / 337_732 == pytest.approx(ratio, rel=2e-3)
    # 10 KiB ran as LL already.
    assert transfers(after, 10 << 10)[0] == transfers(job, 10 << 10)[0]
    assert any("NCCL on h100, 8 ranks, 1 hosts" in a for a in after.assumptions)


def test_nccls_own_choice_is_never_slower_by_its_model(tables):
    job = on_one_host(ring_job(tables))
    after = changed(job, "algorithm:algo=auto")
    assert (after.graph.dur_ns <= job.graph.dur_ns).all()
    # 80 MiB: NVLS, 25 us + M / 272 GB/s, for a ring of 56 us + M / 205.7 GB/s (Simple).
    ran = 56e3 + (80 << 20) / (360 * 8 / 14)
    ratio = (25e3 + (80 << 20) / 272) / ran
    assert transfers(after, 80 << 20)[0] / 337_732 == pytest.approx(ratio, rel=2e-3)


def test_what_nccl_does_not_offer_is_left(tables):
    job = on_one_host(ring_job(tables))
    after = changed(job, "algorithm:algo=nvls,protocol=LL")
    np.testing.assert_array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert any("NCCL does not offer nvls LL there" in w for w in after.warnings)
    after = changed(job, "algorithm:algo=halving-doubling,protocol=LL")
    np.testing.assert_array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert any("NCCL has no algorithm 'halving-doubling'" in w for w in after.warnings)


def test_a_device_that_nccl_does_not_know_asks_for_the_machine(tables):
    job = on_one_host(ring_job(tables), device="Instinct MI300X")
    after = changed(job, "algorithm:protocol=LL128")
    np.testing.assert_array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert any("give machine, one of v100, a100" in w for w in after.warnings)
    after = changed(job, "algorithm:protocol=LL128,machine=h100")
    assert (after.graph.dur_ns != job.graph.dur_ns).any()


def test_nccls_models_take_no_alpha(tables):
    with pytest.raises(BadParam, match="leave out alpha and bandwidth, or protocol"):
        applied(ring_job(tables), "algorithm:protocol=LL,alpha=1us")


def test_a_recorded_tree_is_nccls_double_tree(tables):
    job = ring_job(tables, algo="tree")
    after = applied(job, "algorithm:algo=double-tree")
    np.testing.assert_array_equal(after.graph.dur_ns, job.graph.dur_ns)
