"""NCCL's tuning model: the latency and bandwidth that the library itself reckons with.

`time = latency * calls + bytes / bandwidth`, for each of 7 algorithms and 3 protocols. The numbers
are in `nccl.toml` (from NVIDIA/nccl `src/graph/tuning.cc`, Apache-2.0, read), the formulas here.
It is a model for choosing, not for predicting: no congestion, no rails, no late ranks. What the
library's search of the topology finds (channels, and what each carries) is an input: `Graph`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from ...ingest.errors import UsageError
from .forms import NoModel


@cache
def constants() -> dict[str, Any]:
    """The numbers of `nccl.toml`."""
    return tomllib.loads(files(__name__.rpartition(".")[0]).joinpath("nccl.toml").read_text())


PROTOCOLS = ("LL", "LL128", "Simple")
ALGORITHMS = (
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat",
)  # fmt: skip
"""In the library's order, which decides between equal times."""

LL, LL128, SIMPLE = range(3)


class Graph(NamedTuple):
    """What the search of the topology found for one algorithm."""

    channels: int
    intra_gbps: float
    """GB/s of a channel inside a node."""
    inter_gbps: float
    """GB/s of a channel between nodes."""
    nic_latency_us: float = 0.0
    """Of the network device; 0 as most plugins say."""


class Comm(NamedTuple):
    """A communicator as the tuning model sees it."""

    n_ranks: int
    n_nodes: int
    caps: str
    """Generation: volta, ampere, hopper, blackwell."""
    graphs: Mapping[str, Graph]
    """By algorithm; one that is missing cannot be used."""
    link: str = "nvlink"
    """Inside a node: nvlink or pci."""
    cpu: str = "intel"
    """intel, amd or other."""
    channels: int = 0
    """Channels of the communicator; 0: the ring's."""
    ll128: bool = True
    """LL128 is safe: NVLink inside, NICs near their GPUs, GPUs of one generation."""
    collnet: bool = False
    """The network reduces (SHARP)."""
    nvswitch: bool = True
    same_channels: bool = True
    """All channels have the same ring: so on one node with a switch."""
    split_tree: bool = True
    """False: the tree's root carries both halves, which costs 15 %."""


class Tuning(NamedTuple):
    """The model of one operation on one communicator, [7 algorithms, 3 protocols]."""

    op: str
    latency_us: np.ndarray
    bandwidth_gbps: np.ndarray
    """Size over time (algorithm bandwidth); 0 where not available."""


def operations() -> tuple[str, ...]:
    """The operations that NCCL tunes."""
    return tuple(constants()["operations"])


def tuning(comm: Comm, op: str) -> Tuning:
    """Latency and bandwidth of every algorithm and protocol. Raises NoModel for another operation.

    This is the table that NCCL prints with NCCL_DEBUG_SUBSYS=TUNING.
    """
    known = constants()["operations"]
    if op not in known:
        raise NoModel(f"NCCL tunes no {op!r}; it tunes {', '.join(known)}")
    if comm.n_ranks < 1 or comm.n_nodes < 1 or comm.n_ranks % comm.n_nodes:
        raise UsageError(
            f"{comm.n_ranks} ranks on {comm.n_nodes} nodes: NCCL's model takes nodes of equal size"
        )
    latency = np.zeros((len(ALGORITHMS), 3))
    bandwidth = np.zeros_like(latency)
    for a, algo in enumerate(ALGORITHMS):
        graph = comm.graphs.get(algo)
        if algo not in known[op] or graph is None or comm.n_ranks < 2:
            continue
        for p in range(3):
            latency[a, p] = _latency_us(comm, op, algo, p, graph)
            if _available(comm, op, algo, p, graph):
                bandwidth[a, p] = _bandwidth_gbps(comm, op, algo, p, graph)
    return Tuning(op, latency, bandwidth)


def _steps(op: str, n: int) -> int:
    return 2 * (n - 1) if op == "all_reduce" else n - 1 if _sharded(op) else n


def _sharded(op: str) -> bool:
    return op in ("all_gather", "reduce_scatter")


