"""Links, rings, trees and NICs of an NCCL debug log as rows of `topology` and `transfers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import debug_log_text as say

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from ..collect import Collector
    from .debug_log_lines import Writer
    from .debug_log_places import Places
    from .debug_log_survey import Comm

_SOURCE = "nccl-log"
MOST_SEEN = 500_000
MOST_NICS = 100_000
ALONE = "ring of one rank"
"""What rings without an edge are counted as."""


class Links:
    """Adds each link, edge and NIC once, however often processes and threads tell it.

    `add` and `add_moved` take the values of a row of `topology` and of `transfers`, by column.

    What was told is held for the last half million rows; a log with more may repeat some. Its
    methods are given a message's text and say whether it was one of theirs.
    """

    def __init__(self, c: Collector, places: Places, passed_over: Counter[str],
                 add: Callable[..., None], add_moved: Callable[..., None]):  # fmt: skip
        self.c, self.places, self.passed_over = c, places, passed_over
        self._add, self._add_moved = add, add_moved
        self._seen: set[tuple[Any, ...]] = set()
        self._nic_names: dict[tuple[str, int, str, int], str] = {}
        self._nic_of_host: dict[tuple[str, str, int], str] = {}

    def is_new(self, key: tuple[Any, ...]) -> bool:
        """Whether what `key` stands for is told for the first time; it counts as told then."""
        if key in self._seen:
            return False
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen.add(key)
        return True

    def link(self, text: bytes, writer: Writer, offset: int) -> bool:
        link = say.link(text)
        if link is None:
            return False
        comm = self.places.comm(writer, offset, link.comm, link.me, max(link.me, link.peer))
        process = comm.process if comm is not None else self.places.process(writer)
        if comm is None:
            self.c.odd("link_of_unknown_comm", "links of which no line says the communicator: "
                       "their peers are unknown", "info", offset=offset)  # fmt: skip
        rank = process.rank if process is not None else None
        peer = self.places.rank_at(comm, link.peer)
        nic = None
        if link.net is not None:
            nic = self.nic(writer, link.net, link.index)
        name = comm.name if comm is not None else None
        place = (writer.host, writer.pid, name, link.channel, link.me, link.peer, link.via, nic)
        if self.is_new(("link", *place)):
            self._add(host=writer.host, device=nic, kind="link", rank=rank,
                       peer_rank=peer, peer=self.places.host_of_rank.get(peer) if peer is not None
                       else None, comm=name, channel=link.channel, via=link.via,
                       source=_SOURCE)  # fmt: skip
        if nic is not None and rank is not None:
            key = ("transfer", rank, nic, link.channel, peer, link.direction, link.via)
            if self.is_new(key):
                self._add_moved(rank=rank, host=writer.host, nic=nic,
                           channel=link.channel, peer_rank=peer, direction=link.direction,
                           traffic_class="collective", measured=False, via=link.via,
                           source=_SOURCE)  # fmt: skip
        return True

    def nic(self, writer: Writer, net: str, index: int | None) -> str:
        """The NIC that a device of a network is on the writer's host, by its name where known."""
        if index is None:
            return net
        kind = network(net)
        name = self._nic_names.get((writer.host, writer.pid, kind, index))
        return name or self._nic_of_host.get((writer.host, kind, index)) or f"{net}/{index}"

    def nics(self, text: bytes, writer: Writer) -> bool:
        found = say.nics(text)
        if found is None:
            return False
        net, devices = found
        kind = network(net)
        for index, name in devices:
            if len(self._nic_names) < MOST_NICS:
                self._nic_names[(writer.host, writer.pid, kind, index)] = name
                self._nic_of_host[(writer.host, kind, index)] = name
            if self.is_new(("nic", writer.host, net, name)):
                self._add(host=writer.host, device=name, kind="nic",
                           via=f"NET/{net}", source=_SOURCE)  # fmt: skip
        return True

    def _edge(self, kind: str, comm: Comm | None, channel: int, low: int, high: int,
              writer: Writer) -> None:  # fmt: skip
        whose = comm.name if comm is not None else (writer.host, writer.pid, writer.tid)
        if not self.is_new((kind, whose, channel, low, high)):
            return
        rank = self.places.rank_at(comm, low)
        host = self.places.host_of_rank.get(rank) if rank is not None else None
        self._add(host=host, kind=kind, rank=rank,
                   peer_rank=self.places.rank_at(comm, high), channel=channel,
                   comm=comm.name if comm is not None else None, source=_SOURCE)  # fmt: skip

    def ring(self, text: bytes, writer: Writer, offset: int) -> bool:
        if part := say.ring_part(text):
            channel, before, me, after = part
            comm = self.places.comm(writer, offset, say.of_comm(text), me, max(before, me, after))
            for low, high in ((before, me), (me, after)):
                if low >= 0 and high >= 0 and low != high:
                    self._edge("ring", comm, channel, low, high, writer)
            return True
        found = say.ring(text)
        if found is None:
            return False
        channel, order = found
        comm = self.places.comm(writer, offset, say.of_comm(text), order[0] if order else None,
                          max(order, default=0))  # fmt: skip
        size = comm.size if comm is not None else len(order)
        if len(order) < size:
            self.c.odd("ring_cut", "rings of which only the first ranks are printed (NCCL stops "
                       "at 20): the rest is in the links", "info", offset=offset)  # fmt: skip
        if len(order) == 1 and size == 1:
            self.passed_over[ALONE] += 1
            return True
        ends = order[1:] + (order[:1] if len(order) >= size else [])
        for low, high in zip(order, ends, strict=False):
            self._edge("ring", comm, channel, low, high, writer)
        return True

    def trees(self, text: bytes, writer: Writer, offset: int) -> bool:
        found, cut = say.trees(text)
        if cut:
            self.c.odd("tree_cut", "channels whose trees are cut off with their line (NCCL prints "
                       "about 1000 bytes of one)", "lost", offset=offset, count=cut)  # fmt: skip
        pointer = say.of_comm(text)
        for channel, me, parent, children in found:
            comm = self.places.comm(writer, offset, pointer, me, max(me, parent, *children))
            if parent >= 0:
                self._edge("tree", comm, channel, me, parent, writer)
            for child in children:
                if child >= 0:
                    self._edge("tree", comm, channel, child, me, writer)
        return bool(found)


def network(net: str) -> str:
    """What a network's devices are numbered within: all kinds of InfiniBand are one."""
    return "IB" if net.startswith("IB") else net
