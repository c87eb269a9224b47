"""A trace file for Perfetto: tracks, interned texts, slices and counters, written as they come.

Numbers of fields are those of `protos/perfetto/trace` (Trace, TracePacket, TrackDescriptor,
InternedData, ClockSnapshot).
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
import polars as pl

from .. import outfile
from . import packets, wire
from .lanes import marks as marks_of

BATCH = 1 << 14
"""Beginnings and ends that are encoded at once."""

MAX_NAME = 512
MAX_TEXT = 256
"""Characters of a slice's name, and of any other text, that are kept."""

_STATE_CLEARED = 1
_EXPLICIT = 3
_REALTIME, _BOOTTIME = 1, 6


class TraceFile:
    """A file being written, gzip where its name ends with `.gz`; it appears when it is whole.

    Counts what is in it: `slices`, `tracks`, `flows`, `samples`. Times are moved by `shift_ns`:
    the format has none before 0.
    """

    def __init__(self, path: str | os.PathLike[str], *, shift_ns: int = 0):
        self.path = Path(path)
        self.shift_ns = shift_ns
        self.slices = self.tracks = self.flows = self.samples = 0
        self._sequences = 0
        self._whole = outfile.writing(path)
        self._raw = self._whole.__enter__()
        self._out: BinaryIO = self._raw
        if self.path.name.endswith(".gz"):
            from isal import igzip

            self._out = igzip.IGzipFile(  # type: ignore[assignment]
                filename="", mode="wb", fileobj=self._raw, compresslevel=2, mtime=0
            )

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._out is not self._raw:
            try:
                self._out.close()
            except OSError as e:
                if error is None:
                    kind, error, trace = type(e), e, e.__traceback__
        self._whole.__exit__(kind, error, trace)

    def packet(self, body: bytes) -> None:
        """Writes one packet (the fields of TracePacket)."""
        self._out.write(wire.data(1, body))

    def bytes(self, many: np.ndarray) -> None:
        """Writes whole packets."""
        self._out.write(many.data)

    def epoch(self, time_ns: int) -> None:
        """Says that the times are nanoseconds of the Unix epoch, at one moment of the trace."""
        clocks = b"".join(
            wire.data(1, wire.number(1, clock) + wire.number(2, time_ns + self.shift_ns * moved))
            for clock, moved in ((_BOOTTIME, 1), (_REALTIME, 0))
        )
        self.packet(wire.data(6, clocks))

    def process(self, pid: int, name: str, labels: tuple[str, ...], place: int) -> int:
        """A new process; returns the id of its track. `place` orders processes on screen."""
        about = wire.number(1, pid) + wire.text(6, name, MAX_NAME)
        about += b"".join(wire.text(8, label, MAX_TEXT) for label in labels)
        about += wire.number(3, place)
        return self._track(wire.data(3, about) + wire.number(11, _EXPLICIT))

    def track(self, name: str, parent: int, place: int, *, counter: bool = False) -> int:
        """A new track below another one, at a place among its siblings; returns its id.

        Siblings of one name are shown as one, with lanes.
        """
        fields = wire.text(2, name, MAX_NAME) + wire.number(5, parent) + wire.number(12, place)
        return self._track(fields + (wire.data(8, b"") if counter else wire.number(11, _EXPLICIT)))

    def _track(self, fields: bytes) -> int:
        self.tracks += 1
        self.packet(wire.data(60, wire.number(1, self.tracks) + fields) + wire.number(10, 1))
        return self.tracks

    def sequence(self) -> Sequence:
        """A new sequence of packets, with interned texts of its own."""
        self._sequences += 1
        return Sequence(self, 1 + self._sequences)


