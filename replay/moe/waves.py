"""An all-to-all in waves: orders of its messages, and what each takes at the ports of its members.

Every member has one port out and one in, of the same bandwidth. Alone a port bound is met by any
order (max-min sharing has no cost of many senders at once); an incast term makes order matter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .window import MAX_MEMBERS, simulated_ns


class Incast(NamedTuple):
    """A port that k senders share carries B / (1 + gamma max(0, k - free)): a shape we deduced.

    Neither gamma nor free is published: gamma is stated or fitted, and 0 unless told.
    """

    gamma: float = 0.0
    free: int = 2

    def factor(self, senders: np.ndarray | float) -> np.ndarray:
        """By how much a port's bytes take longer."""
        return 1 + self.gamma * np.maximum(0.0, np.asarray(senders, np.float64) - self.free)


NONE = Incast()


def cyclic(n: int) -> np.ndarray:
    """int64 [n - 1, n]: in wave w member s sends to (s + w) mod n."""
    return (np.arange(n)[None, :] + np.arange(1, n)[:, None]) % n


def quadratic(n: int) -> list[int]:
    """The n shifts in the order x (x + 1) / 2 modulo the next power of two, those >= n left out.

    NCCL's order of point-to-point peers (`ncclP2pSchedule` in src/init.cc).
    """
    power = 1 << max(0, (n - 1).bit_length())
    return [delta for x in range(power) if (delta := (x * (x + 1) // 2) % power) < n]


def native(n: int, per_host: int | None = None) -> np.ndarray:
    """int64 [rounds, n]: NCCL's order, shifts of hosts outside, of places in the host inside.

    `per_host` members lie on each host, in order; None where that is not so: one level only.
    """
    if not per_host or n % per_host:
        per_host = 1
    member = np.arange(n)
    host, local = member // per_host, member % per_host
    rounds = [
        (host + far) % (n // per_host) * per_host + (local + near) % per_host
        for far in quadratic(n // per_host)
        for near in quadratic(per_host)
        if far or near
    ]
    return np.array(rounds, np.int64).reshape(-1, n)


def bound_bytes(matrix: np.ndarray) -> float:
    """The busiest port: the largest sum of a row or column off the diagonal."""
    off = _off(matrix)
    return float(max(off.sum(axis=0).max(initial=0.0), off.sum(axis=1).max(initial=0.0)))


def all_at_once_ns(matrix: np.ndarray, bytes_per_s: float, incast: Incast = NONE) -> float:
    """All messages at once, in ns: the busiest port, each receiver slowed by its senders.

    As senders end the incast eases. Max-min sharing comes within a few percent of the bound.
    """
    off = _off(matrix)
    into = float(_shared(off, incast).max(initial=0.0))
    return max(into, float(off.sum(axis=1).max(initial=0.0))) * 1e9 / bytes_per_s


def wave_times_ns(
    matrix: np.ndarray,
    order: np.ndarray,
    bytes_per_s: float,
    *,
    width: int = 1,
    alpha_ns: float = 0.0,
    incast: Incast = NONE,
) -> list[float]:
    """The time of each group of `width` waves, in ns: alpha and the busiest member.

    All members are done before the next group begins, so the whole takes their sum.
    """
    off = _off(matrix)
    n = len(off)
    out = []
    if width == 1:
        alone = float(incast.factor(1)) * 1e9 / bytes_per_s
        return [alpha_ns + float(off[np.arange(n), to].max()) * alone for to in order]
    for first in range(0, len(order), width):
        group = np.zeros_like(off)
        for to in order[first : first + width]:
            group[np.arange(n), to] = off[np.arange(n), to]
        out.append(alpha_ns + all_at_once_ns(group, bytes_per_s, incast))
    return out


def windowed_ns(
    matrix: np.ndarray,
    order: np.ndarray,
    bytes_per_s: float,
    *,
    width: int = 8,
    incast: Incast = NONE,
) -> float:
    """Each member works through its order with `width` messages under way, no barrier, in ns.

    Simulated with max-min sharing for up to MAX_MEMBERS members; of more, the busiest port with at
    most `width` senders at once, which is a lower bound.
    """
    off = _off(matrix)
    if len(off) <= MAX_MEMBERS:
        return simulated_ns(off, order, width, bytes_per_s, incast.gamma, incast.free)
    senders = np.minimum(width, (off > 0).sum(axis=0))
    into = off.sum(axis=0) * incast.factor(senders)
    return max(into.max(initial=0.0), off.sum(axis=1).max(initial=0.0)) * 1e9 / bytes_per_s


def _shared(matrix: np.ndarray, incast: Incast) -> np.ndarray:
    """Bytes, slowed, of each receiver whose senders share it evenly and end one after another."""
    size = np.sort(matrix, axis=0)
    left = np.arange(len(size), 0, -1)
    slowed = left * incast.factor(left)
    return slowed @ np.diff(size, prepend=0.0, axis=0)


def _off(matrix: np.ndarray) -> np.ndarray:
    out = np.array(matrix, np.float64)
    np.fill_diagonal(out, 0.0)
    return out
