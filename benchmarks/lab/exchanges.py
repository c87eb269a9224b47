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
    """Spread over a host's seats, sent over all rails alike, handed on in the host it goes to.

    What host h has for host g goes in equal parts over its `local` rails; seat k of h sends its
    part to seat k of g. What stays within the host goes beside the first of the three phases.
    """
    n, i = len(group), list(group).index(mesh.rank)
    hosts, h, k = n // local, i // local, i % local
    phases = np.zeros((3, n, n), np.int64)
    for a in range(n):
        for b in range(n):
            if a // local == b // local:
                phases[0, a, b] += demand[a, b] * (a != b)
                continue
            for rail in range(local):
                part = demand[a, b] * (rail + 1) // local - demand[a, b] * rail // local
                out, into = a // local * local + rail, b // local * local + rail
                phases[0, a, out] += part * (a != out)
                phases[1, out, into] += part
                phases[2, into, b] += part * (into != b)
    assert hosts * local == n and h * local + k == i
    for phase, over in zip(phases, (UP, path, UP), strict=True):
        _round(mesh, phase, group, lambda _a, _b, over=over: over, rooms, i, range(1, n))


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


def _round(mesh: Mesh, demand, group: Group, path_of, rooms: Rooms, i: int, shifts) -> None:
    n = len(group)
    sends, receives = [], []
    for k in shifts:
        to, source = (i + k) % n, (i - k) % n
        out, into = int(demand[i][to]), int(demand[source][i])
        if out:
            path = path_of(group[i], group[to])
            sends.append(Message(group[to], path, rooms.of(out)))
        if into:
            path = path_of(group[source], group[i])
            receives.append(Message(group[source], path, rooms.of(into)))
    mesh.exchange(sends, receives)
