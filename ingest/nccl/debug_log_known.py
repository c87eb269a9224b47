"""Who is who in an NCCL debug log as arrays, for compiled code to answer as `Places` does."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from . import debug_log_state as of
from .debug_log_places import RECENT
from .number_rows import NULL, Words

if TYPE_CHECKING:
    from .debug_log_places import Places


class Known:
    """The communicators of a log's processes, the members by name, and the hosts of ranks.

    `comms`, `name_bounds`, `members` and `hosts` are as `debug_log_edges` reads them; `lists` holds
    numbers of communicators, those of a thread, a process or a pointer one after another.
    """

    def __init__(self, places: Places, words: Words):
        self._found = places.found.comms
        members = places.members
        self.name_bounds = np.stack(
            [members.ends[:-1], members.ends[1:], members.is_world, members.size], axis=1
        )
        self.members = np.stack([members.place, members.rank], axis=1)
        self.comms = self._rows(places, words.all_codes(members.names))
        hosts = sorted((rank, words.code(host)) for rank, host in places.host_of_rank.items())
        self.hosts = np.array(hosts, np.int64).reshape(-1, 2)
        groups = self._found.of_thread, self._found.of_process
        self.lists = np.concatenate([g.order for g in groups])

    def of_thread(self, number: int) -> tuple[int, int]:
        """Where in `lists` the communicators that a thread made begin and end."""
        return self._found.of_thread.bounds(number)

    def of_process(self, number: int) -> tuple[int, int]:
        """The same of the last ones of a process."""
        start, end = self._found.of_process.bounds(number)
        return self._found.n + max(start, end - RECENT), self._found.n + end

    def of_pointer(self, code: int) -> tuple[int, int]:
        """The same of those that a pointer meant, one after another."""
        start, end = self._found.of_pointer.bounds(code)
        return self._pointers_at + start, self._pointers_at + end

    @cached_property
    def _pointers_at(self) -> int:
        """Where in `lists` those of pointers are; few logs ask for them."""
        at = len(self.lists)
        self.lists = np.concatenate([self.lists, self._found.of_pointer.order])
        return at

    def _rows(self, places: Places, codes: np.ndarray) -> np.ndarray:
        """A row a communicator; `codes` are those of the names."""
        found = self._found
        rank = np.array([NULL if p.rank is None else p.rank for p in places.found.in_order],
                        np.int64)  # fmt: skip
        rows = np.empty((found.n, of.COMM_COLUMNS), np.int64)
        for column, its in (
            (of.C_BEGUN, of.Q_BEGUN), (of.C_ENDED, of.Q_ENDED), (of.C_PLACE, of.Q_PLACE),
            (of.C_SIZE, of.Q_SIZE),
        ):  # fmt: skip
            rows[:, column] = found.column(its)
        rows[:, of.C_MADE] = found.made
        rows[:, of.C_UNMADE] = found.column(of.Q_MADE) == NULL
        rows[:, of.C_NAME] = found.name
        rows[:, of.C_CODE] = codes[found.name]
        rows[:, of.C_RANK] = rank[found.column(of.Q_PROCESS)]
        return rows
