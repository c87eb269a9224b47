"""Bytes of an exchange on the ports that carry it: a NIC a rail of each host, a GPU's own NVLink.

An exchange is a matrix D[s][d] of bytes between its members. The k-th GPU of a host sends over the
host's rail k; how it reaches a GPU of another rail is the path. Sources: DeepEP's README (two
hops), NVIDIA's description of PXN, RailS (arXiv 2510.19262) for the balance; the algebra is ours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...ingest.compiled import compiled

PATHS = ("direct", "two-hop", "pxn")
"""direct: to the destination's own NIC. two-hop: to the NIC of the sender's index at the
destination's host, then NVLink. pxn: NVLink to the destination's index first, then its rail."""


class Layout(NamedTuple):
    """Where the n members of an exchange are."""

    host: np.ndarray
    """int64 [n]: 0 to hosts - 1."""
    rail: np.ndarray
    """int64 [n]: place in the host, 0 to rails - 1: the rail of its NIC."""
    hosts: int
    rails: int


def layout(host: np.ndarray, local: np.ndarray) -> Layout:
    """The layout of members from any codes of host and place, which are numbered from 0."""
    hosts, host_of = np.unique(host, return_inverse=True)
    rails, rail_of = np.unique(local, return_inverse=True)
    return Layout(host_of.astype(np.int64), rail_of.astype(np.int64), len(hosts), len(rails))


class Loads(NamedTuple):
    """Bytes on each port, float64 [hosts, rails], seen from the GPU or NIC of that place."""

    send: np.ndarray
    recv: np.ndarray
    """Of the NIC."""
    before_out: np.ndarray
    before_in: np.ndarray
    """NVLink, forwarded to another rail before the network."""
    after_out: np.ndarray
    after_in: np.ndarray
    """NVLink, forwarded from the rail that it arrived on."""
    local_out: np.ndarray
    local_in: np.ndarray
    """NVLink, between members of one host."""

    @property
    def network(self) -> float:
        """The most loaded NIC, in bytes, of either direction."""
        return _most(self.send, self.recv)

    @property
    def forwarded(self) -> float:
        """All bytes that cross NVLink on their way to or from another host."""
        return float(self.before_out.sum() + self.after_out.sum())

    @property
    def hops(self) -> int:
        """Phases of forwarding that there are: before the network, after it."""
        return int(self.before_out.any()) + int(self.after_out.any())


class Speeds(NamedTuple):
    """What a port carries in one direction."""

    nic_bytes_per_s: float
    nvlink_bytes_per_s: float


def loads(matrix: np.ndarray, where: Layout, path: str = "direct") -> Loads:
    """The port loads of an exchange float64 [n, n] under a path of `PATHS`."""
    if path == "two-hop":
        return balanced(matrix, where, granularity_bytes=np.inf)
    out = _empty(where)
    pair = _local(matrix, where, out)
    sender = pair.sum(axis=(2, 3))
    out.recv[:] = pair.sum(axis=(0, 1))
    if path == "direct":
        out.send[:] = sender
        return out
    # [host, rail of the destination]: what leaves over each NIC once it has been handed over.
    out.send[:] = pair.sum(axis=(1, 2))
    stays = np.einsum("srdr->sr", pair)
    out.before_out[:] = sender - stays
    out.before_in[:] = out.send - stays
    return out


def balanced(matrix: np.ndarray, where: Layout, granularity_bytes: float = 0.0) -> Loads:
    """The port loads when each host spreads what it sends to each other host over all its rails.

    Balanced by pair of hosts, so that the receivers' rails are as even as the senders': a balance
    of a source's sum would leave them as they fall. `granularity_bytes` is the piece that cannot
    be split (0: split evenly; infinity: nothing moves to another rail). Pieces go largest first to
    the least loaded rail (LPT, Graham 1969), which leaves at most mean + (1 - 1/N) of a piece. What
    arrives on a rail has the mixture of destinations of its pair.
    """
    out = _empty(where)
    pair = _local(matrix, where, out)
    _balance(pair, granularity_bytes, *out[:6])
    return out


def carried(matrix: np.ndarray, where: Layout, granularity_bytes: float = 0.0) -> np.ndarray | None:
    """Who sends how much to whom once `balanced`, float64 [n, n], to within a piece.

    Between hosts each rail's GPU sends to its like on the other host (what it then hands on within
    the host is not in it); within hosts as before. None where a host lacks a GPU of some rail.
    """
    at = np.full((where.hosts, where.rails), -1)
    at[where.host, where.rail] = np.arange(len(where.host))
    if (at < 0).any() or at.size != len(where.host):
        return None
    host = where.host
    out = np.where(host[:, None] == host[None, :], np.asarray(matrix, np.float64), 0.0)
    sent = np.zeros((where.hosts, where.rails, where.hosts))
    source, target = np.nonzero(host[:, None] != host[None, :])
    np.add.at(sent, (host[source], where.rail[source], host[target]), matrix[source, target])
    if not np.isinf(granularity_bytes):
        sent = np.broadcast_to(sent.mean(axis=1, keepdims=True), sent.shape)
    for rail in range(where.rails):
        out[np.ix_(at[:, rail], at[:, rail])] += sent[:, rail, :]
    return out


@compiled
def _balance(
    pair, granularity, send, recv, before_out, before_in, after_out, after_in
):  # pragma: no cover - compiled
    hosts, n = send.shape
    for s in range(hosts):
        for d in range(hosts):
            had = np.zeros(n)
            to = np.zeros(n)
            for r in range(n):
                for q in range(n):
                    had[r] += pair[s, r, d, q]
                    to[q] += pair[s, r, d, q]
            total = had.sum()
            if total <= 0:
                continue
            now = _spread(had, granularity, send[s] + recv[d])
            unsplit = np.isinf(granularity)
            for r in range(n):
                send[s, r] += now[r]
                recv[d, r] += now[r]
                before_out[s, r] += max(had[r] - now[r], 0.0)
                before_in[s, r] += max(now[r] - had[r], 0.0)
                for q in range(n):
                    if r != q:
                        crosses = pair[s, r, d, q] if unsplit else now[r] * to[q] / total
                        after_out[d, r] += crosses
                        after_in[d, q] += crosses


def spread(had: np.ndarray, granularity_bytes: float, carried: np.ndarray) -> np.ndarray:
    """Bytes of each rail, float64 [N], after `had` is cut into pieces and these are dealt out.

    Each rail's bytes are whole pieces and a rest. Equal pieces to the least loaded are a round
    robin; then the rests, largest first, to the least loaded (of equals, to the one that has
    `carried` least for other pairs). The fullest result stays where most bytes were.
    """
    had, carried = np.asarray(had, np.float64), np.asarray(carried, np.float64)
    return _spread(had, float(granularity_bytes), carried)


@compiled
def _spread(had, granularity, carried):  # pragma: no cover - compiled
    n = len(had)
    if granularity <= 0:
        return np.full(n, had.sum() / n)
    if granularity >= had.max():
        return had.copy()
    whole = np.floor(had / granularity)
    pieces = int(whole.sum())
    now = np.full(n, float(pieces // n))
    now[np.argsort(carried, kind="mergesort")[: pieces % n]] += 1
    now = _deal(had - whole * granularity, now * granularity, carried)
    kept = np.empty(n)
    kept[np.argsort(-had, kind="mergesort")] = np.sort(now)[::-1]
    return kept


def lpt(pieces: np.ndarray, bins: int) -> np.ndarray:
    """Loads of `bins` after pieces go, largest first, to the least loaded (Graham 1969).

    At most mean + (1 - 1/N) of the largest piece, and 4/3 - 1/(3N) of the best possible.
    """
    return _deal(np.asarray(pieces, np.float64), np.zeros(bins), np.zeros(bins))


@compiled
def _deal(pieces, start, carried):  # pragma: no cover - compiled
    now = start.copy()
    for piece in np.sort(pieces)[::-1]:
        if piece <= 0:
            break
        least = 0
        for b in range(1, len(now)):
            if now[b] < now[least] or (now[b] == now[least] and carried[b] < carried[least]):
                least = b
        now[least] += piece
    return now


def time_ns(
    now: Loads, speeds: Speeds, *, pipelined: bool = False, chunk_bytes: float = 0.0
) -> float:
    """How long the ports need, in ns: a bound that a good schedule of one exchange comes near to.

    Serial: forwarding before, then the network beside the hosts' own traffic, then forwarding
    after. Pipelined: the busiest of NIC and NVLink, and one chunk through each hop that there is.
    """
    nic, nvlink = 1e9 / speeds.nic_bytes_per_s, 1e9 / speeds.nvlink_bytes_per_s
    before = _most(now.before_out, now.before_in) * nvlink
    after = _most(now.after_out, now.after_in) * nvlink
    local = _most(now.local_out, now.local_in) * nvlink
    network = now.network * nic
    if not pipelined:
        return before + max(network, local) + after
    through = _most(
        now.before_out + now.after_out + now.local_out, now.before_in + now.after_in + now.local_in
    )
    hops = (before > 0) + (after > 0)
    return max(network, through * nvlink) + hops * chunk_bytes * nvlink


def done(now: Loads, where: Layout, speeds: Speeds) -> np.ndarray:
    """When each member is done as a share of the last one's time, float64 [n]: its own ports'."""
    nic, nvlink = 1e9 / speeds.nic_bytes_per_s, 1e9 / speeds.nvlink_bytes_per_s
    took = np.maximum(
        np.maximum(now.send, now.recv) * nic, np.maximum(now.local_out, now.local_in) * nvlink
    )
    for out, into in ((now.before_out, now.before_in), (now.after_out, now.after_in)):
        took = took + np.maximum(out, into) * nvlink
    most = took.max(initial=0.0)
    return (took / most if most > 0 else np.ones_like(took))[where.host, where.rail]


def least_ns(matrix: np.ndarray, where: Layout, speeds: Speeds) -> float:
    """What no use of the rails can beat: a host's bytes in or out over all its NICs."""
    cross = matrix * (where.host[:, None] != where.host[None, :])
    out, into = np.zeros(where.hosts), np.zeros(where.hosts)
    np.add.at(out, where.host, cross.sum(axis=1))
    np.add.at(into, where.host, cross.sum(axis=0))
    return _most(out, into) / where.rails * 1e9 / speeds.nic_bytes_per_s


def _empty(where: Layout) -> Loads:
    return Loads(*(np.zeros((where.hosts, where.rails)) for _ in Loads._fields))


def _local(matrix: np.ndarray, where: Layout, out: Loads) -> np.ndarray:
    """Bytes between hosts, [host, rail, host, rail]; those within a host go to `out.local_*`."""
    pair = np.zeros((where.hosts, where.rails, where.hosts, where.rails))
    _add(np.asarray(matrix, np.float64), where.host, where.rail, pair, out.local_out, out.local_in)
    return pair


@compiled
def _add(matrix, host, rail, pair, local_out, local_in):  # pragma: no cover - compiled
    n = len(host)
    for s in range(n):
        for d in range(n):
            if host[s] != host[d]:
                pair[host[s], rail[s], host[d], rail[d]] += matrix[s, d]
            elif rail[s] != rail[d]:
                local_out[host[s], rail[s]] += matrix[s, d]
                local_in[host[d], rail[d]] += matrix[s, d]


def _most(a: np.ndarray, b: np.ndarray) -> float:
    return float(max(a.max(initial=0.0), b.max(initial=0.0)))
