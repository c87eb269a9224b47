"""Which links the bytes between storage and a GPU cross: reads of data, writes of checkpoints."""

from __future__ import annotations

import numpy as np

from ...ingest.errors import UsageError
from .host_paths import to_nic, where
from .links import LinkGraph
from .paths import Routes, chosen


def storage_route(
    graph: LinkGraph, gpu, *, write: bool = False, staged: bool = False, seed: int = 0
) -> Routes:
    """The routes between storage and GPUs (int [k]): reads, or with `write` writes.

    `shared` storage hangs above the leaves: its bytes cross the servers, the leaf and the GPU's own
    NIC, those that collectives use. `own` storage has a port a host of its own. `staged`: only the
    host's local drives. Raises UsageError where the fabric has no such storage.
    """
    f = graph.fabric
    s, blocks = f.storage, graph.blocks
    if s is None:
        raise UsageError(f"fabric {f.name} has no storage: add [storage]")
    gpu = np.atleast_1d(np.asarray(gpu, dtype=np.int64)).ravel()
    if len(gpu) and (gpu.min() < 0 or gpu.max() >= f.gpus):
        raise UsageError(f"fabric {f.name} has GPUs 0 to {f.gpus - 1}")
    take = np.ones(len(gpu), dtype=bool)
    host = gpu // f.gpus_per_host
    if staged:
        if "nvme_read" not in blocks:
            raise UsageError(f"fabric {f.name} has no local drives: add [storage.staging]")
        hops = [blocks["nvme_write" if write else "nvme_read"].ids(host)]
    else:
        server = "server_write" if write else "server_read"
        hops = [where(take, np.full(len(gpu), blocks[server].first))] if server in blocks else []
        if s.attach == "own":
            hops.append(blocks["storage_tx" if write else "storage_rx"].ids(host))
        else:
            hops += _shared(graph, gpu, host, take, write, seed)
    if write:
        hops.reverse()
    if not hops:
        return Routes(np.zeros(len(gpu) + 1, np.int64), np.empty(0, np.int64))
    table = np.stack(hops, axis=1)
    there = table >= 0
    return Routes(np.concatenate([[0], np.cumsum(there.sum(axis=1))]), table[there])


def _shared(graph: LinkGraph, gpu, host, take, write: bool, seed: int) -> list[np.ndarray]:
    """From the leaf down to the GPU (its reverse for writes) over the GPU's own rail."""
    f, blocks = graph.fabric, graph.blocks
    assert f.nic is not None
    rail = np.array(f.nic.serves)[gpu % f.gpus_per_host]
    port = blocks["nic_tx" if write else "nic_rx"]
    plane, lane = chosen(graph, seed, gpu, gpu, np.zeros_like(gpu))
    hops = []
    if f.network is not None:
        leaf = rail if f.network.wiring == "rail" else 0 * rail
        key = "leaf_up" if write else "leaf_down"
        hops.append(blocks[key].ids(host // f.network.hosts_per_leaf, leaf, plane, lane))
    hops.append(port.ids(host, rail, plane))
    inside = to_nic(graph, gpu, rail, take, out=write)
    return hops + (inside[::-1] if write else inside)
