"""What single messages of NCCL's debug log say: links, rings, trees, collectives, choices."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from ..classify import buffers, nccl_dtype, op_of_collective_name

_ALGOS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
_PROTOS = ("LL", "LL128", "Simple")
_ALGO_NAMES = {"collnetdirect": "collnet_direct", "collnetchain": "collnet_chain",
               "nvlstree": "nvls_tree"}  # fmt: skip
_PROTO_NAMES = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}

_LINK = re.compile(
    rb"(?:Channel|Ring) (\d{1,5})(?:/\d{1,5})? : (\d{1,8})(?:\[-?\w{1,16}\])? -> "
    rb"(\d{1,8})(?:\[-?\w{1,16}\])? (?:\[(send|receive)\] )?via (.{1,160})"
)
_OF_COMM = re.compile(rb" comm (0x[0-9a-f]{1,16})\b")
_RING = re.compile(rb"(?:Channel|Ring) (\d{1,5})(?:/\d{1,5})? : {1,8}(?=\d)")
_RING_PART = re.compile(rb"Ring (\d{1,5}) : (-?\d{1,8}) -> (-?\d{1,8}) -> (-?\d{1,8})\b")
_TREE = re.compile(
    rb"\[(\d{1,5})\] (-?\d{1,8})/(-?\d{1,8})/(-?\d{1,8})->(-?\d{1,8})->(-?\d{1,8})\b"
)
_TREE_START = re.compile(rb"\[\d{1,5}\] ")
_TREE_PART = re.compile(
    rb"Tree (\d{1,5}) : (-?\d{1,8}) -> (-?\d{1,8}) -> (-?\d{1,8})/(-?\d{1,8})/(-?\d{1,8})"
)
_COLLECTIVE = re.compile(
    rb"(\w{1,40}): opCount [0-9a-f]{1,16} sendbuff \S{1,20} recvbuff \S{1,20} (?:acc \S{1,20} )?"
    rb"count (\d{1,20}) datatype (\d{1,4}) op \d{1,20} root (-?\d{1,10}) "
    rb"comm (0x[0-9a-f]{1,16}|\(nil\)) \[nranks=(\d{1,10})\]"
)
_TUNING = re.compile(
    rb"(?:(\w{1,40}): )?(\d{1,20}) Bytes -> Algo (\w{1,20}) proto (\w{1,20})"
    rb"(?: time (\d{1,12}(?:\.\d{1,12})?))?"
    rb"(?: channel\{Lo\.\.Hi\}=\{(\d{1,5})\.\.(\d{1,5})\})?(?:.{0,40} comm (0x[0-9a-f]{1,16}))?"
)
_NIC = re.compile(rb"\[(\d{1,4})\]([A-Za-z][\w.-]{0,63})(?::(\d{1,5})(?=/))?(?:/(\w{1,16}))?")
_VIRTUAL_NIC = re.compile(
    rb"NET/(\w{1,32}) : Made virtual device \[(\d{1,4})\] name=([\w.+-]{1,200})"
)
_NET_INDEX = re.compile(r"(\d{1,5})(?:\(\d{1,8}\))?\Z")
_TEXT_BYTES = 1200
ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Operations with a root."""


class Link(NamedTuple):
    """A connection that a rank of a communicator set up; ranks are of the communicator.

    `me` wrote the line. `net` is the network's name and `index` its device, None off the network;
    `via` is the transport without the device's number.
    """

    channel: int
    me: int
    peer: int
    direction: str
    via: str
    net: str | None
    index: int | None
    comm: bytes | None


class Call(NamedTuple):
    """What a line of the subsystem COLL says; `unit_bytes` are of one element.

    None where the element type is unknown, and where the count is not of the caller's buffers.
    """

    op: str
    dtype: str | None
    unit_bytes: int | None
    count: int
    root: int | None
    comm: bytes
    size: int

    def buffers(self, place: int | None) -> tuple[int | None, int | None]:
        """(input, output) bytes of the rank at this place of the communicator (None: unknown)."""
        n_bytes = None if self.unit_bytes is None else self.count * self.unit_bytes
        return buffers(self.op, n_bytes, self.size, None if place is None else place == self.root)


class Choice(NamedTuple):
    """A line of the subsystem TUNING."""

    op: str | None
    bytes: int
    algo: str
    proto: str
    channels: int | None
    predicted_ns: int | None
    comm: bytes | None


def link(text: bytes) -> Link | None:
    """The link of a line `Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/0`; None for others."""
    m = _LINK.match(text[:_TEXT_BYTES])
    if m is None:
        return None
    low, high = int(m[2]), int(m[3])
    direction = "recv" if m[4] == b"receive" else "send"
    me, peer = (high, low) if direction == "recv" else (low, high)
    rest = m[5]
    of = _OF_COMM.search(text[:_TEXT_BYTES])
    if (end := rest.find(b" comm 0x")) >= 0:
        rest = rest[:end]
    via, net, index = _transport(rest.decode(errors="replace").strip())
    return Link(int(m[1]), me, peer, direction, via, net, index, of[1] if of else None)


