"""SMs that communication needs, and what computation loses to those that it holds."""

from __future__ import annotations

import math

import numpy as np

from ..moe.groups import distinct_groups

WRITE_BYTES_PER_S = 50e9
READ_BYTES_PER_S = 200e9
"""What one SM writes to and reads from memory in DeepEP's own estimate (`elastic.py`)."""

DEEPEP_MARGIN = 1.25
DEEPEP_LEAST = 4

TMA_SMS, TMA_OF = 15, 148
"""Bulk copies by TMA fill NVLink with about 15 of a B200's 148 SMs (Hazy Research, second hand)."""

COPY_ENGINE_BYTES = 256 << 20
"""Copy engines come near link speed with pieces of about 256 MB (the same)."""


def waves(blocks: np.ndarray, sms: float) -> np.ndarray:
    """Waves of thread blocks over SMs, one block an SM: ceil(N / S)."""
    return np.ceil(np.asarray(blocks, float) / sms - 1e-12)


def slowdown(blocks: np.ndarray, sms: int, held: float, grid: str = "fixed") -> np.ndarray:
    """How much longer kernels of N blocks take while `held` SMs are not theirs, float64.

    `fixed` grids run in whole waves: ceil(N / (S-k)) / ceil(N / S). `smooth`: S / (S-k), for
    persistent kernels and where N is far above S (arithmetic; held to a 132-block GEMM beside a
    24-block all-gather, NVIDIA forum 337991).
    """
    left = sms - held
    if left <= 0:
        return np.full(np.shape(blocks), np.inf)
    if grid == "smooth":
        return np.full(np.shape(blocks), sms / left)
    return waves(blocks, left) / waves(blocks, sms)


def hbm_slowdown(comm_bytes_per_s: np.ndarray, hbm_bytes_per_s: float) -> np.ndarray:
    """How much longer what waits for memory takes beside communication: 1 / (1 - b/HBM) (deduced).

    `comm_bytes_per_s` is what communication reads and writes. Infinite where it takes all.
    """
    left = 1 - np.asarray(comm_bytes_per_s, float) / hbm_bytes_per_s
    return np.divide(1.0, left, out=np.full(np.shape(left), np.inf), where=left > 0)


def need(bandwidth_bytes_per_s: np.ndarray, rate_bytes_per_s: float, least: int = 1) -> np.ndarray:
    """SMs, even and at least so many, whose rate together is a bandwidth: float64."""
    wanted = np.ceil(np.asarray(bandwidth_bytes_per_s, float) / rate_bytes_per_s - 1e-9)
    return _even(np.maximum(wanted, least))


def tma_rate(sms: int, link_bytes_per_s: float) -> float:
    """bytes/s of one SM by TMA: so that 15 of 148 SMs of a device fill its links."""
    return link_bytes_per_s / (TMA_SMS * sms / TMA_OF)


def deepep(
    experts: int,
    topk: int,
    local: int,
    hosts: int,
    rdma_bytes_per_s: float,
    nvlink_bytes_per_s: float,
) -> int:
    """SMs for dispatch and combine by DeepEP's estimate (`deep_ep/buffers/elastic.py`).

    A received token is sent once for each group (rank, or host) that its top-k experts lie in. Of
    NVLink and RDMA the slower sets the pace; the SMs must read and write that fast, with a margin,
    4 at least and even. ValueError where experts do not part into the ranks.
    """
    ranks = local * hosts
    e_n = distinct_groups(ranks, experts, topk)
    nvlink = 1 - 1 / local
    if hosts == 1:
        read, write, rdma = 1 / e_n, 1.0, 0.0
    else:
        e_h = distinct_groups(hosts, experts, topk)
        read = (1 + e_h) / e_n
        write = 1 + (1 + e_h / hosts) / e_n
        rdma = e_h * (1 - 1 / hosts) / e_n
    paces = [bw / t for bw, t in ((nvlink_bytes_per_s, nvlink), (rdma_bytes_per_s, rdma)) if t > 0]
    pace = min(paces, default=0.0)
    wanted = max(pace * read / READ_BYTES_PER_S, pace * write / WRITE_BYTES_PER_S)
    return int(_even(max(DEEPEP_LEAST, math.ceil(DEEPEP_MARGIN * wanted))))


def _even(count):
    return np.ceil(np.asarray(count, float) / 2) * 2
