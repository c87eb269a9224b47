"""Flows over time: when each starts and ends, sharing links max-min fairly with those under way.

A flow starts when those it waits for have ended, plus its delay (the alphas of its path's hops and
its launch), and lasts until its bytes are through: T = sum of alphas + bytes / rate, the rate that
of the fair share as flows come and go. Queueing and congestion control are not modelled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import events, fill
from .flows import BadFlows, Links, Paths, checked, codes, crossings, per_flow

MERGE_NS = 1e-3
"""Events this close share one solve: far below a clock's tick, above rounding."""

MAX_ENTRIES = 60_000_000
"""Crossings of links by flows in one simulation: about 2 GB of arrays."""


class Flows(NamedTuple):
    """F flows in time. Arrays are [F]; see `flows` for the defaults."""

    path: np.ndarray
    size_bytes: np.ndarray
    release_ns: np.ndarray
    delay_ns: np.ndarray
    pred_ptr: np.ndarray
    """int64 [F + 1]; flow f waits for `pred[pred_ptr[f]:pred_ptr[f + 1]]`."""
    pred: np.ndarray
    weight: np.ndarray
    rate_cap: np.ndarray
    klass: np.ndarray
    sender: np.ndarray

    @property
    def n(self) -> int:
        """Flows."""
        return len(self.path)


class Ended(NamedTuple):
    """What became of flows: [F] arrays of them, [L] arrays of links."""

    start_ns: np.ndarray
    """When its first byte moves: its delay is before."""
    end_ns: np.ndarray
    time_ns: float
    """From the first release to the last end."""
    link_bytes: np.ndarray
    link_busy_ns: np.ndarray
    """How long each link carried anything."""
    bound_ns: float
    """Bytes of the busiest link over its capacity: no schedule is shorter."""
    bound_link: int
    """That link; -1 without bytes."""
    solves: int


def flows(
    path: Any,
    size_bytes: Any,
    *,
    release_ns: Any = 0.0,
    delay_ns: Any = 0.0,
    pred_ptr: Any = None,
    pred: Any = None,
    weight: Any = 1.0,
    rate_cap: Any = np.inf,
    klass: Any = 0,
    sender: Any = None,
) -> Flows:
    """Flows from arrays [F], or one value for all; without `pred` none waits. Raises BadFlows."""
    at = np.ascontiguousarray(np.asarray(path, np.int64))
    n = len(at)
    ptr = np.zeros(n + 1, np.int64) if pred_ptr is None else np.asarray(pred_ptr, np.int64)
    before = np.zeros(0, np.int64) if pred is None else np.asarray(pred, np.int64)
    if len(ptr) != n + 1 or ptr[0] != 0 or ptr[-1] != len(before) or (np.diff(ptr) < 0).any():
        raise BadFlows("pred_ptr is not of CSR form: from 0 up to the number of predecessors")
    codes(before, len(before), "a predecessor", n)
    size = per_flow(size_bytes, n, "size_bytes")
    if np.isinf(size).any():
        raise BadFlows("a flow has infinitely many bytes")
    release = np.broadcast_to(np.asarray(release_ns, np.float64), (n,)).copy()
    return Flows(
        at, size, release, per_flow(delay_ns, n, "delay_ns"), ptr, before,
        per_flow(weight, n, "weight", above=True), per_flow(rate_cap, n, "rate_cap"),
        np.ascontiguousarray(np.broadcast_to(np.asarray(klass, np.int64), (n,))),
        np.arange(n) if sender is None else np.asarray(sender, np.int64),
    )  # fmt: skip


