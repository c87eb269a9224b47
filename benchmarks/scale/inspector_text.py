"""What NCCL's Inspector writes of a rank's network: the proxy's operations, as JSON lines (4.3).

Written is what crosses hosts, an operation a peer: of exchanges one each way with every other
member, of rings one to the next host and one from the host before. An exchange counts as one
operation of its communicator.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import numpy as np

from .program import Op
from .shape import BASE_NS, BEGIN_NS, DIMS, HOST_RANKS, TOKEN_BYTES, Shape
from .simulate import nic_ns_per_byte, ring_bytes

ACROSS = ("world", "dp", "ep")


class RankRecords:
    """The lines of one rank."""

    def __init__(self, shape: Shape, ops: list[Op], rank: int):
        self._shape, self._ops, self._rank = shape, ops, rank
        self._members = {d: shape.members(d, rank) for d in ACROSS}
        self._ns_per_byte = float(nic_ns_per_byte(shape)[rank])
        self._sn = dict.fromkeys(DIMS, 0)
        self._records = 0

    def step(self, ready_ns: np.ndarray, rows: np.ndarray, ahead_ns: np.ndarray) -> bytes:
        """A step's lines: for each communicator its dump's first line, then its operations.

        `ready_ns` is when each operation of the program could move, on the true clock;
        `ahead_ns` what the host's clock is ahead then; `rows` as `RankText.step` has them.
        """
        lines: dict[str, list[bytes]] = {d: [] for d in ACROSS}
        clock = BASE_NS + BEGIN_NS + ready_ns + ahead_ns
        for i, op in enumerate(self._ops):
            if op.dim in lines:
                both = rows[op.layer, op.microbatch] if op.dim == "ep" else None
                lines[op.dim] += self._operation(op, int(clock[i]), both)
        return b"".join(
            line for dim in ACROSS for line in (self._first(dim, len(lines[dim])), *lines[dim])
        )

    def _operation(self, op: Op, begun_ns: int, rows: np.ndarray | None) -> Iterator[bytes]:
        members = self._members[op.dim]
        place = members.index(self._rank)
        for way in (0, 1):
            at_ns = float(begun_ns)
            for peer, size in self._peers(op, place, rows, way):
                took = size * self._ns_per_byte
                yield self._line(op.dim, "recv" if way else "send", peer, size, at_ns, took)
                at_ns += took
        self._sn[op.dim] += 1

    def _peers(
        self, op: Op, place: int, rows: np.ndarray | None, way: int
    ) -> Iterator[tuple[int, int]]:
        """(place, bytes) of those to which (way 0), or from which, something goes by the NIC."""
        n = len(self._members[op.dim])
        if rows is None:
            far = HOST_RANKS if op.dim == "world" else 1
            yield (place + (far, -far)[way]) % n, ring_bytes(self._shape, op)
            return
        mine = rows[way ^ (op.place == "all_to_all_back")]
        for step in range(1, n):
            peer = (place + (step, -step)[way]) % n
            yield peer, int(mine[peer]) * TOKEN_BYTES

    def _line(
        self, dim: str, direction: str, peer: int, size: int, at_ns: float, took_ns: float
    ) -> bytes:
        self._records += 1
        n, begun = self._records, round(at_ns / 1000)
        done = max(begun, round((at_ns + took_ns) / 1000))
        return (
            f'{{"proxy_trace":{{"record_type":"proxy_op","record_sn":{n},"parent_type":"coll",'
            f'"parent_sn":{self._sn[dim]},"proxy_op_sn":{n},"rank":{self._rank},"channel_id":0,'
            f'"peer":{peer},"direction":"{direction}","n_steps":1,"n_steps_completed":1,'
            f'"n_steps_dropped":0,"trans_size_bytes":{size},"event_trace_ts":{{'
            f'"proxy_op_start_ts":{begun},"proxy_op_in_progress_ts":{begun},'
            f'"proxy_op_stop_ts":{done}}}}}}}\n'
        ).encode()

    def _first(self, dim: str, records: int) -> bytes:
        members = self._members[dim]
        host = self._rank // HOST_RANKS
        line = {
            "header": {
                "id": "0x" + _digits(dim, members), "comm_name": f"{dim}:{len(members)}",
                "rank": members.index(self._rank), "n_ranks": len(members),
                "nnodes": self._shape.hosts,
            },
            "metadata": {
                "inspector_output_format_version": "v4.3",
                "hostname": self._shape.host_name(host), "pid": 4242 + self._rank % HOST_RANKS,
            },
            "dump_stats": {
                "coll_records": 0, "coll_dropped_total": 0, "p2p_records": 0,
                "p2p_dropped_total": 0, "proxy_records": records, "proxy_steps_enabled": 0,
            },
        }  # fmt: skip
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _digits(dim: str, members: list[int]) -> str:
    return hashlib.sha256(repr((dim, members)).encode()).hexdigest()[:14]
