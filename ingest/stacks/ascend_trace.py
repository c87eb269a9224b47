"""Ascend `trace_view.json`: events by the process and track that its metadata names."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import classify, kernels
from ..collect import Collector
from ..kineto.rawbatch import NULL
from .ascend_names import dtype_of, hccl_op, kind_of_task, scaled, us_to_ns
from .jsonwalk import Opened, walk
from .timeline import Timeline, whole_number

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

SPACE = "ascend"
MOST_OPERATIONS = 1 << 20
MOST_TASKS = 1 << 21
"""Tasks of communication that are kept at most (some 130 MB)."""

MOST_WAITING = 50_000
"""Events kept while the name of their process is not known."""

MOST_TRACKS = 1 << 16
_FULL_EVERY = 16384

_HOST_KINDS = {
    "cpu_op": "host_op",
    "user_annotation": "annotation",
    "python_function": "python",
    "enqueue": "runtime",
    "dequeue": "runtime",
    "async_task_queue": "runtime",
}
_NOT_STORED = {"Overlap Analysis"}


_COARSE = re.compile(r"\d{16}\.\d{1,2}")
"""A time of today in microseconds as a float writes it: text has three decimals."""


class HcclOp(NamedTuple):
    """An operation on a group's track."""

    n: int
    name: str
    op: str
    start_ns: int
    end_ns: int
    track: int
    correlation: int
    dtype: classify.Dtype | None
    count: int
    group_size: int
    algo: str | None


