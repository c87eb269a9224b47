"""Bytes, not time: what ranks and servers send, and what crosses a host's boundary, by direction.

All by counting; the worked cases are tests.
"""

from __future__ import annotations

from typing import NamedTuple

from .forms import NoModel


class Server(NamedTuple):
    """Bytes of one all-reduce of D through a parameter server that is one of the n ranks."""

    worker_out_bytes: float
    worker_in_bytes: float
    server_out_bytes: float
    server_in_bytes: float

    @property
    def worker_bytes(self) -> float:
        """2 D: what one worker moves in all."""
        return self.worker_out_bytes + self.worker_in_bytes


def parameter_server(n: int, size_bytes: float) -> Server:
    """D out and D in at a worker; (n-1) D in and (n-1) D out at the server's own port."""
    at_server = (n - 1) * size_bytes
    return Server(size_bytes, size_bytes, at_server, at_server)


class Cut(NamedTuple):
    """Bytes across one host's boundary, of one collective."""

    out_bytes: float
    in_bytes: float
    nic_out_bytes: float
    """Of its busiest NIC."""
    nic_in_bytes: float


PASSES = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}


def ring_cut(op: str, hosts: int, per_host: int, size_bytes: float) -> Cut:
    """One ring over all ranks, host by host: it leaves and enters each host once, over one NIC.

    An edge of the ring carries `passes (n-1)/n M`.
    """
    passes = _passes(op)
    if hosts < 2:
        return Cut(0.0, 0.0, 0.0, 0.0)
    n = hosts * per_host
    edge = passes * (n - 1) / n * size_bytes
    return Cut(edge, edge, edge, edge)


def hierarchical_cut(
    op: str, hosts: int, per_host: int, size_bytes: float, nics: int | None = None
) -> Cut:
    """Each of a host's L ranks sends `passes (H-1)/H M/L` to its peers, over `nics` NICs."""
    passes = _passes(op)
    whole = passes * (hosts - 1) / hosts * size_bytes
    used = min(nics or per_host, per_host)
    return Cut(whole, whole, whole / used, whole / used)


def _passes(op: str) -> int:
    if op not in PASSES:
        raise NoModel(f"no count of what {op} sends across hosts; there is of {', '.join(PASSES)}")
    return PASSES[op]
