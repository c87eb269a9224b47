"""What a communicator was used for: its operations, sizes, peers and their places in steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

P2P = ("send", "recv", "send_recv")
SMALL_BYTES = 64 << 10
"""Operations up to here carry counts, norms and flags: they say nothing of a dimension."""


class Profile(NamedTuple):
    """The operations of a communicator, as the rank with the most of them saw them."""

    calls: dict[str, int]
    """operations by op, barriers aside"""
    large: dict[str, int]
    """those of more than SMALL_BYTES"""
    sizes: dict[str, dict[int, int]]
    """op -> size of the whole operation in elements (bytes where the type is unknown) -> times"""
    shards: dict[str, frozenset[int]]
    """op -> sizes of one member's share, as above"""
    edges: frozenset[tuple[int, int]]
    """(from, to) of sends and receives"""
    uneven: bool
    """all-to-alls in which this rank got another amount than it gave, another one each time"""
    places: dict[str, np.ndarray]
    """op -> where in their steps the large ones began, 0 to 1; empty without steps"""
    steps: int

    @property
    def a_step(self) -> float:
        """Large operations a step; the number of all without steps."""
        return sum(self.large.values()) / max(self.steps, 1)
