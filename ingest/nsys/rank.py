"""A rank of a report while its rows are made, and the calls that launch its work."""

from __future__ import annotations

import numpy as np

from ..kineto.rawbatch import NULL
from ..kineto.steps import HostSteps, device_windows
from ..scratch import Scratch
from ..sorting import Lookup, share
from .columns import RUNTIME
from .tables import Report
from .times import Clock
from .who import TID_MASK, Process, process_key


class Rank:
    """A rank while its rows are made: how its work is joined to launches and steps."""

    def __init__(self, process: Process, rank: int, steps: HostSteps, calls: Lookup):
        self.process = process
        self.rank = rank
        self.steps = steps
        self.calls = calls
        """start and thread of the first call of each correlation"""
        self.first_ns = 1 << 62
        self.last_ns = -(1 << 62)
        self.has_work = False
        self._begins = np.full(len(steps.number), np.iinfo(np.int64).max)
        self._ends = np.full(len(steps.number), NULL)

    def see(self, start: np.ndarray, end: np.ndarray) -> None:
        """Widens the time in which the rank was seen."""
        if len(start):
            self.first_ns = min(self.first_ns, int(start.min()))
            self.last_ns = max(self.last_ns, int(end.max()))

    def launched(self, correlation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Start and thread of the call that launched each piece of work; NULL not known."""
        start, thread = self.calls.find(correlation)
        known = (correlation != NULL) & (correlation != 0)
        return np.where(known, start, NULL), np.where(known, thread, NULL)

    def work(self, index: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
        """Notes device work by the index of the step that launched it, -1 none."""
        self.has_work = self.has_work or len(index) > 0
        its = index >= 0
        np.minimum.at(self._begins, index[its], start[its])
        np.maximum.at(self._ends, index[its], end[its])

    def windows(self) -> tuple[np.ndarray, np.ndarray]:
        """Start and end of each step on the device."""
        index = np.flatnonzero(self._ends != NULL)
        return device_windows(self.steps, index, self._begins[index], self._ends[index])


def calls_of(report: Report, clock: Clock, keys: list[int]) -> dict[int, Lookup]:
    """Start and thread of each process's runtime calls, by correlation; of two the earlier one."""
    scratch = Scratch()
    out = {key: Lookup(1, 2, 3, share(len(keys)), scratch) for key in keys}
    for batch in report.batches(RUNTIME, "start", "globalTid", "correlationId"):
        start = batch["start"].fill_null(NULL).to_numpy()
        tid = batch["globalTid"].fill_null(0).to_numpy()
        correlation = batch["correlationId"].fill_null(NULL).to_numpy()
        key = np.where((start != NULL) & (correlation != NULL), process_key(tid), NULL)
        for k, calls in out.items():
            mine = key == k
            calls.add(correlation[mine], start[mine] + clock.offset_ns, tid[mine] & TID_MASK)
    return out
