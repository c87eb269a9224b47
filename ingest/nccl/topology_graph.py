"""Channels of NCCL's graph XML (rings, trees, ...) as rows of `topology`."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

from .topology_devices import integer, rank_of

if TYPE_CHECKING:
    from ..collect import Collector

_SOURCE = "nccl-topology"
_KINDS = {1: "tree", 2: "tree", 3: "tree", 4: "ring", 5: "nvls", 6: "collnet"}
"""By the number of the pattern (graph.h: balanced, split and plain tree, ring, NVLS, CollNet)."""
_SPEED = re.compile(r"\d{1,6}(?:\.\d{1,9})?\Z")


class Graphs:
    """Follows the elements of `graphs`: a row for each hop of a channel.

    Between GPUs `rank` and `peer_rank` are set; at the ends that leave the host `device` is the
    network device and only the GPU's rank is known. Ranks are of the communicator.
    """

    def __init__(self, c: Collector):
        self.c = c
        self.n_rows = 0
        self._graph: dict[str, str] = {}
        self._channel = -1
        self._hops: list[tuple[str, dict[str, str]]] = []

    def begin(self, name: str, values: dict[str, str]) -> None:
        """One element with its attributes."""
        if name == "graph":
            self._graph, self._channel = values, -1
        elif name == "channel":
            self._channel += 1
            self._hops = []
        elif name in ("net", "gpu"):
            self._hops.append((name, values))
        elif name != "graphs":
            self.c.odd("unknown_element", f"elements that give no row, first: {name}", "info")

    def end(self, name: str) -> None:
        """The innermost element ends."""
        if name != "channel":
            return
        pattern = integer(self._graph, "pattern")
        kind = _KINDS.get(pattern if pattern is not None else 0)
        if kind is None:
            self.c.odd("unknown_pattern", f"graphs of an unknown pattern ({pattern})", "warning")
            kind = "graph"
        pairs = list(zip(self._hops, self._hops[1:], strict=False))
        if kind == "ring" and len(self._hops) > 1 and all(n == "gpu" for n, _ in self._hops):
            pairs.append((self._hops[-1], self._hops[0]))
        for (a, low), (b, high) in pairs:
            if a == b == "gpu":
                self._add(kind, None, rank_of(low), rank_of(high), "intra")
            elif "gpu" in (a, b):
                gpu, net = (low, high) if a == "gpu" else (high, low)
                self._add(kind, f"net{net.get('dev', '')}", rank_of(gpu), None, "inter")
        self._hops = []

    def _add(
        self, kind: str, device: str | None, rank: int | None, peer: int | None, side: str
    ) -> None:
        speed = self._graph.get(f"speed{side}", "")
        bandwidth = int(Decimal(speed) * 10**9) if _SPEED.match(speed) else None
        self.n_rows += 1
        self.c.add("topology", kind=kind, device=device, rank=rank, peer_rank=peer,
                   channel=self._channel, via=self._graph.get(f"type{side}") or None,
                   bandwidth_bytes_per_s=bandwidth, source=_SOURCE)  # fmt: skip