def _latency_us(comm: Comm, op: str, algo: str, p: int, graph: Graph) -> float:
    c = constants()
    n, nodes = comm.n_ranks, comm.n_nodes
    local = n // nodes
    base = c["base_us"][algo][p]
    intra = c["hop_us"][comm.link][algo][p]
    # With one rank a node nothing hides a hop over the network: a tree's stands for all.
    inter = c["hop_us"]["net"]["tree" if n == nodes else algo][p]
    inter += graph.nic_latency_us * (2 if p == SIMPLE else 1)  # flushed, too
    doublings = nodes.bit_length() - 1
    if algo == "ring":
        if not _sharded(op) and op != "all_reduce":
            where = comm.link if nodes == 1 else "net"
            hop = c["hop_us"][where]["ring"][p]
            if comm.same_channels:
                return base + hop
            chunk = c["hop_us"][where]["tree"][p] if p == SIMPLE else hop
            return base + _steps(op, n) * chunk
        overhead = 0.0
        if nodes > 1:
            overhead = c["net_overhead_us"].get(comm.cpu, 1.0) * (3 if p == SIMPLE else 1)
        across = 0 if nodes == 1 else (2 if op == "all_reduce" else 1) * (nodes - 1)
        return base + (_steps(op, n) - across) * max(intra, overhead) + across * inter
    if algo == "tree":
        return base + 2 * ((local - 1) * intra + doublings * inter)
    if algo == "collnet_direct":
        return base + 2 * (min(1, local - 1) * intra + (local - 1) * 0.4) + inter
    if algo == "collnet_chain":
        return base + 2 * (local - 1) * intra + inter
    if algo == "nvls":
        return intra + (inter if nodes > 1 else 0.0)
    if algo == "nvls_tree":
        return base + intra + 2 * doublings * inter
    return base + doublings * inter / 3.5 + n * 2.8


def _bandwidth_gbps(comm: Comm, op: str, algo: str, p: int, graph: Graph) -> float:
    caps = constants()["caps"]
    n, nodes = comm.n_ranks, comm.n_nodes
    local = n / nodes
    mine = caps[comm.caps]
    scale = min(nodes, 3) - 1
    by_cpu = "ampere" if comm.cpu == "amd" else "volta"
    ll_max = caps[comm.caps if nodes == 1 else by_cpu]["ll_max"][scale]
    collnet = algo.startswith("collnet")
    a_channel = graph.intra_gbps if nodes <= 2 or collnet else graph.inter_gbps
    if algo.startswith("nvls"):
        if graph.channels < 2:
            return 0.0
        intra = graph.intra_gbps * mine["nvls_efficiency"] * (graph.channels - 1) / graph.channels
        intra *= 2 if op == "all_reduce" else (local - 1) / local
        pair = 2 if algo == "nvls_tree" and nodes <= 2 else 1
        a_channel = min(intra, graph.inter_gbps * pair)
        if algo == "nvls_tree":
            a_channel = min(a_channel, mine["nvls_tree"][scale])
    bus = graph.channels * a_channel
    if algo == "ring" and p == LL:
        bus = min(ll_max, bus / 2)
    if algo == "ring" and p == LL128:
        bus = min(0.92 * bus, graph.channels * mine["ring_ll128"][scale])
    if algo == "tree":
        bus = min(0.92 * bus, graph.channels * mine["tree"][scale])
        if p == LL:
            bus = min(bus / 3.8, ll_max)
        if p == LL128:
            share = 7 / 9 if nodes == 1 else 120 / 128
            bus = min(bus * share, graph.channels * mine["tree_ll128"][scale])
        if not comm.split_tree:
            bus *= 0.85
    if algo == "pat":
        bus *= 0.75
    if algo == "collnet_direct":
        if _sharded(op):
            return local * min(graph.intra_gbps, 0.9 * graph.inter_gbps)
        gpus_a_nic = local / graph.channels
        bus /= (gpus_a_nic + 1) / 2
        if comm.caps in ("hopper", "blackwell"):
            bus *= 0.85
    if algo in ("ring", "nvls", "nvls_tree") and not (_sharded(op) and algo != "ring"):
        return bus * n / _steps(op, n)
    return bus if _sharded(op) else bus / 2


