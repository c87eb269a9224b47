"""rocprofv3's records to rows, whatever form they were written in; RCCL calls to kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import classify, kernels
from ..collect import Collector
from ..errors import RankUnknown, UnusableInput
from ..kineto.launches import launch_of, launch_times
from ..kineto.rawbatch import NULL
from ..schema import MAX_RANK, event_id
from ..values import as_int, rank_in_name
from .timeline import Timeline, known

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

SPACE = "rocprof"
CLOCK = "boot"
"""Nanoseconds since the host's boot: one clock for the processes of a host, no epoch."""

MOST_COLLECTIVES = 1 << 20
"""RCCL calls and communication kernels of one process that are kept at most."""

_COPY_BETWEEN = {"HOST_TO_DEVICE", "DEVICE_TO_HOST", "DEVICE_TO_DEVICE", "HOST_TO_HOST"}


class Kernel(NamedTuple):
    """A communication kernel, kept until the calls are known."""

    n: int
    name: str
    start_ns: int
    end_ns: int
    stream: int
    correlation: int
    grid_blocks: int
    thread: int


class Call(NamedTuple):
    """A call of RCCL's API."""

    n: int
    name: str
    start_ns: int
    end_ns: int
    thread: int
    correlation: int


def rank_of(source: Source, recorded: object, rank: int | None, on_odd: Callable[..., None]) -> int:
    """The rank of a process: as recorded, else as given, else as the name says.

    Raises RankUnknown where nothing says it.
    """
    said = as_int(recorded)
    said = said if said is not None and 0 <= said <= MAX_RANK else None
    named = rank_in_name(source.name)
    if said is not None and rank not in (None, said):
        what = f"its environment says rank {said}, --rank said {rank}: the environment is believed"
        on_odd("rank_disagrees", what)
    found = said if said is not None else rank if rank is not None else named
    if found is None:
        raise RankUnknown(
            "rocprofv3 does not record a rank, and the name does not hold one: give it with "
            "--rank N, or let rocprofv3 name its output so (-d out/rank%rank%)",
            path=source.name,
        )
    return found


