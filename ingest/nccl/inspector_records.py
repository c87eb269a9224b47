"""Inspector's JSON lines: collectives and point-to-point operations with their durations."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from .. import collect
from ..classify import op_of_collective_name
from ..collect import Collector
from ..errors import UnusableInput
from ..schema import MAX_RANK, event_id
from ..texts import lines
from ..values import integer
from . import inspector_readers
from .comm_places import Places, buffers, comm_of_cut_hex
from .inspector_proxy import LastNumbers, Proxies
from .values import algo_name, proto_name

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

SOURCE = "inspector"
MAX_LINE = 8 << 20
_TIMINGS = {"kernel_gpu": "kernel", "kernel_cpu": "kernel", "collective_cpu": "host"}
_KINDS = ("coll_perf", "p2p_perf", "proxy_trace")
CONTEXT_SINCE = 4, 3
"""The version since which a dump's lines have no headers but the first."""
_I64_MAX = (1 << 63) - 1
BATCH = 4096
"""Rows after which batches are looked after."""


def tables_of(
    source: Source, rank: int | None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields the batches of a process's file; it is read twice, as ranks depend on all of it."""
    collector = Collector(source)
    places = Places()
    compiled = inspector_readers.compiled(source, threads)
    if compiled is None:
        for _ in said_places(every_header(source), places):
            pass
    else:
        compiled.places(source, places)
    if not places.known:
        raise UnusableInput("no record of Inspector names a communicator", path=source.name)
    places.settle(rank, source.name, collector)
    if compiled is None:
        add, add_moved = (partial(collector.add, table) for table in ("collectives", "transfers"))
        reader = Reader(source, places, collector, add, Proxies(places, collector, add_moved,
                                                                LastNumbers()))  # fmt: skip
        yield from _all_lines(source, collector, reader)
    else:
        reader = compiled.reader(source, places, collector)
        yield from compiled.rows(source, reader)
    if not reader.n_records:
        raise UnusableInput("no record of Inspector can be read", path=source.name)
    reader.finish()
    yield from collector.rest()


def _all_lines(
    source: Source, collector: Collector, reader: Reader
) -> Iterator[tuple[str, pa.RecordBatch]]:
    for offset, line, whole_line in lines(source, collector.odd, MAX_LINE):
        if line.strip():
            reader.take(line, offset, whole_line)
            if reader.n_rows % BATCH == 0 or collector.n("transfers") >= collect.BATCH_ROWS:
                yield from collector.full()


def every_header(source: Source) -> Iterator[bytes]:
    """Lines that may name a communicator: all that have the word."""
    for _, line, _ in lines(source, lambda *a, **k: None, MAX_LINE):
        if b'"header"' in line:
            yield line


def said_places(said: Iterable[bytes], places: Places) -> Iterator[bool]:
    """Notes the communicators that these lines name; for each whether it is a record."""
    for line in said:
        record = _loaded(line) if b'"header"' in line else None
        header = record.get("header") if isinstance(record, dict) else None
        if isinstance(header, dict):
            place_of(header, places)
        yield isinstance(record, dict)


def _loaded(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def place_of(header: dict[str, Any], places: Places | None) -> tuple[str, int, int | None] | None:
    text, rank = header.get("id"), integer(header.get("rank"))
    comm = comm_of_cut_hex(text) if isinstance(text, str) else None
    if comm is None or rank is None or not 0 <= rank <= MAX_RANK:
        return None
    size = integer(header.get("n_ranks"))
    if size is not None and not rank < size <= MAX_RANK + 1:
        size = None
    name = header.get("comm_name")
    if not isinstance(name, str) or name in ("", "unknown"):
        name = None
    if places is not None:
        places.add(comm, rank, size, name[:256] if name else None)
    return comm, rank, size


class Reader:
    """What a record needs to know of those before it."""

    def __init__(
        self,
        source: Source,
        places: Places,
        collector: Collector,
        add: Callable[..., None],
        proxies: Proxies,
    ):
        self.places, self.collector, self._add = places, collector, add
        self.tag = zlib.crc32(source.name.encode("utf-8", "replace")) & 0xFF
        self.context: tuple[dict, dict] | None = None
        self.left: dict[str, int] = {}
        self._last: dict[tuple[str, int, str], int] = {}
        self._span: dict[int, list[int]] = {}
        self.of_process: dict[int, dict[str, Any]] = {}
        self.proxies = proxies
        self.n_records = self.n_rows = 0

    def take(self, line: bytes, offset: int, whole_line: bool) -> None:
        """One line of the file."""
        record = _loaded(line)
        if not isinstance(record, dict):
            what = "a line that is no JSON object" if whole_line else "the last line is cut"
            self._lost("not_a_record", f"{what}; it is left out", offset)
            return
        header, metadata = record.get("header"), record.get("metadata")
        if "dump_stats" in record:
            self._marker(record, offset)
        if not isinstance(header, dict):
            kind = next((k for k in _KINDS if k in record), None)
            if kind is None:
                self.collector.odd(
                    "unknown_record",
                    "a line that is no record of Inspector known here; it is left out",
                    offset=offset,
                )
                return
            if self.context is None or self.left.get(kind, 0) <= 0:
                self._lost(
                    "no_communicator",
                    "a record of format 4.3 whose dump's first line is missing: nobody knows its "
                    "communicator; it is left out",
                    offset,
                )
                return
            self.left[kind] -= 1
            header, metadata = self.context
        place = place_of(header, None)
        if place is None:
            self._lost("no_communicator", "a record without a communicator is left out", offset)
            return
        self.n_records += 1
        comm, rank, size = place
        if size is None:
            self.collector.odd(
                "size_unknown",
                "records whose n_ranks is no size of a communicator with that rank in it: the "
                "size, and buffers that depend on it, are null",
                offset=offset,
            )
        whose = self.places.rank_of(comm, rank)
        if whose is None:
            self._lost(
                "rank_unknown",
                "a process of several devices: operations of its smaller communicators belong to "
                "no known rank and are left out",
                offset,
            )
            return
        if isinstance(metadata, dict) and whose not in self.of_process:
            host = metadata.get("hostname")
            self.of_process[whose] = {
                "host": host[:255] if isinstance(host, str) else None,
                "pid": integer(metadata.get("pid")),
            }
        for kind, prefix in (("coll_perf", "coll"), ("p2p_perf", "p2p")):
            if isinstance(perf := record.get(kind), dict):
                self._operation(perf, prefix, comm, rank, size, whose, offset)
        if isinstance(trace := record.get("proxy_trace"), dict):
            self.proxies.take(trace, comm, rank, whose, offset)
            self.widen(whose, *self.proxies.span)

    def _marker(self, record: dict[str, Any], offset: int) -> None:
        """The first line of a communicator's dump (4.2 and later): what follows, what was lost."""
        if sum(self.left.values()) > 0:
            self._lost("dump_incomplete", "a dump has fewer records than its first line says",
                       offset)  # fmt: skip
        self.context, self.left = None, {}
        stats, metadata = record.get("dump_stats"), record.get("metadata")
        if not isinstance(stats, dict):
            return
        for key, what in (
            ("coll_dropped_since_last_dump", "collectives"),
            ("p2p_dropped_since_last_dump", "point-to-point operations"),
            ("proxy_dropped_since_last_dump", "proxy records"),
            ("proxy_ops_dropped_since_last_dump", "proxy operations"),
        ):
            n = integer(stats.get(key))
            if n is not None and n > 0:
                self.collector.odd(
                    "dropped_by_writer",
                    f"Inspector overwrote {what} before it wrote them (a larger "
                    "NCCL_INSPECTOR_DUMP_*_RING_SIZE keeps them); count says how many",
                    offset=offset,
                    count=n,
                )
        self.proxies.steps_written = stats.get("proxy_steps_enabled")
        version = metadata.get("inspector_output_format_version") if isinstance(
            metadata, dict) else None  # fmt: skip
        if isinstance(version, str) and version_of(version) >= CONTEXT_SINCE:
            header = record.get("header")
            if isinstance(header, dict) and isinstance(metadata, dict):
                self.context = header, metadata
                for kind, key in zip(_KINDS, ("coll_records", "p2p_records", "proxy_records"),
                                     strict=True):  # fmt: skip
                    self.left[kind] = max(integer(stats.get(key)) or 0, 0)

    def _operation(
        self,
        perf: dict[str, Any],
        prefix: str,
        comm: str,
        place: int,
        size: int | None,
        rank: int,
        offset: int,
    ) -> None:
        name = perf.get(prefix)
        op = op_of_collective_name(name[:64]) if isinstance(name, str) else None
        sn = integer(perf.get(f"{prefix}_sn"))
        n_bytes = integer(perf.get(f"{prefix}_msg_size_bytes"))
        micros = integer(perf.get(f"{prefix}_exec_time_us"))
        if n_bytes is not None and not 0 <= n_bytes <= _I64_MAX // (MAX_RANK + 1):
            n_bytes = None
        if micros is not None and not 0 <= micros <= _I64_MAX // 1000:
            micros = None
        if micros is None:
            self.collector.odd(
                "no_duration", "an operation without a duration", offset=offset, rank=rank
            )
        op = op or "unknown"
        said, sent, got = perf.get(f"{prefix}_timing_source"), *buffers(op, n_bytes, size)
        start, end, enqueued, channels = _times(perf.get("event_trace_ts"), prefix)
        if start is not None:
            self.widen(rank, start, end)
            self.collector.odd(
                "times_of_callbacks",
                "start and end are when the host learnt of them; exec_ns is measured apart",
                "info",
                rank=rank,
            )
        self.n_rows += 1
        row = event_id(rank, SOURCE, (self.tag << 26) | (self.n_rows & 0x3FFFFFF))
        p2p = prefix == "p2p"
        if not p2p:
            self._gap(comm, place, op, sn, rank, offset)
        self.proxies.note(comm, prefix, sn, row)
        self._add(
            comm=comm,
            # Each end of a send and recv counts for itself.
            seq=None if p2p else sn,
            rank=rank,
            op=op,
            in_bytes=sent,
            out_bytes=got,
            group_size=size,
            peer=self.places.peer_of(comm, place, integer(perf.get("p2p_peer"))),
            algo=algo_name(word_of(perf.get("coll_algo"))),
            proto=proto_name(word_of(perf.get("coll_proto"))),
            channels=channels,
            start_ns=start,
            end_ns=end,
            exec_ns=None if micros is None else micros * 1000,
            enqueued_ns=enqueued,
            state="completed",
            # what was timed by itself is exec_ns; start and end are callbacks of the host
            timing="host" if start is not None else timing_of(said, micros),
            clock="host" if start is not None else None,
            event_id=row,
            source=SOURCE,
        )  # fmt: skip

    def _gap(self, comm: str, place: int, op: str, sn: int | None, rank: int, offset: int) -> None:
        """Says which operations are missing between two of a kind: the writer samples."""
        if sn is None:
            return
        last = self.last_number(comm, place, op)
        if last is not None and sn > last + 1:
            self.collector.odd(
                "sampled",
                "numbers are missing between the operations of a kind: Inspector keeps the last of "
                "an interval (before 2.30), or of its ring, and none under its smallest size; "
                "count says how many",
                offset=offset,
                rank=rank,
                count=sn - last - 1,
            )
        if last is None or sn > last:
            self.set_last_number(comm, place, op, sn)

    def last_number(self, comm: str, place: int, op: str) -> int | None:
        """The highest number so far of a rank's operations of a kind; None before the first."""
        return self._last.get((comm, place, op))

    def set_last_number(self, comm: str, place: int, op: str, sn: int) -> None:
        """Notes it."""
        self._last[comm, place, op] = sn

    def widen(self, rank: int, start: int | None, end: int | None) -> None:
        if start is None:
            return
        end = start if end is None else end
        span = self._span.setdefault(rank, [start, end])
        span[0], span[1] = min(span[0], start), max(span[1], end)

    def _lost(self, code: str, message: str, offset: int) -> None:
        self.collector.odd(code, message, "lost", offset=offset)

    def finish(self) -> None:
        """The rows of `ranks` and `comms`, once all records are read."""
        if sum(self.left.values()) > 0:
            self.collector.odd("dump_incomplete", "the file ends before its last dump does", "lost")
        self.proxies.finish()
        for rank in self.places.write(self.collector):
            start, end = self._span.get(rank, (None, None))
            self.collector.add(
                "ranks",
                rank=rank,
                host_source="recorded" if self.of_process.get(rank, {}).get("host") else "unknown",
                start_ns=start,
                end_ns=end,
                clock="host" if start is not None else "none",
                source=self.collector.source.name,
                **self.of_process.get(rank, {}),
            )


@lru_cache(maxsize=256)
def version_of(text: str) -> tuple[int, int]:
    m = re.match(r"v(\d{1,4})\.(\d{1,4})", text)
    return (int(m[1]), int(m[2])) if m else (0, 0)


def timing_of(said: Any, micros: int | None) -> str | None:
    if isinstance(said, str):
        return _TIMINGS.get(said, "kernel")
    return "kernel" if micros is not None else None


def word_of(value: Any) -> str | None:
    return value[:32] if isinstance(value, str) and value not in ("", "unknown") else None


def _times(trace: Any, prefix: str) -> tuple[int | None, int | None, int | None, int | None]:
    """(start, end, enqueued, channels) of a verbose record; microseconds of the epoch to ns."""
    if not isinstance(trace, dict):
        return None, None, None, None
    kernels = trace.get("kernel_events")
    kernels = [k for k in kernels if isinstance(k, dict)] if isinstance(kernels, list) else []
    starts = [t for k in kernels if (t := _micros(k.get("kernel_start_ts"))) is not None]
    stops = [t for k in kernels if (t := _micros(k.get("kernel_stop_ts"))) is not None]
    start, end = min(starts, default=None), max(stops, default=None)
    if start is None or end is None or end < start:
        start = end = None
    return start, end, _micros(trace.get(f"{prefix}_start_ts")), len(kernels) or None


def _micros(value: Any) -> int | None:
    """Nanoseconds of a time in microseconds; a time of 0 was never taken."""
    number = integer(value)
    return number * 1000 if number is not None and 0 < number <= _I64_MAX // 1000 else None
