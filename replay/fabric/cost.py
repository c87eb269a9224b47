"""What collectives take on a fabric: one alone, or several at once that contend for its links.

The door to the simulation. Equal collectives are simulated once: the same operation, algorithm and
size on GPUs that lie alike (by what hosts, leaves and pods they share). Ranks that fare alike are
simulated as one (`symmetry`), an even all-to-all of any size by orbits (`uniform`), and long rings
from their first rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...ingest.errors import UsageError
from ..models import named
from . import orbits, symmetry, uniform
from .description import Fabric
from .flows import Links
from .links import LinkGraph
from .links import graph as link_graph
from .long_rings import long_ring_ns
from .memory import Memory
from .placed import Part, Setting, links_of, messages_may_bind, place
from .rounds import NoRounds, Rounds, decompose
from .simulate import MERGE_NS, busiest, crossed_bytes, simulate
from .two_trees import pieces_of

MAX_FLOWS = 4_000_000
"""Flows of one simulation that are laid out one by one (about 3 GB)."""

EVEN_FLOWS = 2_000
"""Flows from which an even exchange with everybody is simulated by orbits."""


EXACT_FLOWS = 2_000
"""Flows all at once, no two alike, up to which every end is an event of its own."""

RESOLUTION = 2e-3
"""Above that, ends this close, as a share of the busiest link's time, are one event: it makes the
whole longer by about as much (0.3 % at most, in lognormal exchanges of 32 and 64)."""


class Collective(NamedTuple):
    """One of several collectives under way together."""

    op: str
    algo: str
    gpus: Sequence[int]
    """The GPU of each rank, in the order of the communicator."""
    size_bytes: Any
    """M of `models.forms.FORMS`, or for an all-to-all the matrix [n, n]."""
    start_ns: float = 0.0
    traffic: str = ""
    """Its traffic class, of those that the fabric names."""
    options: Mapping[str, Any] = {}
    """Of its algorithm: see `rounds.decompose`."""


class _Net(NamedTuple):
    graph: LinkGraph
    links: Links
    tree: orbits.Tree | None


@lru_cache(maxsize=16)
def _net(fabric: Fabric) -> _Net:
    made = link_graph(fabric)
    return _Net(made, links_of(made), orbits.tree(made))


_ASKED = Memory(200_000)
"""By what was asked, word for word; the fabric by which object it is."""

_TIMES = Memory(100_000)
"""By what is alike."""

_CLASSES = Memory(64)


def forget() -> None:
    """Drops what was worked out: for benchmarks."""
    _ASKED.clear()
    _TIMES.clear()
    _CLASSES.clear()
    _net.cache_clear()


def collective_time_ns(
    fabric: Fabric,
    op: str,
    algo: str,
    gpus: Sequence[int] | np.ndarray,
    size_bytes,
    *,
    rail: str = "auto",
    seed: int = 0,
    launch_ns: float = 0.0,
    message_bytes: float = np.inf,
    queue_pairs: float = 1.0,
    **options: Any,
) -> float:
    """What one collective takes alone on the fabric, in ns, from its first rank's start.

    `gpus` are the GPU of each rank in order; `size_bytes` is M (float), or for an all-to-all also
    the matrix float [n, n]. `hierarchical` takes `levels`, by default the ranks of a host and the
    hosts, where ranks lie host by host; a windowed all-to-all `per_host` likewise. Raises
    NoRounds and UsageError: an algorithm that there is not, GPUs that there are not, and more
    flows than can be simulated one by one (MAX_FLOWS), naming what would work.
    """
    at, size = _gpus(gpus), np.asarray(size_bytes, np.float64)
    setting = Setting(rail, seed, float(launch_ns), float(message_bytes), float(queue_pairs))
    told = tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in options.items()))
    asked = (id(fabric), op, algo, at.tobytes(), size.shape, size.tobytes(), setting, told)
    seen = _ASKED.get(asked)
    if seen is not None and seen[0] is fabric:
        return seen[1]
    found = _alone(fabric, op, named(algo), at, size, setting, dict(told))
    return _ASKED.keep(asked, (fabric, found))[1]


def _alone(fabric: Fabric, op: str, algo: str, at, size, setting: Setting, given) -> float:
    """The time by what is alike: another group of GPUs that lie so, another fabric that is so."""
    net = _net(fabric)
    chosen = _options(net.graph, op, algo, at, given)
    where = orbits.placement(net.graph, net.tree, at)
    way = (fabric, op, algo, where, setting, tuple(sorted(chosen.items())))
    key = (*way, size.shape, size.tobytes())
    if key in _TIMES:
        _TIMES.move_to_end(key)
        return _TIMES[key]
    took = None
    if algo == "ring" and not size.ndim:
        took = long_ring_ns(net.graph, net.links, op, at, float(size), setting)
    if took is None:
        took = _whole(net, op, algo, at, size, setting, chosen, way)
    return _TIMES.keep(key, took)


def concurrent_times(
    fabric: Fabric,
    collectives: Sequence[Collective],
    *,
    rail: str = "auto",
    seed: int = 0,
    launch_ns: float = 0.0,
    message_bytes: float = np.inf,
    queue_pairs: float = 1.0,
    merge_ns: float = MERGE_NS,
) -> np.ndarray:
    """What each of several collectives takes, float64 [k] in ns, while all share the fabric.

    Each starts at its `start_ns`, and lasts from there to its last flow's end. Raises as
    `collective_time_ns`.
    """
    net = _net(fabric)
    setting = Setting(rail, seed, float(launch_ns), float(message_bytes), float(queue_pairs))
    if not collectives:
        return np.zeros(0)
    every = [_gpus(c.gpus) for c in collectives]
    where = orbits.placement(net.graph, net.tree, np.concatenate(every))
    told = tuple(
        (c.op, named(c.algo), len(g), np.shape(c.size_bytes),
         np.asarray(c.size_bytes, np.float64).tobytes(), float(c.start_ns), c.traffic,
         tuple(sorted(c.options.items())))
        for c, g in zip(collectives, every, strict=True)
    )  # fmt: skip
    key = (fabric, "concurrent", where, setting, told, merge_ns)
    if key in _TIMES:
        _TIMES.move_to_end(key)
        return _TIMES[key].copy()
    parts, flows = [], 0
    for c, at in zip(collectives, every, strict=True):
        algo = named(c.algo)
        chosen = _options(net.graph, c.op, algo, at, c.options)
        made = _rounds(c.op, algo, len(at), np.asarray(c.size_bytes, np.float64), chosen)
        parts.append(Part(made, at, float(c.start_ns), c.traffic))
        flows += len(made.src)
        if flows > MAX_FLOWS:
            raise UsageError(
                f"{len(collectives)} collectives are more than {MAX_FLOWS} flows, the most that "
                "are simulated together: take fewer of them at a time"
            )
    links, paths, moved, of = place(net.graph, net.links, parts, setting)
    ended = symmetry.simulate_alike(links, paths, moved, merge_ns=merge_ns)
    out = np.array([c.start_ns for c in collectives], np.float64)
    last = out.copy()
    np.maximum.at(last, of, ended.end_ns)
    return _TIMES.keep(key, last - out).copy()


def bound_ns(
    fabric: Fabric, collectives: Sequence[Collective], *, rail: str = "auto", seed: int = 0
) -> tuple[float, str]:
    """The busiest link's bytes over its capacity, in ns, and its name: no schedule is shorter.

    Raises as `collective_time_ns`.
    """
    net = _net(fabric)
    total = np.zeros(net.graph.n)
    for c in collectives:
        at, algo = _gpus(c.gpus), named(c.algo)
        chosen = _options(net.graph, c.op, algo, at, c.options)
        made = _rounds(c.op, algo, len(at), np.asarray(c.size_bytes, np.float64), chosen)
        _, paths, moved, _ = place(net.graph, net.links, [Part(made, at)], Setting(rail, seed))
        total += crossed_bytes(len(net.links.capacity_bytes_per_s), paths, moved)[: net.graph.n]
    took, link = busiest(net.links, total)
    return took, "" if link < 0 else net.graph.name(link)


def _gpus(gpus) -> np.ndarray:
    at = np.asarray(gpus, np.int64).ravel()
    if not len(at):
        raise UsageError("a collective has no ranks: give the GPU of each")
    return at


def _options(graph: LinkGraph, op: str, algo: str, gpus: np.ndarray, given) -> dict[str, Any]:
    out = dict(given)
    per_host = _per_host(gpus, graph.fabric.gpus_per_host)
    if algo == "hierarchical" and "levels" not in out:
        if not per_host:
            raise UsageError(
                f"{op} by hierarchical needs levels: its ranks do not lie host by host, as many "
                "on each"
            )
        out["levels"] = (per_host, len(gpus) // per_host)
    if (op, algo) == ("all_to_all", "windowed") and "per_host" not in out:
        out["per_host"] = per_host or 0
    return {k: tuple(v) if isinstance(v, list) else v for k, v in out.items()}


def _per_host(gpus: np.ndarray, per: int) -> int | None:
    """Ranks on each host, where they lie host by host and as many on each."""
    host = gpus // per
    counts = np.unique(host, return_counts=True)[1]
    even = (counts == counts[0]).all() and (np.diff(host) != 0).sum() == len(counts) - 1
    return int(counts[0]) if even else None


def _rounds(op: str, algo: str, n: int, size: np.ndarray, options: Mapping[str, Any]) -> Rounds:
    most = _most(op, algo, n, options)
    if most > MAX_FLOWS:
        raise NoRounds(
            f"{op} of {n} ranks by {algo} is {most} flows, more than the {MAX_FLOWS} that are "
            f"simulated one by one: up to {int((MAX_FLOWS * n * n / most) ** 0.5)} ranks would "
            "work, an even all_to_all by direct for any number, rings of one size too, and trees"
        )
    return decompose(op, algo, n, size if size.ndim else float(size), **options)


def _most(op: str, algo: str, n: int, options: Mapping[str, Any]) -> int:
    """At least as many flows as the algorithm has."""
    twice = 2 if op == "all_reduce" else 1
    if algo == "hierarchical":
        return twice * n * sum(max(int(s) - 1, 0) for s in options.get("levels", ()))
    if algo in ("tree", "double-tree", "parameter-server") or op in _FEW:
        return 128 * n
    if algo in ("bruck", "recursive-doubling", "halving-doubling"):
        return 2 * n * max(n.bit_length(), 1)
    return twice * n * n


_FEW = ("broadcast", "reduce", "scatter", "gather", "send", "recv", "send_recv", "barrier")


def _whole(net: _Net, op, algo, gpus, size, setting: Setting, options, way) -> float:
    even = (op, algo) in _EVERYBODY and size.ndim == 0 and net.tree is not None
    n = len(gpus)
    if even and n * (n - 1) > EVEN_FLOWS:
        found = _even(net, gpus, float(size) / n, setting)
        if found is not None:
            return found
    # Sizes that scale all flows alike share their classes.
    scales = size.ndim == 0 and size > 0
    stored = (*way, pieces_of(float(size)) if scales and algo == "double-tree" else 0)
    if scales and stored in _CLASSES:
        classes, base = _CLASSES[stored]
        scaled = classes.flows.size_bytes * (float(size) / base)
        if not messages_may_bind(net.graph, setting, scaled):
            again = classes._replace(flows=classes.flows._replace(size_bytes=scaled))
            return symmetry.simulate_classes(again).time_ns
    made = _rounds(op, algo, n, size, options)
    links, paths, moved, _ = place(net.graph, net.links, [Part(made, gpus)], setting)
    classes = symmetry.quotient(links, paths, moved)
    if classes is None or classes.flows.n == moved.n:
        merge = MERGE_NS
        if moved.n > EXACT_FLOWS and not len(moved.pred):
            busy = busiest(links, crossed_bytes(len(links.capacity_bytes_per_s), paths, moved))[0]
            merge = max(MERGE_NS, RESOLUTION * busy)
        return simulate(links, paths, moved, merge_ns=merge).time_ns
    if scales and not messages_may_bind(net.graph, setting, made.size_bytes):
        _CLASSES.keep(stored, (classes, float(size)))
    return symmetry.simulate_classes(classes).time_ns


_EVERYBODY = {(op, "direct") for op in ("all_to_all", "all_gather", "reduce_scatter")}


def _even(net: _Net, gpus: np.ndarray, pair_bytes: float, setting: Setting) -> float | None:
    if len(np.unique(gpus)) < len(gpus) or net.tree is None or gpus.min() < 0:
        return None
    if gpus.max() >= net.graph.fabric.gpus or pair_bytes <= 0:
        return None
    if messages_may_bind(net.graph, setting, np.array([pair_bytes])):
        return None
    found = uniform.kinds(net.graph, net.links, net.tree, gpus, pair_bytes, rail=setting.rail,
                          launch_ns=setting.launch_ns)  # fmt: skip
    return None if found is None else uniform.simulate_kinds(found).time_ns
