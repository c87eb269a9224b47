"""Proxy and network events of the profiler plugin to `transfers`, by channel, peer and device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..values import integer

if TYPE_CHECKING:
    from ..collect import Collector
    from .comm_places import Places
    from .profiler_events import Operation, Own

_CONTROL = ("Idle", "Sleep", "Append")
_WIRE = ("SendWait", "RecvWait")
"""The phase of a step in which its data is on the wire."""
_MAX_OPEN = 4096


@dataclass
class _ProxyOp:
    """A proxy operation: a channel's way to one peer."""

    send: bool
    channel: int | None
    peer: int | None
    bytes: int | None
    start: int | None
    on_devices: int = 0


class Transfers:
    """The rows of one file.

    Bytes count once: a queue pair's or a socket's are on its device's row, what remains of the
    proxy operation's is on that one's row, and the rows of single steps have times but no bytes.
    """

    def __init__(self, collector: Collector, places: Places, spans: dict[int, Own]):
        self._collector, self._places, self._spans = collector, places, spans
        self._op: _ProxyOp | None = None
        self._open: dict[tuple, tuple[int | None, dict]] = {}
        self._control = self._detached = self._devices = self._steps = 0

    def take(
        self,
        begins: bool,
        cat: str,
        name: str,
        key: Any,
        args: dict[str, Any],
        ts: int | None,
        operation: Operation | None,
        lone: tuple[str, int, int] | None,
        offset: int,
    ) -> None:
        """One event of category PROXY, NET, NET_IB or NET_SOCK."""
        if cat == "PROXY" and name in _CONTROL:
            self._control += begins
            return
        if cat == "PROXY" and begins:
            self._begin(name, args, ts)
        if begins:
            if len(self._open) < _MAX_OPEN:
                self._open[cat, name, key] = (ts, args)
            return
        start, said = self._open.pop((cat, name, key), (None, {}))
        if cat == "PROXY":
            if not name.startswith("Schedule"):
                self._end(start, ts, operation, lone, offset)
        elif cat == "NET":
            if name in _WIRE:
                self._steps += 1
                self._row(start, ts, None, None, "NET", operation, lone, offset)
        else:
            n_bytes = integer(said.get("size"))
            n_bytes = n_bytes if n_bytes is not None and n_bytes >= 0 else None
            device = integer(said.get("device"))
            nic = f"ib{device}" if cat == "NET_IB" and device is not None else None
            self._devices += nic is not None
            if n_bytes and self._op is not None:
                self._op.on_devices += n_bytes
            via = "NET/IB" if cat == "NET_IB" else "NET/Socket"
            self._row(start, ts, n_bytes, nic, via, operation, lone, offset)

    def _begin(self, name: str, args: dict[str, Any], ts: int | None) -> None:
        n_bytes = integer(args.get("transSize"))
        self._op = _ProxyOp(
            "send" in name.lower(),
            integer(args.get("Channel")),
            integer(args.get("Peer")),
            n_bytes if n_bytes is not None and n_bytes >= 0 else None,
            # A scheduled operation has not begun; its progress comes under the same id.
            None if name.startswith("Schedule") else ts,
            self._op.on_devices if self._op is not None and name.startswith("Progress") else 0,
        )

    def _end(
        self,
        start: int | None,
        end: int | None,
        operation: Operation | None,
        lone: tuple[str, int, int] | None,
        offset: int,
    ) -> None:
        op = self._op
        if op is None:
            self._collector.odd(
                "end_without_begin", "a proxy operation's end without its begin", offset=offset
            )
            return
        rest = None if op.bytes is None else max(op.bytes - op.on_devices, 0)
        if rest or not op.on_devices:
            self._row(start, end, rest, None, "NET", operation, lone, offset)
        if operation is not None:
            for t in (start, end):
                if t is not None:
                    low, high = operation.proxy_start, operation.proxy_end
                    operation.proxy_start = t if low is None else min(low, t)
                    operation.proxy_end = t if high is None else max(high, t)
        self._op = None

    def _row(
        self,
        start: int | None,
        end: int | None,
        n_bytes: int | None,
        nic: str | None,
        via: str,
        operation: Operation | None,
        lone: tuple[str, int, int] | None,
        offset: int,
    ) -> None:
        op = self._op
        if operation is not None:
            rank, comm, place = operation.rank, operation.comm, operation.place
        elif lone is not None:
            comm, place, rank = lone
            self._detached += 1
        else:
            self._collector.odd(
                "rank_unknown",
                "a proxy operation outside any collective in a file of several communicators; it "
                "is left out",
                "lost",
                offset=offset,
            )
            return
        if start is not None and end is not None and end < start:
            start = end = None
        own = self._spans.get(rank)
        if own is not None:
            own.widen(start, end)
        peer = None
        if op is not None and operation is not None:
            peer = self._places.peer_of(comm, place, op.peer)
        self._collector.add(
            "transfers",
            rank=rank,
            nic=nic,
            channel=op.channel if op is not None else None,
            peer_rank=peer,
            bytes=n_bytes,
            start_ns=start,
            end_ns=end,
            event_id=operation.event if operation is not None else None,
            direction=None if op is None else "send" if op.send else "recv",
            traffic_class="collective",
            measured=True,
            via=via,
            clock="process" if start is not None else None,
            source="profiler",
        )

    def finish(self) -> None:
        """Says what the rows are of, and what has no row."""
        for n, code, message in (
            (self._control, "not_read_proxy_control", "states of the proxy thread (idle, asleep, "
             "taking work) have no place in the tables"),
            (self._detached, "detached_proxy_operations", "proxy operations done for another "
             "process (PXN): which collective they are of is not known"),
            (self._steps, "steps_without_bytes", "steps of the proxy have times but no bytes of "
             "their own: those are on the rows of their operation and its devices"),
            (self._devices, "nic_by_number", "network devices are known by their number only (ib0 "
             "is the first): no name and no rail"),
        ):  # fmt: skip
            if n:
                self._collector.odd(code, message, "info", count=n)
