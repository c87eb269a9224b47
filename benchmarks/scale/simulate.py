"""When every rank does what: one step of all ranks at once, on the true clock.

A host thread launches ahead; a kernel begins when its launch has come through and its stream is
free. A collective begins on a rank when its stream comes to it, moves nothing before the last
member has begun, and ends on all members together, but for what their ends lie apart. How long it
moves is latency plus bytes over bandwidth of the slowest link that it uses; a NIC's own time is
its own bytes over its own bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .program import OVERLAPPED, Op
from .shape import (
    EXPERTS_A_RANK,
    HOST_RANKS,
    LATENCY_NS,
    NIC_BYTES_PER_S,
    NVLINK_BYTES_PER_S,
    TOKEN_BYTES,
    TOKENS,
    TOP_K,
    Shape,
)

LAUNCH_NS = 3_500
"""From a launch to its kernel's begin at the least."""
BETWEEN_NS = 900
"""Between two kernels of a stream."""
APART_NS = 1_500
"""What the ends of one collective lie apart."""
HOST_NS = 9_000
"""What an operation takes of the host thread, the median."""
LAUNCHED = 0.45
"""The share of that before the launch."""
LOADING_NS = 200_000


class Step(NamedTuple):
    """A step of all ranks on the true clock: arrays are [ranks, operations of the program]."""

    number: int
    start_ns: np.ndarray
    end_ns: np.ndarray
    launch_ns: np.ndarray
    cost_ns: np.ndarray
    """what the operation takes of the host thread, `LAUNCHED` of it before the launch"""
    ready_ns: np.ndarray
    """the last member's start; of kernels 0"""
    host_start_ns: np.ndarray
    """[ranks], where the host's step begins"""
    host_end_ns: np.ndarray
    gc_ns: np.ndarray
    """[ranks], how long the host collects garbage at the step's start"""
    tokens: np.ndarray
    """[layers, microbatches, ranks, experts], choices"""


def steps(shape: Shape, ops: list[Op]) -> Iterator[Step]:
    """The job's steps one after another; memory holds one."""
    rng = np.random.default_rng([shape.seed, 4])
    kind = _Links(shape)
    begun = np.zeros(shape.ranks, np.float64)
    for number in range(shape.steps):
        tokens = routed(shape, number)
        step = _step(shape, ops, number, begun, tokens, kind, rng)
        begun = step.host_end_ns.astype(np.float64)
        yield step


def routed(shape: Shape, step: int) -> np.ndarray:
    """int64[layers, microbatches, ranks, experts]: the choices of each rank's tokens."""
    popular = np.random.default_rng([shape.seed, 5])
    rng = np.random.default_rng([shape.seed, 6, step])
    out = np.empty((shape.layers, shape.microbatches, shape.ranks, shape.experts), np.int64)
    for layer in range(shape.layers):
        share = popular.uniform(0.8, 1.2, shape.experts)
        if layer == shape.hot_layer:
            share[shape.hot_expert] *= shape.hot_factor
        for mb in range(shape.microbatches):
            # What is popular differs a little from batch to batch, for all ranks alike.
            now = share * rng.normal(1, 0.03, shape.experts).clip(0.9, 1.1)
            out[layer, mb] = rng.multinomial(TOKENS * TOP_K, now / now.sum(), shape.ranks)
    return out


def splits(shape: Shape, tokens: np.ndarray) -> np.ndarray:
    """int64[ranks, members]: tokens that each rank sends to each member of its expert group."""
    return tokens.reshape(shape.ranks, shape.ep, EXPERTS_A_RANK).sum(2)


def received(shape: Shape, sent: np.ndarray) -> np.ndarray:
    """int64[ranks, members]: what each rank gets from each member, given `splits`."""
    by_set = sent.reshape(-1, shape.ep, HOST_RANKS, shape.ep)
    return by_set.transpose(0, 3, 2, 1).reshape(shape.ranks, shape.ep)


