"""A thread that makes items ahead of who takes them makes no more than it is let."""

from __future__ import annotations

import time

import pytest
from retime.ingest.ahead import prefetch


@pytest.mark.parametrize("depth", [1, 3])
def test_no_more_are_begun_than_there_is_room_for(depth: int) -> None:
    begun = 0

    def items():
        nonlocal begun
        for i in range(12):
            begun += 1
            yield i

    taken, ahead = [], []
    for item in prefetch(items(), depth):
        taken.append(item)
        time.sleep(0.01)  # whoever would run further ahead has the time
        ahead.append(begun - len(taken))
    assert taken == list(range(12))
    assert max(ahead) == depth


def test_the_maker_is_closed_by_the_thread_that_runs_it_and_no_more_is_made() -> None:
    made, closed = [], []

    def items():
        try:
            for i in range(100):
                made.append(i)
                yield i
        finally:
            closed.append(True)

    ahead = prefetch(items(), 2)
    assert [next(ahead), next(ahead)] == [0, 1]
    ahead.close()
    assert closed == [True]
    assert len(made) <= 4
