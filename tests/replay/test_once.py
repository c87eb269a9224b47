"""What the points of a sweep share is made once, by whoever comes first."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from retime.replay.graph import build
from retime.replay.once import KEPT, once


@pytest.fixture
def graph():
    return build(1, np.empty(0, int), np.empty(0, int))[0]


def test_it_is_made_once_however_many_ask(graph):
    made, both = [], threading.Barrier(2)

    def ask():
        both.wait()
        once(graph, ("a",), lambda: made.append(1))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert made == [1]


def test_another_key_and_another_graph_have_their_own(graph):
    assert once(graph, ("a",), lambda: 1) == 1
    assert once(graph, ("b",), lambda: 2) == 2
    changed = graph.with_(dur_ns=graph.dur_ns + 1)
    assert once(changed, ("a",), lambda: 3) == 3


def test_only_the_last_are_held(graph):
    for k in range(KEPT + 1):
        once(graph, (k,), lambda: "first")
    assert once(graph, (0,), lambda: "again") == "again"
    assert once(graph, (KEPT,), lambda: "again") == "first"


def test_after_an_error_the_next_one_tries(graph):
    with pytest.raises(ZeroDivisionError):
        once(graph, ("a",), lambda: 1 // 0)
    assert once(graph, ("a",), lambda: 1) == 1
