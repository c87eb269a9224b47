"""Closed forms of lateness: what random arrivals cost, and what bandwidth cannot buy back."""

from __future__ import annotations

import numpy as np


def expected_maximum(n: int) -> float:
    """E_n: the mean of the largest of n independent standard normal values.

    With arrivals of standard deviation sigma, the mean wait of a rank is sigma E_n. Integrates
    x n phi(x) Phi(x)^(n-1) numerically.
    """
    x = np.linspace(-10.0, 10.0, 40_001)
    phi = np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    cumulative = np.concatenate([[0.0], np.cumsum((phi[1:] + phi[:-1]) / 2)]) * (x[1] - x[0])
    return float(np.trapezoid(x * n * phi * cumulative ** (n - 1), x))


def useful_bandwidth(
    moved_bytes: float, *, latency_ns: float, wait_ns: float, worth: float = 0.05
) -> float:
    """B*, bytes/s: beyond it, doubling the bandwidth saves less than `worth` of the collective.

    T = latency + moved / B + wait; half of moved / B saved is `worth` of T at
    B* = moved (1/2 - worth) / (worth (latency + wait)). `worth` must be under 1/2.
    """
    if not 0 < worth < 0.5:
        raise ValueError(f"worth is {worth}, expected a share between 0 and 1/2")
    return moved_bytes * (0.5 - worth) / (worth * (latency_ns + wait_ns) * 1e-9)
