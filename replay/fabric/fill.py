"""Progressive filling, compiled: the max-min fair rates of flows that share links.

A flow's rate is `max(floor, weight * level)`: the level rises from 0 until a link is full or a flow
has its cap; those freeze there and the others go on. Flows of a link hang in a linked list of
entries (one a flow and link of it), so that the event loop can let them come and go.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...ingest.compiled import compiled

RISING, HELD, FROZEN = 0, 1, 2
_SLACK = 1e-12


class Net(NamedTuple):
    """F flows over P paths over L links, and the lists of the links' flows.

    The links of flow f are `path_link[path_ptr[p]:path_ptr[p + 1]]`, p = `path[f]`; of each it
    takes `path_coef` times its rate. Its entries in the lists are numbered from `entry_ptr[f]`.
    """

    head: np.ndarray
    """int64 [L]: first entry of a link's list, -1 for none."""
    nxt: np.ndarray
    prv: np.ndarray
    entry_flow: np.ndarray
    entry_ptr: np.ndarray
    path: np.ndarray
    path_ptr: np.ndarray
    path_link: np.ndarray
    path_coef: np.ndarray
    weight: np.ndarray
    rate_cap: np.ndarray
    klass: np.ndarray
    guarantee: np.ndarray
    """float64 [classes, L]: a class's guaranteed share of a link."""


class Room(NamedTuple):
    """Room for figures in between: a figure a flow, or a figure a link."""

    state: np.ndarray
    floor: np.ndarray
    fixed: np.ndarray
    slope: np.ndarray
    part: np.ndarray
    rising: np.ndarray


def plain(a, dtype) -> np.ndarray:
    """The array in the one layout that is compiled for: C order, of `dtype`, writable."""
    return np.require(a, dtype, ["C", "W"])


def net(path, path_ptr, path_link, path_coef, weight, rate_cap, klass, guarantee, n_links) -> Net:
    """A Net whose lists are empty."""
    length = np.diff(path_ptr)[path]
    entry_ptr = np.zeros(len(path) + 1, np.int64)
    np.cumsum(length, out=entry_ptr[1:])
    n, i, f = int(entry_ptr[-1]), np.int64, np.float64
    return Net(
        np.full(n_links, -1, i), np.full(n, -1, i), np.full(n, -1, i),
        np.repeat(np.arange(len(path), dtype=i), length), entry_ptr,
        plain(path, i), plain(path_ptr, i), plain(path_link, i), plain(path_coef, f),
        plain(weight, f), plain(rate_cap, f), plain(klass, i), plain(guarantee, f),
    )  # fmt: skip


def room(n_flows: int, n_links: int) -> Room:
    """Room for `fill`; every flow is FROZEN."""
    return Room(
        np.full(n_flows, FROZEN, np.int8), np.zeros(n_flows), np.zeros(n_links),
        np.zeros(n_links), np.zeros(n_links), np.zeros(n_links, np.int64),
    )  # fmt: skip


NO_ROWS = np.zeros(0, np.int64), np.zeros(0, np.int32)
"""Where the links' lists are to be walked."""


@compiled
def enter(net, f):
    """Puts a flow on the lists of its links."""
    first = net.path_ptr[net.path[f]]
    for e in range(net.entry_ptr[f], net.entry_ptr[f + 1]):
        li = net.path_link[first + e - net.entry_ptr[f]]
        top = net.head[li]
        net.nxt[e], net.prv[e] = top, -1
        if top >= 0:
            net.prv[top] = e
        net.head[li] = e


@compiled
def leave(net, f):
    """Takes a flow off the lists of its links."""
    first = net.path_ptr[net.path[f]]
    for e in range(net.entry_ptr[f], net.entry_ptr[f + 1]):
        before, after = net.prv[e], net.nxt[e]
        if before >= 0:
            net.nxt[before] = after
        else:
            net.head[net.path_link[first + e - net.entry_ptr[f]]] = after
        if after >= 0:
            net.prv[after] = before


@compiled
def rows(flows, net, ptr, of):
    """The lists of all links as rows: link li's flows are `of[ptr[li]:ptr[li + 1]]`, in order.

    A row is read from one end to the other, a list all over memory. `ptr` is [L + 1].
    """
    ptr[:] = 0
    for f in flows:
        for j in range(net.path_ptr[net.path[f]], net.path_ptr[net.path[f] + 1]):
            ptr[net.path_link[j] + 1] += 1
    for li in range(len(ptr) - 1):
        ptr[li + 1] += ptr[li]
    at = ptr[:-1].copy()
    for f in flows:
        for j in range(net.path_ptr[net.path[f]], net.path_ptr[net.path[f] + 1]):
            li = net.path_link[j]
            of[at[li]] = f
            at[li] += 1


@compiled
def push(key, item, size, k, i):
    """Adds (k, i) to the binary heap of `size` that fills the front of `key`, `item`."""
    at = size
    while at > 0:
        up = (at - 1) >> 1
        if key[up] <= k:
            break
        key[at], item[at] = key[up], item[up]
        at = up
    key[at], item[at] = k, i


@compiled
def pop(key, item, size):
    """The least (k, i) of a binary heap of `size`; the heap is one shorter afterwards."""
    k, i = key[0], item[0]
    last = size - 1
    lk, li = key[last], item[last]
    at = 0
    while True:
        down = 2 * at + 1
        if down >= last:
            break
        if down + 1 < last and key[down + 1] < key[down]:
            down += 1
        if key[down] >= lk:
            break
        key[at], item[at] = key[down], item[down]
        at = down
    key[at], item[at] = lk, li
    return k, i


