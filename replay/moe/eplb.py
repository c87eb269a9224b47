"""Replicas of hot experts, and the GPUs that hold them: the public EPLB algorithm.

From the description in DeepSeek's EPLB repository: groups of experts are packed to nodes, replicas
are added one at a time to the expert with the largest load a copy, copies are packed to GPUs.
"""

from __future__ import annotations

import numpy as np

from ..policy import BadParam


def plan(
    loads: np.ndarray, replicas: int, *, gpus: int, groups: int = 1, nodes: int = 1
) -> np.ndarray:
    """The expert in each slot, int64 [l, replicas]; GPU g has slots g m to (g + 1) m - 1.

    `loads` float64 [l, e] is tokens by layer and expert; `replicas` counts all copies. Where the
    nodes divide the groups of experts, a group stays on one node (hierarchical), else all GPUs are
    one (global). BadParam where counts do not divide each other.
    """
    loads = np.asarray(loads, np.float64)
    experts = loads.shape[1]
    if nodes < 1 or groups < 1 or groups % nodes:
        groups = nodes = 1
    if replicas < experts:
        raise BadParam(f"{experts} experts need at least {experts} slots, not {replicas}")
    if gpus < 1 or replicas % gpus or gpus % nodes or experts % groups:
        raise BadParam(
            f"{replicas} copies of {experts} experts in {groups} groups do not divide over {gpus} "
            f"GPUs of {nodes} nodes: take a multiple of {gpus} copies"
        )
    return np.stack([_layer(load, replicas, gpus, groups, nodes) for load in loads])


def _layer(load: np.ndarray, replicas: int, gpus: int, groups: int, nodes: int) -> np.ndarray:
    member = np.arange(len(load)).reshape(groups, -1)
    slots = []
    for packed in _bins(load[member].sum(axis=1), nodes):
        here = member[packed].ravel()
        copies = _copies(load[here], replicas // nodes)
        count = np.bincount(copies, minlength=len(here))
        of_copy = (load[here] / count)[copies]
        slots += [here[copies[gpu]] for gpu in _bins(of_copy, gpus // nodes)]
    return np.concatenate(slots)


def _copies(load: np.ndarray, n: int) -> np.ndarray:
    """The expert of each of n copies: one each, then the largest load a copy, the first on ties."""
    count = np.ones(len(load), np.int64)
    out = list(range(len(load)))
    for _ in range(n - len(load)):
        most = int(np.argmax(load / count))
        count[most] += 1
        out.append(most)
    return np.array(out, np.int64)


def _bins(weight: np.ndarray, n: int) -> list[np.ndarray]:
    """Items of each of n bins of one size: by falling weight to the lightest that has room."""
    room = len(weight) // n
    if room == 1:
        return [np.array([i]) for i in range(n)]
    held: list[list[int]] = [[] for _ in range(n)]
    total = np.zeros(n)
    for item in np.argsort(-weight, kind="stable"):
        free = [b for b in range(n) if len(held[b]) < room]
        into = min(free, key=lambda b: total[b])
        held[into].append(int(item))
        total[into] += weight[item]
    return [np.array(items) for items in held]


def added(load: np.ndarray, held: np.ndarray, room: int) -> np.ndarray:
    """Copies float64 [e, gpus] when each GPU takes up to `room` more experts than it has `held`.

    Nothing moves: one at a time the expert with the largest load a copy is copied to the GPU that
    is loaded least of those with room and without it, as long as the busiest GPU's load falls
    (copies at run time; the rule is ours).
    """
    load = np.asarray(load, np.float64)
    copies = (np.asarray(held) > 0).astype(np.float64)
    left = np.full(copies.shape[1], room)
    best, most = copies.copy(), _busiest(load, copies)
    while True:
        count = copies.sum(axis=1)
        open_ = (copies == 0) & (left > 0)[None, :]
        a_copy = np.where(open_.any(axis=1) & (count > 0), load / np.maximum(count, 1), -1.0)
        expert = int(np.argmax(a_copy))
        if a_copy[expert] <= 0:
            return best
        loads = load @ (copies / np.maximum(count, 1)[:, None])
        gpu = int(np.argmin(np.where(open_[expert], loads, np.inf)))
        copies[expert, gpu] = 1.0
        left[gpu] -= 1
        now = _busiest(load, copies)
        if now < most - 1e-12:
            best, most = copies.copy(), now


def _busiest(load: np.ndarray, copies: np.ndarray) -> float:
    return float((load @ (copies / np.maximum(copies.sum(axis=1, keepdims=True), 1))).max())


def spread(slots: np.ndarray, gpus: int, experts: int) -> np.ndarray:
    """The part of an expert's tokens that each GPU takes, float64 [e, gpus]: even over copies."""
    gpu = np.repeat(np.arange(gpus), len(slots) // gpus)
    out = np.zeros((experts, gpus))
    np.add.at(out, (slots, gpu), 1.0)
    return out / out.sum(axis=1, keepdims=True)


def settled(part: np.ndarray, had: np.ndarray, block: np.ndarray) -> np.ndarray:
    """The same plan with its GPUs named so that they keep what they had, float64 [e, gpus].

    GPUs of one `block` (int [gpus]: a host) are alike, so their shares are handed out to whom they
    overlap most with, the largest overlap first.
    """
    same = ((part > 0).T.astype(np.int64) @ (had > 0)).astype(np.float64)
    same[block[:, None] != block[None, :]] = -1.0
    out = np.empty_like(part)
    for _ in range(part.shape[1]):
        of, to = np.unravel_index(int(np.argmax(same)), same.shape)
        out[:, to] = part[:, of]
        same[of], same[:, to] = -2.0, -2.0
    return out


def least_possible(load: np.ndarray, part: np.ndarray) -> float:
    """The load below which no placement of these copies brings the busiest GPU.

    max(mean over GPUs, largest load of one copy): a bound that says how much is left to win.
    `part` float64 [e, gpus] is who takes what of each expert, as `spread` gives it.
    """
    load = np.asarray(load, np.float64)
    count = np.maximum((np.asarray(part) > 0).sum(axis=1), 1)
    return max(float(load.sum()) / part.shape[1], float((load / count).max(initial=0.0)))