def _available(comm: Comm, op: str, algo: str, p: int, graph: Graph) -> bool:
    nodes, local = comm.n_nodes, comm.n_ranks // comm.n_nodes
    if algo not in ("tree", "ring") and p != SIMPLE:
        return False
    if p == LL128 and not (comm.ll128 and comm.link == "nvlink"):
        return False
    if algo == "nvls_tree" and nodes == 1:
        return False
    if algo.startswith("collnet") and not comm.collnet:
        return False
    if algo == "collnet_direct" and (not comm.nvswitch or local > 8):
        return False
    if algo == "nvls" and nodes > 1 and not comm.collnet:
        return False
    if algo in ("nvls", "collnet_direct") and nodes > 1 and _sharded(op) and local > graph.channels:
        return False
    return algo != "pat" or comm.n_ranks == nodes


def times_ns(comm: Comm, op: str, size_bytes, calls: int = 1) -> np.ndarray:
    """What the model expects in ns, float64 [7, 3, *shape]; NaN where not available.

    `size_bytes` is the whole buffer (M of `forms.FORMS`), as NCCL counts it; `calls` are operations
    launched together, of which a ring pays each latency and the others one in 8 (batched).
    """
    return priced_ns(comm, tuning(comm, op), size_bytes, calls)


BATCH = 8
"""Operations that the library puts in one batch of work."""


def priced_ns(comm: Comm, table: Tuning, size_bytes, calls: int = 1) -> np.ndarray:
    """`times_ns` by a table of latency and bandwidth, such as one that the library printed."""
    size = np.asarray(size_bytes, np.float64)
    shape = (len(ALGORITHMS), 3, *(1,) * size.ndim)
    latency = np.broadcast_to(table.latency_us.reshape(shape), shape[:2] + size.shape).copy()
    bandwidth = np.broadcast_to(table.bandwidth_gbps.reshape(shape), shape[:2] + size.shape).copy()
    ring, tree = ALGORITHMS.index("ring"), ALGORITHMS.index("tree")
    if table.op == "all_reduce":
        at = np.log2(np.maximum(np.floor(size / 64), 1.0)).astype(np.int64)
        for p, name in enumerate(PROTOCOLS):
            factors = np.array([*constants()["tree_factor"][name], 1.0])
            by_size = factors[np.minimum(at, len(factors) - 1)]
            bandwidth[tree, p] *= by_size
            if comm.caps == "blackwell" and comm.cpu in ("intel", "amd"):
                bandwidth[ALGORITHMS.index("nvls_tree"), p] *= by_size
        if comm.n_nodes > 1:
            plateau = constants()["plateau"]
            channels = comm.channels or (comm.graphs["ring"].channels if comm.graphs else 1)
            long = np.floor(size / (channels * comm.n_ranks)) >= plateau["bytes"]
            factor = plateau["before_ampere" if comm.caps == "volta" else "others"]
            latency[ring, SIMPLE] *= np.where(long, factor, 1.0)
    count = np.full(len(ALGORITHMS), float(-(-calls // BATCH)))
    count[ring] = calls
    latency *= count.reshape(-1, *(1,) * (latency.ndim - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        took = latency * 1e3 + size / bandwidth
    return np.where(bandwidth > 0, took, np.nan)


class Choice(NamedTuple):
    """What NCCL would run, for each size: indices into ALGORITHMS and PROTOCOLS, and its time."""

    algo: np.ndarray
    proto: np.ndarray
    time_ns: np.ndarray

    def names(self) -> list[tuple[str, str]]:
        """Algorithm and protocol by name, for sizes [k]."""
        pairs = zip(np.ravel(self.algo), np.ravel(self.proto), strict=True)
        return [(ALGORITHMS[a], PROTOCOLS[p]) for a, p in pairs]


def choice(comm: Comm, op: str, size_bytes, calls: int = 1) -> Choice:
    """The algorithm and protocol of least expected time; of equals the first in NCCL's order."""
    times = times_ns(comm, op, size_bytes, calls)
    flat = np.where(np.isnan(times), np.inf, times).reshape(len(ALGORITHMS) * 3, *times.shape[2:])
    if not np.isfinite(flat).any():
        raise NoModel(f"NCCL's model has no algorithm for {op} of {comm.n_ranks} ranks")
    best = flat.argmin(axis=0)
    time = np.take_along_axis(flat, best[None], axis=0)[0]
    return Choice(best // 3, best % 3, time)
