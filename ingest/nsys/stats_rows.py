"""Rows of a GPU trace in CSV: kernels, copies and sets with their times."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from .. import classify, kernels, texts
from ..collect import Collector
from ..errors import RankUnknown, UnusableInput
from ..schema import MAX_RANK, event_id
from .surroundings import rank_in_name

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

UNIT_NS = {"ns": 1, "nsec": 1, "us": 1000, "ms": 10**6, "s": 10**9, "sec": 10**9}
UNIT_BYTES = {"b": 1, "bytes": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10,
              "mib": 1 << 20, "gib": 1 << 30}  # fmt: skip

COPIES = {
    "HTOD": "HtoD", "DTOH": "DtoH", "DTOD": "DtoD", "HTOH": "HtoH", "PTOP": "PtoP",
    "HOST-TO-DEVICE": "HtoD", "DEVICE-TO-HOST": "DtoH", "DEVICE-TO-DEVICE": "DtoD",
    "HOST-TO-HOST": "HtoH", "PEER-TO-PEER": "PtoP",
}  # fmt: skip

LATEST_NS = 4 * 10**18
MOST_LINE_BYTES = 1 << 20
HEADING_LINES = 12


def tables_of(source: Source, asked: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields (table, batch) of the file."""
    rank = rank_in_name(source.name) if asked is None else asked
    if rank is None or not 0 <= rank <= MAX_RANK:
        raise RankUnknown(
            "a GPU trace of nsys stats does not say its rank: name the file after it "
            "(rank3.csv) or use --rank",
            path=source.name,
        )
    c = Collector(source)
    trace = _Trace(c, rank)
    for offset, row in _rows(source, c):
        trace.take(offset, row)
        yield from c.full()
    if trace.titles is None:
        raise UnusableInput("no heading of a GPU trace of nsys stats", path=source.name)
    trace.finish()
    if not trace.n:
        raise UnusableInput("a GPU trace without any usable row", path=source.name)
    c.odd(
        "no_session_start",
        "nsys stats does not print when the session began: times count from a zero of their own; "
        "export the report instead (nsys export --type sqlite)",
        "info",
    )
    c.add(
        "ranks",
        rank=rank,
        device=trace.device,
        device_name=trace.device_name,
        host_source="unknown",
        start_ns=trace.first_ns,
        end_ns=trace.last_ns,
        clock="process",
        source=source.name,
    )
    yield from c.rest()


def _rows(source: Source, c: Collector) -> Iterator[tuple[int, list[str]]]:
    for offset, line, complete in texts.lines(source, c.odd, MOST_LINE_BYTES):
        text = line.decode("utf-8", "replace").lstrip("\ufeff").replace("\0", "\ufffd")
        if not text.strip():
            continue
        try:
            row = next(csv.reader([text], strict=False), [])
        except csv.Error as e:
            c.odd("bad_line", f"a line is no CSV ({e}): left out", "lost", offset=offset)
            continue
        if not complete and len(row) < 6:
            c.odd("bad_line", "the last line is cut: left out", "lost", offset=offset)
            continue
        yield offset, row


