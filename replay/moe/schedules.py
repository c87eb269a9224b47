"""Recorded all-to-alls under a schedule: as the library ran them, in waves, or in matchings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from . import bvn
from .exchange import Exchange
from .rails import Speeds
from .waves import Incast, all_at_once_ns, cyclic, native, wave_times_ns, windowed_ns


class Native(NamedTuple):
    """The library's own schedule: `windowed` (NCCL's permutations) or `all-at-once`."""

    how: str
    window: int
    incast: Incast

    def words(self) -> str:
        """In one clause."""
        if self.how == "windowed":
            return f"permutations through a window of {self.window} messages"
        return "all messages at once"

    def time_ns(self, one: Exchange, speeds: Speeds) -> float:
        """Latency, then the slower of what goes between hosts and within them, in ns."""
        cross, inside = one.parts()
        n = len(cross)
        width = self.window if self.how == "windowed" else n
        if width >= n - 1:
            return one.latency_ns + max(
                all_at_once_ns(cross, speeds.nic_bytes_per_s, self.incast),
                all_at_once_ns(inside, speeds.nvlink_bytes_per_s, self.incast),
            )
        per_host = n // one.where.hosts if one.where is not None else None
        order = native(n, per_host)
        return one.latency_ns + max(
            windowed_ns(part, order, rate, width=width, incast=self.incast)
            for part, rate in (
                (cross, speeds.nic_bytes_per_s),
                (inside, speeds.nvlink_bytes_per_s),
            )
        )


def key(one: Exchange) -> bytes:
    """What the time of an exchange depends on: the same for exchanges that are alike."""
    where = b"" if one.where is None else one.where.host.tobytes() + one.where.rail.tobytes()
    return one.demand.matrix.tobytes() + where + np.float64(one.latency_ns).tobytes()


def scheduled_ns(
    one: Exchange, speeds: Speeds, order: str, width: int, term: Incast
) -> tuple[float, int]:
    """An exchange in waves, in ns, and how many waves; what waves cost beyond bytes is not in it.

    The latency of the exchange as it ran is. What stays within hosts goes beside, wave by wave.
    """
    cross, inside = one.parts()
    if order == "bvn":
        across = cross.any()
        matrix, rate = (
            (cross, speeds.nic_bytes_per_s) if across else (inside, speeds.nvlink_bytes_per_s)
        )
        matchings = bvn.decompose(matrix)
        took = sum(weight for weight, _ in matchings) * 1e9 / rate
        beside = all_at_once_ns(inside, speeds.nvlink_bytes_per_s, term) if across else 0.0
        return one.latency_ns + max(took, beside), len(matchings)
    shifts = cyclic(len(cross))
    far = wave_times_ns(cross, shifts, speeds.nic_bytes_per_s, width=width, incast=term)
    near = wave_times_ns(inside, shifts, speeds.nvlink_bytes_per_s, width=width, incast=term)
    return one.latency_ns + sum(max(a, b) for a, b in zip(far, near, strict=True)), len(far)


def waves_cost_ns(one: Exchange, waves: int, alpha_w_ns: float) -> float:
    """What so many waves cost beyond bytes and the exchange's latency: ns, as they are stated.

    A barrier each (`alpha_w_ns`), and a message, where these are not in the latency already.
    """
    return waves * alpha_w_ns + max(0.0, waves * one.alpha_ns - one.latency_ns)
