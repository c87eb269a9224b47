"""What splits are possible, and what is said of others."""

from __future__ import annotations

import pytest
from retime.replay.planner import model
from retime.replay.planner.split import Split, problems

GPT3 = model.named("gpt3-175b")
MIXTRAL = model.named("mixtral-8x7b")


def test_layers_go_as_evenly_as_they_can():
    assert Split(pp=4).layers_by_stage(32) == (8, 8, 8, 8)
    assert Split(pp=4).layers_by_stage(30) == (8, 8, 7, 7)
    assert Split(pp=2, stages=(20, 12)).layers_by_stage(32) == (20, 12)


def test_a_possible_split_has_no_problems():
    one = Split(dp=8, tp=8, pp=8, micro_batch=2, batch=1536)
    assert problems(GPT3, one, 512) == []
    assert one.microbatches == 96
    assert one.words() == "dp8 tp8 pp8"
    assert Split().words() == "one GPU"
    assert Split(dp=11, tp=1).words() == "dp11"


@pytest.mark.parametrize(
    ("m", "one", "gpus", "says"),
    [
        (GPT3, Split(dp=4, tp=8, pp=8, batch=64), 512, "= 256, not the 512 GPUs there are: dp=8"),
        (GPT3, Split(tp=5, batch=1), 5, "tp=5 does not divide 96 heads: 1, 2, 3, 4, 6"),
        (MIXTRAL, Split(tp=32, batch=1), 32, ""),
        (GPT3, Split(dp=7, batch=64), 7, "batch of 64 is no multiple of dp x micro_batch = 7: 63"),
        (GPT3, Split(pp=97, batch=1), 97, "pp=97 is more than the model's 96 layers"),
        (GPT3, Split(pp=2, stages=(50, 50), batch=1), 2, "hold 100 layers, the model has 96"),
        (GPT3, Split(pp=2, stages=(96,), batch=1), 2, "1 stages are given for pp=2"),
        (GPT3, Split(ep=2, dp=2, batch=2), 2, "the model has no experts: ep is 1"),
        (MIXTRAL, Split(ep=3, dp=3, batch=3), 3, "ep=3 does not divide 8 experts: 1, 2, 4, 8"),
        (MIXTRAL, Split(ep=8, dp=4, batch=4), 4, "ep=8 lies inside dp x cp = 4: 1, 2, 4 would"),
        (GPT3, Split(cp=3, batch=1), 3, "cp=3 cannot cut 2048 tokens evenly"),
        (GPT3, Split(cp=64, tp=2, batch=1, context="ulysses"), 128, "cp=64 by Ulysses shares 96"),
        (GPT3, Split(pp=3, schedule="dualpipe", batch=3), 3, "pp=3 is odd, 4 is not"),
        (GPT3, Split(pp=4, schedule="interleaved", batch=4), 4, "at least 2 chunks"),
        (GPT3, Split(pp=4, chunks=2, batch=4), 4, "chunks=2 are for the interleaved"),
        (
            GPT3,
            Split(pp=4, schedule="interleaved", chunks=2, batch=6),
            4,
            "in groups of pp=4, there are 6",
        ),
        (
            GPT3,
            Split(pp=2, schedule="zbv", stages=(40, 56), batch=4),
            2,
            "zbv is known for equal stages only",
        ),
        (GPT3, Split(tp=0, batch=1), 1, "tp is 0: it is at least 1"),
    ],
)
def test_what_cannot_be_says_what_would(m, one, gpus, says):
    found = problems(m, one, gpus)
    if not says:
        assert found == []
        return
    assert any(says in p for p in found), found
    assert not any("\n" in p for p in found)
