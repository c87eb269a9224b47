"""Steps that nothing marks: where the optimizer and the collectives agree, and nowhere else."""

from __future__ import annotations

import re

import numpy as np
import pytest
from retime.ingest.kineto.rawbatch import NULL
from retime.ingest.steps import agree, cuts
from retime.ingest.steps.work import Work


def trace(text):
    """A rank's trace from letters, one each 10 ns: `o` the optimizer, upper case collectives (the
    letter is what it is), other lower case kernels, `-` nothing."""
    kernels = [(10 * i, c) for i, c in enumerate(text) if c.islower() and c != "o"]
    optimizer = [(10 * i, 10 * i) for i, c in enumerate(text) if c == "o"]
    calls = [(10 * i, c) for i, c in enumerate(text) if c.isupper()]
    when = np.array([t for t, _ in kernels] + [t for t, _ in optimizer], np.int64)
    names = np.array([ord(c) for _, c in kernels] + [ord("o")] * len(optimizer), np.int64)
    order = np.argsort(when, kind="stable")
    when, names = when[order], names[order]
    work = Work(0, names, np.zeros(len(when), bool), when, when + 5, when, np.arange(len(when)),
                True, optimizer, [])  # fmt: skip
    tokens = cuts.Tokens(
        np.array([t for t, _ in calls], np.int64),
        np.array([ord(c) for _, c in calls], np.int64),
        np.full(len(calls), 100),
    )
    return work, tokens


def steps(text):
    """The steps of `trace(text)`: the letters of each, or the words that say why there are none."""
    found = cuts.find(*trace(text))
    if isinstance(found, str):
        return found
    bounds = zip(found.begin_ns.tolist(), found.end_ns.tolist(), strict=True)
    return [text[-(-a // 10) : -(-b // 10)] for a, b in bounds]


STEP = "ffffffAbbbbbbbBbbbbbbCoo"


def test_whole_steps_from_the_first_kernel_to_the_optimizers_end():
    assert steps(STEP * 3) == [STEP] * 3
    assert steps(STEP * 2) == [STEP] * 2


def test_parts_of_steps_at_both_ends_are_no_steps():
    assert steps(STEP[12:] + STEP * 3 + STEP[:9]) == [STEP] * 3
    # a trace that begins in the middle of a step with all its collectives
    assert steps(STEP[4:] + STEP * 3) == [STEP] * 3


def test_steps_that_take_turns_repeat_after_both():
    even = "ffffffAbbbbbbbbbbbBoo"
    assert steps((even + STEP) * 2) == [even, STEP] * 2
    # each kind must be seen twice
    assert "do" in steps(even + STEP + even)


def test_several_optimizers_and_small_kernels_between_their_pieces_are_one_run():
    step = "ffffffAbbbbbbbBbbbbbbbbbbbboooeoo"
    assert steps(step * 3) == [step] * 3


def test_a_layer_is_no_step():
    """In one step of three layers these repeat, with their collectives; the optimizer does not."""
    assert "only once" in steps("ffA" * 3 + "bbbB" * 3 + "oo")
    assert "no optimizer" in steps("ffA" * 30)


def test_micro_batches_are_no_steps():
    step = "ffffAbbbb" * 4 + "GG" + "oo"
    assert steps(step * 3) == [step] * 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        # another collective in one step; one missing; another order
        ("ffffffAbbbbbbbBoo" + "ffffffAbbbbbbbCoo" + "ffffffAbbbbbbbDoo" + STEP, "repeat"),
        (STEP * 2 + STEP.replace("B", "b") + STEP, "repeat"),
        (STEP * 2 + "ffffffBbbbbbbbAbbbbbbCoo" + STEP, "repeat"),
        # the same collectives, other kernels
        (STEP * 2 + STEP.replace("b", "x") + STEP, "repeat"),
        # an optimizer for each layer, in the backward pass
        (("ffffff" + "bboA" * 4) * 3, "repeat|more often"),
        ("ffffffffff" + "bboA" * 8, "more often"),
        (STEP, "only once"),
    ],
)
def test_what_does_not_repeat_gives_no_steps_and_says_why(text, why):
    assert re.search(why, str(steps(text)))


def test_sizes_count_where_both_are_known():
    work, tokens = trace(STEP * 3)
    size = np.arange(9) % 3
    assert not isinstance(cuts.find(work, tokens._replace(size=size)), str)
    assert not isinstance(cuts.find(work, tokens._replace(size=np.where(size == 1, -1, size))), str)
    odd = np.where(np.arange(9) == 7, 5, size)
    assert isinstance(cuts.find(work, tokens._replace(size=odd)), str)


def test_without_collectives_the_kernels_must_repeat_nearly_all():
    step = "ffffffgggggghhhhhhbbbbbboo"
    assert steps(step * 3) == [step] * 3
    assert "repeat" in steps(step * 2 + step.replace("gg", "xx") + step)


def test_work_that_was_launched_before_the_trace_is_in_no_step():
    work, tokens = trace(STEP * 3)
    early = Work(**{**work._asdict(), "when_ns": np.where(work.when_ns < 50, NULL, work.when_ns)})
    found = cuts.find(early, tokens)
    assert not isinstance(found, str)
    assert len(found.begin_ns) == 2


def shared(n_ranks, per_rank):
    """Participations of `per_rank` [(collective, step), ...]: rank, collective, step arrays."""
    rows = [(r, c, s) for r in range(n_ranks) for c, s in per_rank[r]]
    return [np.array(column) for column in zip(*rows, strict=True)]


def test_ranks_that_began_later_count_on_from_where_they_did():
    rows = shared(3, [[(1, 0), (2, 1), (3, 2)], [(2, 0), (3, 1)], [(1, 0), (2, 1), (3, 2)]])
    assert agree.offsets(*rows, {0: 3, 1: 2, 2: 3}) == {0: 0, 1: 1, 2: 0}
    # the one that began first is the one with the highest rank
    rows = shared(2, [[(2, 0), (3, 1)], [(1, 0), (2, 1), (3, 2)]])
    assert agree.offsets(*rows, {0: 2, 1: 3}) == {0: 1, 1: 0}


def test_ranks_that_contradict_each_other_have_no_numbers():
    rows = shared(2, [[(1, 0), (2, 1)], [(1, 0), (2, 2)]])
    assert "different steps" in str(agree.offsets(*rows, {0: 2, 1: 3}))
    ring = shared(3, [[(1, 0), (3, 0)], [(1, 0), (2, 0)], [(2, 0), (3, 1)]])
    assert "different steps" in str(agree.offsets(*ring, {0: 1, 1: 1, 2: 2}))


def test_ranks_that_share_nothing_count_alike_only_if_they_have_as_many_steps():
    rows = shared(2, [[(1, 0)], [(2, 0)]])
    assert agree.offsets(*rows, {0: 2, 1: 2}) == {0: 0, 1: 0}
    assert "no matched collective" in str(agree.offsets(*rows, {0: 2, 1: 3}))
    # outside steps, or unmatched: nothing
    rows = shared(2, [[(1, -1), (-1, 0)], [(1, 0), (-1, 1)]])
    assert agree.offsets(*rows, {0: 2, 1: 2}) == {0: 0, 1: 0}
