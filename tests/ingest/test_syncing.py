"""What is done side by side: in order, all of it, and in a forked process too."""

from __future__ import annotations

import os
import threading

import pytest
from retime.ingest import syncing


def test_results_are_in_order_and_calls_run_at_once() -> None:
    met = threading.Barrier(4, timeout=20)

    def call(n: int) -> int:
        met.wait()
        return n * n

    assert syncing.side_by_side(call, range(4)) == [0, 1, 4, 9]
    assert syncing.side_by_side(abs, []) == []


def test_an_error_is_raised_when_all_have_ended() -> None:
    ended: list[int] = []
    begun = threading.Event()

    def call(n: int) -> None:
        if n == 0:
            begun.wait(20)
            raise OSError("disk full")
        begun.set()
        ended.append(n)

    with pytest.raises(OSError, match="disk full"):
        syncing.side_by_side(call, range(6))
    assert sorted(ended) == [1, 2, 3, 4, 5]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    assert syncing.side_by_side(abs, [-1, -2]) == [1, 2]
    pid = os.fork()
    if not pid:
        os._exit(0 if syncing.side_by_side(abs, [-1, -2]) == [1, 2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
