"""Max-min fair rates of flows that share links, by progressive filling.

All rates rise together until a link is full; its flows keep what they have and the others go on.
An allocation is max-min fair if and only if every flow has a bottleneck: a full link on which no
flow is faster (Bertsekas and Gallager, Data Networks, section 6.5: textbook). A flow of weight w
counts as w flows (queue pairs); a flow of a traffic class has at least what the guaranteed shares
of its class give it, and classes take what others leave (work-conserving, deduced). A solve is
O((entries + links) log links); flows of equal paths, weight, class and cap are solved as one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...ingest.errors import UsageError
from . import fill


class BadFlows(UsageError):
    """Flows that cannot be: arrays that do not fit, or figures out of range."""


class Links(NamedTuple):
    """L links. Arrays are [L]; see `links` for the defaults."""

    capacity_bytes_per_s: np.ndarray
    incast_gamma: np.ndarray
    """k senders into a port leave 1 / (1 + gamma * max(0, k - free)) of it; 0: no incast, and 0
    on every link that is not a receiver's port."""
    incast_free: np.ndarray
    guarantee: np.ndarray
    """float64 [classes, L]: the share of a link that a traffic class has for sure."""


class Paths(NamedTuple):
    """P paths in CSR form: path p crosses `link[ptr[p]:ptr[p + 1]]`."""

    ptr: np.ndarray
    link: np.ndarray
    coef: np.ndarray
    """What of its rate a flow puts on that link: 1, or less where it is spread over several."""

    @property
    def n(self) -> int:
        """Paths."""
        return len(self.ptr) - 1


def links(
    capacity_bytes_per_s: Any,
    *,
    background_bytes_per_s: Any = 0.0,
    incast_gamma: Any = 0.0,
    incast_free: Any = 1.0,
    guarantee: Any = None,
) -> Links:
    """Links of some capacity, less a steady background load (both [L] or one number).

    `guarantee` is [classes] (the same share on every link) or [classes, L]. Raises BadFlows.
    """
    cap = np.asarray(capacity_bytes_per_s, np.float64)
    spread = [np.broadcast_to(np.asarray(a, np.float64), cap.shape)
              for a in (background_bytes_per_s, incast_gamma, incast_free)]  # fmt: skip
    for a, name in zip((cap, *spread), ("capacity", "background", "gamma", "free"), strict=True):
        if not (a >= 0).all():
            raise BadFlows(f"a link's {name} is negative or not a number: give 0 or more")
    share = np.zeros((0, len(cap))) if guarantee is None else np.asarray(guarantee, np.float64)
    if share.ndim == 1:
        share = np.broadcast_to(share[:, None], (len(share), len(cap)))
    if (share < 0).any() or (share.sum(axis=0) > 1 + 1e-9).any():
        raise BadFlows("guaranteed shares of a link are 0 or more and add up to at most 1")
    left = np.maximum(cap - spread[0], 0.0)
    return Links(left, spread[1].copy(), spread[2].copy(), np.ascontiguousarray(share))


def paths(ptr: Any, link: Any, coef: Any = None) -> Paths:
    """Paths from CSR arrays; `coef` defaults to 1. Raises BadFlows."""
    p, l = np.asarray(ptr, np.int64), np.asarray(link, np.int64)  # noqa: E741
    c = np.ones(len(l)) if coef is None else np.asarray(coef, np.float64)
    if len(p) < 1 or p[0] != 0 or p[-1] != len(l) or (np.diff(p) < 0).any() or len(c) != len(l):
        raise BadFlows("paths are not of CSR form: ptr goes from 0 up to the number of links")
    if not (c > 0).all():
        raise BadFlows("a path's share of a link is 0 or less: leave the link out")
    return Paths(p, l, c)


def per_flow(value, n: int, name: str, *, least: float = 0.0, above: bool = False) -> np.ndarray:
    """float64 [n] of one number or n; raises BadFlows below `least` (or at it, if `above`)."""
    try:
        out = np.ascontiguousarray(np.broadcast_to(np.asarray(value, np.float64), (n,)))
    except ValueError:
        raise BadFlows(f"{name} has {np.size(value)} values for {n} flows") from None
    if np.isnan(out).any() or (out <= least if above else out < least).any():
        raise BadFlows(f"{name} has values {'not above' if above else 'below'} {least:g}")
    return out