class _Links:
    """Groups by dimension, and each rank's time for a byte."""

    def __init__(self, shape: Shape):
        self.shape = shape
        self.group = {d: shape.group_of(d) for d in LATENCY_NS}
        self.size = {d: np.bincount(g)[0] for d, g in self.group.items()}
        self.nic = nic_ns_per_byte(shape)
        self.nvlink = 1e9 / NVLINK_BYTES_PER_S

    def most(self, dim: str, values: np.ndarray) -> np.ndarray:
        """For each rank the largest value in its group."""
        group = self.group[dim]
        top = np.full(int(group.max()) + 1, -np.inf)
        np.maximum.at(top, group, values)
        return top[group]

    def moved_ns(self, op: Op, sent: np.ndarray | None) -> np.ndarray:
        """[ranks] from ready to the end, without noise; equal in a group."""
        n = self.size[op.dim]
        if sent is not None:
            place = np.arange(self.shape.ranks) // HOST_RANKS % self.shape.ep
            other = np.arange(self.shape.ep) != place[:, None]
            both = [(m * other).sum(1) for m in (sent, received(self.shape, sent))]
            took = np.maximum(*both) * TOKEN_BYTES * self.nic
            return LATENCY_NS[op.dim] + self.most(op.dim, took)
        share = ring_bytes(self.shape, op, int(n))
        link = np.full(self.shape.ranks, self.nvlink) if op.dim == "tp" else self.nic
        return LATENCY_NS[op.dim] + share * self.most(op.dim, link)


def nic_ns_per_byte(shape: Shape) -> np.ndarray:
    """float64[ranks]: what each rank's NIC takes for a byte of either direction."""
    out = np.full(shape.ranks, 1e9 / NIC_BYTES_PER_S)
    out[shape.slow_host * HOST_RANKS + shape.slow_rail] *= shape.rail_factor
    return out


def ring_bytes(shape: Shape, op: Op, members: int = 0) -> int:
    """What each member of a ring sends on (and gets) in a collective."""
    n = members or (shape.ranks if op.dim == "world" else shape.hosts)
    return op.bytes * (n - 1) // n * (2 if op.place == "all_reduce" else 1)


def _step(
    shape: Shape,
    ops: list[Op],
    number: int,
    begun: np.ndarray,
    tokens: np.ndarray,
    links: _Links,
    rng: np.random.Generator,
) -> Step:
    n, k = shape.ranks, len(ops)
    start, end, launch, ready_at = (np.zeros((n, k)) for _ in range(4))
    slow = np.ones(n)
    gc = np.zeros(n)
    if shape.late_cause == "gc":
        gc[shape.late_rank] = shape.gc_ns
    else:
        slow[shape.late_rank] = shape.late_factor
    host = begun + LOADING_NS * rng.uniform(0.8, 1.2, n) + gc
    stream = {s: host.copy() for s in {o.stream for o in ops}}
    costs = HOST_NS * rng.lognormal(0, 0.25, (n, k))
    noise = rng.standard_normal((n, k))
    mean = TOKENS * TOP_K
    for i, op in enumerate(ops):
        launch[:, i] = host + LAUNCHED * costs[:, i]
        host = host + costs[:, i]
        free = stream[op.stream]
        if op.stream == OVERLAPPED:  # gradients must be there
            free = np.maximum(free, stream[7])
        elif op.dim == "world":  # and their sums
            free = np.maximum(free, stream[OVERLAPPED])
        begin = np.maximum(free + BETWEEN_NS, launch[:, i] + LAUNCH_NS)
        if op.dim:
            sent = splits(shape, tokens[op.layer, op.microbatch]) if op.dim == "ep" else None
            ready = links.most(op.dim, begin)
            by_group = rng.normal(1, 0.01, n).clip(0.97, 1.03)[links.group[op.dim]]
            done = ready + links.moved_ns(op, sent) * by_group - rng.uniform(0, APART_NS, n)
            ready_at[:, i] = ready
        else:
            took = op.base_ns * slow * (1 + op.spread * noise[:, i]).clip(0.9, 1.15)
            if op.by_tokens:
                got = received(shape, splits(shape, tokens[op.layer, op.microbatch])).sum(1)
                took = took * got / mean
            done = begin + took
        start[:, i], end[:, i] = begin, done
        stream[op.stream] = done
    host = np.maximum(host, np.maximum.reduce(list(stream.values())) + 10_000)
    whole = [np.rint(a).astype(np.int64) for a in (start, end, launch, costs, ready_at)]
    return Step(
        number, *whole, np.rint(begun).astype(np.int64), np.rint(host).astype(np.int64),
        gc.astype(np.int64), tokens,
    )  # fmt: skip
