"""Bytes by dimension against the formulas' worked numbers."""

from __future__ import annotations

import pytest
from retime.replay.planner import model, platform, step, volumes
from retime.replay.planner.memory import CLASSIC
from retime.replay.planner.split import Split

MiB = 2**20
IDEAL = step.Efficiencies(1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0)


def test_tensor_parallel_layer():
    # s = 4096, b = 1, h = 8192, bf16, t = 8: A = 64 MiB, 8 (t-1)/t A = 448 MiB a layer.
    a = 4096 * 1 * 8192 * 2
    assert a == 64 * MiB
    assert volumes.tp_layer_bytes(8, a) == 448 * MiB
    # Sequence parallel with inputs gathered again: one all-gather of A more for each block.
    assert volumes.tp_layer_bytes(8, a, regathered=True) == (448 + 2 * 56) * MiB
    assert volumes.tp_layer_bytes(8, a, passes=6) == 672 * MiB


def test_data_parallel():
    # 2 (d-1)/d P e_g; ZeRO-3 3 (d-1)/d P e a microbatch, 2 without the second gather.
    assert volumes.dp_bytes(8, 1e9) == 1.75e9
    assert volumes.fsdp_bytes(8, 1e9) == pytest.approx(2.625e9)
    assert volumes.fsdp_bytes(8, 1e9, regather=False) == 1.75e9


def test_pipeline_boundary():
    assert volumes.pp_boundary_bytes(64 * MiB) == 64 * MiB
    assert volumes.pp_boundary_bytes(64 * MiB, tp=8, scatter=True) == 8 * MiB


def test_schedules_that_pass_stages_more_often_send_more():
    # Interleaved with v chunks v times the sends (arXiv 2104.04473); V schedules twice
    # (zero-bubble's README).
    m = model.named("gpt3-175b")
    plain = Split(pp=4, batch=32)
    sent = volumes.of(m, plain).pp
    assert volumes.of(m, plain._replace(schedule="interleaved", chunks=3)).pp == 3 * sent
    for schedule in ("zbv", "v-half", "v-min"):
        assert volumes.of(m, plain._replace(schedule=schedule)).pp == 2 * sent
    assert volumes.of(m, plain._replace(schedule="zb-h1")).pp == sent


def test_experts():
    # Four all-to-alls of tokens top_k h e (n-1)/n.
    assert volumes.ep_layer_bytes(8, 4096, 8, 2 * 7168) == 4 * 4096 * 8 * 2 * 7168 * 7 / 8
    # One copy a rank instead of one an expert: 5.29 ranks for 8 of 256 experts on 8 ranks.
    m = model.named("mixtral-8x7b")._replace(experts=256, top_k=8)
    for ep, ranks in ((8, 5.295), (2, 1.993), (256, 8)):
        one, each = (Split(dp=256, ep=ep, batch=256, dispatch=d) for d in ("rank", "choice"))
        assert volumes.of(m, one).ep / volumes.of(m, each).ep == pytest.approx(ranks / 8, rel=1e-4)
        # As many bytes less a GPU, over the same links.
        times = [step.layer(m, s, platform.named("H100"), IDEAL).ep_ns for s in (one, each)]
        assert times[0] <= times[1]
        assert times[0] < times[1] or ep == 256


def test_context():
    # Ring: 2 (c-1)/c s b h_kv e forward, about twice that backward; Ulysses 4 all-to-alls of A/c.
    kv = 4096 * 1024 * 2
    assert volumes.cp_ring_layer_bytes(4, kv, backward=False) == 1.5 * kv
    assert volumes.cp_ring_layer_bytes(4, kv) == 4.5 * kv
    a = 64 * MiB
    assert volumes.ulysses_layer_bytes(8, a, backward=False) == 4 * a / 8 * 7 / 8
    assert volumes.ulysses_layer_bytes(8, a) == 8 * a / 8 * 7 / 8


def test_ulysses_scales_and_a_ring_does_not():
    # arXiv 2309.14509: Ulysses' volume a rank falls with the ranks, a ring's stays.
    a = 64 * MiB
    assert volumes.ulysses_layer_bytes(16, a) < 0.6 * volumes.ulysses_layer_bytes(8, a)
    assert volumes.cp_ring_layer_bytes(16, a) > volumes.cp_ring_layer_bytes(8, a)


def test_a_step_of_gpt3():
    m = model.named("gpt3-175b")
    one = Split(tp=8, pp=8, dp=8, micro_batch=2, batch=1536)
    found = volumes.of(m, one, CLASSIC)
    a = 2 * 2048 * 12288 * 2
    assert one.microbatches == 96
    assert found.tp == 96 * 12 * 7 * a
    assert found.pp == 96 * 2 * a / 8
    first = (12 * m.layer_params() + m.embedding_params()) / 8
    assert found.dp == 2 * 7 / 8 * first * 2
    assert (found.ep, found.cp) == (0, 0)


def test_a_sharded_optimizer_gathers_what_it_scattered():
    m = model.named("llama3-8b")
    plain = volumes.of(m, Split(dp=8, batch=8), CLASSIC).dp
    sharded = volumes.of(m, Split(dp=8, batch=8, zero=1), CLASSIC).dp
    assert sharded == plain == 2 * 7 / 8 * m.params() * 2
    # ZeRO-3 moves half as much again, and every microbatch anew (arXiv 1910.02054, section 7).
    assert volumes.of(m, Split(dp=8, batch=16, zero=3), CLASSIC).dp == 2 * 1.5 * plain
