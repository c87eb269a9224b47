"""A sequence-parallel all-to-all over N ranks as B at once over K = N / B ranks each.

DeepSpeed-Ulysses exchanges a tensor of M bytes a rank among all N; with B sequences in the batch
groups of K ranks can each hold whole sequences (BASP), and a rank still holds M. The arithmetic is
that of the definitions.
"""

from __future__ import annotations

from typing import NamedTuple


class Cost(NamedTuple):
    """What one rank sends in one all-to-all."""

    messages: int
    message_bytes: float
    sent_bytes: float

    def time_ns(self, alpha_ns: float, bytes_per_s: float) -> float:
        """messages alpha + bytes / bandwidth, in ns (pairwise exchange)."""
        return self.messages * alpha_ns + self.sent_bytes * 1e9 / bytes_per_s


def cost(ranks: int, tensor_bytes: float) -> Cost:
    """Of an even all-to-all among `ranks`: K - 1 messages of M / K."""
    part = tensor_bytes / ranks
    return Cost(ranks - 1, part, (ranks - 1) * part)


def split(ranks: int, batches: int) -> int | None:
    """K = N / B; None where B does not divide N."""
    return ranks // batches if batches >= 1 and ranks % batches == 0 else None


def most_gain(share: float) -> float:
    """By how much a step speeds up at most when `share` of it costs nothing (Amdahl)."""
    return 1 / (1 - share) if share < 1 else float("inf")
