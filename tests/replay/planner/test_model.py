"""Parameters and FLOPs against published counts."""

from __future__ import annotations

import pytest
from retime.ingest.errors import UsageError
from retime.replay.planner import model


@pytest.mark.parametrize(
    ("name", "params"),
    [
        # Elements of the published checkpoints' tensors (their safetensors indices).
        ("llama2-7b", 6_738_415_616),
        ("llama2-70b", 68_976_648_192),
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("llama3-405b", 405_853_388_800),
        ("mixtral-8x7b", 46_702_792_704),
    ],
)
def test_parameters_are_those_of_the_published_weights(name, params):
    assert model.named(name).params() == params


def test_gpt3_by_narayanan():
    # arXiv 2104.04473, equation 2: 12 l h^2 (1 + 13/(12h) + (V+s)/(12 l h)); 174.6 billion.
    m = model.named("gpt3-175b")
    h, layers = m.hidden, m.layers
    by = 12 * layers * h**2 * (1 + 13 / (12 * h) + (m.vocab + m.sequence) / (12 * layers * h))
    assert m.params() - 2 * h == pytest.approx(by, rel=1e-12)
    assert m.params() / 1e9 == pytest.approx(174.6, abs=0.05)


def test_a_token_of_mixtral_meets_12_9_billion():
    # Mixtral of Experts (arXiv 2401.04088): 47B parameters, 13B active.
    m = model.named("mixtral-8x7b")
    assert m.active_params() / 1e9 == pytest.approx(12.9, abs=0.05)


def test_flops_by_narayanan():
    # arXiv 2104.04473, equation 3, with full recomputation; without it 72, not 96.
    m = model.named("gpt3-175b")
    s, layers, h = m.sequence, m.layers, m.hidden
    for recompute, factor in (("full", 96), ("none", 72)):
        by = factor * 1536 * s * layers * h**2 * (1 + s / (6 * h))
        head = 6 * 1536 * s * h * m.vocab
        assert m.step_flops(1536, recompute=recompute) == pytest.approx(by + head, rel=1e-12)


def test_gpt3_of_1024_gpus():
    # arXiv 2104.04473, section 5.1: 300B tokens on 1,024 A100 at 140 teraFLOP/s are 34 days (its
    # equation 4, 8 T P / (n X), leaves the scores and the output out: 2 % here).
    m = model.named("gpt3-175b")
    steps = 300e9 / (1536 * m.sequence)
    days = steps * m.step_flops(1536, recompute="full") / (1024 * 140e12) / 86400
    assert days == pytest.approx(34, rel=0.025)


def test_selective_recomputation_repeats_scores_alone():
    m = model.named("gpt3-175b")
    more = m.step_flops(1, recompute="selective") - m.step_flops(1)
    assert more == m.layers * 4 * m.sequence**2 * m.hidden


def test_an_unknown_name_says_which_there_are():
    with pytest.raises(UsageError, match=r"no model 'gpt5': there are gpt3-1\.3b, "):
        model.named("gpt5")