class Trace:
    """Rows of one rank's trace as its events are read; operations and tasks are kept for later."""

    def __init__(self, source: Source, rank: int):
        self.c = Collector(source)
        self.rank = rank
        self.time = Timeline(rank, SPACE, self.c)
        self.ops: list[HcclOp] = []
        # Tasks on the planes of groups: start, duration, track, bytes, stream, code of the link.
        self.tasks = tuple(array("q") for _ in range(6))
        self.n_tasks = 0
        self._process: dict[int, str] = {}
        self._device: dict[int, int] = {}
        self._thread: dict[tuple[int, int], str] = {}
        self._waiting: dict[int, list[tuple[int, dict]]] = {}
        self._n_waiting = 0

    def read(self, source: Source) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Takes in all events; yields the batches that are ready on the way."""
        n = 0
        for path, event in walk(source, lambda path: path == ("traceEvents",), self.c.odd):
            if isinstance(event, Opened) or path[-1:] != ("*",):
                continue
            n += 1
            self._event(n, event)
            if n % _FULL_EVERY == 0:
                yield from self.c.full()
                yield from self.time.full()
        for some in self._waiting.values():
            for k, event in some:
                self._timed(k, event, "")
        self._waiting = {}

    def _event(self, n: int, event: Any) -> None:
        phase = event.get("ph") if isinstance(event, dict) else None
        if phase == "X":
            pid = whole_number(event.get("pid"))
            name = self._process.get(pid)
            if name is not None:
                self._timed(n, event, name)
            elif self._n_waiting < MOST_WAITING:
                self._n_waiting += 1
                self._waiting.setdefault(pid, []).append((n, event))
            else:
                self._timed(n, event, "")
        elif phase == "M":
            self._metadata(event)
        elif phase == "C":
            self._counter(event)
        elif phase in ("s", "t", "f"):
            self.c.odd(
                "flows_not_stored", "flow arrows; not stored, connection ids say the same", "info"
            )
        elif not isinstance(event, dict):
            self.c.odd("not_an_event", "an item that is not an object; left out", "lost", offset=n)
        else:
            what = "an event of a phase that is not understood; left out"
            self.c.odd("phase_not_stored", what, "lost", offset=n)

    def _metadata(self, event: dict) -> None:
        pid, args = whole_number(event.get("pid")), event.get("args")
        if not isinstance(args, dict):
            return
        kind, name = event.get("name"), args.get("name")
        if kind == "process_name" and isinstance(name, str) and len(self._process) < MOST_TRACKS:
            self._process[pid] = name
            for k, waiting in self._waiting.pop(pid, []):
                self._n_waiting -= 1
                self._timed(k, waiting, name)
        elif kind == "thread_name" and isinstance(name, str) and len(self._thread) < MOST_TRACKS:
            self._thread[pid, whole_number(event.get("tid"))] = name
        elif kind == "process_labels" and len(self._device) < MOST_TRACKS:
            label = args.get("labels")
            found = re.fullmatch(r"NPU\s?(\d{1,6})", label) if isinstance(label, str) else None
            if found:
                self._device[pid] = int(found[1])

    def _timed(self, n: int, event: dict, process: str) -> None:
        """A complete event, by the name of its process."""
        if process in _NOT_STORED:
            self.c.odd("sums_not_stored", f"rows of {process}: sums of others, not stored", "info")
            return
        written = event.get("ts")
        start, dur = us_to_ns(written), us_to_ns(event.get("dur"))
        end = NULL if NULL in (start, dur) or dur > 1 << 62 else start + dur
        span = self.time.span(start, end, n)
        if span is None:
            return
        if isinstance(written, str) and _COARSE.fullmatch(written):
            self.c.odd("coarse_times", "times as floating-point numbers, which resolve a quarter "
                       "of a microsecond", "info")  # fmt: skip
        name, args = event.get("name"), event.get("args")
        name = name if isinstance(name, str) else ""
        args = args if isinstance(args, dict) else {}
        pid, tid = whole_number(event.get("pid")), whole_number(event.get("tid"))
        correlation = whole_number(args.get("connection_id"))
        if process in ("HCCL", "Communication"):
            self._communication(n, name, args, span, pid, tid, correlation)
        elif process == "Ascend Hardware":
            kind = kind_of_task(args.get("Task Type"), name)
            category = kernels.category_of_kernel(name) if kind == "kernel" else None
            self.time.device(
                n, kind, name, "copy" if kind == "memcpy" else category, *span,
                stream=_first(args.get("Physic Stream Id"), args.get("Stream Id"), tid),
                device=self._device.get(pid, NULL), correlation=correlation,
                n_bytes=_first(args.get("size(Byte)")),
            )  # fmt: skip
        else:
            self._host(n, name, event.get("cat"), span, process, tid, correlation)

    def _host(
        self, n: int, name: str, category: object, span: tuple[int, int], process: str, tid: int,
        correlation: int,
    ) -> None:  # fmt: skip
        if name.startswith("ProfilerStep#"):
            kind = "annotation"
            self.time.annotation(name, *span)
        elif process == "CANN":
            kind = "runtime"
            self.time.call(correlation, span[0], tid)
        elif process == "Python GC":
            kind = "overhead"
        elif process in ("Python", "MindSpore", ""):
            known_kind = _HOST_KINDS.get(category) if isinstance(category, str) else None
            kind = known_kind or ("host_op" if process else "other")
            if not process:
                self.c.odd("process_unknown", "an event of a process that nothing names; kind "
                           "other", offset=n)  # fmt: skip
        else:
            kind = "other"
        self.time.host(n, kind, name, span, thread=tid, correlation=correlation)

    def _communication(
        self, n: int, name: str, args: dict, span: tuple[int, int], pid: int, tid: int,
        correlation: int,
    ) -> None:  # fmt: skip
        op = hccl_op(name)
        if op is not None and not self._thread.get((pid, tid), "").startswith("Plane"):
            if len(self.ops) >= MOST_OPERATIONS:
                what = f"more than {MOST_OPERATIONS} operations; the rest is left out"
                self.c.odd("too_many_collectives", what, "lost")
                return
            algo = args.get("alg_type")
            self.ops.append(
                HcclOp(
                    n, name, op, span[0], sum(span), tid, correlation,
                    dtype_of(args.get("data_type")), whole_number(args.get("count")),
                    whole_number(args.get("rank_size")),
                    algo if isinstance(algo, str) and algo not in ("", "NA", "N/A") else None,
                )
            )  # fmt: skip
            return
        self.n_tasks += 1
        size = scaled(args.get("size(Byte)"), 0)
        if len(self.tasks[0]) >= MOST_TASKS:
            what = f"more than {MOST_TASKS} tasks of communication; the rest is left out"
            self.c.odd("too_many_tasks", what, "lost")
            return
        links = [args.get(k) for k in ("transport type", "link type")]
        link = "/".join(t for t in links if isinstance(t, str) and t not in ("", "INVALID_TYPE"))
        row = (
            *span, tid, size if size > 0 and args.get("src rank") != args.get("dst rank") else 0,
            whole_number(args.get("stream id")), self.time.words.code(link or None),
        )  # fmt: skip
        for column, value in zip(self.tasks, row, strict=True):
            column.append(value)

    def _counter(self, event: dict) -> None:
        at, args = us_to_ns(event.get("ts")), event.get("args")
        name = event.get("name")
        if at == NULL or at < 0 or not isinstance(args, dict) or not isinstance(name, str):
            self.c.odd("counter_not_numeric", "a counter without time or sample; left out", "lost")
            return
        device = self._device.get(whole_number(event.get("pid")))
        for key, value in args.items():
            try:
                number = float(value) if isinstance(value, int | str) else None
            except (ValueError, OverflowError):
                number = None
            if number is None or number - number != 0:
                self.c.odd("counter_not_numeric", "a counter's sample is no number; left out",
                           "lost")  # fmt: skip
                continue
            self.c.add(
                "counters", rank=self.rank, device=None if device is None else str(device),
                name=name if key == name else f"{name}.{key}", time_ns=at, value=number,
            )  # fmt: skip


def _first(*values: object) -> int:
    """The first that is an integer; NULL for none."""
    return next((n for v in values if (n := whole_number(v)) != NULL), NULL)