def codes(value, n: int, name: str, count: int) -> np.ndarray:
    """int64 [n] of codes from 0 to below `count`; raises BadFlows."""
    out = np.ascontiguousarray(np.broadcast_to(np.asarray(value, np.int64), (n,)))
    if n and (out.min() < 0 or out.max() >= count):
        raise BadFlows(f"{name} is from 0 to {count - 1}: found {out.min()} to {out.max()}")
    return out


def checked(links: Links, paths: Paths) -> None:
    """Raises BadFlows where a path crosses a link that there is not."""
    if len(paths.link) and not (0 <= paths.link.min() <= paths.link.max() < len(links[0])):
        raise BadFlows(f"a path crosses link {paths.link.max()}, of {len(links[0])} links")


def max_min(
    links: Links,
    paths: Paths,
    path: Any = None,
    *,
    weight: Any = 1.0,
    rate_cap: Any = np.inf,
    klass: Any = 0,
    sender: Any = None,
) -> np.ndarray:
    """Rates in bytes/s, float64 [F], of flows that are all active at once.

    `path` int64 [F] (default: flow f takes path f); `weight`, `rate_cap` (bytes/s) and `klass`
    are [F] or one value; `sender` int64 [F] is needed for incast only: who sends. A flow that
    crosses no links (or only endless ones) and has no cap has an infinite rate. Raises BadFlows.
    """
    checked(links, paths)
    at = np.arange(paths.n) if path is None else np.asarray(path, np.int64)
    at = codes(at, len(at), "path", paths.n)
    n = len(at)
    w = per_flow(weight, n, "weight", above=True)
    cap = per_flow(rate_cap, n, "rate_cap")
    k = codes(klass, n, "class", max(1, len(links.guarantee)))
    who = np.arange(n) if sender is None else np.asarray(sender, np.int64)
    group, member, size = _alike(at, w, cap, k)
    net = fill.net(
        at[member], paths.ptr, paths.link, paths.coef, w[member] * size, cap[member] * size,
        k[member], links.guarantee, len(links.capacity_bytes_per_s),
    )  # fmt: skip
    room = fill.room(len(member), len(links.capacity_bytes_per_s))
    rate = np.zeros(len(member))
    _solve(net, room, fill.plain(_with_incast(links, paths, at, who), np.float64), rate)
    return (rate / size)[group]


def _alike(path, weight, cap, klass) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group of each flow [F], one flow of each group [G], and how many a group has [G]."""
    order = np.lexsort((cap, weight, klass, path))
    new = np.ones(len(order), bool)
    for a in (path, weight, cap, klass):
        new[1:] &= a[order][1:] == a[order][:-1]
    new[1:] = ~new[1:]
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(new) - 1
    member = order[new]
    return group, member, np.bincount(group, minlength=len(member)).astype(np.float64)


def _with_incast(links: Links, paths: Paths, path: np.ndarray, sender: np.ndarray) -> np.ndarray:
    """Capacity [L] of links into which the flows' senders push at once."""
    if not links.incast_gamma.any():
        return links.capacity_bytes_per_s
    flow, link = crossings(paths, path, links.incast_gamma > 0)
    pairs = np.unique(np.stack([link, sender[flow]]), axis=1)
    k = np.bincount(pairs[0], minlength=len(links.capacity_bytes_per_s))
    return links.capacity_bytes_per_s / incast(links, k)


def incast(links: Links, senders: np.ndarray) -> np.ndarray:
    """By what a link's capacity is divided when so many senders push into it at once, [L]."""
    return 1.0 + links.incast_gamma * np.maximum(0.0, senders - links.incast_free)


def crossings(paths: Paths, path: np.ndarray, of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Flow and link of every crossing of the links that `of` (bool [L]) marks, int64 each."""
    length = np.diff(paths.ptr)[path]
    flow = np.repeat(np.arange(len(path)), length)
    first = np.repeat(paths.ptr[path] - (np.cumsum(length) - length), length)
    link = paths.link[first + np.arange(len(flow))]
    kept = of[link]
    return flow[kept], link[kept]


def _solve(net: fill.Net, room: fill.Room, cap: np.ndarray, rate: np.ndarray) -> None:
    everything = np.arange(len(net.path))
    ptr, of = np.zeros(len(net.head) + 1, np.int64), np.zeros(len(net.nxt), np.int32)
    fill.rows(everything, net, ptr, of)
    fill.shares(everything, np.unique(net.path_link), cap, net, room, rate, ptr, of)
