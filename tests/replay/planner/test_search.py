"""Ranking of all splits."""

from __future__ import annotations

import pytest
from retime.ingest.errors import UsageError
from retime.replay.planner import fitted, memory, model, platform, search, split, step

GPT3 = model.named("gpt3-175b")
A100 = platform.named("A100")


def test_every_plan_is_possible_and_they_are_ranked():
    plans = search.search(GPT3, 512, A100, 1536)
    good = [p for p in plans if not p.why_not]
    assert len(good) >= 5
    assert plans[: len(good)] == good
    times = [p.estimate.step_ns for p in good]
    assert times == sorted(times)
    for p in plans:
        assert split.problems(GPT3, p.split, 512) == []
        assert p.split.world == 512
        assert p.low_ns < p.estimate.step_ns < p.high_ns
    for p in good:
        assert memory.of(GPT3, p.split).total_bytes <= search.USABLE * 80e9
    for p in plans[len(good) :]:
        assert "GB are usable" in p.why_not
    assert len({p.split[:5] for p in plans}) == len(plans)


def test_the_best_of_a_set_of_degrees_is_the_best_of_its_variants():
    plans = search.search(GPT3, 512, A100, 1536)
    one = plans[0].split
    key = {k: getattr(one, k) for k in ("dp", "tp", "pp", "cp", "ep")}
    every = [
        step.estimate(GPT3, v, A100, fitted.A100).step_ns
        for v in search.variants(GPT3, 512, A100, 1536, key, [])
        if memory.of(GPT3, v).total_bytes <= search.USABLE * 80e9
    ]
    assert len(every) > 3
    assert plans[0].estimate.step_ns <= min(every)


def test_what_is_fixed_stays():
    plans = search.search(GPT3, 512, A100, 1536, fixed={"tp": 4, "recompute": "full", "zero": 0})
    assert {(p.split.tp, p.split.recompute, p.split.zero) for p in plans} == {(4, "full", 0)}


def test_less_memory_never_gives_a_quicker_plan():
    m = model.named("llama3-8b")
    best = [
        search.search(m, 8, platform.named("H100"), 64, memory_bytes=gb * 1e9)[0]
        for gb in (80, 60, 40, 30)
    ]
    times = [p.estimate.step_ns for p in best if not p.why_not]
    assert times == sorted(times)
    assert len(times) >= 3


def test_stages_make_room_for_the_output():
    # 128,256 x 4,096 outputs take as long as some of the 32 layers: the last of 4 stages has fewer.
    m = model.named("llama3-8b")
    one = split.Split(pp=4, tp=2, batch=64, micro_batch=1)
    even = search.balanced(m, one, platform.named("H100"), fitted.A100)
    assert sum(even.stages) == 32
    assert even.stages[-1] < min(even.stages[:-1])
    h100 = platform.named("H100")
    took = [step.times(m, s, h100, fitted.A100).step_ns for s in (one, even)]
    assert took[1] < took[0]


def test_experts_are_tried_inside_the_data_dimension():
    plans = search.search(model.named("mixtral-8x7b"), 64, platform.named("H100"), 256)
    assert any(p.split.ep > 1 for p in plans if not p.why_not)


def test_nothing_possible_says_why():
    with pytest.raises(UsageError, match="over 7 GPUs is possible: a batch of 64 is no multiple"):
        search.search(GPT3, 7, A100, 64, fixed={"pp": 1})


@pytest.mark.parametrize(
    ("sizes", "gpus", "batch", "says"),
    [
        ({}, 1 << 63, 64, "GPUs are 9223372036854775808: at most 1048576"),
        ({}, 64, 1 << 63, "batch is"),
        ({"experts": 10**9, "top_k": 2}, 64, 64, "experts is 1000000000: at most 65536"),
        ({"layers": 10**9}, 64, 64, "layers is 1000000000: at most 1024"),
        ({"hidden": 1 << 63, "heads": 1}, 64, 64, "hidden is"),
    ],
)
def test_what_is_beyond_all_models_is_refused_at_once(sizes, gpus, batch, says):
    of = model.named("gpt3-175b")._replace(**sizes)
    with pytest.raises(UsageError, match=says):
        search.search(of, gpus, platform.named("H100"), batch)


def test_a_batch_of_millions_of_sequences_is_planned():
    plans = search.search(model.named("mixtral-8x7b"), 64, platform.named("H100"), 1 << 24)
    assert plans[0].estimate.step_ns > 0
