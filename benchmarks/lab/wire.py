"""Connections between ranks, and one call that moves many messages at once over them.

Every pair of ranks has a connection a path: the NICs they share (0, 1, ...), and `UP` within a
host. Messages have no headers: both ends run the same program, so each knows what comes next.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

from .fabric import BURST_BYTES, address
from .shape import Shape

UP = 99
PORT = 7000
SEND_BUFFER_BYTES = 16 * 1024
RECEIVE_BUFFER_BYTES = 16 * 1024
"""The kernel doubles both: what is under way stays small, so that links set the pace."""
PATIENCE_S = 60.0
"""A message that takes longer than this ends the run: something hangs."""


class Message(NamedTuple):
    """Bytes to or from a rank over a path."""

    peer: int
    path: int
    data: memoryview


class Stuck(RuntimeError):
    """A rank waited longer than PATIENCE_S."""


def port_of(path: int) -> str:
    """The name of a seat's port that a path uses."""
    return "up" if path == UP else f"rail{path}"


def paths_between(shape: Shape, a: int, b: int) -> list[int]:
    """The paths that join two seats."""
    together = shape.per_host > 1 and shape.host_of(a) == shape.host_of(b)
    return [*range(shape.nics), *([UP] if together else [])]


class Mesh:
    """A rank's connections to all others; `sent` and `got` count bytes by (peer, path)."""

    def __init__(self, shape: Shape, rank: int, ranks: int, alpha_ns: float = 0.0):
        self.rank = rank
        self._alpha_s = alpha_ns * 1e-9
        self._rate_bps = {
            path: shape.rate(rank, port_of(path)) for path in (*range(shape.nics), UP)
        }
        self.sent: dict[tuple[int, int], int] = {}
        self.got: dict[tuple[int, int], int] = {}
        self._to: dict[tuple[int, int], socket.socket] = {}
        self._connect(shape, ranks)

    def _connect(self, shape: Shape, ranks: int) -> None:
        ports = {path for peer in range(ranks) if peer != self.rank
                 for path in paths_between(shape, self.rank, peer)}  # fmt: skip
        listening = {path: _listen(address(self.rank, port_of(path))) for path in sorted(ports)}
        for peer in range(self.rank):
            for path in paths_between(shape, self.rank, peer):
                here, there = (address(r, port_of(path)) for r in (self.rank, peer))
                one = _dial(here, there)
                one.sendall(struct.pack("!i", self.rank))
                self._to[peer, path] = one
        for path, door in listening.items():
            wanted = [p for p in range(self.rank + 1, ranks)
                      if path in paths_between(shape, self.rank, p)]  # fmt: skip
            door.settimeout(PATIENCE_S)
            for _ in wanted:
                one, _where = door.accept()
                _tuned(one)
                self._to[struct.unpack("!i", one.recv(4, socket.MSG_WAITALL))[0], path] = one
            door.close()
        for one in self._to.values():
            one.setblocking(False)

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """Moves all of these; returns when what is sent is on its way and the rest has come.

        Each call waits for what a message costs before its bytes move (veth pairs have no latency
        to speak of, networks do), and for its first packets: a full token bucket lets those pass at
        once, a wire does not.
        """
        wait_s = self._alpha_s + self._first_packet_s(sends)
        if wait_s:
            time.sleep(wait_s)
        out = {self._to[m.peer, m.path]: [m, 0] for m in sends if len(m.data)}
        into = {self._to[m.peer, m.path]: [m, 0] for m in receives if len(m.data)}
        for counts, messages in ((self.sent, sends), (self.got, receives)):
            for m in messages:
                counts[m.peer, m.path] = counts.get((m.peer, m.path), 0) + len(m.data)
        for s in list(out):
            _push(s, out)
        poller, by_number, asked = select.poll(), {}, {}
        while out or into:
            for s in {*out, *into}:
                events = select.POLLOUT * (s in out) | select.POLLIN * (s in into)
                if asked.get(s) != events:
                    poller.register(s, events)
                    asked[s], by_number[s.fileno()] = events, s
            ready = poller.poll(PATIENCE_S * 1000)
            if not ready:
                raise Stuck(f"rank {self.rank}: nothing moved for {PATIENCE_S:g} s")
            for number, event in ready:
                s = by_number[number]
                if event & (select.POLLIN | select.POLLHUP | select.POLLERR) and s in into:
                    _pull(s, into)
                if event & select.POLLOUT and s in out:
                    _push(s, out)
                if s not in out and s not in into:
                    poller.unregister(s)
                    asked.pop(s)

    def _first_packet_s(self, sends: Sequence[Message]) -> float:
        by_path: dict[int, int] = {}
        for m in sends:
            by_path[m.path] = by_path.get(m.path, 0) + len(m.data)
        return max(
            (8 * min(n, BURST_BYTES) / self._rate_bps[path] for path, n in by_path.items()),
            default=0.0,
        )

    def close(self) -> None:
        """Ends all connections."""
        for one in self._to.values():
            one.close()


def _push(s: socket.socket, out: dict) -> None:
    state = out[s]
    message, done = state
    try:
        done += s.send(message.data[done:])
    except BlockingIOError:
        return
    if done == len(message.data):
        del out[s]
    else:
        state[1] = done


def _pull(s: socket.socket, into: dict) -> None:
    state = into[s]
    message, done = state
    try:
        n = s.recv_into(message.data[done:])
    except BlockingIOError:
        return
    if not n:
        raise Stuck(f"rank {message.peer} has gone")
    if done + n == len(message.data):
        del into[s]
    else:
        state[1] = done + n


def _tuned(s: socket.socket) -> None:
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


def _listen(ip: str) -> socket.socket:
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Before it listens: the window is agreed on as a connection begins.
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    s.bind((ip, PORT))
    s.listen(64)
    return s


def _dial(here: str, there: str) -> socket.socket:
    until = time.monotonic() + PATIENCE_S
    while True:
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        _tuned(s)
        s.bind((here, 0))
        try:
            s.connect((there, PORT))
            return s
        except OSError:
            s.close()
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
