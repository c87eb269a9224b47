"""A lab's network, built and removed: namespaces, bridges, veth pairs, token buckets.

Everything lies in namespaces of the run: seats, the storage server, and one for all switches.
Nothing appears outside of them; with the namespaces their links go.
"""

from __future__ import annotations

import atexit
import os
import signal
import time
from pathlib import Path
from typing import Any

from . import machine, names
from .commands import batch, run
from .errors import LabError
from .shape import ETHERNET_BYTES, MTU_BYTES, Shape

BURST_BYTES = 2 * (MTU_BYTES + ETHERNET_BYTES) + 100
"""Two packets: with less, what a timer is late is lost to the rate. Ranks wait for as much before
they send (`wire`), so that the start of a message does not go free."""
PLENTY_BYTES = 4 << 20
"""A queue that holds all that connections can have under way."""
NET = 10
"""Addresses are 10.<77 + what>.<which>.<seat + 1>, inside the namespaces alone."""


def address(seat: int, port: str) -> str:
    """The address of a seat's port; the storage server is seat 200."""
    if port.startswith("rail"):
        return f"{NET}.77.{int(port[4:])}.{seat + 1}"
    return f"{NET}.{'78' if port == 'up' else '79'}.0.{seat + 1}"


STORAGE_SEAT = 200


class Fabric:
    """A network that stands: `with Fabric(shape) as net:`; `net.seat(3)` names a namespace."""

    def __init__(self, shape: Shape):
        self.shape = shape
        self._id = f"{names.PREFIX}-{names.run_id()}"
        self._ports: list[tuple[str, str]] = []

    def seat(self, seat: int) -> str:
        """The namespace of a seat."""
        return f"{self._id}-g{seat}"

    @property
    def switches(self) -> str:
        """The namespace of all switches."""
        return f"{self._id}-sw"

    @property
    def storage(self) -> str:
        """The namespace of the storage server."""
        return f"{self._id}-st"

    def __enter__(self) -> Fabric:
        machine.leftovers()
        _ON_THE_WAY.append(self)
        _guard()
        try:
            self._build()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self.remove()

    def remove(self) -> None:
        """Takes the namespaces away, whatever of them there is."""
        mine = [n for n in names.present() if n.startswith(f"{self._id}-")]
        for name in mine:
            remove(name)
        if self in _ON_THE_WAY:
            _ON_THE_WAY.remove(self)

    def _build(self) -> None:
        shape = self.shape
        seats = [self.seat(s) for s in range(shape.seats)]
        all_of_them = [self.switches, *seats, *([self.storage] if shape.storage_bps else [])]
        batch("ip", [f"netns add {name}" for name in all_of_them])
        switch, inside, shaped = self._switches(), {n: [] for n in all_of_them}, {}
        for s, name in enumerate(seats):
            for port, bridge in self._ports_of(s):
                outer = f"{port}.{s}"
                switch += _joined(outer, port, name, bridge)
                inside[name] += _up(port, address(s, port))
                rate = shape.rate(s, port)
                shaped.setdefault(name, []).append(self._tbf(port, rate, PLENTY_BYTES))
                shaped.setdefault(self.switches, []).append(self._tbf(outer, rate))
        if shape.storage_bps:
            port = "store" if shape.store_bps else "rail0"
            outer = f"{port}.st"
            switch += _joined(outer, port, self.storage, "stores" if shape.store_bps else "leaf0")
            inside[self.storage] += _up(port, address(STORAGE_SEAT, port))
            shaped.setdefault(self.storage, []).append(
                self._tbf(port, shape.storage_bps, PLENTY_BYTES)
            )
            shaped[self.switches].append(self._tbf(outer, shape.storage_bps))
        if shape.spined and shape.uplink_bps:
            for leaf in range(shape.leaves):
                shaped[self.switches] += [
                    self._tbf(f"lift{leaf}", shape.uplink_bps),
                    self._tbf(f"drop{leaf}", shape.uplink_bps),
                ]
        batch("ip", switch, self.switches)
        for name, lines in inside.items():
            batch("ip", ["link set dev lo up", *lines], name)
        for name, lines in shaped.items():
            batch("tc", lines, name)

    def _ports_of(self, seat: int) -> list[tuple[str, str]]:
        """(port, bridge) of each of a seat's links."""
        shape = self.shape
        out = [(f"rail{n}", f"leaf{shape.leaf_of(seat, n)}") for n in range(shape.nics)]
        if shape.per_host > 1:
            out.append(("up", f"host{shape.host_of(seat)}"))
        if shape.store_bps:
            out.append(("store", "stores"))
        return out

    def _switches(self) -> list[str]:
        shape = self.shape
        bridges = [f"leaf{n}" for n in range(shape.leaves)]
        if shape.per_host > 1:
            bridges += [f"host{h}" for h in range(shape.hosts)]
        if shape.store_bps:
            bridges.append("stores")
        if shape.spined:
            bridges.append("spine")
        lines = [f"link add name {b} mtu {MTU_BYTES} type bridge" for b in bridges]
        if shape.spined:
            for n in range(shape.leaves):
                lines += [
                    f"link add name lift{n} mtu {MTU_BYTES} type veth peer name drop{n} "
                    f"mtu {MTU_BYTES}",
                    f"link set dev lift{n} master leaf{n} up",
                    f"link set dev drop{n} master spine up",
                ]
        return [*lines, *(f"link set dev {b} up" for b in bridges)]

    def _tbf(self, port: str, rate_bps: int, held_bytes: int = 0) -> str:
        """A port's bucket; one of a switch holds what the shape says, if it says so."""
        held = held_bytes or self.shape.queue_bytes or PLENTY_BYTES
        return f"qdisc add dev {port} root tbf rate {rate_bps}bit burst {BURST_BYTES} limit {held}"

    def dropped(self) -> dict[str, int]:
        """Packets that each port of a switch or seat dropped so far, those with any."""
        out = {}
        for name in (self.switches, *(self.seat(s) for s in range(self.shape.seats))):
            words = run("tc", "-n", name, "-s", "qdisc", "show").split()
            port = ""
            for i, word in enumerate(words):
                if word == "dev":
                    port = words[i + 1]
                if word == "(dropped" and int(words[i + 1].rstrip(",")):
                    out[f"{name.rsplit('-', 1)[1]} {port}"] = int(words[i + 1].rstrip(","))
        return out


