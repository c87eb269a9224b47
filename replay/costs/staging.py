"""Collectives through host memory, without peer-to-peer copies between GPUs.

Every byte goes from the GPU to host memory, is written and read there, and goes up to the other
GPU: T = max(out/B_d2h, in/B_h2d, 2 staged/B_dram, remote/B_numa) where chunks follow each other,
the sum of them where they do not (deduced; the parts are counted, not measured).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Bytes(NamedTuple):
    """What one rank moves: float64 each, any one shape."""

    out: np.ndarray
    """Down to host memory."""
    into: np.ndarray
    """Up from it."""


class Host(NamedTuple):
    """Host memory as a medium; bandwidths in bytes/s."""

    pcie: float
    """Of a GPU's link to the host, one direction alone."""
    duplex: float
    """Share of it that each direction keeps while both run: 0.44 to 1."""
    dram: float
    """Of the memory, reads and writes together."""
    numa: float
    """Between the sockets; inf where all GPUs are on one."""
    remote: float
    """Share of the bytes that cross between sockets."""
    chunk_bytes: float
    """Pieces in which bytes follow each other; 0: one after another, unpipelined."""


def moved(op: str, n: int, size_bytes, readers: int = 1, *, shared: bool = False) -> Bytes:
    """Bytes of a rank for one collective of size M on n ranks, each copy written once.

    `readers`: how many ranks take the same bytes of an all-to-all (a token's experts: the k of
    top-k), in M as k copies. `shared`: those are written once, to a buffer that all may read.
    """
    size = np.asarray(size_bytes, np.float64)
    share = (n - 1) / n
    if op == "all_reduce":
        return Bytes(2 * share * size, 2 * share * size)
    if op == "all_gather":
        # One shard down for all where they may read it; else one copy for each reader.
        return Bytes(size / n if shared else share * size, share * size)
    if op == "broadcast":
        return Bytes(size if shared else (n - 1) * size, size)
    if op == "all_to_all":
        return Bytes(share * size / (readers if shared else 1), share * size)
    return Bytes(share * size, share * size)


def time_ns(of: Bytes, host: Host, ranks_per_memory: int) -> np.ndarray:
    """How long that takes, with so many ranks on one memory."""
    rate = host.pcie * host.duplex
    staged = ranks_per_memory * (of.out + of.into)
    parts = [of.out / rate, of.into / rate, staged / host.dram]
    if np.isfinite(host.numa):
        parts.append(host.remote * ranks_per_memory * of.into / host.numa)
    if not host.chunk_bytes:
        return np.add.reduce(parts) * 1e9
    first = np.minimum(host.chunk_bytes, of.out) / rate
    return (np.maximum.reduce(parts) + first) * 1e9


def dispatch_gain(readers: int) -> float:
    """(k + k) / (1 + k): copies over a shared buffer where both directions share the link.

    1.78 for 8 readers, 2 for ever more; partial sums that come back are k different ones, and
    gain nothing so (2.00x for dispatch and 1.53x for combine are reported of ThunderEP: the order
    is explained, 1.53 is not).
    """
    return 2 * readers / (1 + readers)