class _Trace:
    """The file while it is read: its heading, and rows that wait for their end."""

    def __init__(self, c: Collector, rank: int):
        self._c = c
        self._rank = rank
        self._id = event_id(rank, "nsys-stats", 0)
        self._seen = 0
        self._open: dict[tuple[str, str], list[tuple[int, int, dict[str, str]]]] = {}
        self.titles: list[str] | None = None
        self.n = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.device: int | None = None
        self.device_name: str | None = None

    def take(self, offset: int, row: list[str]) -> None:
        """One line's cells."""
        if self.titles is None:
            self._seen += 1
            bare = [t.strip() for t in row]
            if ("CorrId" in bare and bare[0].startswith("Start")) or (
                "Event Type" in bare and "Timestamp (ns)" in bare
            ):
                self.titles = bare
            elif self._seen > HEADING_LINES:
                raise UnusableInput(
                    "no heading of a GPU trace of nsys stats", path=self._c.source.name
                )
            return
        cells = dict(zip(self.titles, (t.strip() for t in row), strict=False))
        if "Event Type" in cells:
            self._pair(offset, cells)
        else:
            self._whole(offset, cells)

    def _pair(self, offset: int, cells: dict[str, str]) -> None:
        time = _scaled(cells.get("Timestamp (ns)", ""), 1)
        name, way = cells.get("Name", ""), cells.get("Event Type", "")
        if time is None or way not in ("Enter", "Leave"):
            self._bad(offset)
            return
        key = (name, cells.get("streamId", ""))
        if way == "Enter":
            self._open.setdefault(key, []).append((offset, time, cells))
            return
        waiting = self._open.get(key)
        if not waiting or time < waiting[0][1]:
            self._bad(offset)
            return
        began, start, first = waiting.pop(0)
        sort = first.get("type", "")
        kind = "kernel" if sort == "kernel" else "memset" if "MEMSET" in sort else "memcpy"
        self._add(
            began, start, time - start, kind, _copy(name) if kind == "memcpy" else name,
            stream=_int(first.get("streamId")), n_bytes=_scaled(first.get("bytes", ""), 1),
        )  # fmt: skip

    def _whole(self, offset: int, cells: dict[str, str]) -> None:
        start = duration = n_bytes = None
        for title, text in cells.items():
            head, _, unit = title.rstrip(")").partition("(")
            head, unit = head.strip(), unit.strip().lower()
            if head == "Start":
                start = _scaled(text, UNIT_NS.get(unit, 0))
            elif head == "Duration":
                duration = _scaled(text, UNIT_NS.get(unit, 0))
            elif head == "Bytes" and text:
                n_bytes = _scaled(text, UNIT_BYTES.get(unit or "b", 0))
        name = cells.get("Name", "")
        if start is None or duration is None or duration < 0 or not name:
            self._bad(offset)
            return
        kind = "kernel"
        if name.startswith("[CUDA mem"):
            kind = "memset" if name.startswith("[CUDA memset") else "memcpy"
            name = _copy(name) if kind == "memcpy" else "Memset"
        self._device(cells.get("Device", ""))
        self._add(
            offset, start, duration, kind, name, stream=_int(cells.get("Strm")), n_bytes=n_bytes,
            correlation=_int(cells.get("CorrId")), grid=_product(cells, "Grd"),
            block=_product(cells, "Blk"),
        )  # fmt: skip

    def _device(self, text: str) -> None:
        """`NVIDIA H100 (0)`: model and number."""
        model, _, number = text.rpartition("(")
        number = _int(number.rstrip(")"))
        if number is not None and self.device is None:
            self.device, self.device_name = number, model.strip() or None

    def _add(
        self, offset: int, start: int, duration: int, kind: str, name: str, *,
        stream: int | None, n_bytes: int | None, correlation: int | None = None,
        grid: int | None = None, block: int | None = None,
    ) -> None:  # fmt: skip
        if start + duration > LATEST_NS:
            self._bad(offset)
            return
        self.n += 1
        category = {"memcpy": "copy", "memset": "memset"}.get(kind)
        category = category or kernels.category_of_kernel(name)
        identity = self._id + (offset & ((1 << 34) - 1))
        self._c.add(
            "events",
            rank=self._rank,
            event_id=identity,
            kind=kind,
            name=name,
            stream=stream,
            device=self.device,
            start_ns=start,
            dur_ns=duration,
            correlation=correlation,
            category=category,
            grid_blocks=grid,
            block_threads=block,
            bytes=n_bytes,
        )
        end = start + duration
        self.first_ns = start if self.first_ns is None else min(self.first_ns, start)
        self.last_ns = end if self.last_ns is None else max(self.last_ns, end)
        said = classify.comm_kernel(name) if category == "comm" else None
        if said is not None:
            self._c.add(
                "collectives",
                rank=self._rank,
                op=said.op,
                dtype=said.dtype.name if said.dtype else None,
                algo=said.algo,
                proto=said.proto,
                channels=grid if said.library in ("nccl", "rccl", "msccl") else None,
                start_ns=start,
                end_ns=end,
                stream=stream,
                event_id=identity,
                timing="kernel",
                clock="process",
                source="nsys",
            )

    def _bad(self, offset: int) -> None:
        self._c.odd(
            "bad_row", "a row without a usable time or name: left out", "lost", offset=offset
        )

    def finish(self) -> None:
        """Counts rows whose end never came."""
        n = sum(len(v) for v in self._open.values())
        if n:
            self._c.odd("open_end", "rows that enter and never leave: left out", "lost", count=n)


def _scaled(text: str, unit: int) -> int | None:
    """A number in a unit as an integer, exactly; None where it is none or absurd."""
    text = text.strip()
    if not text or not unit or len(text) > 40:
        return None
    try:
        value = Decimal(text) * unit
        if not value.is_finite() or not 0 <= value < LATEST_NS:
            return None
        return int(value.to_integral_value())
    except (InvalidOperation, ValueError, OverflowError):
        return None


def _int(text: str | None) -> int | None:
    value = (text or "").strip()
    return int(value) if value.isascii() and value.isdigit() and len(value) < 16 else None


def _product(cells: dict[str, str], head: str) -> int | None:
    out = 1
    for axis in "XYZ":
        value = _int(cells.get(head + axis))
        if not value:
            return None
        out *= value
    return out if out < 1 << 31 else None


def _copy(name: str) -> str:
    low = name.upper()
    way = next((w for part, w in COPIES.items() if part in low), None)
    return f"Memcpy {way}" if way else "Memcpy"
