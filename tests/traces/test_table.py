"""Every file of the folder of real traces ingests, and says what an independent count says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import counts
import table


@pytest.fixture(scope="module")
def results(retime_traces, tmp_path_factory):
    warehouse = tmp_path_factory.mktemp("traces") / "w"
    return [table.read(retime_traces, p, warehouse) for p in table.files(retime_traces)]


def test_every_file_ingests_or_is_no_trace(results):
    refused = {r.relative: r.refused for r in results if r.refused is not None}
    assert {n: m for n, m in refused.items() if counts.not_a_trace(n) is None} == {}
    assert {r.relative for r in results if counts.not_a_trace(r.relative)} == set(refused)


def test_every_trace_has_an_independent_count_that_agrees(results):
    read = [r for r in results if r.refused is None]
    assert [r.relative for r in read if not r.counts] == []
    wrong = [(r.relative, c.what, c.n, got) for r in read for c, got in r.counts if c.n != got]
    assert wrong == []
    assert len(read) > 100


def test_the_page_is_what_the_code_gives(results):
    assert table.PAGE.read_text() == table.page(results)
