"""PyTorch Kineto traces (Chrome JSON of torch.profiler) to tables, one rank a file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, cast

import numpy as np
import pyarrow as pa

from .. import memory
from ..schema import TABLES, Problem, problem_rows
from ..sources import Source, stream_defect
from . import collectives, events, roles, steps
from .args import FileText, args_at, args_in
from .blocks import BATCH_ROWS, Ahead, prefetch
from .comms import Comms
from .envelope import Envelope
from .events import KIND, DeviceRows, Names, Timed
from .header import (
    LATEST_NS,
    Header,
    as_int,
    as_size,
    devices,
    distributed_info,
    groups,
    peek_rank,
    read_header,
)
from .launches import Columns, launch_times, launches_of
from .lookup import Lookup
from .problems import Tally
from .rawbatch import NULL, RawBatch
from .readers import prepare, reader

__all__ = ["looks_like", "parse", "peek_rank", "prepare"]

HELD_ROWS = 1 << 19
"""Device rows held back so that their step is known when they are given out (some 60 MB)."""

GIVEN_ROWS = 131_072
"""Device rows a batch."""

ABSURD_FLOOR_NS = 600 * 10**9
"""A device row this long is believed however short the trace."""

MAX_ARGS_READ = 100_000
"""Calls of one file whose arguments are read again from the text at most."""

Out = tuple[str, pa.RecordBatch]

_MARKS = re.compile(
    rb'"(traceEvents|schemaVersion|deviceProperties|computeProperties|distributedInfo'
    rb'|baseTimeNanoseconds)"[ \t\r\n]*:'
)
_PROFILER_PLUGIN = re.compile(
    rb'\[\s{0,64}\{"name": ?"[^"\\]{1,64}", ?"cat": ?"(?:GROUP|COLL|P2P|PROXY|NET|GPU|KERNEL_|CE_)'
    rb'\w{0,8}", ?"ph": ?"[be]"'
)
"""How the arrays of NCCL's profiler plugin begin, which are no traces of Kineto."""