def simulate(
    links: Links,
    paths: Paths,
    moved: Flows,
    *,
    merge_ns: float = MERGE_NS,
    slots: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
) -> Ended:
    """Runs flows to their end.

    Time grows with events x the flows that are joined at each: flows that never share links cost
    a logarithm each, n flows of different sizes through one port n^2. A `merge_ns` above the
    default trades exactness for fewer solves (an error up to that much a round of dependencies).
    `slots` (CSR of flows to senders' places, and the link of each place) replaces `sender`.
    Raises BadFlows: dependencies in a circle, or flows that nothing lets through.
    """
    checked(links, paths)
    codes(moved.path, moved.n, "path", paths.n)
    codes(moved.klass, moved.n, "class", max(1, len(links.guarantee)))
    n_links = len(links.capacity_bytes_per_s)
    entries = int(np.diff(paths.ptr)[moved.path].sum()) if moved.n else 0
    if entries > MAX_ENTRIES:
        raise BadFlows(
            f"{moved.n} flows cross {entries} links, more than the {MAX_ENTRIES} of one "
            "simulation: fewer ranks or rounds would work, or equal sizes on an even placement, "
            "which symmetry solves"
        )
    order = None
    if slots is None:
        if not len(moved.pred) and (np.diff(moved.path) < 0).any():
            # All at once: those of one sender together, as their paths lie in memory.
            order = np.argsort(moved.path, kind="stable")
            moved = _in_order(moved, order)
        slots = senders(links, paths, moved.path, moved.sender)
    net = fill.net(
        moved.path, paths.ptr, paths.link, paths.coef, moved.weight, moved.rate_cap * 1e-9,
        moved.klass, links.guarantee, n_links,
    )  # fmt: skip
    next_ptr, nexts = _followers(moved)
    start, end = np.full(moved.n, np.nan), np.full(moved.n, np.nan)
    busy = np.zeros(n_links)
    i, g = np.int64, np.float64
    work = events.Work(
        fill.plain(moved.size_bytes, g), fill.plain(moved.release_ns, g),
        fill.plain(moved.delay_ns, g), np.diff(fill.plain(moved.pred_ptr, i)), next_ptr, nexts,
    )  # fmt: skip
    ports = events.Ports(
        fill.plain(links.incast_gamma, g), fill.plain(links.incast_free, g),
        fill.plain(slots[0], i), fill.plain(slots[1], i), fill.plain(slots[2], i),
    )  # fmt: skip
    cap = links.capacity_bytes_per_s * 1e-9
    status, which, solves = events.run(
        net, fill.room(moved.n, n_links), cap, work, ports, float(merge_ns), start, end, busy
    )
    if status == events.STARVED:
        which = which if order is None else order[which]
        raise BadFlows(
            f"flow {which} never ends: it waits for itself, or a link on its way has no capacity "
            "left (a background load, or a class that has it all)"
        )
    moved_bytes = crossed_bytes(n_links, paths, moved)
    bound, at = busiest(links, moved_bytes)
    if order is not None:
        back = np.argsort(order)
        start, end = start[back], end[back]
    took = float(end.max() - moved.release_ns.min()) if moved.n else 0.0
    return Ended(start, end, took, moved_bytes, busy, bound, at, solves)


def crossed_bytes(n_links: int, paths: Paths, moved: Flows) -> np.ndarray:
    """Bytes that cross each link, float64 [L]."""
    by_path = np.bincount(moved.path, moved.size_bytes, minlength=paths.n)
    each = np.repeat(by_path, np.diff(paths.ptr)) * paths.coef
    return np.bincount(paths.link, each, minlength=n_links)


def busiest(links: Links, link_bytes: np.ndarray) -> tuple[float, int]:
    """The longest that a link needs for its bytes, in ns, and which link it is (-1: no bytes)."""
    if not link_bytes.any():
        return 0.0, -1
    with np.errstate(divide="ignore", invalid="ignore"):
        need = np.where(link_bytes > 0, link_bytes * 1e9 / links.capacity_bytes_per_s, 0.0)
    at = int(np.argmax(need))
    return float(need[at]), at