class Sequence:
    """Packets that share interned texts. Its memory goes with it, so one serves one rank."""

    def __init__(self, file: TraceFile, number: int):
        self.file = file
        self.number = number
        self._interned: dict[int, dict[str, int]] = {field: {} for field in (1, 2, 3, 29)}
        self._new: list[bytes] = []
        self._cleared = False

    def slices(
        self,
        frame: pl.DataFrame,
        track: np.ndarray,
        *,
        marks: np.ndarray | None = None,
        flows: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        """Writes the rows of a frame as slices of their tracks (int64 [n]).

        `start_ns`, `end_ns`, `name` and (if there) `category` are what they say; every further
        column is an argument of its name, null where a slice has none. `marks` is the order
        (default: `lanes.marks`); `flows` are offsets by row [n + 1] and the ids of flows.
        """
        n = len(frame)
        if not n:
            return
        start, end = (frame[c].to_numpy() + self.file.shift_ns for c in ("start_ns", "end_ns"))
        start = np.maximum(start, 0)
        end = np.maximum(end, start)
        name = self._codes(2, frame["name"].cast(pl.String).fill_null("?"), MAX_NAME)
        none = np.zeros(n, np.int64)
        category = self._codes(1, frame["category"], MAX_TEXT) if "category" in frame else none
        args, kinds, names = self._arguments(
            frame.drop("start_ns", "end_ns", "name", "category", strict=False)
        )
        order = marks_of(track, start, end) if marks is None else marks
        ptr, ids = flows or (np.zeros(n + 1, np.int64), none)
        self._flush()
        for at in range(0, len(order), BATCH):
            self.file.bytes(
                packets.slices(
                    order[at : at + BATCH], start, end, track, name, category, args, kinds, names,
                    ptr, ids, self.number,
                )
            )  # fmt: skip
        self.file.slices += n

    def samples(self, time_ns: np.ndarray, track: np.ndarray, value: np.ndarray) -> None:
        """Writes samples of counters: times and values by track."""
        self._flush()
        time_ns = np.maximum(time_ns + self.file.shift_ns, 0)
        for at in range(0, len(time_ns), BATCH):
            part = slice(at, at + BATCH)
            self.file.bytes(packets.samples(time_ns[part], track[part], value[part], self.number))
        self.file.samples += len(time_ns)

    def _arguments(self, frame: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Arguments as int64 [n, k], their kinds [k] and their interned names [k]."""
        args = np.full((len(frame), frame.width), packets.NULL, np.int64)
        kinds = np.zeros(frame.width, np.int64)
        names = np.zeros(frame.width, np.int64)
        for k, column in enumerate(frame):
            names[k] = self._ids(3, [column.name], MAX_TEXT)[0]
            there = column.is_not_null().to_numpy()
            if column.dtype.is_float():
                kinds[k] = packets.REAL
                value = column.cast(pl.Float64).fill_null(0.0).to_numpy()
                value = np.ascontiguousarray(value).view(np.int64)
            elif column.dtype.is_integer() or column.dtype == pl.Boolean:
                value = column.cast(pl.Int64).fill_null(0).to_numpy()
            else:
                kinds[k] = packets.TEXT
                value = self._codes(29, column, MAX_TEXT)
            args[there, k] = value[there]
        return args, kinds, names

    def _codes(self, field: int, column: pl.Series, longest: int) -> np.ndarray:
        """Interned ids (int64) of a column of texts; 0 for null."""
        text = column.cast(pl.String)
        distinct = text.drop_nulls().unique(maintain_order=True)
        if not len(distinct):
            return np.zeros(len(text), np.int64)
        ids = np.append(self._ids(field, distinct.to_list(), longest), 0)
        place = text.cast(pl.Enum(distinct)).to_physical().cast(pl.Int64).fill_null(len(distinct))
        return ids[place.to_numpy()]

    def _ids(self, field: int, texts: list[str], longest: int) -> np.ndarray:
        known = self._interned[field]
        out = np.empty(len(texts), np.int64)
        for i, text in enumerate(texts):
            text = wire.shortened(text, longest)
            ident = known.get(text)
            if ident is None:
                ident = known[text] = len(known) + 1
                entry = wire.number(1, ident) + wire.text(2, text, longest)
                self._new.append(wire.data(field, entry))
            out[i] = ident
        return out

    def _flush(self) -> None:
        """Writes the texts that are new since the last time."""
        if not self._new and self._cleared:
            return
        flags = packets.NEEDS_STATE if self._cleared else _STATE_CLEARED
        while self._new or not self._cleared:
            some, self._new = self._new[:4096], self._new[4096:]
            self.file.packet(
                wire.number(10, self.number)
                + wire.number(13, flags)
                + (wire.data(12, b"".join(some)) if some else b"")
            )
            self._cleared, flags = True, packets.NEEDS_STATE
