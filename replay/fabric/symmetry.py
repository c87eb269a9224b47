"""Flows that fare alike, simulated once: the coarsest equitable partition of flows and links.

Flows are of one class if they have the same size, delay, weight and cap, wait for the same classes
and cross the same classes of links; links if they have the same capacity and carry equally many
flows of each class. Colours are refined until none splits further (colour refinement, as in
Weisfeiler and Leman 1968; equitable partitions are textbook). Flows of a class then start and end
together, as every event finds them in the same state: simulating one of each is exact. Colours are
64-bit hashes, so that two classes are taken for one with a chance of about classes^2 / 2^64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...ingest.compiled import compiled
from .fill import plain
from .flows import Links, Paths, crossings
from .simulate import MERGE_NS, Ended, Flows, busiest, crossed_bytes, senders, simulate

MAX_PASSES = 64
"""Passes after which refinement stops where colours still split: then nothing is alike."""


class Quotient(NamedTuple):
    """One flow and one link of each class, and which class each flow and link is of."""

    links: Links
    paths: Paths
    flows: Flows
    slots: tuple[np.ndarray, np.ndarray, np.ndarray]
    flow_class: np.ndarray
    """int64 [F]."""
    link_class: np.ndarray
    """int64 [L]; -1 for links that nothing crosses."""


@compiled
def _mix(x):
    """SplitMix64's finaliser (Steele et al. 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def _order(pred_ptr, pred):
    """Flows so that each comes after those that it waits for; shorter where there is a circle."""
    n = len(pred_ptr) - 1
    missing = np.empty(n, np.int64)
    ptr = np.zeros(n + 1, np.int64)
    for f in range(n):
        missing[f] = pred_ptr[f + 1] - pred_ptr[f]
    for p in pred:
        ptr[p + 1] += 1
    for f in range(n):
        ptr[f + 1] += ptr[f]
    at, nexts = ptr[:-1].copy(), np.empty(len(pred), np.int64)
    for f in range(n):
        for j in range(pred_ptr[f], pred_ptr[f + 1]):
            nexts[at[pred[j]]] = f
            at[pred[j]] += 1
    out = np.empty(n, np.int64)
    size = 0
    for f in range(n):
        if missing[f] == 0:
            out[size] = f
            size += 1
    done = 0
    while done < size:
        f = out[done]
        done += 1
        for j in range(ptr[f], ptr[f + 1]):
            missing[nexts[j]] -= 1
            if missing[nexts[j]] == 0:
                out[size] = nexts[j]
                size += 1
    return out[:size]


class _Joined(NamedTuple):
    """What joins flows and links, for `_refine`: paths, predecessors and senders' places."""

    path: np.ndarray
    path_ptr: np.ndarray
    path_link: np.ndarray
    coef_hash: np.ndarray
    pred_ptr: np.ndarray
    pred: np.ndarray
    slot_ptr: np.ndarray
    slots: np.ndarray
    slot_link: np.ndarray


@compiled
def _refine(order, flow, link, joined):
    """One pass over colours (uint64), in place: flows by what they wait for and cross, then links
    by the flows (and senders of flows) on them."""
    path, path_ptr, path_link, coef_hash, pred_ptr, pred, slot_ptr, slots, slot_link = joined
    n_paths = len(path_ptr) - 1
    of_path, on_path = np.zeros(n_paths, np.uint64), np.zeros(n_paths, np.uint64)
    for p in range(n_paths):
        for j in range(path_ptr[p], path_ptr[p + 1]):
            of_path[p] += _mix(link[path_link[j]] ^ coef_hash[j])
    of_slot = np.zeros(len(slot_link), np.uint64)
    for f in order:
        waits = np.uint64(0)
        for j in range(pred_ptr[f], pred_ptr[f + 1]):
            waits += _mix(flow[pred[j]] ^ np.uint64(0x5851F42D4C957F2D))
        flow[f] = _mix(flow[f] ^ _mix(of_path[path[f]] + np.uint64(3) * waits))
        on_path[path[f]] += _mix(flow[f])
        for j in range(slot_ptr[f], slot_ptr[f + 1]):
            of_slot[slots[j]] += _mix(flow[f])
    new = np.zeros(len(link), np.uint64)
    for p in range(n_paths):
        for j in range(path_ptr[p], path_ptr[p + 1]):
            new[path_link[j]] += on_path[p] * (coef_hash[j] | np.uint64(1))
    for s in range(len(slot_link)):
        new[slot_link[s]] += _mix(of_slot[s] ^ np.uint64(0x14057B7EF767814F))
    for i in range(len(link)):
        link[i] = _mix(link[i] ^ _mix(new[i]))


def _bits(columns: list[np.ndarray]) -> np.ndarray:
    """A uint64 colour a row, from float64 or integer columns."""
    out = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        bits = np.ascontiguousarray(column, np.float64).view(np.uint64)
        out = _hashed(out ^ _hashed(bits))
    return out


@compiled
def _hashed(values):  # pragma: no cover - compiled
    out = np.empty(len(values), np.uint64)
    for i in range(len(values)):
        out[i] = _mix(values[i])
    return out