@compiled
def fill(flows, links, cap, net, room, rate, ptr, of):
    """Writes `rate` of `flows` (ids), which use no links but `links` (ids) of capacity `cap` [L].

    `ptr`, `of` are `rows` of at least these flows; both empty: the links' lists are walked.
    Flows in the links' lists that are not among `flows` must be FROZEN in `room.state`; they take
    nothing. `room.floor` is read. A flow whose links are all endless has an infinite rate.
    """
    n_links, n_flows = len(net.head), len(net.path)
    entries = 0
    for li in links:
        room.fixed[li] = room.slope[li] = 0.0
        room.rising[li] = 0
    for f in flows:
        entries += net.entry_ptr[f + 1] - net.entry_ptr[f]
    key = np.empty(len(links) + 2 * len(flows) + entries + 2, np.float64)
    item = np.empty(len(key), np.int64)
    size = 0
    left = len(flows)
    for f in flows:
        first, floor, weight = net.path_ptr[net.path[f]], room.floor[f], net.weight[f]
        room.state[f] = HELD if floor > 0 else RISING
        rate[f] = np.inf
        for j in range(first, net.path_ptr[net.path[f] + 1]):
            li, c = net.path_link[j], net.path_coef[j]
            if floor > 0:
                room.fixed[li] += c * floor
            else:
                room.slope[li] += c * weight
                room.rising[li] += 1
        if floor > 0:
            push(key, item, size, floor / weight, n_links + n_flows + f)
            size += 1
        if net.rate_cap[f] < np.inf:
            push(key, item, size, max(net.rate_cap[f], floor) / weight, n_links + f)
            size += 1
    for li in links:
        if room.rising[li] > 0 and cap[li] < np.inf:
            push(key, item, size, max(0.0, cap[li] - room.fixed[li]) / room.slope[li], li)
            size += 1
    level = 0.0
    while left > 0 and size > 0:
        k, i = pop(key, item, size)
        size -= 1
        if i >= n_links + n_flows:
            f = i - n_links - n_flows
            if room.state[f] != HELD:
                continue
            # From here on it rises with the others, so its links fill up sooner.
            level = max(level, k)
            room.state[f] = RISING
            for j in range(net.path_ptr[net.path[f]], net.path_ptr[net.path[f] + 1]):
                li, c = net.path_link[j], net.path_coef[j]
                room.fixed[li] -= c * room.floor[f]
                room.slope[li] += c * net.weight[f]
                room.rising[li] += 1
                if cap[li] < np.inf:
                    full = (cap[li] - room.fixed[li]) / room.slope[li]
                    push(key, item, size, max(level, full), li)
                    size += 1
        elif i >= n_links:
            f = i - n_links
            if room.state[f] == FROZEN:
                continue
            level = max(level, k)
            _freeze(f, max(net.rate_cap[f], room.floor[f]), net, room, rate)
            left -= 1
        else:
            if room.rising[i] == 0:
                continue
            # Flows that froze elsewhere left room here: the link fills up later than was noted.
            now = max(0.0, cap[i] - room.fixed[i]) / room.slope[i]
            if now > k * (1 + _SLACK):
                push(key, item, size, now, i)
                size += 1
                continue
            level = max(level, now)
            if len(ptr) > 0:
                for j in range(ptr[i], ptr[i + 1]):
                    f = of[j]
                    if room.state[f] != FROZEN:
                        _freeze(f, max(room.floor[f], net.weight[f] * level), net, room, rate)
                        left -= 1
                continue
            e = net.head[i]
            while e >= 0:
                f = net.entry_flow[e]
                if room.state[f] != FROZEN:
                    _freeze(f, max(room.floor[f], net.weight[f] * level), net, room, rate)
                    left -= 1
                e = net.nxt[e]


@compiled
def _freeze(f, got, net, room, rate):
    for j in range(net.path_ptr[net.path[f]], net.path_ptr[net.path[f] + 1]):
        li, c = net.path_link[j], net.path_coef[j]
        if room.state[f] == RISING:
            room.rising[li] -= 1
            left = room.slope[li] - c * net.weight[f]
            room.slope[li] = left if room.rising[li] > 0 else 0.0
        else:
            room.fixed[li] -= c * room.floor[f]
        room.fixed[li] += c * got
    room.state[f] = FROZEN
    rate[f] = got


@compiled
def shares(flows, links, cap, net, room, rate, ptr, of):
    """`fill` with traffic classes: what its class's guaranteed shares alone give a flow is its
    floor, and what is left goes to those that have least, of whatever class."""
    for f in flows:
        room.floor[f] = 0.0
    floors = np.zeros(len(flows) if len(net.guarantee) else 0)
    for k in range(len(net.guarantee)):
        n = 0
        for f in flows:
            room.state[f] = FROZEN
            n += net.klass[f] == k
        some = False
        for li in links:
            room.part[li] = cap[li] * net.guarantee[k, li]
            some = some or room.part[li] > 0
        if n == 0 or not some:
            continue
        mine = np.empty(n, np.int64)
        n = 0
        for f in flows:
            if net.klass[f] == k:
                mine[n] = f
                n += 1
        fill(mine, links, room.part, net, room, rate, ptr, of)
        for i, f in enumerate(flows):
            if net.klass[f] == k and rate[f] < np.inf:
                floors[i] = rate[f]
    for i in range(len(floors)):
        room.floor[flows[i]] = floors[i]
    fill(flows, links, cap, net, room, rate, ptr, of)
