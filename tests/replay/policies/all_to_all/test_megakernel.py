"""MoE layers fused in chunks of tokens: a small job of dispatch, experts and combine."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay import run
from retime.replay.graph import Kind
from retime.replay.overlapped import megakernels, moe_layers
from retime.replay.policies import megakernel
from retime.replay.policy import BadParam
from retime.replay.retiming import transfers

TOKENS = 32_768
EVEN = np.full((8, 8), TOKENS * 8 * 14_336 / 8)


def layer_ns(job, rank=0):
    """Dispatch, experts' computation and combine of the first layer on a rank."""
    graph = job.graph
    moved = np.flatnonzero((graph.kind == Kind.TRANSFER) & (graph.rank == rank))
    work = np.flatnonzero((graph.kind == Kind.COMPUTE) & (graph.rank == rank))
    return graph.dur_ns[[moved[0], work[1], moved[1]]]


def moe(a2a_job, **more):
    return a2a_job([[EVEN, EVEN]] * 2, took_us=660.0, **more)


def test_layers_are_found(a2a_job):
    job = run.baseline(moe(a2a_job)).job
    _, rows = transfers.chosen(job, op=("all_to_all",))
    found = moe_layers.find(job.graph, rows, ("grouped_gemm",))
    assert [(f.dispatch, f.combine) for f in found] == [(0, 1), (2, 3)]
    assert [len(w) for w in found[0].work] == [1] * 8
    assert not moe_layers.find(job.graph, rows, ("fused_moe",))


def test_a_layer_by_the_formula(a2a_job, under):
    # 660 us, 50 us, 660 us over 32,768 tokens; alpha by the fit is what a chunk costs at least.
    job = moe(a2a_job)
    after = under(job, "megakernel:mode=recorded,chunk=2048,fixed=5us")
    took = layer_ns(after)
    (said,) = [a for a in after.assumptions if "latency of a message" in a]
    alpha = float(said.split("alpha ")[1].split(" us")[0]) * 1e3 if "alpha" in said else 1_000.0
    ends = megakernels.Exchange(660e3, alpha, 0.0)
    expected = megakernels.time_ns(
        megakernels.Layer(ends, 50e3, ends, TOKENS).stages("recorded", 5e3, 0, 8), TOKENS, 2048
    )
    assert took.sum() == pytest.approx(expected, rel=5e-3)
    assert took[0] == took[2]
    assert any(f"chunks of {2048} tokens" in a for a in after.assumptions)


@pytest.mark.parametrize("hot", [1, 3])
def test_auto_is_never_worse_than_either(a2a_job, under, hot):
    skewed = EVEN.copy()
    skewed[:, 0] *= hot
    job = a2a_job([[skewed, skewed]] * 2, took_us=660.0)
    for incast in (1.0, 0.9, 0.5):
        total = {
            mode: layer_ns(under(job, f"megakernel:mode={mode},incast={incast}")).sum()
            for mode in ("auto", "push", "pull")
        }
        assert total["auto"] == min(total["push"], total["pull"])


def test_a_hot_receiver_makes_it_pull(a2a_job, under):
    # Half of the pace lost at the receiver costs more than a round trip; with none lost and no
    # counts to send first pushing is free.
    job = moe(a2a_job)
    assert any("pull" in a for a in under(job, "megakernel:incast=0.5").assumptions)
    assert any("push" in a for a in under(job, "megakernel:incast=1,meta=0").assumptions)


def test_the_layer_is_no_shorter_than_its_longest_stage(a2a_job, under):
    job = moe(a2a_job)
    entry = run.replay(job, ["megakernel"])["policies"][0]
    assert entry["gain_pct"] > 0
    assert layer_ns(under(job, "megakernel")).sum() >= 660_000


def test_jobs_without_experts_say_so(a2a_job, under, unchanged):
    job = moe(a2a_job)
    after = under(job, "megakernel:kernels=relu")
    assert unchanged(job, after)
    assert any("nothing is fused" in w for w in after.warnings)
    assert not unchanged(job, under(job, "megakernel:kernels=relu+grouped_gemm"))


@pytest.mark.parametrize("splits", [True, False])
def test_without_splits_no_receiver_is_known_to_be_hot(a2a_job, under, splits):
    said = [w for w in under(moe(a2a_job, splits=splits), "megakernel").warnings if "even" in w]
    assert len(said) == (0 if splits else 1)
    assert all("record all-to-alls with their splits" in w for w in said)


def test_a_layer_that_gains_nothing_stays(a2a_job, under, unchanged):
    # One chunk of few tokens: pushing adds its counts, pulling a round trip.
    few = np.full((8, 8), 14_336.0 * 8)
    job = a2a_job([[few, few]] * 2, took_us=30.0)
    after = under(job, "megakernel")
    assert unchanged(job, after)
    assert any("no faster fused" in w for w in after.warnings)


@pytest.mark.parametrize(
    "given",
    [{"chunk": 100}, {"chunk": 40_000}, {"incast": 0.0}, {"topk": 0}, {"fixed": -1.0},
     {"tokens": -1}, {"meta": -1.0}],
)  # fmt: skip
def test_what_is_out_of_range(a2a_job, under, given):
    with pytest.raises(BadParam):
        under(moe(a2a_job), ("megakernel", given))


def test_neutral_changes_nothing(a2a_job, under, unchanged):
    job = moe(a2a_job)
    assert unchanged(job, under(job, ("megakernel", megakernel.NEUTRAL)))
