"""A rank's trace as PyTorch's profiler writes it: Chrome JSON with NCCL metadata in its args.

Every step has the same events, so one text with holes is filled for each. Blanks before a number
are JSON. Flow events and Python stacks are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .digits import COUNT, DUR, ID, ROWS, SEQ, STEP, TS, Template, hole
from .kernels import table
from .program import Op
from .shape import (
    BASE_NS,
    BEGIN_NS,
    DESCRIPTIONS,
    DIMS,
    FIRST_STEP,
    HOST_RANKS,
    TOKEN_BYTES,
    Shape,
)
from .simulate import LAUNCHED, LOADING_NS

PID, TID = 4242, 4242
FIRST_ID = 10_000_000
SHOWN = 30
"""Members of a group that PyTorch writes out before it cuts the list."""
ELEMENT_BYTES = 2

_CALLS = {
    "all_gather": ("_allgather_base", "c10d::_allgather_base_",
                   "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "reduce_scatter": ("_reduce_scatter_base", "c10d::_reduce_scatter_base_",
                       "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL("
                       "ncclDevKernelArgsStorage<4096ul>)"),
    "all_reduce": ("allreduce", "c10d::allreduce_",
                   "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "all_to_all": ("all_to_allv", "c10d::alltoall_base_",
                   "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
}  # fmt: skip
_HOST_OPS = {"norm": "aten::rms_norm", "norm_2": "aten::rms_norm", "norm_bwd": "aten::rms_norm",
             "attention": "flash_attn_3::fwd", "attention_bwd": "flash_attn_3::bwd",
             "attention_bwd_pre": "flash_attn_3::bwd", "attention_bwd_post": "flash_attn_3::bwd",
             "residual": "aten::add", "optimizer": "aten::lerp_", "cast": "aten::copy_",
             "router": "aten::linear", "permute": "aten::index_select", "gate": "aten::mul",
             "rope": "aten::mul", "activation": "aten::relu"}  # fmt: skip


class _Event(NamedTuple):
    """One event of a step: an operation's, where on the host's share of it, or on the device."""

    op: int
    begins: float | None
    """share of the operation's host time; None: the operation's own start and end"""
    takes: float
    text: bytes


def op_name(op: Op) -> str:
    """The collective's operation, as the tables name it."""
    return op.place.removesuffix("_back")


