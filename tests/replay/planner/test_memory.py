"""State and activations against the papers' tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from retime.replay.planner import memory, model
from retime.replay.planner.memory import CLASSIC, MEGATRON
from retime.replay.planner.split import Split

MiB, GiB = 2**20, 2**30
GPT3 = model.named("gpt3-175b")


@pytest.mark.parametrize("n", [1, 8, 64])
def test_state_a_parameter(n):
    # ZeRO (arXiv 1910.02054): 16 = 2 + 2 + 12; 4 + 12/N; 2 + 14/N; 16/N.
    classic = [memory.state_bytes_per_param(z, n, CLASSIC) for z in range(4)]
    assert classic == pytest.approx([16, 4 + 12 / n, 2 + 14 / n, 16 / n])
    # Megatron-LM, theoretical_memory_usage.py: 18; 6 + 12/N with the distributed optimizer.
    assert memory.state_bytes_per_param(0, n, MEGATRON) == 18
    assert memory.state_bytes_per_param(1, n, MEGATRON) == pytest.approx(6 + 12 / n)


def test_zero_paper_example():
    # arXiv 1910.02054, figure 1: 7.5B parameters on 64 GPUs: 120, 31.4, 16.6 and 1.9 GB.
    held = [7.5 * memory.state_bytes_per_param(z, 64, CLASSIC) for z in range(4)]
    assert [round(x, 1) for x in held] == [120.0, 31.4, 16.6, 1.9]


def test_activations_of_gpt3():
    # arXiv 2205.05198: 5as/h is 80 for GPT-3; s b h (34 + 80) is 2.672 GiB a layer.
    of = memory.layer_activation_bytes
    assert 5 * GPT3.heads * GPT3.sequence / GPT3.hidden == 80
    assert of(GPT3, 1) == 2048 * 12288 * 114
    assert of(GPT3, 1) / GiB == pytest.approx(2.672, abs=5e-4)
    # Tensor and sequence parallel over 8, scores recomputed: s b h 34/8 = 102 MiB.
    eight = {"tp": 8, "sequence_parallel": True}
    assert of(GPT3, 1, recompute="selective", **eight) == 102 * MiB
    assert of(GPT3, 1, flash=True, **eight) == 102 * MiB


def test_the_rows_of_table_2():
    # arXiv 2205.05198, table 2, in units of s b h.
    sbh = 2048 * 12288
    of = memory.layer_activation_bytes
    assert of(GPT3, 1, tp=8) / sbh == pytest.approx(10 + 24 / 8 + 80 / 8)
    assert of(GPT3, 1, tp=8, sequence_parallel=True) / sbh == pytest.approx(34 / 8 + 80 / 8)
    assert of(GPT3, 1, tp=8, recompute="selective") / sbh == pytest.approx(10 + 24 / 8)
    assert of(GPT3, 1, recompute="full") / sbh == 2
    assert of(GPT3, 4) == 4 * of(GPT3, 1)
    assert of(GPT3, 1, cp=4) == of(GPT3, 1) / 4


def test_megatron_form_for_another_mlp():
    # Megatron-LM: s b h (18 + 4 ffn/h) / t.
    wide = GPT3._replace(ffn=3 * GPT3.hidden)
    held = memory.layer_activation_bytes(wide, 1, tp=4, sequence_parallel=True, flash=True)
    assert held == 2048 * 12288 * (18 + 12) / 4


@pytest.mark.parametrize(
    ("schedule", "first"),
    [
        ("gpipe", 64),
        ("1f1b", 8),
        ("interleaved", 8 * (1 + 7 / 16)),
        ("zb-h1", 8),
        ("zb-h2", 15),
        ("zbv", 8),
        ("v-half", 4),
        ("v-min", 8 / 3),
        ("dualpipe", 9),
    ],
)
def test_microbatches_in_flight_on_the_first_of_8_stages(schedule, first):
    # arXiv 2205.05198 and Megatron (GPipe, 1F1B, interleaved with 2 chunks); zero-bubble's README
    # (ZB-H2 about twice, V schedules 1, 1/2, 1/3); DualPipe's README (p + 1).
    assert memory.in_flight(schedule, 0, 8, 64, 2) == pytest.approx(first)
    assert memory.in_flight(schedule, 0, 8, 2, 2) <= 2


def test_a_whole_gpu():
    # One GPU, no recomputation: 16 bytes a parameter, layers x s b h (34 + 5as/h), logits.
    m = model.Model("small", 2, 1024, 16, 4096, 1024, 50304)
    held = memory.of(m, Split(batch=4, micro_batch=4, flash=False), CLASSIC)
    assert held.state_bytes == 16 * m.params()
    layers = 2 * 4 * 1024 * 1024 * (34 + 5 * 16 * 1024 / 1024)
    assert held.activation_bytes == layers + 4 * 1024 * 50304 * 6


def test_the_first_stage_holds_most_of_an_even_pipeline():
    held = memory.of(GPT3, Split(pp=8, tp=8, batch=64, micro_batch=1), CLASSIC)
    assert held.stage == 0
    layers = 8 * 12 * 102 * MiB
    assert held.activation_bytes == layers


def test_dualpipe_holds_parameters_twice():
    one = Split(pp=8, tp=8, batch=64)
    twice = memory.stage_params(GPT3, one._replace(schedule="dualpipe"), 3)
    assert twice[0] == 2 * memory.stage_params(GPT3, one, 3)[0]


@given(tp=st.sampled_from([1, 2, 4, 8]), pp=st.sampled_from([2, 4, 8]), ep=st.sampled_from([2, 8]))
def test_every_parameter_is_held_once(tp, pp, ep):
    m = model.named("mixtral-8x7b")
    one = Split(tp=tp, pp=pp, dp=8, ep=ep)
    held = [memory.stage_params(m, one, stage) for stage in range(pp)]
    assert sum(tp * (dense + ep * expert) for dense, expert in held) == pytest.approx(m.params())


def test_zero_3_shards_all_and_gathers_two_layers():
    m = model.named("llama3-8b")
    held = memory.of(m, Split(dp=64, batch=64, zero=3), CLASSIC)
    assert held.state_bytes == pytest.approx(16 * m.params() / 64 + 2 * 2 * m.layer_params())
