"""The median rank of a large job, as `median_rank`: what shares were compared by is held on a disk.

To find the medians takes some 32 bytes a compared task, all shares together, once.
"""

from __future__ import annotations

import threading

import numpy as np

from ....ingest.tasks.codes import alike
from ...graph import TaskGraph
from ..ideal import median_of_like, medians
from ..median_rank import Stretches, changed, codes, nth, own_tasks, stretches
from .columns import Columns


class Medians:
    """Takes shares in any order, one after another or at once; then finds the medians of all."""

    def __init__(self, columns: Columns):
        self._columns = columns
        self._lock = threading.Lock()
        self._groups: dict[tuple[int, int, int], int] = {}
        self._most: list[int] = []
        self._stretches: dict[int, Stretches] = {}
        self._base = np.empty(0, np.int64)
        self._dur = self._gap = self._base
        self._usual: dict[int, np.ndarray] = {}

    def take(self, share: int, graph: TaskGraph, step: np.ndarray) -> None:
        """Notes what the tasks of a share take, of which `step` (int64 [n]) are the steps."""
        tasks, host = own_tasks(graph, step)
        one, of = alike(step[tasks], graph.kind[tasks], graph.op[tasks])
        place = nth(graph, step, tasks)
        most = np.zeros(len(one), np.int64)
        np.maximum.at(most, of, place + 1)
        named = np.stack([step[tasks][one], graph.kind[tasks][one], graph.op[tasks][one]], axis=1)
        group = self._numbered(named, most)[of]
        # A code of its own for each kind, name, step and place, whatever other shares have.
        found = stretches(graph, step, tasks, group << 32 | place, host)
        self._columns.put(share, own_group=group, own_place=place, stretch=found.of)
        self._columns.put(share, own_dur_ns=graph.dur_ns[tasks], own_gap_ns=graph.gap_ns[tasks])
        self._stretches[share] = found._replace(of=found.of[:0])

    def _numbered(self, named: np.ndarray, most: np.ndarray) -> np.ndarray:
        """Numbers (int64) of steps, kinds and names together, of which a rank has so many."""
        with self._lock:
            numbers = []
            for key, many in zip(map(tuple, named.tolist()), most.tolist(), strict=True):
                number = self._groups.setdefault(key, len(self._most))
                if number == len(self._most):
                    self._most.append(0)
                self._most[number] = max(self._most[number], many)
                numbers.append(number)
        return np.array(numbers, np.int64)

    def find(self, shares: int) -> None:
        """Finds the medians, once all shares were taken."""
        self._base = np.cumsum([0, *self._most])
        many = int(self._base[-1])
        code = np.concatenate([self._code(s) for s in range(shares)])
        all_ = np.ones(len(code), bool)
        for name in ("dur", "gap"):
            values = [self._columns.get(s, f"own_{name}_ns") for s in range(shares)]
            found = medians(code, np.concatenate(values), all_, many)
            setattr(self, f"_{name}", found)
        held = [self._stretches[s] for s in range(shares)]
        total, step, thread, until = (np.concatenate(c) for c in list(zip(*held, strict=True))[1:])
        usual = median_of_like(codes(step, thread, until), total)
        ends = np.cumsum([len(s.total_ns) for s in held])
        self._usual = dict(enumerate(np.split(usual, ends[:-1])))

    def _code(self, share: int) -> np.ndarray:
        group, place = self._columns.some(share, "own_group", "own_place")
        return self._base[group] + place

    def at_median(
        self, share: int, graph: TaskGraph, step: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """`dur_ns` and `gap_ns` of a share as `median_rank.at_median` has them."""
        tasks, host = own_tasks(graph, step)
        code = self._code(share)
        found = self._stretches[share]._replace(of=self._columns.get(share, "stretch"))
        like = self._dur[code], self._gap[code]
        return changed(graph, tasks, like, host, found, self._usual[share])
