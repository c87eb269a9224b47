"""Two pairs on a real network of namespaces, from nothing to the verdict."""

from __future__ import annotations

import os

import pytest

from benchmarks.lab import machine, measure, names, pairs, predict
from benchmarks.lab.errors import LabError

ENOUGH_PCT = 12.0
"""Between what is predicted and what a busy machine measures."""


@pytest.fixture(scope="module")
def able():
    """Skips where no lab can be built, with what the lab itself says of it."""
    try:
        machine.tools()
        machine.leftovers()
        machine.kernel()
    except LabError as e:
        pytest.skip(str(e))


@pytest.mark.live
@pytest.mark.parametrize("name", ["straggler-one-50ms", "nic-rate-1-to-2"])
def test_a_pair_from_the_network_to_the_verdict(able, tmp_path, name: str):
    (pair,) = pairs.chosen([name])
    # Other tests run beside it: a pair that misses is measured again, twice at most.
    for attempt in range(3):
        runs = pairs.runs((pair,))
        at = tmp_path / str(attempt)
        measure.measure(runs, at / "runs", repeats=1)
        assert not [n for n in names.present() if n.split("-")[1] == str(os.getpid())]
        (found,), (clock,) = predict.verdicts((pair,), at / "runs", at / "warehouse")
        if found.sign == "right" and abs(found.error_pct) < ENOUGH_PCT and clock.share < 0.05:
            break
    assert found.sign == "right"
    assert abs(found.error_pct) < ENOUGH_PCT
    assert clock.share < 0.05
