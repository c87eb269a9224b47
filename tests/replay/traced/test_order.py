"""Tasks by time, each after its predecessors: held against a heap of all that are free to go."""

from __future__ import annotations

import heapq
import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.replay.traced import order

FEW = st.integers(0, 12)


def by_heap(task_of, preds):
    """Kahn's order, said the plain way."""
    rank = {t: i for i, t in enumerate(task_of)}
    left = [set(p) for p in preds]
    free = [(rank[t], t) for t in range(len(preds)) if not left[t]]
    heapq.heapify(free)
    placed = []
    while free:
        _, t = heapq.heappop(free)
        placed.append(t)
        for u, waits in enumerate(left):
            if t in waits:
                waits.remove(t)
                if not waits:
                    heapq.heappush(free, (rank[u], u))
    return placed


def linked(preds):
    ptr = np.cumsum([0, *map(len, preds)]).astype(np.int64)
    return ptr, np.array([s for p in preds for s in p], np.int32)


@settings(deadline=None)
@given(st.data(), FEW)
def test_the_order_is_that_of_a_heap_circles_too(data, n):
    task_of = data.draw(st.permutations(range(n)))
    tasks = st.integers(0, max(n - 1, 0))
    preds = data.draw(st.lists(st.lists(tasks, max_size=4), min_size=n, max_size=n))
    found = order.topological(np.array(task_of, np.int32), *linked(preds))
    assert found.tolist() == by_heap(task_of, preds)


@settings(deadline=None)
@given(st.lists(st.integers(-(2**40), 2**40) | st.integers(-2, 2)), st.randoms())
def test_the_sort_by_keys_leaves_equal_ones_as_they_come(keys, random):
    feed = list(range(len(keys)))
    random.shuffle(feed)
    found = order.by_key(np.array(feed, np.int32), np.array(keys, np.int64))
    assert found.tolist() == sorted(feed, key=lambda t: keys[t])


def test_predecessors_are_sorted_and_each_once_few_or_many():
    n = 3 * order.SHORT
    preds = [[] for _ in range(n)]
    preds[0] = [2, 1, 2]
    preds[3] = [*range(n - 1, 3, -1), 4, 5]
    placed = np.array([*range(1, 3), 0, *range(4, n), 3], np.int32)
    ptr, pred = order.in_order(placed, *linked(preds))
    assert pred[ptr[2] : ptr[3]].tolist() == [0, 1]
    assert pred[ptr[n - 1] : ptr[n]].tolist() == list(range(3, n - 1))
    assert ptr[-1] == len(pred)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=400), st.randoms())
def test_runs_of_chosen_tasks_of_one_key(tasks, random):
    task_of = list(range(len(tasks)))
    random.shuffle(task_of)
    key, chosen = (np.array([t[i] for t in tasks], dtype) for i, dtype in ((0, "i8"), (1, "?")))
    found = order.runs(np.array(task_of, np.int32), chosen, key).tolist()
    expected, at = [], 0
    for (_, is_chosen), run in itertools.groupby(task_of, key=lambda t: tasks[t]):
        n = len(list(run))
        if is_chosen and n > 1:
            expected.append([at, at + n])
        at += n
    assert found == expected
