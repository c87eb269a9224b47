"""Tables of an Ascend profile: the timeline's operations joined to `communication.json`'s."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..classify import buffers
from ..errors import UnusableInput
from ..kineto.launches import launch_times
from ..kineto.rawbatch import NULL
from ..schema import event_id
from .ascend_comm import Operation, operations
from .ascend_names import group_digits, hccl_op
from .ascend_trace import SPACE, HcclOp, Trace
from .timeline import known

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_FROM_COMMUNICATION = 1 << 33
"""Event numbers of operations that only `communication.json` has start here."""

_WORKER = re.compile(r"(.+)_(\d{1,10})_\d{14,20}_ascend_(?:pt|ms)")


def tables_of(
    source: Source,
    rank: int,
    given: int | None,
    trace: Source | None,
    communication: Source | None,
    others: list[str],
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The tables of one rank; see `ascend.parse`. Raises UnusableInput where nothing has a time."""
    t = Trace(source, rank)
    if given not in (None, rank):
        what = f"its files say rank {rank}, --rank said {given}: the files are believed"
        t.c.odd("rank_disagrees", what)
    if trace is not None:
        yield from t.read(trace)
    listed = [] if communication is None else list(operations(communication, t.c.odd))
    _collectives(t, listed)
    if t.time.extent is None:
        raise UnusableInput("no event with a time in it", path=source.name)
    for name in others:
        if name.endswith(".db") or name in ("kernel_details.csv", "communication_matrix.json"):
            t.c.odd("not_stored", f"{name} and other files beside the timeline say the same or "
                    "sums of it: not read", "info")  # fmt: skip
    if trace is None:
        t.c.odd("no_trace_view", "communication.json without trace_view.json: operations of "
                "communication only, no kernels and copies")  # fmt: skip
    yield from t.time.rest()
    _rank_row(t, source)
    yield from t.c.rest()


def _rank_row(t: Trace, source: Source) -> None:
    worker = _WORKER.fullmatch(re.split(r"[/\\!]", source.name)[-1])
    assert t.time.extent is not None
    t.c.add(
        "ranks",
        rank=t.rank,
        host=worker[1] if worker else None,
        host_source="recorded" if worker else "unknown",
        pid=int(worker[2]) if worker else None,
        device=t.time.main_device,
        start_ns=t.time.extent[0],
        end_ns=t.time.extent[1],
        clock="host",
        source=source.name,
    )


def _collectives(t: Trace, listed: list[Operation]) -> None:
    """Rows of `collectives`, `comms`, `counters` and `transfers`."""
    waiting: dict[str, list[Operation]] = {}
    for operation in listed:
        waiting.setdefault(operation.name, []).append(operation)
    host, calls = t.time.host_steps(), t.time.calls()
    launched = launch_times(calls, np.array([o.correlation for o in t.ops], np.int64))
    steps = t.time.step_at(host, launched).tolist()
    tasks = _Tasks(t)
    comms: dict[str, tuple[str, int | None]] = {}
    for op, step in zip(t.ops, steps, strict=True):
        told = _nearest(waiting.get(op.name, []), op.start_ns)
        step = known(step) if step != NULL else told.step if told else None
        _row(t, op, told, step, comms, tasks)
    left = [o for some in waiting.values() for o in some]
    for k, o in enumerate(left):
        name = hccl_op(o.name)
        if name is None:
            t.c.odd("op_unknown", "an operation whose name says no op", "info")
        end = NULL if NULL in (o.start_ns, o.elapse_ns) else o.start_ns + o.elapse_ns
        span = t.time.span(o.start_ns, end)
        if span is not None:
            made = HcclOp(_FROM_COMMUNICATION + k, o.name, name or "unknown", span[0], sum(span),
                          NULL, NULL, None, NULL, NULL, None)  # fmt: skip
            _row(t, made, o, o.step, comms, None)
    for comm, (name, size) in comms.items():
        t.c.add("comms", comm=comm, name=name, size=size, dim="unknown", dim_source="none",
                backend="hccl", member=t.rank)  # fmt: skip
    _say_what_is_missing(t, comms, tasks.any)


def _say_what_is_missing(t: Trace, comms: dict, sizes: bool) -> None:
    if t.n_tasks:
        t.c.odd("tasks_as_transfers", "tasks on the planes of groups: rows of transfers where they "
                "carry bytes, no events (the hardware's streams have them)", "info",
                count=t.n_tasks)  # fmt: skip
    if sizes:
        t.c.odd("peers_in_group", "tasks name their ends by rank within the group: peer_rank is "
                "null", "info")  # fmt: skip
    if comms:
        t.c.odd("members_unknown", "HCCL's groups come without their members: comm is told apart "
                "by the group's hash", "info", count=len(comms))  # fmt: skip
        t.c.odd("no_sequence_numbers", "numbers in HCCL's names count from the start of profiling: "
                "seq is null and operations are matched by order", "info")  # fmt: skip


