"""What storage's traffic costs a ring of collectives that shares its links, by max-min fairness."""

from __future__ import annotations

import numpy as np

from .flows import max_min, paths
from .links import LinkGraph
from .paths import Routes, route
from .placed import links_of, traffic_class
from .storage_paths import storage_route

COLLECTIVE, STORAGE = "collective", "storage"
"""Traffic classes by which a fabric may keep the two apart."""


def times_as_long(graph: LinkGraph, gpus) -> float:
    """How many times as long a ring over `gpus` (int [n], in its order) takes beside storage.

    The pace of its slowest edge alone over that beside reads by each GPU of its hosts: one moment
    of max-min fair shares, in the fabric's own traffic classes where it names `collective` and
    `storage`. Raises UsageError where the fabric has no storage.
    """
    f = graph.fabric
    gpus = np.asarray(gpus, np.int64)
    hosts = np.unique(gpus // f.gpus_per_host)
    reading = (hosts[:, None] * f.gpus_per_host + np.arange(f.gpus_per_host)).ravel()
    ring = route(graph, gpus, np.roll(gpus, -1))
    both = _joined(ring, storage_route(graph, reading))
    names = [t.name for t in f.traffic]
    klass = [traffic_class(graph, c if c in names else "") for c in (COLLECTIVE, STORAGE)]
    links, n = links_of(graph), len(gpus)
    alone = max_min(links, paths(ring.offsets, ring.links), klass=klass[0], sender=gpus)
    shared = max_min(
        links, paths(both.offsets, both.links), klass=np.repeat(klass, (n, len(reading))),
        sender=np.concatenate([gpus, f.gpus + reading]),
    )[:n]  # fmt: skip
    if not np.isfinite(alone.min()):
        return 1.0
    return max(float(alone.min() / shared.min()), 1.0)


def _joined(one: Routes, other: Routes) -> Routes:
    offsets = np.concatenate([one.offsets, one.offsets[-1] + other.offsets[1:]])
    return Routes(offsets, np.concatenate([one.links, other.links]))