def quotient(links: Links, paths: Paths, moved: Flows) -> Quotient | None:
    """The flows and links by class; None where flows wait in a circle, or colours never settle."""
    i = np.int64
    pred_ptr, pred = plain(moved.pred_ptr, i), plain(moved.pred, i)
    order = _order(pred_ptr, pred)
    if len(order) < moved.n:
        return None
    slots = senders(links, paths, moved.path, moved.sender)
    joined = _Joined(
        plain(moved.path, i), plain(paths.ptr, i), plain(paths.link, i), _bits([paths.coef]),
        pred_ptr, pred, plain(slots[0], i), plain(slots[1], i), plain(slots[2], i),
    )  # fmt: skip
    flow = _bits([moved.size_bytes, moved.release_ns, moved.delay_ns, moved.weight, moved.rate_cap,
                  moved.klass])  # fmt: skip
    link = _bits([links.capacity_bytes_per_s, links.incast_gamma, links.incast_free,
                  *links.guarantee])  # fmt: skip
    used = np.zeros(len(link), bool)
    used[paths.link] = True
    before = -1
    for _ in range(MAX_PASSES):
        _refine(order, flow, link, joined)
        flow_rep, flow_class = np.unique(flow, return_index=True, return_inverse=True)[1:]
        link_ids = np.flatnonzero(used)
        link_rep, link_of = np.unique(link[link_ids], return_index=True, return_inverse=True)[1:]
        if len(flow_rep) + len(link_rep) == before:
            break
        before = len(flow_rep) + len(link_rep)
    else:
        return None
    link_class = np.full(len(link), -1)
    link_class[link_ids] = link_of
    return _made(links, paths, moved, slots, flow_rep, flow_class.ravel(), link_ids[link_rep],
                 link_class)  # fmt: skip


def _made(links, paths, moved, slots, flow_rep, flow_class, link_rep, link_class) -> Quotient:
    n, m = len(flow_rep), len(link_rep)
    chosen = np.zeros(len(link_class), bool)
    chosen[link_rep] = True
    flow, link = crossings(paths, moved.path, chosen)
    coef = _coefs(paths, moved.path, chosen)
    pair, group = np.unique(flow_class[flow] * m + link_class[link], return_inverse=True)
    ptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(pair // m, minlength=n), out=ptr[1:])
    quotient_paths = Paths(ptr, pair % m, np.bincount(group.ravel(), coef, minlength=len(pair)))
    # What one flow of each class waits for, in classes.
    length = np.diff(moved.pred_ptr)[flow_rep]
    at = np.repeat(moved.pred_ptr[flow_rep] - (np.cumsum(length) - length), length)
    pred = flow_class[moved.pred[at + np.arange(length.sum())]]
    waits = np.unique(np.repeat(np.arange(n), length) * n + pred)
    pred_ptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(waits // n, minlength=n), out=pred_ptr[1:])
    of = [moved.size_bytes, moved.release_ns, moved.delay_ns, moved.weight, moved.rate_cap,
          moved.klass, moved.sender]  # fmt: skip
    size, release, delay, weight, cap, klass, sender = (a[flow_rep] for a in of)
    return Quotient(
        Links(*(a[..., link_rep] for a in links)), quotient_paths,
        Flows(np.arange(n), size, release, delay, pred_ptr, waits % n, weight, cap, klass, sender),
        _slots(slots, chosen, flow_class, link_class, n), flow_class, link_class,
    )  # fmt: skip


def _coefs(paths: Paths, path: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The coefficient of every crossing, as `crossings` orders them."""
    length = np.diff(paths.ptr)[path]
    first = np.repeat(paths.ptr[path] - (np.cumsum(length) - length), length)
    entry = first + np.arange(length.sum())
    return paths.coef[entry[chosen[paths.link[entry]]]]


def _slots(slots, chosen, flow_class, link_class, n):
    """Places of senders at the ports that stand for their class, by classes of flows."""
    ptr, place, link = slots
    if not len(link):
        return np.zeros(n + 1, np.int64), place, link
    flow = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    kept = chosen[link[place]]
    pairs = np.unique(flow_class[flow[kept]] * len(link) + place[kept])
    out = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(pairs // len(link), minlength=n), out=out[1:])
    return out, pairs % len(link), np.maximum(link_class[link], 0)


def simulate_classes(found: Quotient, *, merge_ns: float = MERGE_NS) -> Ended:
    """`simulate` of one flow and link a class: [classes] arrays."""
    return simulate(found.links, found.paths, found.flows, merge_ns=merge_ns, slots=found.slots)


def simulate_alike(
    links: Links, paths: Paths, moved: Flows, *, merge_ns: float = MERGE_NS
) -> Ended:
    """`simulate` by classes where that saves work: the same result, to rounding."""
    found = quotient(links, paths, moved)
    if found is None or 2 * found.flows.n > moved.n:
        return simulate(links, paths, moved, merge_ns=merge_ns)
    by_class = simulate_classes(found, merge_ns=merge_ns)
    link_bytes = crossed_bytes(len(links.capacity_bytes_per_s), paths, moved)
    bound, at = busiest(links, link_bytes)
    busy = np.append(by_class.link_busy_ns, 0.0)[found.link_class]
    return Ended(
        by_class.start_ns[found.flow_class], by_class.end_ns[found.flow_class], by_class.time_ns,
        link_bytes, busy, bound, at, by_class.solves,
    )  # fmt: skip