class RankText:
    """The texts of one rank's trace."""

    def __init__(self, shape: Shape, ops: list[Op], rank: int):
        self.shape, self.ops, self.rank = shape, ops, rank
        self._groups = {d: Group(shape, d, rank) for d in DIMS}
        self._events = list(self._all())
        self._template = Template(b",\n".join(e.text for e in self._events) + b",\n")
        self._op = np.array([e.op for e in self._events])
        self._own = np.array([e.begins is None for e in self._events])
        self._begins = np.array([e.begins or 0.0 for e in self._events])
        self._takes = np.array([e.takes for e in self._events])
        of = [o.dim for o in ops if o.dim]
        self._calls = {d: of.count(d) for d in DIMS}
        self._exchanges = [o for o in ops if o.dim == "ep"]
        holes = np.cumsum([0] + [e.text.count(hole(ID)) for e in self._events])[:-1]
        kernel = np.array([b'"cat": "kernel"' in e.text for e in self._events])
        self._kernel_ids = holes[kernel]

    @property
    def events_a_step(self) -> int:
        return len(self._events)

    def head(self, host: int) -> bytes:
        """What stands before the events."""
        device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85028372480,
                  "computeMajor": 9, "computeMinor": 0, "maxThreadsPerBlock": 1024,
                  "maxThreadsPerMultiprocessor": 2048, "warpSize": 32, "numSms": 132}  # fmt: skip
        meta = {
            "schemaVersion": 1,
            "deviceProperties": [{**device, "id": i} for i in range(HOST_RANKS)],
            "cuda_runtime_version": 12060,
            "distributedInfo": {
                "backend": "nccl", "rank": self.rank, "world_size": self.shape.ranks,
                "pg_count": len(DIMS), "pg_config": [g.listed() for g in self._groups.values()],
                "nccl_version": "2.28.9",
            },
            "host_name": self.shape.host_name(host),
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": BASE_NS,
        }  # fmt: skip
        return json.dumps(meta, indent=1)[:-2].encode() + b',\n "traceEvents": [\n'

    def tail(self) -> bytes:
        """What stands behind them."""
        thread = {"name": "thread_name", "ph": "M", "ts": BEGIN_NS / 1000, "pid": PID, "tid": TID,
                  "args": {"name": f"thread {TID} (python)"}}  # fmt: skip
        return json.dumps(thread).encode() + b"\n ]\n}\n"

    def step(
        self, number: int, local: dict[str, np.ndarray], alone: dict[str, int], rows: np.ndarray
    ) -> bytes:
        """A step's events.

        `local` has the rank's start, end, launch and cost by operation, `alone` the step's own
        moments (host_start, host_end, gc), on the clock of the host; `rows` are its tokens to and
        from each member of its expert group, [layers, microbatches, 2, members].
        """
        begun, ended = alone["host_start"], alone["host_end"]
        loaded = begun + alone["gc"] + LOADING_NS // 2
        synced = int(local["launch"][-1] + local["cost"][-1])
        starts = [begun, begun, begun + alone["gc"], synced]
        ends = [ended, begun + alone["gc"], loaded, ended - 2_000]
        start = np.concatenate([local["start"], np.array(starts)])
        end = np.concatenate([local["end"], np.array(ends)])
        launch = np.concatenate([local["launch"], np.zeros(4, np.int64)])
        cost = np.concatenate([local["cost"], np.zeros(4, np.int64)])
        of, share = self._op, self._begins - LAUNCHED
        host = launch[of] + np.rint(share * cost[of]).astype(np.int64)
        ts = np.where(self._own, start[of], host)
        took = np.rint(self._takes * cost[of]).astype(np.int64)
        dur = np.where(self._own, end[of] - start[of], took)
        t = self._template
        t.fill(TS, ts + BEGIN_NS)
        t.fill(DUR, np.maximum(dur, 0))
        t.fill(ID, self._ids(number))
        t.fill(STEP, np.full(t.count(STEP), FIRST_STEP + number))
        t.fill(SEQ, self._numbers(number))
        split, counts = self._splits(rows)
        t.fill(ROWS, split)
        t.fill(COUNT, counts)
        return t.bytes()

    def _all(self) -> Iterator[_Event]:
        n = len(self.ops)
        yield _Event(n, None, 0, _x("user_annotation", b"ProfilerStep#" + hole(STEP), _external()))
        if self.shape.late_cause == "gc" and self.rank == self.shape.late_rank:
            yield _Event(n + 1, None, 0, _x("user_annotation", b"Python GC", _external()))
        name = b"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        yield _Event(n + 2, None, 0, _x("user_annotation", name, _external()))
        kernels = table()
        for i, op in enumerate(self.ops):
            if op.dim:
                yield from self._collective(i, op)
                continue
            kernel = kernels[op.place]
            name = _HOST_OPS.get(op.place, "aten::mm").encode()
            if op.backward:
                outer = b"autograd::engine::evaluate_function: CompiledFunctionBackward"
                yield _Event(i, 0.05, 0.9, _x("cpu_op", outer, _external()))
            shapes = (b', "Record function id": 0, "Concrete Inputs": ["", ""], "Input type": '
                      b'["c10::BFloat16", "c10::BFloat16"], "Input Strides": [[2048, 1], [2048, '
                      b'1]], "Input Dims": [[2048, 2048], [2048, 2048]]')  # fmt: skip
            yield _Event(i, 0.15, 0.7, _x("cpu_op", name, _external() + shapes))
            yield _Event(i, 0.3, 0.45, _x("cpu_op", name + b"_out", _external() + shapes))
            yield self._launch(i, b"cudaLaunchKernel")
            grid, block = kernel.grid, kernel.block
            yield _Event(i, None, 0, self._gpu(kernel.name, grid, block, op.stream, b""))
        sync = _x("cuda_runtime", b"cudaDeviceSynchronize", b'"cbid": 165, "correlation": ' +
                  hole(ID))  # fmt: skip
        yield _Event(n + 3, None, 0, sync)

    def _launch(self, i: int, name: bytes) -> _Event:
        args = b'"External id": ' + hole(ID) + b', "cbid": 211, "correlation": ' + hole(ID)
        return _Event(i, LAUNCHED, 0.2, _x("cuda_runtime", name, args))

    def _gpu(
        self, name: str, grid: tuple[int, ...], block: tuple[int, ...], stream: int, said: bytes
    ) -> bytes:
        device = self.rank % HOST_RANKS
        return (
            f'  {{"ph": "X", "cat": "kernel", "name": "{name}", "pid": {device}, "tid": {stream}, '
            '"ts": '.encode() + hole(TS) + b', "dur": ' + hole(DUR) + b', "args": {"External id": '
            + hole(ID) + b', "correlation": ' + hole(ID) + f', "queued": 0, "device": {device}, '
            f'"context": 1, "stream": {stream}, "registers per thread": 128, "shared memory": 0, '
            f'"grid": {list(grid)}, "block": {list(block)}'.encode() + said + b"}}"
        )  # fmt: skip

    def _collective(self, i: int, op: Op) -> Iterator[_Event]:
        call, outer, kernel = _CALLS[op_name(op)]
        said = self._groups[op.dim].said(op, call, self.rank)
        yield _Event(i, 0.05, 0.9, _x("cpu_op", outer.encode(), _external()))
        yield _Event(i, 0.15, 0.7, _x("cpu_op", b"record_param_comms", _external() + said))
        yield _Event(i, 0.25, 0.5, _x("user_annotation", f"nccl:{call}".encode(), _external()))
        yield self._launch(i, b"cudaLaunchKernelExC")
        yield _Event(i, None, 0, self._gpu(kernel, (24, 1, 1), (544, 1, 1), op.stream, said))

    def _ids(self, number: int) -> np.ndarray:
        """Ids in the order of holes: counted on, but for those that join rows.

        A launch has the external id of the row before it, a kernel both ids of its launch.
        """
        n = self._template.count(ID)
        ids = FIRST_ID + number * n + np.arange(n)
        at = self._kernel_ids
        ids[at - 2] = ids[at - 3]
        ids[at], ids[at + 1] = ids[at - 2], ids[at - 1]
        return ids

    def _numbers(self, number: int) -> np.ndarray:
        """Sequence numbers on communicators, twice each: of the call and of the kernel."""
        out, seen = [], dict.fromkeys(DIMS, 0)
        for op in self.ops:
            if op.dim:
                out += [number * self._calls[op.dim] + seen[op.dim]] * 2
                seen[op.dim] += 1
        return np.array(out)

    def _splits(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows to and from each member, and elements in and out, of each exchange, twice each."""
        out = []
        for op in self._exchanges:
            both = rows[op.layer, op.microbatch]
            out += [both[::-1] if op.place == "all_to_all_back" else both] * 2
        split = np.stack(out)
        return split.ravel(), split.sum(2).ravel() * (TOKEN_BYTES // ELEMENT_BYTES)


class Group:
    """A process group as the rank knows it."""

    def __init__(self, shape: Shape, dim: str, rank: int):
        self.dim, self.members = dim, shape.members(dim, rank)
        first = {"world": 0, "tp": 1, "dp": 1 + shape.hosts, "ep": 1 + shape.hosts + HOST_RANKS}
        self.name = str(first[dim] + int(shape.group_of(dim)[rank]))

    def text(self) -> str:
        if len(self.members) <= SHOWN:
            return "[" + ", ".join(map(str, self.members)) + "]"
        shown = ", ".join(map(str, self.members[: SHOWN - 1]))
        return f"[{shown}, ..., {self.members[-1]}]"

    def stride(self) -> int:
        return self.members[1] - self.members[0] if len(self.members) > 1 else 1

    def listed(self) -> dict[str, Any]:
        short = len(self.members) <= SHOWN
        return {"pg_name": self.name, "pg_desc": DESCRIPTIONS[self.dim],
                "backend_config": "cuda:nccl", "pg_size": len(self.members),
                "ranks": self.members if short else self.text()}  # fmt: skip

    def said(self, op: Op, call: str, rank: int) -> bytes:
        """The arguments that describe a collective of the group."""
        n = len(self.members)
        if op.dim == "ep":
            rows = b", ".join([hole(ROWS)] * n)
            sizes = b'"In msg nelems": ' + hole(COUNT) + b', "Out msg nelems": ' + hole(COUNT)
            sizes += b', "In split size": "[' + rows + b']", "Out split size": "[' + rows + b']"'
        else:
            whole, part = op.bytes // ELEMENT_BYTES, op.bytes // ELEMENT_BYTES // n
            if op.dim == "world":
                whole = part = op.bytes // 4
            given, got = (part, whole) if op.place == "all_gather" else (whole, part)
            got = whole if op.place == "all_reduce" else got
            sizes = (f'"In msg nelems": {given}, "Out msg nelems": {got}, "In split size": "[]", '
                     '"Out split size": "[]"').encode()  # fmt: skip
        dtype = "Float" if op.dim == "world" else "BFloat16"
        return (
            f', "Collective name": "{call}", "dtype": "{dtype}", "Rank": {rank}, '
            f'"Group size": {n}, "Process Group Name": "{self.name}", "Process Group Description": '
            f'"{DESCRIPTIONS[self.dim]}", "Process Group Ranks": "{self.text()}", '
            f'"Global rank start": {self.members[0]}, "Global rank stride": {self.stride()}, '
        ).encode() + sizes + b', "Seq": ' + hole(SEQ)  # fmt: skip


def _external() -> bytes:
    return b'"External id": ' + hole(ID)


def _x(cat: str, name: bytes, args: bytes) -> bytes:
    return (
        b'  {"ph": "X", "cat": "' + cat.encode() + b'", "name": "' + name
        + f'", "pid": {PID}, "tid": {TID}, "ts": '.encode() + hole(TS) + b', "dur": ' + hole(DUR)
        + b', "args": {' + args + b"}}"
    )  # fmt: skip
