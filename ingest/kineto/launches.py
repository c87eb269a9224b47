"""Launches: from a piece of device work to the host call that started it, by correlation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .rawbatch import NULL

FIRST_ROWS = 1024


class Columns:
    """Columns that grow batch by batch; a few numbers an event, kept until the file ends."""

    def __init__(self, *names: str):
        self._names = names
        self._columns: list[np.ndarray] = []
        self._n = 0

    def add(self, *arrays: np.ndarray) -> None:
        """Appends one array a column, all of one length; they are copied."""
        a, b = self._n, self._n + len(arrays[0])
        if a == b:
            return
        if not self._columns:
            self._columns = [np.empty(max(b, FIRST_ROWS), c.dtype) for c in arrays]
        if b > len(self._columns[0]):
            for i in range(len(arrays)):  # room that is not used costs nothing
                old, self._columns[i] = self._columns[i], np.empty(2 * b, self._columns[i].dtype)
                self._columns[i][:a] = old[:a]
        for column, values in zip(self._columns, arrays, strict=True):
            column[a:b] = values
        self._n = b

    def __len__(self) -> int:
        return self._n

    def put_in(self, order: np.ndarray) -> None:
        """Only the rows of `order`, in that order."""
        for column in self._columns:
            column[: len(order)] = column[order]
        self._n = len(order)

    def whole(self) -> dict[str, np.ndarray]:
        """Every column as one array, not a copy; int64 and empty where nothing was added."""
        if not self._columns:
            return {n: np.empty(0, np.int64) for n in self._names}
        return {n: c[: self._n] for n, c in zip(self._names, self._columns, strict=True)}


class Launches(NamedTuple):
    """Host calls sorted by correlation, the first in time of each: their start and thread."""

    correlation: np.ndarray
    start_ns: np.ndarray
    thread: np.ndarray


def launches(correlation: np.ndarray, start_ns: np.ndarray, thread: np.ndarray) -> Launches:
    """Calls in the order of their correlation; of two with one correlation the earlier one."""
    order = _order(correlation, start_ns)
    if order is None:
        return Launches(correlation, start_ns, thread)
    return Launches(correlation[order], start_ns[order], thread[order])


def launches_of(calls: Columns) -> Launches:
    """As `launches`, of columns of correlation, start and thread, which are not copied.

    They are put in that order themselves: the next time there is little to sort.
    """
    correlation, start_ns, _ = calls.whole().values()
    order = _order(correlation, start_ns)
    if order is not None:
        calls.put_in(order)
    return Launches(*calls.whole().values())


def _order(correlation: np.ndarray, start_ns: np.ndarray) -> np.ndarray | None:
    """Rows by correlation, the earliest of each alone; None where they are so already."""
    if np.all(correlation[1:] > correlation[:-1]):
        return None
    order = np.lexsort((start_ns, correlation))
    sorted_ids = correlation[order]
    first = np.append(True, sorted_ids[1:] != sorted_ids[:-1])
    return order if first.all() else order[first]


def launch_of(calls: Launches, correlation: np.ndarray) -> np.ndarray:
    """Index in `calls` of each correlation's launch; -1 where there is none."""
    if not len(calls.correlation):
        return np.full(len(correlation), -1, np.int64)
    at = np.searchsorted(calls.correlation, correlation)
    at[at == len(calls.correlation)] = 0
    known = (calls.correlation[at] == correlation) & (correlation != NULL) & (correlation != 0)
    return np.where(known, at, -1)


def launch_times(calls: Launches, correlation: np.ndarray) -> np.ndarray:
    """Host time of each correlation's launch; NULL where there is none."""
    at = launch_of(calls, correlation)
    if not len(calls.start_ns):
        return np.full(len(at), NULL)
    return np.where(at >= 0, calls.start_ns[at], NULL)


def enclosing(
    start_ns: np.ndarray, end_ns: np.ndarray, thread: np.ndarray,
    at_ns: np.ndarray, at_thread: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Index of the latest interval of the same thread that holds each moment; -1 for none.

    Two levels of nesting are seen: the latest interval that began before the moment, and the one
    before it.
    """
    found = np.full(len(at_ns), -1, np.int64)
    for t in np.unique(at_thread):
        mine = np.flatnonzero(thread == t)
        if not len(mine):
            continue
        mine = mine[np.argsort(start_ns[mine], kind="stable")]
        where = np.flatnonzero(at_thread == t)
        before = np.searchsorted(start_ns[mine], at_ns[where], side="right") - 1
        for back in (1, 0):
            k = before - back
            ok = k >= 0
            inside = np.zeros(len(k), bool)
            inside[ok] = at_ns[where][ok] < end_ns[mine[k[ok]]]
            found[where[inside]] = mine[k[inside]]
    return found
