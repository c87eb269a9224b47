"""The places of an NCCL debug log's processes in communicators, as columns: there may be many."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import debug_log_state as of

if TYPE_CHECKING:
    from collections.abc import Callable

NULL = of.NULL
_ROOM = 1 << 10

Thread = tuple[str, int, int]
"""Host, process and thread."""
Pointer = tuple[str, int, bytes]
"""Host, process and the pointer's text."""


class Parent(NamedTuple):
    """What a line says of the communicator that another was split off."""

    pointer: bytes
    count: int | None
    """number of the split"""
    color: int | None


class Groups(NamedTuple):
    """Rows by a number that they have: those of number k are `order[ends[k]:ends[k + 1]]`."""

    order: np.ndarray
    ends: np.ndarray

    def bounds(self, number: int) -> tuple[int, int]:
        """Where in `order` those of a number begin and end."""
        if not 0 <= number < len(self.ends) - 1:
            return 0, 0
        return int(self.ends[number]), int(self.ends[number + 1])

    def of(self, number: int) -> np.ndarray:
        """The rows of a number, in order."""
        return self.order[slice(*self.bounds(number))]


class Comms:
    """A row for each place that a process has in a communicator, in the order of the log's lines.

    `rows` has room for more than the `n` of them; `latest` is by code of a pointer the last row of
    it so far (-1: none). What is grouped is asked for once the log was surveyed.
    """

    def __init__(self) -> None:
        self.rows = np.empty((_ROOM, of.PLACE_COLUMNS), np.int64)
        self.n = 0
        self.latest = np.full(_ROOM, -1, np.int64)
        self.parents: dict[int, Parent] = {}
        self.threads: dict[Thread, int] = {}
        self.names: list[str] = []
        self.name = np.empty(0, np.int64)
        """by row the place of its name in `names`"""
        self._pointers: dict[Pointer, int] = {}
        self._more_pointers: Callable[[], dict[Pointer, int]] | None = None

    # --- while the log is surveyed ---------------------------------------------------------------

    @property
    def pointers(self) -> dict[Pointer, int]:
        """The code of each pointer of a process."""
        if self._more_pointers is not None:
            self._pointers, self._more_pointers = self._more_pointers(), None
        return self._pointers

    def pointers_from(self, found: Callable[[], dict[Pointer, int]]) -> None:
        """Where `pointers` are had from, once somebody asks for them."""
        self._more_pointers = found

    def make_room(self) -> None:
        """Room for one row more, where there is none."""
        if self.n == len(self.rows):
            self.rows = np.concatenate([self.rows, np.empty_like(self.rows)])

    def thread(self, thread: Thread) -> int:
        """The number of a thread, a new one if need be."""
        return self.threads.setdefault(thread, len(self.threads))

    def add(self, process: int, thread: Thread, pointer: bytes, place: int, size: int,
            begun: int) -> int:  # fmt: skip
        """A row more, of which only the first line is known; its number."""
        self.make_room()
        code = self.pointers.setdefault((*thread[:2], pointer), len(self.pointers))
        if code >= len(self.latest):
            self.latest = np.concatenate([self.latest, np.full_like(self.latest, -1)])
        number = self.latest[code] = self.n
        self.rows[number] = (process, self.thread(thread), code, place, size, begun, NULL, NULL, 0,
                             0)  # fmt: skip
        self.n += 1
        return number

    def last(self, host: str, pid: int, pointer: bytes) -> int:
        """The last row so far of a process's pointer; -1 for none."""
        code = self.pointers.get((host, pid, pointer), -1)
        return -1 if code < 0 else int(self.latest[code])

    # --- once it was -----------------------------------------------------------------------------

    def column(self, which: int) -> np.ndarray:
        """int64[n]: a column, Q_PROCESS to Q_HASH of `debug_log_state`."""
        return self.rows[: self.n, which]

    @cached_property
    def of_thread(self) -> Groups:
        """Rows by number of the thread."""
        return self._grouped(of.Q_THREAD)

    @cached_property
    def of_process(self) -> Groups:
        """Rows by number of the process."""
        return self._grouped(of.Q_PROCESS)

    @cached_property
    def of_pointer(self) -> Groups:
        """Rows by code of the pointer."""
        return self._grouped(of.Q_POINTER)

    @cached_property
    def made(self) -> np.ndarray:
        """int64[n]: where each was complete; its first line, where that is missing."""
        made = self.column(of.Q_MADE)
        return np.where(made == NULL, self.column(of.Q_BEGUN), made)

    @cached_property
    def largest(self) -> np.ndarray:
        """int64[processes]: the size of the largest of each process."""
        groups = self.of_process
        size = self.column(of.Q_SIZE)[groups.order]
        return np.maximum.reduceat(size, groups.ends[:-1]) if self.n else size

    def _grouped(self, which: int) -> Groups:
        column = self.column(which)
        order = np.argsort(column, kind="stable")
        most = int(column.max(initial=-1))
        return Groups(order, np.searchsorted(column[order], np.arange(most + 2)))