def _nearest(some: list[Operation], start_ns: int) -> Operation | None:
    """Takes the operation whose start is nearest out of those of one name."""
    if not some:
        return None
    at = min(range(len(some)), key=lambda i: abs(some[i].start_ns - start_ns))
    return some.pop(at)


def _row(
    t: Trace, op: HcclOp, told: Operation | None, step: int | None,
    comms: dict[str, tuple[str, int | None]], tasks: _Tasks | None,
) -> None:  # fmt: skip
    digits = group_digits(op.name)
    group = told.group if told is not None and told.group else None
    if group is None and digits is not None:
        what = (
            "the last digits of a group's hash are all that names it (communication.json has all "
            "of it): groups that share them are one"
        )
        t.c.odd("group_by_digits", what, "info")
        group = f"*{digits}"
    comm = f"hccl-{group}" if group else None
    size = op.group_size if 0 < op.group_size < 1 << 23 else None
    if comm is not None and group is not None:
        comms[comm] = (group, size or comms.get(comm, (group, None))[1])
    count = known(op.count)
    one = None if count is None or op.dtype is None else count * op.dtype.itemsize
    in_bytes, out_bytes = buffers(op.op, one, size)
    if one is None:
        t.c.odd("sizes_unknown", "an operation without count or type (profiler level 0, or only "
                "communication.json): bytes are null", "info")  # fmt: skip
    stream, channels = tasks.of(op) if tasks is not None else (NULL, None)
    eid = event_id(t.rank, SPACE, op.n)
    t.c.add(
        "collectives", comm=comm, rank=t.rank, op=op.op,
        dtype=op.dtype.name if op.dtype else None, in_bytes=in_bytes, out_bytes=out_bytes,
        group_size=size, algo=op.algo, channels=channels, start_ns=op.start_ns, end_ns=op.end_ns,
        stream=known(stream), step=step, event_id=eid, timing="kernel", clock="host",
        source="ascend",
    )  # fmt: skip
    t.time.device(
        op.n, "kernel", op.name, "comm", op.start_ns, op.end_ns - op.start_ns, stream=stream,
        correlation=op.correlation,
    )  # fmt: skip
    for name, ns in told.times if told is not None else ():
        if ns != NULL:
            t.c.add("counters", rank=t.rank, name=name, time_ns=op.start_ns, value=float(ns))
    moved = tasks.transfers(op, eid) if tasks is not None else 0
    for link, n_bytes in told.links if told is not None and not moved else ():
        t.c.add(
            "transfers", rank=t.rank, bytes=n_bytes, start_ns=op.start_ns, end_ns=op.end_ns,
            event_id=eid, traffic_class="collective", measured=True, via=link, clock="host",
            source="ascend",
        )  # fmt: skip


class _Tasks:
    """Tasks on the planes of groups, by the operation in whose time they ran."""

    def __init__(self, t: Trace):
        self._t = t
        start, dur, track, size, stream, link = (np.array(a, np.int64) for a in t.tasks)
        tracks = np.unique(np.array([o.track for o in t.ops], np.int64))
        # A group's planes have the tracks after its own.
        at = np.searchsorted(tracks, track, side="right") - 1
        self._of: dict[int, tuple[np.ndarray, ...]] = {}
        for k, own in enumerate(tracks.tolist()):
            mine = np.flatnonzero(at == k)
            mine = mine[np.argsort(start[mine], kind="stable")]
            self._of[own] = tuple(
                c[mine] for c in (start, dur, track - own - 1, size, stream, link)
            )
        self.any = bool((size > 0).any())

    def _range(self, op: HcclOp) -> tuple[tuple[np.ndarray, ...], int, int]:
        rows = self._of[op.track]
        a, b = np.searchsorted(rows[0], (op.start_ns, max(op.end_ns, op.start_ns + 1)))
        return rows, int(a), int(b)

    def of(self, op: HcclOp) -> tuple[int, int | None]:
        """The stream of an operation's first task, and on how many planes it ran."""
        rows, a, b = self._range(op)
        if a == b:
            return NULL, None
        return int(rows[4][a]), len(np.unique(rows[2][a:b]))

    def transfers(self, op: HcclOp, eid: int) -> int:
        """Adds the operation's tasks that carry bytes to `transfers`; gives their number."""
        rows, a, b = self._range(op)
        n = 0
        for start, dur, plane, size, _, link in zip(*(c[a:b].tolist() for c in rows), strict=True):
            if size > 0:
                n += 1
                self._t.c.add(
                    "transfers", rank=self._t.rank, channel=plane, bytes=size, start_ns=start,
                    end_ns=start + dur, event_id=eid, traffic_class="collective", measured=True,
                    via=self._t.time.words.texts[link] if link >= 0 else None, clock="host",
                    source="ascend",
                )  # fmt: skip
        return n
