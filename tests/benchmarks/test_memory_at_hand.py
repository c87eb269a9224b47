"""Memory that is got and let go before a figure is taken."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import pytest

from benchmarks.scale.measured import measured
from benchmarks.suite import clock, memory_at_hand, process
from benchmarks.suite.case import PEER, Way

needs_pages = pytest.mark.skipif(
    not hasattr(mmap, "MADV_HUGEPAGE"), reason="pages cannot be asked for so on this system"
)


@needs_pages
def test_each_process_holds_a_piece_and_all_are_gone_after():
    code = (
        "from benchmarks.suite import memory_at_hand as m; import os, resource\n"
        "m.at_hand()\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
        "try: os.waitpid(-1, 0)\n"
        "except ChildProcessError: print('none left')"
    )
    peak_kb, left = measured([sys.executable, "-c", code]).printed.splitlines()
    assert left == "none left"
    assert memory_at_hand.PIECE_MB << 10 <= int(peak_kb) < 3 * (memory_at_hand.PIECE_MB << 10)


@needs_pages
@pytest.mark.parametrize(
    ("free_mb", "pieces"), [(10**6, 37), (4 * 33, 2), (4 * 16, 1), (4 * 15, None), (0, None)]
)
def test_no_more_than_a_quarter_of_what_is_free(monkeypatch, free_mb, pieces):
    asked = []
    monkeypatch.setattr(memory_at_hand, "_free_mb", lambda: free_mb)
    monkeypatch.setattr(subprocess, "run", lambda words, check: asked.append(words[-2:]))
    memory_at_hand.at_hand()
    expected = [] if pieces is None else [[str(pieces), str(memory_at_hand.PIECE_MB << 20)]]
    assert asked == expected


def test_it_is_over_when_the_clock_starts(monkeypatch):
    done = []
    monkeypatch.setattr(memory_at_hand, "at_hand", lambda: done.append("memory"))
    monkeypatch.setattr(clock, "BEFORE", [lambda: done.append("prepared")])
    monkeypatch.setattr(clock, "KEPT", {})
    clock.timed(lambda: done.append("timed"))
    assert done == ["prepared", "memory", "timed"]


def test_what_prepares_is_no_part_of_the_process(tmp_path):
    code = """
import json, time
from benchmarks.suite import clock, memory_at_hand
memory_at_hand.at_hand = lambda: time.sleep(2)
clock.timed(lambda: None)
print(json.dumps(clock.KEPT))
"""
    command = (sys.executable, "-c", code)
    took = process.run(Way("a peer", PEER, command), tmp_path)
    assert took["inside_s"] < 1
    assert measured(list(command)).seconds - 1 > took["wall_s"]


def test_free_memory_is_told_in_megabytes():
    free_mb = memory_at_hand._free_mb()
    whole_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    assert 0 < free_mb <= whole_mb
