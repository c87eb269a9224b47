"""Collectives placed on the GPUs of a fabric: their rounds as flows over its links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...ingest.errors import UsageError
from .flows import Links, Paths, paths
from .links import LinkGraph
from .paths import route
from .rounds import Rounds
from .simulate import Flows, flows, with_messages


class Part(NamedTuple):
    """One collective of several that are under way together."""

    rounds: Rounds
    gpus: np.ndarray
    """int64 [n]: the GPU of each rank, in order."""
    start_ns: float = 0.0
    traffic: str = ""
    """The traffic class that it is of; empty: none, without a guaranteed share."""


class Setting(NamedTuple):
    """How messages are sent."""

    rail: str = "auto"
    """How rails are crossed: see `paths`."""
    seed: int = 0
    """Of the lanes that flows take under ecmp hash."""
    launch_ns: float = 0.0
    """What each message costs its sender before it is on its way."""
    message_bytes: float = np.inf
    """A flow is sent in messages of this size; a port starts so many of them a second."""
    queue_pairs: float = 1.0
    """Connections a pair of sender and path."""


def links_of(graph: LinkGraph) -> Links:
    """The links of a fabric, with the incast of ports and its classes of traffic.

    Traffic classes are numbered as the fabric lists them; the last one is of those without any.
    """
    gamma = np.array([c.incast_gamma for c in graph.classes] or [0.0])[graph.link_class]
    free = np.array([c.incast_free for c in graph.classes] or [0.0])[graph.link_class]
    shares = [t.share for t in graph.fabric.traffic]
    guarantee = np.zeros((len(shares) + 1 if shares else 0, graph.n))
    for k, share in enumerate(shares):
        guarantee[k] = share
    return Links(
        graph.link_capacity_bytes_per_s, np.where(graph.link_into_port, gamma, 0.0), free, guarantee
    )


def traffic_class(graph: LinkGraph, name: str) -> int:
    """The number of a traffic class. Raises UsageError for one that the fabric does not have."""
    names = [t.name for t in graph.fabric.traffic]
    if not name:
        return len(names)
    if name not in names:
        known = ", ".join(names) or "none"
        raise UsageError(f"fabric {graph.fabric.name} has no traffic class {name!r}: {known}")
    return names.index(name)


def place(
    graph: LinkGraph, links: Links, parts: Sequence[Part], setting: Setting
) -> tuple[Links, Paths, Flows, np.ndarray]:
    """The flows of all parts over the fabric's links, and which part each flow is of.

    A GPU that sends to itself takes no links. Raises UsageError for a GPU that there is not.
    """
    base = np.cumsum([0] + [len(p.rounds.src) for p in parts])
    of = np.repeat(np.arange(len(parts)), np.diff(base))
    src, dst = (
        np.concatenate([_on(end(p.rounds), np.asarray(p.gpus, np.int64)) for p in parts])
        for end in (lambda r: r.src, lambda r: r.dst)
    )
    pairs, path = np.unique(src * (graph.fabric.gpus + 1) + dst, return_inverse=True)
    a, b = np.divmod(pairs, graph.fabric.gpus + 1)
    # A join (-1 to -1) comes out of the division as a pair of its own; it takes no way.
    moving = pairs >= 0
    routes = route(graph, a[moving], b[moving], rail=setting.rail, seed=setting.seed)
    length, alpha = np.zeros(len(pairs), np.int64), np.zeros(len(pairs))
    length[moving] = np.diff(routes.offsets)
    alpha[moving] = routes.alpha_ns(graph) + setting.launch_ns
    ways = paths(np.concatenate([[0], np.cumsum(length)]), routes.links)
    pred_ptr = np.zeros(base[-1] + 1, np.int64)
    for p, at in zip(parts, base, strict=False):
        pred_ptr[at + 1 : at + len(p.rounds.src) + 1] = np.diff(p.rounds.pred_ptr)
    moved = flows(
        path.ravel(),
        np.concatenate([p.rounds.size_bytes for p in parts]),
        release_ns=np.array([p.start_ns for p in parts], np.float64)[of],
        delay_ns=alpha[path.ravel()],
        pred_ptr=np.cumsum(pred_ptr),
        pred=np.concatenate([p.rounds.pred + at for p, at in zip(parts, base, strict=False)]),
        klass=np.array([traffic_class(graph, p.traffic) for p in parts], np.int64)[of],
        sender=src,
    )
    if messages_may_bind(graph, setting, moved.size_bytes):
        messages = np.ceil(moved.size_bytes / setting.message_bytes).clip(1.0)
        messages[moved.size_bytes == 0] = 0.0
        links, ways, moved = with_messages(
            links, ways, moved, messages,
            lambda link, q: graph.classes[graph.link_class[link]].message_rate_per_s(q),
            message_ports(graph), queue_pairs=setting.queue_pairs,
        )  # fmt: skip
    return links, ways, moved, of


def message_ports(graph: LinkGraph) -> np.ndarray:
    """bool [L]: NICs' sending ports, which start only so many messages a second."""
    out = np.zeros(graph.n, bool)
    block = graph.blocks.get("nic_tx")
    if block is not None:
        out[block.first : block.last] = True
    return out


def messages_may_bind(graph: LinkGraph, setting: Setting, size_bytes: np.ndarray) -> bool:
    """Whether a port could have more messages to start than bytes to send allow, for such flows.

    Not where the smallest flow's messages, at the whole bandwidth of a port, are fewer than it
    starts even with all the connections that crowd it.
    """
    block = graph.blocks.get("nic_tx")
    moving = size_bytes[size_bytes > 0]
    if block is None or not len(moving):
        return False
    cls = graph.classes[graph.link_class[block.first]]
    least = cls.messages_per_s * (1.0 - cls.crowded_loss)
    per_byte = 1.0 / moving.min() + 1.0 / setting.message_bytes
    cap = graph.link_capacity_bytes_per_s[block.first : block.last].max(initial=0.0)
    return bool(per_byte * cap > least)


def _on(position: np.ndarray, gpus: np.ndarray) -> np.ndarray:
    return np.where(position < 0, -1, gpus[position])