def _joined(outer: str, port: str, namespace: str, bridge: str) -> list[str]:
    return [
        f"link add name {outer} mtu {MTU_BYTES} type veth peer name {port} mtu {MTU_BYTES} "
        f"netns {namespace}",
        f"link set dev {outer} master {bridge} up",
    ]


def _up(port: str, ip: str) -> list[str]:
    net = f"{ip.rpartition('.')[0]}.0/24"
    return [
        f"addr add {ip}/24 dev {port}",
        f"link set dev {port} up",
        # What was lost is sent again after milliseconds, as in data centres, not after 200.
        f"route change {net} dev {port} proto kernel scope link src {ip} rto_min 5ms",
    ]


def remove(name: str) -> None:
    """Ends the processes in one of the lab's namespaces and takes it away."""
    if not name.startswith(f"{names.PREFIX}-"):
        raise LabError(f"{name} is not the lab's")
    for pid in run("ip", "netns", "pids", name).split():
        if int(pid) != os.getpid():
            _end(int(pid))
    run("ip", "netns", "del", name)


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    until = time.monotonic() + 2
    while Path(f"/proc/{pid}/ns/net").exists() and time.monotonic() < until:
        time.sleep(0.01)


_ON_THE_WAY: list[Fabric] = []
_GUARDED = False


def _guard() -> None:
    """Removes what stands when the process ends, also by a signal that asks it to."""
    global _GUARDED
    if _GUARDED:
        return
    _GUARDED = True
    atexit.register(_remove_all)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: exit(128 + n))


def _remove_all() -> None:
    while _ON_THE_WAY:
        _ON_THE_WAY[-1].remove()
