"""Names of the communicators in an NCCL debug log: one for each, whichever process tells of it."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from ..matching.participations import code, occurrence
from . import debug_log_state as of

if TYPE_CHECKING:
    from ..collect import Collector
    from .debug_log_survey import Process, Survey

_U64 = (1 << 64) - 1
_LONG_NAME = 200


class _Names:
    """Texts by code, and the code of each row."""

    def __init__(self, n: int):
        self._codes: dict[str, int] = {}
        self.of_row = np.full(n, -1, np.int64)

    def give(self, rows: np.ndarray, which: np.ndarray, texts: list[str]) -> None:
        """Gives rows their texts; `which` is the place in `texts` of each row's."""
        known = self._codes
        codes = np.array([known.setdefault(t, len(known)) for t in texts], np.int64)
        self.of_row[rows] = codes[which]

    def in_order(self) -> tuple[list[str], np.ndarray]:
        """The texts in the order in which rows have them first, and each row's place in them."""
        used, first = np.unique(self.of_row, return_index=True)
        order = used[np.argsort(first)]
        place = np.empty(len(self._codes), np.int64)
        place[order] = np.arange(len(order))
        texts = list(self._codes)
        return [texts[k] for k in order.tolist()], place[self.of_row]


def name_comms(found: Survey, rounds: dict[int, int], c: Collector) -> None:
    """Names all communicators; `rounds` is the run of the job by number of the process.

    By the library's hash; what was split off, by its parent; else by what tells them apart.
    """
    comms = found.comms
    names, hashes = _Names(comms.n), comms.column(of.Q_HASH)
    hashed = np.flatnonzero(hashes)
    values, which = np.unique(hashes[hashed], return_inverse=True)
    names.give(hashed, which, [f"nccl-{value & _U64:016x}" for value in values.tolist()])
    children = _children(found)
    rows = np.array(list(children), np.int64)
    names.give(rows, np.arange(len(rows)), list(children.values()))
    rest = hashes == 0
    rest[rows] = False
    _by_order(found, np.flatnonzero(rest), rounds, names, c)
    comms.names, comms.name = names.in_order()


def _children(found: Survey) -> dict[int, str]:
    """Names by row of those that were split off and have no hash."""
    comms, given = found.comms, {}
    process, hashes = comms.column(of.Q_PROCESS).tolist(), comms.column(of.Q_HASH)
    last, ordinal = -1, Counter[int]()
    for number in sorted(
        (k for k in comms.parents if not hashes[k]), key=lambda k: (process[k], k)
    ):
        if process[number] != last:
            last, ordinal = process[number], Counter()
        its, said = found.in_order[last], comms.parents[number]
        begun = int(comms.rows[number, of.Q_BEGUN])
        parent = found.at_pointer(its.host, its.pid, said.pointer, begun)
        text = "" if parent is None else given.get(parent, "")
        # Of another device of the process the name may come after.
        if parent is not None and hashes[parent] and (process[parent], parent) < (last, number):
            text = f"nccl-{int(hashes[parent]) & _U64:016x}"
        if parent is None or not text:
            given[number] = f"nccl-log-orphan-{_own(its)}-{ordinal[-1]}"
            ordinal[-1] += 1
            continue
        n = said.count
        if n is None:
            n = ordinal[parent]
            ordinal[parent] += 1
        name = f"nccl-log-{text.removeprefix('nccl-')}-{n}-{said.color}"
        if len(name) > _LONG_NAME:  # a family tree of splits
            name = f"nccl-log-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        given[number] = name
    return given


def _by_order(
    found: Survey, rows: np.ndarray, rounds: dict[int, int], names: _Names, c: Collector
) -> None:
    """Names of rows that nothing names: by run of the job, size and number in their process.

    Those that can be one communicator, over all processes or on one host, are; others are their
    process's own.
    """
    comms = found.comms
    process, place, size = (comms.column(k)[rows] for k in (of.Q_PROCESS, of.Q_PLACE, of.Q_SIZE))
    run = np.array([rounds.get(p.number, 0) for p in found.in_order], np.int64)[process]
    nth = occurrence(process, size)
    group = code(run, size, nth)
    numbers: dict[str, int] = {}
    host = [numbers.setdefault(p.host, len(numbers)) for p in found.in_order]
    world = comms.column(of.Q_SIZE).max(initial=0)
    apart, full = _apart(group, place), np.bincount(group)[group] == size
    whole = (size > 1) & apart & (full | (size == world))
    on_host = code(group, np.array(host, np.int64)[process])
    together = (
        ~whole & (size > 1) & _apart(on_host, place) & (np.bincount(on_host)[on_host] == size)
    )
    bases = _first_of(group)
    base = [
        f"nccl-log-{s}-{n}" + (f"-run{r}" if r else "")
        for r, s, n in zip(*(k[bases].tolist() for k in (run, size, nth)), strict=True)
    ]  # fmt: skip
    own = [_own(p) for p in found.in_order]
    alone = ~whole & ~together
    for which, key, texts in (
        (whole, group, None),
        (together, on_host, [p.host for p in found.in_order]),
        (alone, code(group, process), own),
    ):
        at = np.flatnonzero(which)
        _, first, its = np.unique(key[at], return_index=True, return_inverse=True)
        first = at[first]
        given = [base[g] for g in group[first].tolist()]
        if texts is not None:
            pairs = zip(given, process[first].tolist(), strict=True)
            given = [f"{start}-{texts[p]}" for start, p in pairs]
        names.give(rows[at], its, given)
    by_order = len(np.unique(group[whole])) + len(np.unique(on_host[together]))
    if by_order:
        c.odd(
            "comm_by_order",
            "the library (before NCCL 2.17) does not name its communicators: they were told apart "
            "by size, order and host",
            "info",
            count=by_order,
        )
    if n_alone := int((alone & (size != 1)).sum()):
        c.odd(
            "comm_unmatched",
            "communicators without a name that several groups of ranks made: each process's is "
            "kept by itself, and its other members are unknown",
            "warning",
            count=n_alone,
        )


def _first_of(group: np.ndarray) -> np.ndarray:
    """The first row of each group, by number."""
    return np.unique(group, return_index=True)[1]


def _apart(group: np.ndarray, place: np.ndarray) -> np.ndarray:
    """bool[rows]: whether all rows of a row's group have places of their own."""
    again = np.bincount(
        group[occurrence(group, place) > 0], minlength=int(group.max(initial=-1)) + 1
    )
    return again[group] == 0


def _own(process: Process) -> str:
    if process.rank is not None:
        return f"r{process.rank}"
    return f"{process.host}-{process.pid}-{process.device}"
