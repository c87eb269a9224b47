"""Messages of an all-to-all through a window of so many at once, with max-min sharing of ports."""

from __future__ import annotations

import numpy as np

from ...ingest.compiled import compiled

MAX_MEMBERS = 32
"""A simulation of more takes too long for what it adds: n^2 ends, each with a new sharing."""


def simulated_ns(
    matrix: np.ndarray, order: np.ndarray, width: int, bytes_per_s: float, gamma: float, free: int
) -> float:
    """When the last message ends, in ns.

    `matrix` float64 [n, n] bytes; `order` int64 [rounds, n] names the destination of each member's
    messages, of which it has `width` under way and starts the next as one ends. Rates are max-min
    fair (progressive filling) over a port out of `bytes_per_s` and a port in of `bytes_per_s /
    (1 + gamma max(0, senders - free))` a member.
    """
    return 1e9 / bytes_per_s * _simulate(
        np.ascontiguousarray(matrix, np.float64), np.ascontiguousarray(order, np.int64),
        max(1, width), gamma, free,
    )  # fmt: skip


@compiled
def _simulate(matrix, order, width, gamma, free):  # pragma: no cover - compiled
    n = matrix.shape[0]
    rounds = order.shape[0]
    room = n * min(width, max(rounds, 1))
    src, dst = np.empty(room, np.int64), np.empty(room, np.int64)
    left, rate = np.empty(room), np.empty(room)
    place, under_way = np.zeros(n, np.int64), np.zeros(n, np.int64)
    active = 0
    now = 0.0
    while True:
        for s in range(n):
            while under_way[s] < width and place[s] < rounds:
                d = order[place[s], s]
                place[s] += 1
                if d != s and matrix[s, d] > 0:
                    src[active], dst[active], left[active] = s, d, matrix[s, d]
                    active += 1
                    under_way[s] += 1
        if active == 0:
            return now
        _share(src, dst, rate, active, n, gamma, free)
        step = np.inf
        for f in range(active):
            step = min(step, left[f] / rate[f])
        now += step
        kept = 0
        for f in range(active):
            rest = left[f] - rate[f] * step
            if rest <= 1e-9 * matrix[src[f], dst[f]]:
                under_way[src[f]] -= 1
                continue
            src[kept], dst[kept], left[kept] = src[f], dst[f], rest
            kept += 1
        active = kept


@compiled
def _share(src, dst, rate, active, n, gamma, free):  # pragma: no cover - compiled
    """Max-min rates of the active messages; a port carries 1 unit a time but for incast."""
    cap, flows = np.ones(2 * n), np.zeros(2 * n, np.int64)
    for f in range(active):
        flows[src[f]] += 1
        flows[n + dst[f]] += 1
        rate[f] = -1.0
    for d in range(n):
        cap[n + d] = 1.0 / (1.0 + gamma * max(0, flows[n + d] - free))
    frozen = 0
    while frozen < active:
        least = np.inf
        for port in range(2 * n):
            if flows[port] > 0:
                least = min(least, cap[port] / flows[port])
        # Ports at the same level freeze together: which came first must not matter.
        full = least * (1 + 1e-12)
        stop = np.zeros(2 * n, np.bool_)
        for port in range(2 * n):
            if flows[port] > 0 and cap[port] / flows[port] <= full:
                stop[port] = True
        for f in range(active):
            if rate[f] < 0 and (stop[src[f]] or stop[n + dst[f]]):
                rate[f] = least
                frozen += 1
                for port in (src[f], n + dst[f]):
                    cap[port] = max(0.0, cap[port] - least)
                    flows[port] -= 1
