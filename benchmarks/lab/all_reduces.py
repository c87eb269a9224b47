"""All-reduces over messages between ranks: ring, trees, halving-doubling, two levels, direct.

Each takes the buffer (int32, summed in place), the group (ranks in order), and `Mesh.exchange`.
What each moves is the textbook's: see `replay.models.forms`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from .wire import UP, Mesh, Message

Group = Sequence[int]


def _bytes(part: np.ndarray) -> memoryview:
    return memoryview(part.data).cast("B") if len(part) else memoryview(b"")


def _swap(mesh: Mesh, path: int, to: int | None, out, source: int | None, into) -> None:
    sends = [] if to is None else [Message(to, path, _bytes(out))]
    receives = [] if source is None else [Message(source, path, _bytes(into))]
    mesh.exchange(sends, receives)


def _edges(size: int, parts: int) -> list[int]:
    return [size * i // parts for i in range(parts + 1)]


def reduce_scatter_ring(mesh: Mesh, data: np.ndarray, group: Group, path: int) -> slice:
    """n-1 shifts of partial sums; returns the part that is whole here."""
    n, i = len(group), list(group).index(mesh.rank)
    at = _edges(len(data), n)
    to, source = group[(i + 1) % n], group[(i - 1) % n]
    room = np.empty(max(b - a for a, b in itertools.pairwise(at)), data.dtype)
    for k in range(n - 1):
        out, into = (i - k - 1) % n, (i - k - 2) % n
        got = room[: at[into + 1] - at[into]]
        _swap(mesh, path, to, data[at[out] : at[out + 1]], source, got)
        data[at[into] : at[into + 1]] += got
    return slice(at[i], at[i + 1])


def all_gather_ring(mesh: Mesh, data: np.ndarray, group: Group, path: int) -> None:
    """n-1 shifts of the parts, the own one first."""
    n, i = len(group), list(group).index(mesh.rank)
    at = _edges(len(data), n)
    to, source = group[(i + 1) % n], group[(i - 1) % n]
    for k in range(n - 1):
        out, into = (i - k) % n, (i - k - 1) % n
        _swap(mesh, path, to, data[at[out] : at[out + 1]], source, data[at[into] : at[into + 1]])


def ring(mesh: Mesh, data: np.ndarray, group: Group, paths: Sequence[int]) -> None:
    """Reduce-scatter, then all-gather, round a ring: over several NICs a part of the data each."""
    if len(paths) == 1:
        reduce_scatter_ring(mesh, data, group, paths[0])
        all_gather_ring(mesh, data, group, paths[0])
    else:
        _striped_ring(mesh, data, group, paths)


def _striped_ring(mesh: Mesh, data: np.ndarray, group: Group, paths: Sequence[int]) -> None:
    n, i = len(group), list(group).index(mesh.rank)
    at = _edges(len(data), n)
    to, source = group[(i + 1) % n], group[(i - 1) % n]
    room = np.empty(max(b - a for a, b in itertools.pairwise(at)), data.dtype)
    for k in range(2 * (n - 1)):
        adds = k < n - 1
        out = (i - k - 1) % n if adds else (i - (k - n + 1)) % n
        into = (out - 1) % n
        whole, mine = data[at[out] : at[out + 1]], data[at[into] : at[into + 1]]
        got = room[: len(mine)] if adds else mine
        cut, cut_in = _edges(len(whole), len(paths)), _edges(len(got), len(paths))
        mesh.exchange(
            [Message(to, p, _bytes(whole[cut[j] : cut[j + 1]])) for j, p in enumerate(paths)],
            [Message(source, p, _bytes(got[cut_in[j] : cut_in[j + 1]]))
             for j, p in enumerate(paths)],
        )  # fmt: skip
        if adds:
            mine += got


def tree(mesh: Mesh, data: np.ndarray, group: Group, paths: Sequence[int]) -> None:
    """Up and down a binomial tree, whole vectors: 2 ceil(lg n) (a + M/B)."""
    n, i = len(group), list(group).index(mesh.rank)
    room, path = np.empty_like(data), paths[0]
    step, joined = 1, []
    while step < n:
        if i & step:
            _swap(mesh, path, group[i - step], data, None, None)
            break
        if i + step < n:
            _swap(mesh, path, None, None, group[i + step], room)
            data += room
            joined.append(i + step)
        step <<= 1
    if i:
        _swap(mesh, path, None, None, group[i - step], data)
    for child in reversed(joined):
        _swap(mesh, path, group[child], data, None, None)


def halving_doubling(mesh: Mesh, data: np.ndarray, group: Group, paths: Sequence[int]) -> None:
    """Recursive halving, then doubling, of a power of two ranks: 2 lg n a + 2 (n-1)/n M/B."""
    n, i, path = len(group), list(group).index(mesh.rank), paths[0]
    if n & (n - 1):
        raise ValueError(f"halving-doubling is of 2, 4, 8, ... ranks, not of {n}")
    room = np.empty(len(data) // 2 + 1, data.dtype)
    low, high, spans = 0, len(data), []
    step = n >> 1
    while step:
        peer, middle = group[i ^ step], (low + high) // 2
        spans.append((low, high, peer))
        keep = (middle, high) if i & step else (low, middle)
        give = (low, middle) if i & step else (middle, high)
        got = room[: keep[1] - keep[0]]
        _swap(mesh, path, peer, data[give[0] : give[1]], peer, got)
        data[keep[0] : keep[1]] += got
        low, high = keep
        step >>= 1
    for a, b, peer in reversed(spans):
        into = (high, b) if low == a else (a, low)
        _swap(mesh, path, peer, data[low:high], peer, data[into[0] : into[1]])
        low, high = a, b


def recursive_doubling(mesh: Mesh, data: np.ndarray, group: Group, paths: Sequence[int]) -> None:
    """Whole vectors exchanged at distances 1, 2, 4, ...: lg n (a + M/B), a power of two ranks."""
    n, i, path = len(group), list(group).index(mesh.rank), paths[0]
    if n & (n - 1):
        raise ValueError(f"recursive doubling is of 2, 4, 8, ... ranks, not of {n}")
    room, step = np.empty_like(data), 1
    while step < n:
        peer = group[i ^ step]
        _swap(mesh, path, peer, data, peer, room)
        data += room
        step <<= 1


def direct(mesh: Mesh, data: np.ndarray, group: Group, paths: Sequence[int]) -> None:
    """Reduce-scatter and all-gather, each to all peers at once: 2 a + 2 (n-1)/n M/B."""
    n, i, path = len(group), list(group).index(mesh.rank), paths[0]
    at = _edges(len(data), n)
    mine = data[at[i] : at[i + 1]]
    others = [j for j in range(n) if j != i]
    room = np.empty((n, len(mine)), data.dtype)
    mesh.exchange(
        [Message(group[j], path, _bytes(data[at[j] : at[j + 1]])) for j in others],
        [Message(group[j], path, _bytes(room[j])) for j in others],
    )
    for j in others:
        mine += room[j]
    mesh.exchange(
        [Message(group[j], path, _bytes(mine)) for j in others],
        [Message(group[j], path, _bytes(data[at[j] : at[j + 1]])) for j in others],
    )


def hierarchical(
    mesh: Mesh, data: np.ndarray, group: Group, paths: Sequence[int], local: int
) -> None:
    """Reduce-scatter within hosts, all-reduce of each part between hosts, all-gather within."""
    i = list(group).index(mesh.rank)
    inside = [group[i - i % local + k] for k in range(local)]
    across = [group[k] for k in range(i % local, len(group), local)]
    part = reduce_scatter_ring(mesh, data, inside, UP)
    ring(mesh, data[part], across, paths)
    all_gather_ring(mesh, data, inside, UP)


ALGORITHMS: dict[str, Callable[..., None]] = {
    "ring": ring,
    "tree": tree,
    "halving-doubling": halving_doubling,
    "recursive-doubling": recursive_doubling,
    "direct": direct,
}
