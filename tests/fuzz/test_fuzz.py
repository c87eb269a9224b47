"""A few mutations of every fixture in every run of the tests; `harness.py` does thousands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

import fixtures
import harness
from retime.ingest import detect


@pytest.mark.parametrize("fixture", fixtures.load(), ids=lambda f: f.name)
def test_a_fixture_itself_gives_rows(fixture):
    source = harness.source_of(fixture.name, fixture.files)
    rows, _ = harness.read_all(fixture.format, source, fixture.rank)
    assert rows > 0


@pytest.mark.parametrize("fixture", fixtures.load(), ids=lambda f: f.name)
def test_mutations_end_in_rows_or_a_clean_refusal(fixture):
    @settings(
        max_examples=25, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.integers(0, 1 << 30))
    def check(seed: int) -> None:
        outcome = harness.Outcome(peak_bytes=harness.MOST_BYTES + 1)
        harness.one(fixture, seed, outcome)
        assert not outcome.failures

    check()


def test_every_format_has_a_fixture():
    if fixtures.traces() is None:
        pytest.skip("no folder of real traces: set RETIME_TRACES to one")
    assert {f.format for f in fixtures.load()} == {*detect.FORMATS, fixtures.ARCHIVES}