def senders(
    links: Links, paths: Paths, path: np.ndarray, sender: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places of senders at ports with incast: CSR (ptr [F + 1], places), and the link of each."""
    if not links.incast_gamma.any():
        return np.zeros(len(path) + 1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
    flow, link = crossings(paths, path, links.incast_gamma > 0)
    pairs, place = np.unique(np.stack([link, sender[flow]]), axis=1, return_inverse=True)
    ptr = np.zeros(len(path) + 1, np.int64)
    np.cumsum(np.bincount(flow, minlength=len(path)), out=ptr[1:])
    return ptr, place.astype(np.int64).ravel(), np.ascontiguousarray(pairs[0])


def with_messages(
    links: Links,
    paths: Paths,
    moved: Flows,
    messages,
    message_rate: Callable[[int, int], float],
    ports: np.ndarray,
    *,
    queue_pairs: float = 1.0,
) -> tuple[Links, Paths, Flows]:
    """The same with ports (bool [L]) that start only so many messages a second.

    `messages` [F] is how many a flow is sent in; `message_rate(link, connections)` a port's
    messages/s, connections being the pairs of sender and path that use it times `queue_pairs`.
    A port's messages are one more link, of which a flow takes messages / bytes of its rate: so
    T >= messages / R(q) of a port, however they are shared.
    """
    per_byte = per_flow(messages, moved.n, "messages") / np.maximum(moved.size_bytes, 1.0)
    at = np.flatnonzero(ports)
    flow, link = crossings(paths, moved.path, ports)
    uses = np.unique(np.stack([link, moved.path[flow], moved.sender[flow]]), axis=1)
    q = np.bincount(uses[0], minlength=len(ports))[at] * queue_pairs
    rate = np.array([message_rate(int(i), c) for i, c in zip(at, q, strict=True)])
    n = len(links.capacity_bytes_per_s)
    extra = np.zeros(len(at))
    grown = Links(
        np.concatenate([links.capacity_bytes_per_s, rate]),
        np.concatenate([links.incast_gamma, extra]), np.concatenate([links.incast_free, extra]),
        np.concatenate([links.guarantee, links.guarantee[:, at]], axis=1),
    )  # fmt: skip
    kinds, kind = np.unique(np.stack([moved.path, per_byte]), axis=1, return_inverse=True)
    old = kinds[0].astype(np.int64)
    length = np.diff(paths.ptr)[old]
    where = np.repeat(paths.ptr[old] - (np.cumsum(length) - length), length)
    kept = where + np.arange(length.sum())
    owner = np.repeat(np.arange(len(old)), length)
    counted = ports[paths.link[kept]] & (kinds[1][owner] > 0)
    place = np.zeros(n, np.int64)
    place[at] = n + np.arange(len(at))
    link_ids = np.concatenate([paths.link[kept], place[paths.link[kept][counted]]])
    coefs = np.concatenate(
        [paths.coef[kept], (paths.coef[kept] * kinds[1][owner])[counted]]
    )  # fmt: skip
    owners = np.concatenate([owner, owner[counted]])
    order = np.argsort(owners, kind="stable")
    ptr = np.zeros(len(old) + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=len(old)), out=ptr[1:])
    return (
        grown,
        Paths(ptr, link_ids[order], coefs[order]),
        moved._replace(path=kind.astype(np.int64).ravel()),
    )


def _in_order(moved: Flows, order: np.ndarray) -> Flows:
    """The flows, none of which waits for another, in another order."""
    each = ("path", "size_bytes", "release_ns", "delay_ns", "weight", "rate_cap", "klass", "sender")
    return moved._replace(**{name: getattr(moved, name)[order] for name in each})


def _followers(moved: Flows) -> tuple[np.ndarray, np.ndarray]:
    """CSR of the flows that wait for each flow."""
    ptr = np.zeros(moved.n + 1, np.int64)
    np.cumsum(np.bincount(moved.pred, minlength=moved.n), out=ptr[1:])
    waiting = np.repeat(np.arange(moved.n), np.diff(moved.pred_ptr))
    return ptr, waiting[np.argsort(moved.pred, kind="stable")]