def blocks(grid: tuple[int, int, int], group: tuple[int, int, int]) -> tuple[int, int]:
    """Thread blocks and threads a block from a grid in work items; NULL where they cannot be."""
    if any(not 0 < g < 1 << 32 for g in (*grid, *group)):
        return NULL, NULL
    n = math.prod(-(-a // b) for a, b in zip(grid, group, strict=True))
    threads = math.prod(group)
    return (n if n < 1 << 62 else NULL), (threads if threads < 1 << 31 else NULL)


class Records:
    """Rows of one process as its records are read; `rest` gives what needs all of them."""

    def __init__(self, source: Source, rank: int):
        self.c = Collector(source)
        self.rank = rank
        self.time = Timeline(rank, SPACE, self.c)
        self.n = 0
        self._kernels: list[Kernel] = []
        self._calls: list[Call] = []
        self._group_calls: set[str] = set()

    def _next(self) -> int:
        self.n += 1
        return self.n

    def kernel(
        self, name: str, start: int, end: int, *, stream: int, device: int, correlation: int,
        thread: int, grid: tuple[int, int, int], group: tuple[int, int, int],
    ) -> None:  # fmt: skip
        """A kernel dispatch; grid and group in work items."""
        n = self._next()
        span = self.time.span(start, end, n)
        if span is None:
            return
        n_blocks, n_threads = blocks(grid, group)
        category = kernels.category_of_kernel(name)
        self.time.device(
            n, "kernel", name, category, *span, stream=stream, device=device,
            correlation=correlation, grid_blocks=n_blocks, block_threads=n_threads,
        )  # fmt: skip
        if category == "comm" and self._room(self._kernels):
            self._kernels.append(
                Kernel(n, name, span[0], sum(span), stream, correlation, n_blocks, thread)
            )

    def copy(
        self, direction: str, start: int, end: int, *, stream: int, device: int, correlation: int,
        n_bytes: int,
    ) -> None:  # fmt: skip
        """A memory copy; `direction` is the name of the operation."""
        n = self._next()
        span = self.time.span(start, end, n)
        if span is None:
            return
        words = direction.removeprefix("MEMORY_COPY_")
        name = f"Memcpy {words}" if words in _COPY_BETWEEN else direction or "Memcpy"
        self.time.device(
            n, "memcpy", name, "copy", *span, stream=stream, device=device,
            correlation=correlation, n_bytes=n_bytes,
        )  # fmt: skip

    def host(
        self, kind: str, name: str, start: int, end: int, *, thread: int, correlation: int
    ) -> None:
        """A call of an API (`kind` runtime) or a marker's range (annotation)."""
        n = self._next()
        span = self.time.span(start, end, n)
        if span is None:
            return
        if kind == "annotation":
            self.time.annotation(name, *span)
        else:
            self.time.call(correlation, span[0], thread)
        if name.startswith("nccl") and self._room(self._calls):
            self._calls.append(Call(n, name, span[0], sum(span), thread, correlation))
        self.time.host(n, kind, name, span, thread=thread, correlation=correlation)

    def _room(self, kept: list) -> bool:
        if len(kept) < MOST_COLLECTIVES:
            return True
        what = f"more than {MOST_COLLECTIVES} collectives in one process; the rest is left out"
        self.c.odd("too_many_collectives", what, "lost")
        return False

    def full(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Batches that are ready: to be asked now and then."""
        yield from self.c.full()
        yield from self.time.full()

    def rest(
        self, why_empty: str | None, **of_rank: object
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The collectives, the rank with the columns given, and all that is left.

        `why_empty` is what is known to be wrong with the text, should nothing be there.

        Raises UnusableInput where there was no record with a time.
        """
        if self.time.extent is None:
            detail = why_empty or "trace with rocprofv3 --sys-trace --rccl-trace"
            what = f"no record of a kernel, copy or call in it ({detail})"
            raise UnusableInput(what, path=self.c.source.name)
        self._collectives()
        yield from self.time.rest()
        self.c.odd(
            "boot_time_clock",
            "times count from the host's boot, not from the Unix epoch: they compare with other "
            "rocprofv3 traces of the host only, else by what is common",
            "info",
        )
        self.c.add(
            "ranks",
            rank=self.rank,
            start_ns=self.time.extent[0],
            end_ns=self.time.extent[1],
            clock=CLOCK,
            source=self.c.source.name,
            **of_rank,
        )
        yield from self.c.rest()

    def _collectives(self) -> None:
        """One row a communication kernel, or a call where no kernels were traced."""
        host = self.time.host_steps()
        groups = _grouped(self._calls)
        if not self._kernels:
            moving = [(k, op) for k in self._calls if (op := _op(k.name)) is not None]
            at = np.array([k.start_ns for k, _ in moving], np.int64)
            for (k, op), step in zip(moving, self.time.step_at(host, at).tolist(), strict=True):
                self._collective(k.n, op, k.start_ns, k.end_ns, step=known(step), timing="host")
            if moving:
                self.c.odd("rccl_calls_only", "RCCL calls without their kernels: their times are "
                           "the host's (add --kernel-trace)")  # fmt: skip
            return
        calls = self.time.calls()
        correlation = np.array([k.correlation for k in self._kernels], np.int64)
        at = launch_of(calls, correlation)
        enclosing = _Enclosing(self._calls)
        unlinked = 0
        launched = launch_times(calls, correlation)
        steps = self.time.step_at(host, launched).tolist()
        for kernel, launch, start, step in zip(
            self._kernels, at.tolist(), launched.tolist(), steps, strict=True
        ):
            thread = int(calls.thread[launch]) if launch >= 0 else kernel.thread
            call = enclosing.at(thread, start)
            ops = groups.get(call.n, []) if call is not None else []
            by_name = classify.comm_kernel(kernel.name)
            op = by_name.op if by_name is not None else "unknown"
            if ops:
                op = ops[0] if len(set(ops)) == 1 else "send_recv"
            elif call is None:
                unlinked += 1
            rccl = by_name is not None and by_name.library in ("nccl", "rccl", "msccl")
            self._collective(
                kernel.n, op, kernel.start_ns, kernel.end_ns, step=known(step), timing="kernel",
                stream=known(kernel.stream),
                algo=by_name.algo if by_name else None,
                proto=by_name.proto if by_name else None,
                dtype=by_name.dtype.name if by_name and by_name.dtype else None,
                channels=known(kernel.grid_blocks) if rccl else None,
                coalesced=len(ops) if len(ops) > 1 else None,
            )  # fmt: skip
        if unlinked:
            self.c.odd(
                "kernels_without_calls",
                "communication kernels whose RCCL call is not in the trace (add --rccl-trace "
                "--hip-trace): their op is what the kernel's name says",
                "info",
                count=unlinked,
            )

    def _collective(self, n: int, op: str, start: int, end: int, **more: object) -> None:
        self.c.odd(
            "rccl_no_arguments",
            "rocprofv3 records no arguments of RCCL calls: communicator, size, element type, "
            "root and peer are null (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL logs them)",
            "info",
        )
        self.c.add(
            "collectives",
            rank=self.rank,
            op=op,
            start_ns=start,
            end_ns=end,
            event_id=event_id(self.rank, SPACE, n),
            clock=CLOCK,
            source="rocprof",
            **more,
        )


def _op(call: str) -> str | None:
    """The op of a call of RCCL's API; None for those that move nothing themselves."""
    bare = call.removeprefix("nccl")
    if bare.startswith(("Comm", "Group", "Get", "RedOp", "Mem", "mem", "Win")):
        return None
    op = classify.op_of_collective_name(call)
    return None if op == "unknown" else op


def _grouped(calls: list[Call]) -> dict[int, list[str]]:
    """For each call that launches (by number) the ops it carries: its own, or its group's."""
    out: dict[int, list[str]] = {}
    open_groups: dict[int, list[list[str]]] = {}
    for k in sorted(calls, key=lambda k: (k.start_ns, k.n)):
        stack = open_groups.setdefault(k.thread, [])
        op = _op(k.name)
        if k.name == "ncclGroupStart":
            if len(stack) < 64:
                stack.append([])
        elif k.name == "ncclGroupEnd":
            ops = stack.pop() if stack else []
            if stack:
                stack[-1] += ops
            elif ops:
                out[k.n] = ops
        elif op is not None:
            if stack:
                stack[-1].append(op)
            else:
                out[k.n] = [op]
    return out


class _Enclosing:
    """The outermost RCCL call of a thread at a moment."""

    def __init__(self, calls: list[Call]):
        self._by_thread: dict[int, tuple[np.ndarray, list[Call]]] = {}
        threads: dict[int, list[Call]] = {}
        for k in calls:
            threads.setdefault(k.thread, []).append(k)
        for thread, some in threads.items():
            some.sort(key=lambda k: k.start_ns)
            self._by_thread[thread] = (np.array([k.start_ns for k in some], np.int64), some)

    def at(self, thread: int, time_ns: int) -> Call | None:
        """The call that holds a moment; None where none does."""
        if time_ns == NULL or thread not in self._by_thread:
            return None
        starts, calls = self._by_thread[thread]
        i = int(np.searchsorted(starts, time_ns, side="right")) - 1
        found = None
        # Calls of the API may call each other: a few that began before may still be open.
        for k in calls[max(0, i - 3) : i + 1]:
            if k.start_ns <= time_ns <= k.end_ns and found is None:
                found = k
        return found
