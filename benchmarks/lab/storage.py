"""The storage server and its clients: reads in bursts, over the collectives' links or others."""

from __future__ import annotations

import selectors
import socket
import time
from pathlib import Path

from .fabric import STORAGE_SEAT, address
from .trace import Clock, Trace
from .workload import Storage

PORT = 7100
CHUNK_BYTES = 32 * 1024


def serve(port: str) -> None:
    """Sends to every client as many bytes as it asks for (one number a line), until killed."""
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind((address(STORAGE_SEAT, port), PORT))
    door.listen(64)
    choose, block = selectors.DefaultSelector(), memoryview(bytearray(CHUNK_BYTES))
    choose.register(door, selectors.EVENT_READ)
    while True:
        for key, _ in choose.select():
            if key.fileobj is door:
                one, _where = door.accept()
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHUNK_BYTES)
                one.setblocking(False)
                choose.register(one, selectors.EVENT_READ, [0])
                continue
            _serve_one(choose, key, block)


def _serve_one(choose, key, block: memoryview) -> None:
    one, left = key.fileobj, key.data
    try:
        if not left[0]:
            asked = one.recv(64)
            if not asked:
                choose.unregister(one)
                return
            left[0] = int(asked.split()[-1])
        left[0] -= one.send(block[: min(left[0], CHUNK_BYTES)])
    except BlockingIOError:
        pass
    except OSError:
        choose.unregister(one)
        return
    choose.modify(one, selectors.EVENT_WRITE if left[0] else selectors.EVENT_READ, left)


def read(load: Storage, seat: int, clock: Clock, end_ns: float, out: Path) -> None:
    """Bursts of reads until a moment of the machine's clock; writes `transfers` of class storage.

    Bursts of all seats begin together, at multiples of their period.
    """
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * CHUNK_BYTES)
    s.bind((address(seat, load.port), 0))
    for _ in range(100):
        try:
            s.connect((address(STORAGE_SEAT, load.port), PORT))
            break
        except OSError:
            time.sleep(0.02)
    trace, room = Trace(), memoryview(bytearray(CHUNK_BYTES))
    period = (load.on_ms + load.off_ms) * 1e6
    while (now := time.monotonic_ns()) < end_ns:
        begin = -(-now // period) * period if load.off_ms else now
        time.sleep((begin - now) * 1e-9)
        moved, start = 0, time.monotonic_ns()
        while time.monotonic_ns() < min(begin + load.on_ms * 1e6, end_ns):
            left = CHUNK_BYTES
            s.sendall(b"%d\n" % left)
            while left:
                n = s.recv_into(room[:left])
                if not n:
                    raise ConnectionError("the storage server has gone")
                left -= n
            moved += CHUNK_BYTES
        if moved:
            trace.add("transfers", bytes=moved, direction="recv", traffic_class="storage",
                      rail=0 if load.port == "rail0" else None, nic=load.port, via="NET/Socket",
                      start_ns=clock.of(start), end_ns=clock.now_ns())  # fmt: skip
            trace.write(out)