def _transport(text: str) -> tuple[str, str | None, int | None]:
    parts = text[:100].split("/")
    if parts[0] == "NET":
        for at in range(2, len(parts)):
            if m := _NET_INDEX.match(parts[at]):
                rest = "/".join(parts[at + 1 :])
                net = "/".join(parts[1:at])
                return f"NET/{net}" + (f"/{rest}" if rest else ""), net, int(m[1])
        return text[:100], "/".join(parts[1:]) or None, None
    return "/".join(parts), None, None


def ring(text: bytes) -> tuple[int, list[int]] | None:
    """(channel, ranks in order) of a line `Channel 00/02 : 0 1 2 3`; None for others."""
    m = _RING.match(text)
    if m is None:
        return None
    order = []
    for word in text[m.end() :].split():
        if not word.isdigit() or len(word) > 8:
            if b"->" in text:
                return None  # a link that is cut
            break
        order.append(int(word))
    return (int(m[1]), order) if order else None


def ring_part(text: bytes) -> tuple[int, int, int, int] | None:
    """(channel, previous, rank, next) of a line `Ring 00 : 7 -> 0 -> 1`; None for others."""
    m = _RING_PART.match(text[:_TEXT_BYTES])
    return None if m is None else (int(m[1]), int(m[2]), int(m[3]), int(m[4]))


def trees(text: bytes) -> tuple[list[tuple[int, int, int, tuple[int, ...]]], int]:
    """(channel, rank, parent, children) of each channel of a `Trees` line, and how many are cut.

    -1 stands for none. Versions before 2.8 say each tree twice; the second half is the first.
    """
    if m := _TREE_PART.match(text[:_TEXT_BYTES]):
        n = [int(g) for g in m.groups()]
        return [(n[0], n[2], n[1], (n[3], n[4], n[5]))], 0
    text = text[: 1 << 16]
    found = []
    for m in _TREE.finditer(text):
        n = [int(g) for g in m.groups()]
        found.append((n[0], n[4], n[5], (n[1], n[2], n[3])))
    return found, len(_TREE_START.findall(text)) - len(found)


def of_comm(text: bytes) -> bytes | None:
    """The communicator's pointer that RCCL (and some builds of NCCL) put at a line's end."""
    m = _OF_COMM.search(text[-400:])
    return m[1] if m else None


@lru_cache(maxsize=1 << 10)
def _op(name: bytes) -> str | None:
    return op_of_collective_name(name.decode())


def call(text: bytes) -> Call | None:
    """The call of a line of the subsystem COLL; None where it is cut or another line."""
    m = _COLLECTIVE.search(text[:_TEXT_BYTES])
    if m is None:
        return None
    dtype = nccl_dtype(int(m[3]))
    unit = dtype.itemsize if dtype is not None else None
    if b"alltoallv" in m[1].lower():
        unit = None  # the count is of one peer only, or of none
    root = int(m[4])
    return Call(
        _op(m[1]) or "unknown", dtype.name if dtype is not None else None, unit, int(m[2]),
        root if root >= 0 else None, m[5], int(m[6]),
    )  # fmt: skip


def choice(text: bytes) -> Choice | None:
    """The choice of a line `AllReduce: N Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}`.

    Versions 2.20 to 2.22 print numbers, and the time (us) that their model expects.
    """
    m = _TUNING.search(text[:_TEXT_BYTES])
    if m is None:
        return None
    op = _op(m[1]) if m[1] else None
    channels = int(m[7]) - int(m[6]) + 1 if m[7] is not None else None
    if channels is not None and channels < 1:
        channels = None
    predicted = int((Decimal(m[5].decode()) * 1000).to_integral_value()) if m[5] else None
    algo, proto = m[3].decode(errors="replace").lower(), m[4].decode(errors="replace").lower()
    algo = _ALGOS[int(algo)] if algo in "0123456" else _ALGO_NAMES.get(algo, algo)
    proto = _PROTOS[int(proto)] if proto in "012" else _PROTO_NAMES.get(proto, proto)
    return Choice(op, int(m[2]), algo, proto, channels, predicted, m[8])


def nics(text: bytes) -> tuple[str, list[tuple[int, str]]] | None:
    """(network, (number, name) of its devices) of a line `NET/IB : Using [0]mlx5_0:1/RoCE ..`.

    A port other than the first stays in the name. None for other lines.
    """
    if m := _VIRTUAL_NIC.match(text[:_TEXT_BYTES]):
        return m[1].decode(), [(int(m[2]), m[3].decode())]
    head, using, rest = text[:8192].partition(b" : Using ")
    if not using or not head.startswith(b"NET/") or len(head) > 64:
        return None
    found = []
    for m in _NIC.finditer(rest.split(b"; OOB", 1)[0]):
        name = m[2].decode(errors="replace")
        if m[3] is not None and m[3] != b"1":
            name = f"{name}:{m[3].decode()}"
        found.append((int(m[1]), name))
    return head[4:].decode(errors="replace"), found
