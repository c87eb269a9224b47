"""Who is who in an NCCL debug log as arrays, for compiled code to answer as `Places` does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import debug_log_state as of
from .number_rows import NULL, Words

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from .debug_log_places import Places
    from .debug_log_survey import Comm


class Known:
    """The communicators of a log's processes, the members by name, and the hosts of ranks.

    `comms`, `names`, `members` and `hosts` are as `debug_log_edges` reads them; `lists` holds
    numbers of communicators, those of a writer or a pointer one after another (`listed`).
    """

    def __init__(self, places: Places, words: Words):
        comms = places.found.comms
        self._number = {id(comm): i for i, comm in enumerate(comms)}
        self.names = {name: i for i, name in enumerate(places.members)}
        rows = [_row(comm, self.names[comm.name], words) for comm in comms]
        self.comms = np.array(rows, np.int64).reshape(-1, of.COMM_COLUMNS)
        bounds, members = [], []
        for known in places.members.values():
            start = len(members)
            members += sorted(known.by_place.items())
            bounds.append((start, len(members), known.is_world, known.size))
        self.name_bounds = np.array(bounds, np.int64).reshape(-1, of.NAME_COLUMNS)
        self.members = np.array(members, np.int64).reshape(-1, 2)
        hosts = sorted((rank, words.code(host)) for rank, host in places.host_of_rank.items())
        self.hosts = np.array(hosts, np.int64).reshape(-1, 2)
        self.lists = np.zeros(1024, np.int64)
        self._n_listed = 0
        self._bounds: dict[Hashable, tuple[int, int]] = {}

    def listed(self, key: Hashable, comms: Sequence[Comm]) -> tuple[int, int]:
        """Where in `lists` these communicators begin and end; `key` is what they are those of."""
        if not comms:
            return 0, 0
        bounds = self._bounds.get(key)
        if bounds is None:
            start, end = self._n_listed, self._n_listed + len(comms)
            while end > len(self.lists):
                self.lists = np.concatenate([self.lists, np.zeros_like(self.lists)])
            self.lists[start:end] = [self._number[id(comm)] for comm in comms]
            bounds = self._bounds[key] = start, end
            self._n_listed = end
        return bounds


def _row(comm: Comm, name: int, words: Words) -> tuple[int, ...]:
    rank = comm.process.rank
    return (
        comm.begun, comm.begun if comm.made is None else comm.made, comm.made is None,
        NULL if comm.ended is None else comm.ended, comm.place, comm.size, name,
        words.code(comm.name), NULL if rank is None else rank,
    )  # fmt: skip
