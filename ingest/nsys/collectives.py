"""Participations of a report's ranks: communication kernels with what their calls say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from .. import classify
from ..collect import BATCH_ROWS, Collector
from ..kineto.rawbatch import NULL
from ..kineto.steps import HostSteps, numbers_of, step_index_at
from ..nccl.comm_places import comm_of_hash
from ..schema import MAX_RANK, event_id
from .callranges import OPS, Block
from .calls import P2P, Call, Carried, Operation, by_block, call_at
from .columns import EVENT_SPACE, NVTX, ROW_BITS
from .commkernels import CommKernels
from .comms import WORLD, Comms

HELD_KERNELS = 1 << 13
"""What so many kernels of a rank carry is held while it is looked at; of more it is made again."""


class Writer:
    """Adds the participations of ranks to a collector."""

    def __init__(self, c: Collector, comms: Comms, world: int | None, clock: str):
        self._c = c
        self._comms = comms
        self._world = world
        self._clock = clock
        self.used: set[int] = set()
        self.on_trial = False
        self._inferred = 0
        """all-to-alls that nothing but their shape tells"""

    def kernels(
        self,
        rank: int,
        k: CommKernels,
        blocks: Callable[[], Iterable[Block]],
        told: dict[int, Carried],
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """A row for each kernel; of a group of sends and receives one for each peer.

        `blocks` gives its process's calls, each time it is asked; `told` is what the trace of
        NCCL's own operations says of some kernels, by index. Yields what the collector has when
        that is much.
        """
        whole_world, held = self._is_whole_world(rank, k, blocks, told)
        self.on_trial |= whole_world
        if held is None:
            self._inferred = 0  # they are counted when they become rows
            held = self._each(rank, k, blocks, told)
        for i, parts in held:
            for part in parts:
                if whole_world:
                    part["comm"], part["group_size"] = WORLD, self._world
                self._c.add("collectives", rank=rank, **self._timed(k, i), **part)
            if self._c.n("collectives") >= BATCH_ROWS:
                yield from self._c.full()
        self._say_inferred()

    def _each(
        self, rank: int, k: CommKernels, blocks: Callable[[], Iterable[Block]],
        told: dict[int, Carried],
    ) -> Iterator[tuple[int, list[dict]]]:  # fmt: skip
        """The index of each kernel and its rows."""
        for its, loads in by_block(k, blocks()):
            for i, load in zip(its.tolist(), loads, strict=True):
                yield i, self._parts(rank, k, i, told.get(i, load))

    def _is_whole_world(
        self, rank: int, k: CommKernels, blocks: Callable[[], Iterable[Block]],
        told: dict[int, Carried],
    ) -> tuple[bool, Iterable[tuple[int, list[dict]]] | None]:  # fmt: skip
        """Whether all is on one stream, and that has nothing but exchanges of all ranks (or ones
        whose launch was not captured): then the communicator is that of all ranks, if order and
        time confirm it. And what `_each` gives, where all of that was looked at and is not much."""
        self._inferred = 0
        if len(np.unique(k.stream)) != 1:
            return False, None
        exchanged, held = False, []
        for i, p in self._each(rank, k, blocks, told):
            if len(p) != 1 or "comm" in p[0] or "coalesced" in p[0]:
                return False, None
            if p[0]["op"] not in ("all_to_all", "send_recv"):
                return False, None
            exchanged |= p[0]["op"] == "all_to_all"
            if len(held) < HELD_KERNELS:
                held.append((i, p))
        return exchanged, held if len(held) == len(k.name) else None

    def _timed(self, k: CommKernels, i: int) -> dict:
        return {
            "start_ns": int(k.start[i]),
            "end_ns": int(k.end[i]),
            "stream": _none(k.stream[i]),
            "step": _none(k.step[i]),
            "event_id": int(k.event_id[i]),
            "enqueued_ns": _none(k.launch_ns[i]),
            "timing": "kernel",
            "clock": self._clock,
            "source": "nsys",
        }

    def _parts(self, rank: int, k: CommKernels, i: int, load: Carried) -> list[dict]:
        by_name = classify.comm_kernel(k.name[i])
        base: dict = {"op": "unknown"}
        if by_name is not None:
            base = {"op": by_name.op, "algo": by_name.algo, "proto": by_name.proto}
            if by_name.dtype:
                base["dtype"] = by_name.dtype.name
            if by_name.library in ("nccl", "rccl", "msccl"):
                base["channels"] = _none(k.blocks[i])
        calls = load.calls
        if not calls:
            if load.n_in_group > 1:
                base["coalesced"] = load.n_in_group
            return [base]
        if all(call.op in P2P for call in calls):
            return self._exchange(base, calls)
        return [self._collective(rank, base, calls)]

    def _collective(self, rank: int, base: dict, calls: tuple[Call, ...]) -> dict:
        """One row of calls that are no sends and receives; several in one kernel are added up."""
        first = calls[0]
        comms = {call.comm for call in calls}
        comm = first.comm if len(comms) == 1 else None
        ops = {call.op for call in calls}
        part = dict(base)
        if len(ops) == 1:
            part["op"] = first.op
        group = self._name(part, comm)
        each = [
            classify.buffers(
                call.op, call.bytes, group, self._comms.is_root(call.comm, rank, call.root)
            )
            for call in calls
        ]
        for field, values in zip(("in_bytes", "out_bytes"), zip(*each, strict=True), strict=True):
            part[field] = None if None in values else sum(values)
        if first.dtype and len({call.dtype for call in calls}) == 1:
            part["dtype"] = first.dtype
        if len(calls) > 1:
            part["coalesced"] = len(calls)
        part["root"] = self._global(comm, first.root)
        part["seq"] = first.seq if comm is not None else None
        return part

    def _exchange(self, base: dict, calls: tuple[Call, ...]) -> list[dict]:
        """Rows of sends and receives in one kernel: an all-to-all where they reach everybody."""
        if self._is_all_to_all(calls):
            part = dict(base) | {"op": "all_to_all"}
            comm = calls[0].comm
            self._name(part, comm)
            for field, op in (("in_bytes", "send"), ("out_bytes", "recv")):
                some = [call.bytes for call in calls if call.op == op]
                part[field] = None if None in some else sum(b for b in some if b is not None)
            self._inferred += comm is None
            return [part]
        by_peer: dict[tuple, list[Call]] = {}
        for call in calls:
            peer = self._global(call.comm, call.peer)
            by_peer.setdefault((call.comm, peer), []).append(call)
        if any(peer is None for _, peer in by_peer):
            by_peer = {(calls[0].comm if len({c.comm for c in calls}) == 1 else None, None):
                       list(calls)}  # fmt: skip
        out = []
        for (comm, peer), some in by_peer.items():
            part = dict(base)
            ops = {call.op for call in some}
            part["op"] = some[0].op if len(ops) == 1 else "send_recv"
            self._name(part, comm)
            for field, op in (("in_bytes", "send"), ("out_bytes", "recv")):
                each = [call.bytes for call in some if call.op == op]
                part[field] = None if not each or None in each else sum(
                    b for b in each if b is not None
                )  # fmt: skip
            part["peer"] = peer
            part["coalesced"] = len(calls) if len(calls) > 1 else None
            if len(some) == 1:
                part["seq"] = some[0].seq
            out.append(part)
        return out

    def _is_all_to_all(self, calls: tuple[Call, ...]) -> bool:
        if len({call.comm for call in calls}) > 1:
            return False
        sends = [call.peer for call in calls if call.op == "send"]
        recvs = [call.peer for call in calls if call.op == "recv"]
        if len(sends) != len(recvs) or len(sends) < 2:
            return False
        size = self._comms.of(calls[0].comm).size
        if None in sends or None in recvs:
            # Without payloads only the count is left; a neighbour exchange has no send to oneself.
            return len(sends) == (size or self._world)
        everybody = set(range(size or len(sends)))
        return set(sends) == set(recvs) == everybody and len(sends) == len(everybody)

    def _say_inferred(self) -> None:
        if self._inferred:
            self._c.odd(
                "all_to_all_inferred",
                "groups with a send and a receive for each rank of the job, without payloads: "
                "taken as all-to-alls (nsys export --include-blobs=true gives the sizes)",
                "info",
                count=self._inferred,
            )
        self._inferred = 0

    def _name(self, part: dict, comm: int | None) -> int | None:
        """Writes the communicator; returns its size."""
        if comm is None:
            return None
        self.used.add(comm & (2**64 - 1))
        part["comm"] = comm_of_hash(comm)
        part["group_size"] = self._comms.of(comm).size
        return part["group_size"]

    def _global(self, comm: int | None, place: int | None) -> int | None:
        members = self._comms.of(comm).members
        if members is None or place is None or not 0 <= place < len(members):
            return None
        return members[place]

    def host_only(
        self, rank: int, steps: HostSteps, blocks: Iterable[Block]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Calls of a rank whose kernels were not traced: when they were made, no duration."""
        told = False
        base = event_id(rank, "nsys", EVENT_SPACE[NVTX] << ROW_BITS)
        for calls, _ in blocks:
            index = step_index_at(steps, calls.start)
            for i, (name, s) in enumerate(
                zip(calls.name, numbers_of(steps, index).tolist(), strict=True)
            ):
                op = OPS.get(name or "")
                if op is None:
                    continue
                if not told:
                    told = True
                    self._c.odd(
                        "no_comm_kernels",
                        "NCCL calls without any communication kernel: when they ran is not known; "
                        "trace with --trace=cuda,nvtx",
                        rank=rank,
                    )
                call = call_at(calls, i, op)
                if op in P2P:
                    part = self._exchange({"op": op}, (call,))[0]
                else:
                    part = self._collective(rank, {"op": op}, (call,))
                self._c.add(
                    "collectives",
                    rank=rank,
                    enqueued_ns=call.start_ns,
                    step=_none(s),
                    event_id=base + (call.row & ((1 << ROW_BITS) - 1)),
                    source="nsys",
                    **part,
                )
            yield from self._c.full()
        self._say_inferred()

    def operations(self, rank: int, steps: HostSteps, told: list[Operation]) -> None:
        """A row for each operation that NCCL's own trace tells and no kernel row carries."""
        at = np.array([o.start_ns for o in told], np.int64)
        step = numbers_of(steps, step_index_at(steps, at))
        base = event_id(rank, "nsys", EVENT_SPACE["NCCL_GPU_OPERATIONS"] << ROW_BITS)
        for o, s in zip(told, step.tolist(), strict=True):
            if o.call.op in P2P:
                part = self._exchange({"op": o.call.op}, (o.call,))[0]
            else:
                part = self._collective(rank, {"op": o.call.op}, (o.call,))
            self._c.add(
                "collectives",
                rank=rank,
                start_ns=o.start_ns,
                end_ns=o.end_ns,
                event_id=base + (o.call.row & ((1 << ROW_BITS) - 1)),
                step=_none(s),
                timing="kernel",
                clock=self._clock,
                source="nsys",
                **part,
            )
        self._say_inferred()

    def trial_comm(self) -> None:
        """The row of the communicator of all ranks, where it was used."""
        if self.on_trial and self._world is not None and self._world <= MAX_RANK:
            self._c.add(
                "comms",
                comm=WORLD,
                ranks=list(range(self._world)),
                size=self._world,
                dim="world",
                dim_source="members",
                backend="nccl",
            )


def _none(value) -> int | None:
    return None if value == NULL else int(value)
