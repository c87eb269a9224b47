"""Hosts over slow links, whose operations have no numbers: their steps' numbers tie the clocks."""

from __future__ import annotations

import numpy as np
import pytest
from retime.ingest.matching import sequences

MS = 1_000_000
STEPS = 8
TOOK_MS = (150, 55, 13)
"""Three all-reduces a step; ranks of a ring leave each up to some milliseconds apart."""


def rank_of(offset_ns: int, seed: int, steps: bool, near_ns: int) -> sequences.Sequence:
    """One rank's all-reduces: a step every 300 ms, ends late by 0 to 4 ms at random."""
    rng = np.random.default_rng(seed)
    n = STEPS * len(TOOK_MS)
    place = np.arange(n)
    took = np.array(TOOK_MS)[place % 3] * MS
    start = (place // 3 * 300 + np.array((20, 190, 265))[place % 3]) * MS
    end = start + took + rng.integers(0, 4 * MS, n)
    return sequences.Sequence(
        start + offset_ns, end + offset_ns,
        mask=np.full(n, sequences.op_mask("all_reduce")), dtype=np.full(n, -1),
        size=np.array((1200, 400, 100))[place % 3], step=place // 3 if steps else np.full(n, -1),
        barrier=np.ones(n, bool), near=np.full(n, near_ns),
    )  # fmt: skip


def test_the_steps_say_which_shift_is_meant():
    found = sequences.find_offset(
        rank_of(0, 1, True, sequences.HOST_NEAR_NS),
        rank_of(20 * MS, 2, True, sequences.HOST_NEAR_NS),
    )
    assert found is not None
    assert found.offset_ns == pytest.approx(-20 * MS, abs=1.5 * MS)


@pytest.mark.parametrize(
    ("steps", "near_ns"), [(False, sequences.HOST_NEAR_NS), (True, sequences.NEAR_NS)]
)
def test_without_steps_or_on_devices_ends_must_nearly_coincide(steps: bool, near_ns: int):
    assert sequences.find_offset(
        rank_of(0, 1, steps, near_ns), rank_of(20 * MS, 2, steps, near_ns)
    ) is None  # fmt: skip
