"""Lines of the plain form to rows: what each table's lines get that they need not say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..collect import Collector
from ..errors import UnusableInput, UsageError
from ..schema import MAX_RANK, TABLES

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

OF_A_RANK = ("ranks", "steps", "events", "collectives", "transfers", "counters")
"""Tables whose rows get the file's rank."""
TAKEN = (*OF_A_RANK, "comms", "topology")
SOURCE = "plain"
MAX_LINE_BYTES = 1 << 20
DEFAULTS: dict[str, dict[str, Any]] = {
    "ranks": {"clock": "host"},
    "steps": {"found_by": "annotation"},
    "events": {"kind": "host_op", "thread": "main"},
    "comms": {"dim_source": "recorded"},
    "transfers": {"traffic_class": "collective", "measured": True},
}
OWN = ("event_id", "source", "collective_id", "match", "member", "member_place")
"""Columns that no line may set: they are made here or by what comes after."""


def rank_of_head(head: bytes) -> int | None:
    """The rank of the first line; None where it has none."""
    found = _object(head.partition(b"\n")[0])
    rank = found.get("rank") if isinstance(found, dict) else None
    return rank if type(rank) is int and 0 <= rank <= MAX_RANK else None


def tables_of(source: Source, asked: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields (table, batch); see `plain.parse`."""
    rank = rank_of_head(source.head(4096))
    if rank is None:
        rank = asked
    elif asked is not None and asked != rank:
        raise UsageError(
            f"{source.name}: its first line says rank {rank}, not {asked}; drop --rank"
        )
    if rank is None:
        raise UnusableInput("its first line names no rank", path=source.name)
    rows = _Rows(Collector(source), source.name, rank)
    offset = 0
    with source.open() as f:
        while line := f.readline(MAX_LINE_BYTES + 1):
            rows.line(line, offset)
            offset += len(line)
            yield from rows.collector.full()
    if not rows.taken:
        raise UnusableInput("no line of it is a row of a table", path=source.name)
    rows.close()
    yield from rows.collector.rest()


class _Rows:
    """The rows of a file while it is read."""

    def __init__(self, collector: Collector, name: str, rank: int):
        self.collector, self._name, self._rank = collector, name, rank
        self.taken = 0
        self._about: dict[str, Any] | None = None
        self._first: int | None = None
        self._last: int | None = None
        self._collective: int | None = None
        self._cut = False

    def line(self, line: bytes, offset: int) -> None:
        """One line; what is no row is counted."""
        cut, self._cut = self._cut, len(line) > MAX_LINE_BYTES
        if cut or self._cut:
            self._odd("line_too_long", f"lines of more than {MAX_LINE_BYTES} bytes", offset, cut)
            return
        if not line.strip():
            return
        row = _object(line)
        table = row.pop("table", None) if isinstance(row, dict) else None
        if table not in TAKEN:
            said = "a line that is no row: an object with `table`, one of " + ", ".join(TAKEN)
            self._odd("not_a_row", said, offset)
            return
        assert isinstance(row, dict)
        if table in OF_A_RANK and row.get("rank", self._rank) != self._rank:
            self._odd("other_rank", "a row of another rank than the file's", offset)
            return
        self.taken += 1
        self._take(table, row, offset)

    def _take(self, table: str, row: dict[str, Any], offset: int) -> None:
        event_id = (self._rank << 40) | offset
        span = self._span(row)
        known = {c.name for c in TABLES[table].columns} - set(OWN)
        host = {k: row.pop(k) for k in ("kind", "thread", "name") if k in row and k not in known}
        strange = sorted(set(row) - known)
        if strange:
            self.collector.odd(
                "unknown_column", f"{table} has no column {strange[0][:40]!r} to fill: not read",
                offset=offset,
            )  # fmt: skip
            row = {k: v for k, v in row.items() if k in known}
        row = {**DEFAULTS.get(table, {}), **row}
        if table == "ranks":
            self._about = {**row, **(self._about or {})}
            return
        if table in OF_A_RANK:
            row["rank"] = self._rank
        if "source" in {c.name for c in TABLES[table].columns}:
            row["source"] = SOURCE
        if table == "events":
            row["event_id"] = event_id
        elif table == "collectives":
            row["event_id"] = self._collective = event_id
            row.setdefault("group_size", None)
            if span is not None:
                self._event(row, host, span, event_id)
                row.setdefault("timing", "host")
        elif table == "transfers" and row["traffic_class"] == "collective":
            row["event_id"] = self._collective
        elif table == "steps":
            row.setdefault("host_start_ns", row.get("start_ns"))
            row.setdefault("host_end_ns", row.get("end_ns"))
        self.collector.add(table, **row)

    def _event(self, row: dict, host: dict, span: tuple[int, int], event_id: int) -> None:
        """The event that carries a collective: its times stand in `events`, too."""
        stream = row.get("stream")
        self.collector.add(
            "events",
            rank=self._rank,
            event_id=event_id,
            kind=host.get("kind", "host_op" if stream is None else "kernel"),
            name=host.get("name", row.get("op")),
            stream=stream,
            thread=host.get("thread", "main") if stream is None else None,
            start_ns=span[0],
            dur_ns=span[1] - span[0],
            category="comm",
            step=row.get("step"),
        )

    def _span(self, row: dict[str, Any]) -> tuple[int, int] | None:
        start = row.get("start_ns", row.get("time_ns"))
        if type(start) is not int:
            return None
        end = row.get("end_ns", start + row["dur_ns"] if type(row.get("dur_ns")) is int else start)
        if type(end) is not int:
            return None
        self._first = start if self._first is None else min(self._first, start)
        self._last = end if self._last is None else max(self._last, end)
        return start, max(start, end)

    def close(self) -> None:
        """Adds the rank's own row, with the stretch of time that its rows cover."""
        about = self._about or {}
        host = about.get("host")
        self.collector.add(
            "ranks",
            **{
                "start_ns": self._first,
                "end_ns": self._last,
                "host_source": "recorded" if isinstance(host, str) else "unknown",
                **about,
                "rank": self._rank,
                "source": self._name,
            },
        )

    def _odd(self, code: str, message: str, offset: int, again: bool = False) -> None:
        self.collector.odd(code, message, "lost", offset=offset, count=0 if again else 1)


def _object(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
