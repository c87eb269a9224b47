"""What starting and finishing a network operation costs, and how many a NIC starts a second."""

from __future__ import annotations

INITIATE_NS = 700.0
COMPLETE_NS = 4_000.0
"""GPU-initiated: 0.7 us to initiate, 4.0 us to see completion (GPU-Initiated Communication
Dissected)."""
PROXY_NS = 3_000.0
"""A CPU proxy between: 2 to 4 us a hop (general knowledge; no published table)."""

CACHED_CONNECTIONS = 1_024
MISS_COST = 2.18
"""h(3000) = 0.41, the published loss of 59 %; the cache of 1,024 contexts is assumed, and the
cost of a miss follows from the two."""


def overhead_ns(path: str, initiate_ns: float, complete_ns: float, proxy_ns: float) -> float:
    """What a message costs beside its wire and its bytes, ns: `gpu` initiated, or by a `proxy`."""
    return initiate_ns + complete_ns + (proxy_ns if path == "proxy" else 0.0)


def rate_share(connections: float) -> float:
    """Share of a NIC's message rate that is left with so many connections, 0 to 1.

    h(c) = 1 / (1 + m max(0, 1 - C0/c)): 1 up to C0 cached contexts, then contexts are fetched for
    a growing share of messages (deduced; one published point).
    """
    if connections <= CACHED_CONNECTIONS:
        return 1.0
    return 1.0 / (1.0 + MISS_COST * (1.0 - CACHED_CONNECTIONS / connections))
