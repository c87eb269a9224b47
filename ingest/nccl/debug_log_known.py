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
        self.names = {name: i for i, name in enumerate(places.members)}
        self.comms = _comms(comms, self.names, {n: words.code(n) for n in self.names})
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
            self.lists[start:end] = [comm.number for comm in comms]
            bounds = self._bounds[key] = start, end
            self._n_listed = end
        return bounds


def _comms(comms: list[Comm], names: dict[str, int], codes: dict[str, int]) -> np.ndarray:
    """A row each; `names` and `codes` are the number and the code of each name."""
    columns = {
        of.C_BEGUN: [k.begun for k in comms],
        of.C_MADE: [k.begun if k.made is None else k.made for k in comms],
        of.C_UNMADE: [k.made is None for k in comms],
        of.C_ENDED: [NULL if k.ended is None else k.ended for k in comms],
        of.C_PLACE: [k.place for k in comms],
        of.C_SIZE: [k.size for k in comms],
        of.C_NAME: [names[k.name] for k in comms],
        of.C_CODE: [codes[k.name] for k in comms],
        of.C_RANK: [NULL if k.process.rank is None else k.process.rank for k in comms],
    }
    rows = np.empty((len(comms), of.COMM_COLUMNS), np.int64)
    for column, values in columns.items():
        rows[:, column] = values
    return rows
