"""All-to-alls over messages between ranks: direct, pairwise, in waves, balanced over rails.

`demand[i][j]` is what member i sends to member j, bytes; every rank knows all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .wire import UP, Mesh, Message

Group = Sequence[int]


class Rooms:
    """Memory that messages come from and go to: contents do not matter, so all share it."""

    def __init__(self) -> None:
        self._room = memoryview(bytearray(1))

    def of(self, size: int) -> memoryview:
        """So many bytes."""
        if len(self._room) < size:
            self._room = memoryview(bytearray(size))
        return self._room[:size]


def direct(mesh: Mesh, demand: np.ndarray, group: Group, path_of, rooms: Rooms) -> None:
    """All messages at once."""
    i = list(group).index(mesh.rank)
    _round(mesh, demand, group, path_of, rooms, i, range(1, len(group)))


def pairwise(mesh: Mesh, demand: np.ndarray, group: Group, path_of, rooms: Rooms) -> None:
    """n-1 exchanges: in the k-th everybody sends to the k-th after it."""
    i = list(group).index(mesh.rank)
    for k in range(1, len(group)):
        _round(mesh, demand, group, path_of, rooms, i, [k])


def waves(
    mesh: Mesh, demand: np.ndarray, group: Group, path_of, rooms: Rooms, width: int = 1
) -> None:
    """The same, with a barrier after each `width` of them: nobody is ahead."""
    n, i = len(group), list(group).index(mesh.rank)
    for k in range(1, n, width):
        if k > 1:
            barrier(mesh, group, path_of)
        _round(mesh, demand, group, path_of, rooms, i, range(k, min(k + width, n)))


def balanced(
    mesh: Mesh, demand: np.ndarray, group: Group, local: int, path: int, rooms: Rooms
) -> None:
    """What a host has too much of for another on one seat goes to others first, then over all
    rails alike, then to where it belongs within the host. Three phases, one after another.

    What stays within a host goes beside the second, over the host's own links.
    """
    n, i = len(group), list(group).index(mesh.rank)
    first, second, third = balanced_phases(demand, n // local, local)

    def over(a: int, b: int) -> int:
        return UP if a // local == b // local else path

    for phase in (first, second, third):
        _round(mesh, phase, range(n), over, rooms, i, range(1, n), group)


def balanced_phases(demand: np.ndarray, hosts: int, local: int) -> np.ndarray:
    """int64 [3, n, n]: what moves in each phase (within the source's host, between, within).

    Of each pair of hosts every rail carries the same; a seat keeps what it may and hands on only
    what it has above that. Seat k of a host sends to seat k of the other, whose bytes for other
    seats are those of the pair in proportion.
    """
    n = hosts * local
    pair = demand.reshape(hosts, local, hosts, local)
    phases = np.zeros((3, n, n), np.int64)
    for h in range(hosts):
        for g in range(hosts):
            a, b = h * local, g * local
            if h == g:
                phases[1, a : a + local, b : b + local] += pair[h, :, h, :]
                continue
            had, to = pair[h, :, g, :].sum(axis=1), pair[h, :, g, :].sum(axis=0)
            total = int(had.sum())
            share = np.diff([total * k // local for k in range(local + 1)])
            spare, room = np.maximum(had - share, 0), np.maximum(share - had, 0)
            phases[0, a : a + local, a : a + local] += _handed(spare, room)
            for k in range(local):
                phases[1, a + k, b + k] += share[k]
                parts = np.diff([share[k] * c // max(total, 1) for c in [0, *np.cumsum(to)]])
                phases[2, b + k, b : b + local] += parts
    for phase in phases:
        np.fill_diagonal(phase, 0)
    return phases


def _handed(spare: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Who hands how much to whom, where all of `spare` is to fit into `room` of as much."""
    out = np.zeros((len(spare), len(room)), np.int64)
    left, free = spare.copy(), room.copy()
    for a in range(len(left)):
        for b in range(len(free)):
            moved = min(left[a], free[b])
            out[a, b] += moved
            left[a] -= moved
            free[b] -= moved
    return out


def barrier(mesh: Mesh, group: Group, path_of) -> None:
    """ceil(lg n) rounds of a byte."""
    n, i = len(group), list(group).index(mesh.rank)
    step = 1
    while step < n:
        to, source = group[(i + step) % n], group[(i - step) % n]
        mesh.exchange(
            [Message(to, path_of(mesh.rank, to), memoryview(bytearray(1)))],
            [Message(source, path_of(source, mesh.rank), memoryview(bytearray(1)))],
        )
        step <<= 1


def _round(
    mesh: Mesh, demand, group: Group, path_of, rooms: Rooms, i: int, shifts, ranks: Group = ()
) -> None:
    """Messages of some shifts at once; `ranks` are the members' where `group` is their places."""
    n, ranks = len(group), ranks or group
    sends, receives = [], []
    for k in shifts:
        to, source = (i + k) % n, (i - k) % n
        out, into = int(demand[i][to]), int(demand[source][i])
        if out:
            path = path_of(group[i], group[to])
            sends.append(Message(ranks[to], path, rooms.of(out)))
        if into:
            path = path_of(group[source], group[i])
            receives.append(Message(ranks[source], path, rooms.of(into)))
    mesh.exchange(sends, receives)