def looks_like(head: bytes, name: str) -> bool:
    """Whether the first 64 KiB of a file are those of a Chrome-style trace."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] == b"[":
        return b'"ph"' in text and _PROFILER_PLUGIN.match(text) is None
    return text[:1] == b"{" and _MARKS.search(text) is not None


def parse(source: Source, *, rank: int | None = None, threads: int = 1) -> Iterator[Out]:
    """The tables of one rank's trace, as batches in no particular order of tables.

    Yields `events`, `counters`, `steps`, `comms`, `collectives`, one row of `ranks`, and
    `problems`. The rank is the one the trace states, else the one its name states, else `rank`.
    Rows on device streams are held back (up to HELD_ROWS) and carry the step that launched them;
    host rows carry none. With `threads` over 1 the file is scanned beside the conversion, a
    compressed one inflated beside both; the rows are the same. Raises UnusableInput where there
    are no events to read, RankUnknown where nothing says the rank.
    """
    envelope = Envelope()
    found: list[Problem] = []
    read_events, beside = reader(source)
    beside = beside and threads > 1
    stream = source.open_hashed(beside)
    # A plain file's text is there to be read again; of a stream's the reader keeps what is needed.
    text = None if source.mmap_path is None else FileText(source.mmap_path)
    ahead = Ahead(stream) if text is None and threads > 1 else None
    reading = stream if ahead is None else cast(BinaryIO, ahead)
    trace: _Trace | None = None
    batches = read_events(reading, envelope, found.append, call_texts=text is None)
    if beside:
        # The compiled scan holds no lock: it runs beside the conversion.
        batches = prefetch(batches)
    try:
        for batch in batches:
            if trace is None:
                trace = _Trace(source, batch, envelope, rank, text)
            yield from trace.take(batch)
            batch.used_up()
            del batch  # with the last one goes the memory of all
        if trace is None:
            trace = _Trace(source, None, envelope, rank, text)
        memory.give_back()
        yield from trace.finish(envelope)
        defect = stream_defect(stream)
        if defect is not None:
            found.append(Problem("damaged_compression", defect, "lost"))
        problems = [*trace.header.problems, *found, *trace.tally.problems(), *trace.notes()]
        if problems:
            rank = trace.header.rank
            told = [p if p.rank is not None else p._replace(rank=rank) for p in problems]
            yield "problems", problem_rows([(source.name, p) for p in told])
    finally:
        batches.close()  # what reads, before what is read
        if text is not None:
            text.close()
        if ahead is not None:
            ahead.close()
        stream.close()


_NOT_STORED = {"flows_not_stored": 1, "metadata_not_stored": 2, "phase_not_stored": 3}
_FATES = np.full(256, 3, np.uint8)
"""0 for phases of events that tables have room for, else which of these they are."""
_FATES[[ord(c) for c in "XiIC"]] = 0
_FATES[[ord(c) for c in "stf"]] = 1
_FATES[ord("M")] = 2


class _Found(NamedTuple):
    """Host events of a backend, with their arguments as read again from the text."""

    role: int
    call: collectives.OldCall


class _Trace:
    """What is kept of one trace while its batches go by."""

    def __init__(
        self,
        source: Source,
        first: RawBatch | None,
        envelope: Envelope,
        rank: int | None,
        text: FileText | None,
    ):
        self.source = source
        self.text = text
        self.tally = Tally()
        self.header: Header = read_header(source, envelope, _some_time(first), rank)
        self.rank = self.header.rank
        self.symbols = first.symbols if first is not None else None
        if first is not None:
            self.names = Names(first.symbols)
            self.role = Lookup(first.symbols, roles.role, roles.PLAIN)
            self.step_number = Lookup(first.symbols, roles.step_number, roles.NO_NUMBER)
        self.launched = Columns("correlation", "start_ns", "thread")
        self.work = Columns("correlation", "start_ns", "end_ns")
        self.stepped = Columns("number", "start_ns", "end_ns")
        self.kernels = Columns(*collectives.KERNEL_COLUMNS)
        self.calls = Columns(*collectives.CALL_COLUMNS)
        self.found: list[_Found] = []
        self.args_read = 0
        self.held = events.Held(HELD_ROWS + BATCH_ROWS)
        # Whether calls carry their arguments in declared columns (torch 2.2 and newer), and whether
        # collectives may run on the host, where they never do.
        self.modern = False
        backends = {g.backend for g in groups(self.header.meta)}
        self.on_host = not backends or not backends <= {"nccl"}
        self.n_rows = 0
        self.first_ns = np.iinfo(np.int64).max
        self.last_start_ns = self.last_ns = np.iinfo(np.int64).min
        self.device: int | None = None

    def take(self, batch: RawBatch) -> Iterator[Out]:
        """Rows of one raw batch that can be given out now."""
        yield from self._counters(batch)
        self._not_stored(batch)
        timed = events.timed_rows(batch, self.header.base_ns, self.tally)
        if not len(timed.rows):
            return
        kind = self.names.kind(batch.cols["cat"][timed.rows])
        instant = batch.cols["ph"][timed.rows] != ord("X")
        kind = np.where(instant, KIND["instant"], kind).astype(np.int32)
        self._extent(timed, kind)
        self._host(batch, timed, kind)
        host = events.host_rows(batch, timed, kind, self.rank, self.names)
        if host is not None:
            yield "events", host
        self._device(batch, timed, kind)
        if len(self.held) >= HELD_ROWS:
            memory.give_back()
            yield from self._give_device(final=False)

    def _extent(self, timed: Timed, kind: np.ndarray) -> None:
        """Widens the rank's first and last moment by events of any kind but viewer spans."""
        self.n_rows += len(kind)
        real = kind != KIND["other"]
        if real.any():
            start = timed.start_ns[real]
            self.first_ns = min(self.first_ns, int(start.min()))
            self.last_start_ns = max(self.last_start_ns, int(start.max()))
            host = real & (kind >= events.N_DEVICE_KINDS)
            if host.any():
                end = timed.start_ns[host] + timed.dur_ns[host]
                self.last_ns = max(self.last_ns, int(end.max()))

    def _host(self, batch: RawBatch, timed: Timed, kind: np.ndarray) -> None:
        """Keeps launches, step annotations and collective calls."""
        cols = batch.cols
        runtime = (kind == KIND["runtime"]) & (cols["correlation"][timed.rows] != NULL)
        rows = timed.rows[runtime]
        self.launched.add(
            cols["correlation"][rows], timed.start_ns[runtime], self._threads(batch, rows)
        )
        host = np.flatnonzero((kind == KIND["host_op"]) | (kind == KIND["annotation"]))
        role = self.role(cols["name"][timed.rows[host]])
        special = role != roles.PLAIN
        host, role = host[special], role[special]
        if not len(host):
            return
        rows = timed.rows[host]
        start = timed.start_ns[host]
        end = start + timed.dur_ns[host]
        is_step = role == roles.STEP
        self.stepped.add(
            self.step_number(cols["name"][rows[is_step]]).astype(np.int64),
            start[is_step],
            end[is_step],
        )
        named = cols["coll_name"][rows] >= 0
        self.modern |= bool(named.any())
        call = named & ((role == roles.CALL) | (role == roles.COLLECTIVE_COMM))
        self.calls.add(
            (self.rank << 40) | cols["offset"][rows[call]],
            cols["name"][rows[call]],
            start[call],
            end[call],
            self._threads(batch, rows[call]),
            cols["external_id"][rows[call]],
            *(cols[c][rows[call]] for c in collectives.ARGS),
            cols["record_function_id"][rows[call]],
        )
        self._read_args(batch, rows, start, end, role)

    def _read_args(
        self, batch: RawBatch, rows: np.ndarray, start: np.ndarray, end: np.ndarray,
        role: np.ndarray,
    ) -> None:  # fmt: skip
        """Keeps the calls whose tensors' shapes and root are only in undeclared arguments."""
        wanted = (role == roles.HOST_RAN) | (role == roles.COLLECTIVE_COMM)
        if not self.modern:
            wanted |= (role == roles.OLD_CALL) | (role == roles.API_CALL)
        thread = self._threads(batch, rows)
        for i in np.flatnonzero(wanted).tolist():
            offset = int(batch.cols["offset"][rows[i]])
            args = None
            if self.args_read < MAX_ARGS_READ:
                self.args_read += 1
                args = self._args(batch, int(rows[i]), offset)
            if args is None:
                self.tally.add("args_out_of_reach", offset)
            name = batch.symbols.text(int(batch.cols["name"][rows[i]]))
            call = collectives.OldCall(
                (self.rank << 40) | offset,
                name,
                int(start[i]),
                int(end[i]),
                int(thread[i]),
                args or {},
            )
            self.found.append(_Found(int(role[i]), call))

    def _args(self, batch: RawBatch, row: int, offset: int) -> dict | None:
        if self.text is not None:
            return args_at(self.text, offset)
        return None if batch.texts is None else args_in(batch.texts.at(row))

    def _threads(self, batch: RawBatch, rows: np.ndarray) -> np.ndarray:
        cols = batch.cols
        return events.thread_codes(cols["tid"][rows], cols["tid_sym"][rows])

    def _device(self, batch: RawBatch, timed: Timed, kind: np.ndarray) -> None:
        """Holds device rows back, and keeps what joins them to launches and collectives."""
        d, rows = events.device_rows(batch, timed, kind, self.rank, self.names)
        if not len(rows):
            return
        self.held.add(d)
        work = d.kind < events.N_WORK_KINDS
        end = d.start_ns + d.dur_ns
        self.work.add(d.correlation[work], d.start_ns[work], end[work])
        comm = (d.category == self.names.category_code(events.COMM)) & (d.kind == KIND["kernel"])
        picked = rows[comm]
        self.kernels.add(
            d.event_id[comm], d.name[comm], d.start_ns[comm], end[comm], d.stream[comm],
            d.correlation[comm], d.external_id[comm], d.grid[comm],
            *(batch.cols[c][picked] for c in collectives.ARGS),
        )  # fmt: skip
        if self.device is None and work.any():
            known = d.device[work]
            known = known[(known >= 0) & (known < 1 << 16)]
            if len(known):
                self.device = int(np.bincount(known).argmax())

    def _counters(self, batch: RawBatch) -> Iterator[Out]:
        """Rows of `counters`: one a numeric argument of a counter event."""
        rows = np.flatnonzero(batch.cols["ph"] == ord("C"))
        if not len(rows):
            return
        time_ns, names, values, where = [], [], [], []
        for row in rows.tolist():
            at, offset = int(batch.cols["ts_ns"][row]), int(batch.cols["offset"][row])
            code = int(batch.cols["name"][row])
            name = batch.symbols.text(code) if code >= 0 else ""
            args = batch.extras.get(row) or {}
            if at == NULL:
                self.tally.add("no_time", offset)
                continue
            if at > LATEST_NS - self.header.base_ns:
                self.tally.add("time_out_of_range", offset)
                continue
            if not args:
                self.tally.add("counter_not_numeric", offset)
            for key, value in args.items():
                number = _number(value)
                if number is None:
                    self.tally.add("counter_not_numeric", offset)
                    continue
                time_ns.append(at + self.header.base_ns)
                names.append(name if key in ("value", name) else f"{name}.{key}")
                values.append(number)
                pid = int(batch.cols["pid"][row])
                where.append(None if pid == NULL else str(pid))
        if time_ns:
            order = sorted(range(len(time_ns)), key=time_ns.__getitem__)
            yield (
                "counters",
                TABLES["counters"].batch(
                    {
                        "rank": [self.rank] * len(order),
                        "device": [where[i] for i in order],
                        "name": [names[i] for i in order],
                        "time_ns": [time_ns[i] for i in order],
                        "value": [values[i] for i in order],
                    }
                ),
            )

    def _not_stored(self, batch: RawBatch) -> None:
        """Counts what no table has room for."""
        ph, at = batch.cols["ph"], batch.cols["offset"]
        fate = _FATES[ph]
        for code, number in _NOT_STORED.items():
            rows = np.flatnonzero(fate == number)
            self.tally.add_rows(code, at[rows])

    def notes(self) -> list[Problem]:
        """What is said of the trace beside what is counted: categories that are not known."""
        unknown = sorted(self.names.unknown_categories) if self.symbols is not None else []
        if not unknown:
            return []
        some = ", ".join(c[:40] for c in unknown[:5])
        what = f"categories of events that are not known ({some}): their rows have kind other"
        return [Problem("category_unknown", what, "info", len(unknown))]

    def _host_steps(self) -> steps.HostSteps:
        kept = self.stepped.whole()
        found, twice = steps.host_steps(kept["number"], kept["start_ns"], kept["end_ns"])
        self.n_step_twice = twice
        return found

    def _give_device(self, final: bool) -> Iterator[Out]:
        """The device rows held back, in order of start, with the step that launched each."""
        if not len(self.held):
            return
        held = self.held.rows()
        dur = held.dur_ns
        if final:
            dur = self._believable(held)
        end = held.start_ns + dur
        real = held.kind != KIND["gpu_annotation"]
        if real.any():
            self.last_ns = max(self.last_ns, int(end[real].max()))
        held = held._replace(dur_ns=dur)
        calls = launches_of(self.launched)
        host = self._host_steps()
        time_ns = launch_times(calls, held.correlation)
        step = steps.numbers_of(host, steps.step_index_at(host, time_ns))
        if not final:
            late = (time_ns == NULL) & (held.correlation != NULL) & (held.correlation != 0)
            self.tally.add("steps_late", count=int(late.sum()))
        order = np.argsort(held.start_ns, kind="stable")
        for a in range(0, len(order), GIVEN_ROWS):
            part = order[a : a + GIVEN_ROWS]
            rows = DeviceRows(*(c[part] for c in held))
            yield "events", events.device_batch(rows, step[part], self.rank, self.names)
        self.held = events.Held(0) if final else self.held.emptied()

    def _believable(self, held: DeviceRows) -> np.ndarray:
        """Durations of device rows, those far over the whole trace's span set to 0."""
        limit = max(4 * (self.last_start_ns - self.first_ns), ABSURD_FLOOR_NS)
        absurd = held.dur_ns > limit
        if not absurd.any():
            return held.dur_ns
        self.tally.add_rows("absurd_duration", held.event_id[absurd] & ((1 << 40) - 1))
        ends = self.work.whole()
        if len(ends["end_ns"]):
            far = ends["end_ns"] - ends["start_ns"] > limit
            ends["end_ns"][far] = ends["start_ns"][far]
        comm = self.kernels.whole()
        if len(comm["end_ns"]):
            far = comm["end_ns"] - comm["start_ns"] > limit
            comm["end_ns"][far] = comm["start_ns"][far]
        return np.where(absurd, 0, held.dur_ns)

    def finish(self, envelope: Envelope) -> Iterator[Out]:
        """Everything that needs the whole trace: device rows, steps, collectives, comms, rank."""
        # Metadata after the events is only whole now.
        meta = {**envelope.parse(), **self.header.meta}
        late, early = distributed_info(envelope.parse()), distributed_info(self.header.meta)
        meta["distributedInfo"] = {**early, **late}
        yield from self._give_device(final=True)
        host = self._host_steps()
        self.tally.add("step_twice", count=self.n_step_twice)
        calls = launches_of(self.launched)
        if self.symbols is not None:
            yield from self._steps(host, calls)
            yield from self._collectives(host, calls, meta)
        if not self.n_rows:
            self.tally.add("no_events")
        yield "ranks", self._rank_row(meta)

    def _steps(self, host: steps.HostSteps, calls) -> Iterator[Out]:
        if not len(host.number):
            if self.n_rows:
                self.tally.add("no_steps")
            return
        work = self.work.whole()
        index = steps.step_index_at(host, launch_times(calls, work["correlation"]))
        begin, end = steps.device_windows(host, index, work["start_ns"], work["end_ns"])
        yield "steps", steps.steps_batch(host, begin, end, self.rank)

    def _collectives(self, host: steps.HostSteps, calls, meta: dict) -> Iterator[Out]:
        assert self.symbols is not None
        info = distributed_info(meta)
        comms = Comms(groups(meta), as_size(info.get("world_size")), self.tally)

        def step_at(time_ns: np.ndarray) -> np.ndarray:
            return steps.numbers_of(host, steps.step_index_at(host, time_ns))

        by_role: dict[int, list[collectives.OldCall]] = {}
        for found in self.found:
            by_role.setdefault(found.role, []).append(found.call)
        reader = collectives.Reader(self.symbols, comms, self.tally)
        kernels, device_calls = self.kernels.whole(), self.calls.whole()
        xpu = by_role.get(roles.COLLECTIVE_COMM, [])
        old = by_role.get(roles.OLD_CALL, []) + xpu
        parts = collectives.kernel_parts(
            kernels, device_calls, old, calls, step_at, reader, self.symbols
        )
        if not parts:
            self.tally.add("calls_without_kernels", count=len(device_calls["event_id"]) or len(old))
        ran = by_role.get(roles.HOST_RAN, [])
        api = by_role.get(roles.API_CALL, [])
        parts += collectives.host_parts(ran, api, "gloo", comms, step_at, self.tally)
        if not len(kernels["event_id"]):
            on_host = collectives.host_parts(xpu, api, "xccl", comms, step_at, self.tally)
            collectives.tell_from_calls(on_host, xpu, device_calls, reader)
            self.tally.add("xpu_no_ranks", count=sum(p.comm is None for p in on_host))
            parts += on_host
        batch = collectives.collectives_batch(parts, self.rank, self.tally)
        if batch is not None:
            yield "collectives", batch
        rows = comms.batch()
        if rows is not None:
            yield "comms", rows

    def _rank_row(self, meta: dict) -> pa.RecordBatch:
        listed = devices(meta)
        used = self.device
        mine = next((d for d in listed if as_int(d.get("id")) == used), None)
        if mine is None and listed:
            mine = listed[0]
        host = meta.get("host_name")
        host = host if isinstance(host, str) and host else None
        name = mine.get("name") if mine else None
        n_sms = as_size(mine.get("numSms")) if mine else None
        some = self.first_ns <= self.last_start_ns
        return TABLES["ranks"].batch(
            {
                "rank": [self.rank],
                "host": [host],
                "host_source": ["recorded" if host else "unknown"],
                "device": [used],
                "n_devices": [len(listed) or None],
                "device_name": [name if isinstance(name, str) else None],
                "n_sms": [n_sms],
                "world_size": [as_size(distributed_info(meta).get("world_size"))],
                "start_ns": [self.first_ns if some else None],
                "end_ns": [max(self.last_ns, self.last_start_ns) if some else None],
                "source": [self.source.name],
            }
        )


def _some_time(batch: RawBatch | None) -> int | None:
    """A typical time of a batch: its median, which a few broken ones do not move."""
    if batch is None:
        return None
    times = batch.cols["ts_ns"]
    times = times[times > 0]
    return int(np.partition(times, len(times) // 2)[len(times) // 2]) if len(times) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return float(value)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
