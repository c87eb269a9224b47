"""What every reader of Chrome-trace events gives: declared fields as columns of one batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..schema import Problem
from .call_texts import CallTexts
from .envelope import Envelope
from .rarely import Rare, RareRows

__all__ = [
    "ARG",
    "EVENT",
    "FIELDS",
    "INT_COLUMNS",
    "NULL",
    "SYM_COLUMNS",
    "BatchBuilder",
    "Envelope",
    "Field",
    "ProblemTally",
    "RawBatch",
    "Symbols",
]

NULL = -(2**63)
"""An absent integer."""

EVENT, ARG = 0, 1


class Field(NamedTuple):
    """A JSON key that is read: where it stands, its column, and how its value is read.

    Kinds: `char` (a string of one ASCII character; 0 otherwise), `us` (microseconds as a number or
    a string, to integer ns, a fraction beyond 3 decimals rounded half to even), `int` (an
    integer, true/false, or a decimal or hex string; 2**63 to 2**64-1 keep their 64 bits; anything
    else NULL), `id` (as `int`, but a string stays a string, in column `<name>_sym`), `sym` (a
    string, as its code; a number or bool as its text), `product` (product of an array of
    integers).
    """

    key: str
    column: str
    kind: str
    where: int = ARG


FIELDS: tuple[Field, ...] = (
    Field("ph", "ph", "char", EVENT),
    Field("cat", "cat", "sym", EVENT),
    Field("name", "name", "sym", EVENT),
    Field("pid", "pid", "id", EVENT),
    Field("tid", "tid", "id", EVENT),
    Field("ts", "ts_ns", "us", EVENT),
    Field("dur", "dur_ns", "us", EVENT),
    Field("External id", "external_id", "int"),
    Field("device", "device", "int"),
    Field("stream", "stream", "int"),
    Field("correlation", "correlation", "int"),
    Field("bytes", "bytes", "int"),
    Field("Bytes", "bytes", "int"),
    Field("wait_on_stream", "wait_stream", "int"),
    Field("wait_on_cuda_event_record_corr_id", "wait_correlation", "int"),
    Field("graph node id", "graph_node", "int"),
    Field("Group size", "group_size", "int"),
    Field("In msg nelems", "in_nelems", "int"),
    Field("In msg size", "in_nelems", "int"),
    Field("Out msg nelems", "out_nelems", "int"),
    Field("Out msg size", "out_nelems", "int"),
    Field("Rank", "rank_arg", "int"),
    Field("Src Rank", "src_rank", "int"),
    Field("Dst Rank", "dst_rank", "int"),
    Field("Global rank start", "rank_start", "int"),
    Field("Global rank stride", "rank_stride", "int"),
    Field("Seq", "seq", "int"),
    Field("Comms Id", "comms_id", "int"),
    Field("Is asynchronized op", "is_async", "int"),
    Field("Process Group ID", "pg_id", "int"),
    Field("Record function id", "record_function_id", "int"),
    Field("grid", "grid", "product"),
    Field("block", "block", "product"),
    Field("Collective name", "coll_name", "sym"),
    Field("dtype", "dtype", "sym"),
    Field("In split size", "in_split", "sym"),
    Field("Out split size", "out_split", "sym"),
    Field("Process Group Name", "pg_name", "sym"),
    Field("Process Group Description", "pg_desc", "sym"),
    Field("Process Group Ranks", "pg_ranks", "sym"),
    Field("cuda_sync_kind", "sync_kind", "sym"),
    Field("name", "arg_name", "sym"),
)
"""Every key that is read. Where two keys share a column, the later in the event wins."""

INT_COLUMNS: tuple[str, ...] = tuple(
    dict.fromkeys(f.column for f in FIELDS if f.kind not in ("char", "sym"))
)
SYM_COLUMNS: tuple[str, ...] = (
    *dict.fromkeys(f.column for f in FIELDS if f.kind == "sym"),
    "pid_sym",
    "tid_sym",
)

RARE_INTS: tuple[str, ...] = (
    "wait_stream", "wait_correlation", "group_size", "in_nelems", "out_nelems", "rank_arg",
    "src_rank", "dst_rank", "rank_start", "rank_stride", "seq", "comms_id", "is_async", "pg_id",
)  # fmt: skip
RARE_SYMS: tuple[str, ...] = (
    "coll_name", "dtype", "in_split", "out_split", "pg_name", "pg_desc", "pg_ranks", "sync_kind",
    "arg_name",
)  # fmt: skip
"""Columns of collectives and synchronisations: a few in a hundred events have them."""


class Symbols:
    """Distinct strings of one file, in order of first use. Code -1 means absent."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._codes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def code(self, text: str) -> int:
        """The code of a text, a new one if it was not seen before."""
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self._texts)
            self._texts.append(text)
        return code

    def text(self, code: int) -> str:
        """The text of a code; raises IndexError for -1 and unknown codes."""
        if code < 0:
            raise IndexError(code)
        return self._texts[code]


class RawBatch(NamedTuple):
    """`n` events as columns.

    `cols`: int64 columns of INT_COLUMNS and `offset` (byte of the event's `{` in the decompressed
    stream), NULL where absent; int32 codes into `symbols` of SYM_COLUMNS, -1 where absent; uint8
    `ph`, 0 where absent. Those of RARE_INTS and RARE_SYMS may be `Rare`, to be asked for rows.
    `extras`: the whole args of events with ph "C", by row.
    """

    n: int
    cols: dict[str, Any]
    symbols: Symbols
    extras: dict[int, dict]
    used_up: Callable[[], None] = lambda: None
    """To be called by who needs the columns no more: their memory is filled again."""
    texts: CallTexts | None = None
    """The text of calls, by row, where the reader was told to keep it."""


class _Room(NamedTuple):
    """Memory for a batch's columns."""

    ph: np.ndarray
    ints: np.ndarray
    syms: np.ndarray


class BatchBuilder:
    """Room for one batch: columns as rows of two matrices, filled by a reader, then taken.

    Row `INT_COLUMNS.index(c)` of `ints` is column c, the last row is `offset`; `syms` likewise. A
    reader that has called `with_rare` for the batch fills `rare` instead for those columns.
    `texts` is None where nobody wants the text of calls.
    """

    def __init__(self, capacity: int, call_texts: bool = False) -> None:
        self.capacity = capacity
        self._wants_texts = call_texts
        self.n = 0
        self._spare: deque[tuple[_Room, RareRows | None]] = deque()
        self.renew()

    def renew(self) -> None:
        """Room for the next batch: that of one that is used up, else new."""
        if self._spare:
            room, self._spare_rare = self._spare.popleft()
        else:
            # Untouched pages cost nothing, so a short file pays for the rows it has.
            room, self._spare_rare = (
                _Room(
                    np.empty(self.capacity, np.uint8),
                    np.empty((len(INT_COLUMNS) + 1, self.capacity), np.int64),
                    np.empty((len(SYM_COLUMNS), self.capacity), np.int32),
                ),
                None,
            )
        self._room = room
        self.ph, self.ints, self.syms = room
        self.rare: RareRows | None = None
        self.extras: dict[int, dict] = {}
        self.texts = CallTexts() if self._wants_texts else None
        self._late: list[tuple[int, dict[str, int | str]]] = []

    def with_rare(self) -> RareRows:
        """Room for the columns that few rows have, from the batch's first row on."""
        if self.rare is None:
            assert self.n == 0
            self.rare = self._spare_rare or RareRows(
                self.capacity, len(RARE_INTS), len(RARE_SYMS), NULL
            )
            self.rare.n = 0
        return self.rare

    def codes(self) -> list[np.ndarray]:
        """The symbol codes of the rows so far, column by column, as the reader wrote them."""
        if self.rare is None:
            return list(self.syms[:, : self.n])
        most = [
            codes[: self.n]
            for column, codes in zip(SYM_COLUMNS, self.syms, strict=True)
            if column not in RARE_SYMS
        ]
        return [*most, *self.rare.syms[: self.rare.n].T]

    def clear_row(self) -> int:
        """Adds a row of nulls and gives its index."""
        row = self.n
        if self.rare is not None:
            self.rare.at[row] = -1
        self.ph[row] = 0
        self.ints[:, row] = NULL
        self.syms[:, row] = -1
        self.n += 1
        return row

    def append(self, offset: int, values: dict[str, int | str], extra: dict | None) -> None:
        """Adds an event that was read into values by column; symbols as their text."""
        row = self.clear_row()
        self.ints[-1, row] = offset
        # Held back: codes of the rows around it may be a reader's own until the batch is taken.
        self._late.append((row, values))
        if extra is not None:
            self.extras[row] = extra

    def take(self, symbols: Symbols, remap: np.ndarray | None = None) -> RawBatch:
        """The batch so far; `renew` has to come before more rows.

        `remap` turns a reader's codes into `symbols`'. Its last entry must be -1: it is what
        code -1 becomes.
        """
        n, rare = self.n, self.rare
        ints = dict(zip((*INT_COLUMNS, "offset"), self.ints[:, :n], strict=True))
        syms = dict(zip(SYM_COLUMNS, self.syms[:, :n], strict=True))
        if rare is not None:
            for row, values in self._late:
                if not _RARE.isdisjoint(values):
                    rare.place(row)
            ints |= dict(zip(RARE_INTS, rare.ints[: rare.n].T, strict=True))
            syms |= dict(zip(RARE_SYMS, rare.syms[: rare.n].T, strict=True))
        if remap is not None:
            syms = {c: remap[codes] for c, codes in syms.items()}
        for row, values in self._late:
            for column, value in values.items():
                at = int(rare.at[row]) if rare is not None and column in _RARE else row
                if column == "ph":
                    self.ph[row] = value
                elif isinstance(value, str):
                    syms[column][at] = symbols.code(value)
                else:
                    ints[column][at] = value
        cols: dict[str, Any] = {"ph": self.ph[:n], **ints, **syms}
        if rare is not None:
            at = rare.at[:n]
            cols |= {c: Rare(ints[c], at, NULL) for c in RARE_INTS}
            cols |= {c: Rare(syms[c], at, -1) for c in RARE_SYMS}
        used_up = partial(self._spare.append, (self._room, rare or self._spare_rare))
        batch = RawBatch(n, cols, symbols, self.extras, used_up, self.texts)
        self.n = 0
        return batch


_RARE = {*RARE_INTS, *RARE_SYMS}

_MESSAGES = {
    "truncated": (
        "lost",
        "the file ends before its events do; every whole event before this byte is kept",
    ),
    "malformed_event": ("warning", "not valid JSON; read again forgivingly"),
    "lost_event": ("lost", "could not be read even forgivingly; left out"),
    "not_an_event": ("lost", "an item of the events array that is not an object; left out"),
    "event_too_large": ("lost", "an event beyond the size limit; left out"),
    "duplicate_key": ("warning", "an event gives a key twice; the last value is kept"),
    "number_range": ("warning", "a number that does not fit 64 bits, or no number; null"),
    "bad_text": ("warning", "a name with bad UTF-8, escapes or control characters; mended"),
    "malformed_envelope": ("warning", "what surrounds the events is not valid JSON"),
    "envelope_too_large": ("lost", "metadata after the events beyond the size limit; left out"),
}


class ProblemTally:
    """Counts oddities by code, so that a million of one kind are one problem."""

    def __init__(self) -> None:
        self._seen: dict[str, list] = {}

    def add(self, code: str, offset: int | None, detail: str = "", count: int = 1) -> None:
        """Notes `count` oddities, the first of them at byte `offset` of the stream."""
        entry = self._seen.setdefault(code, [offset, detail, 0])
        entry[2] += count
        if offset is not None and (entry[0] is None or offset < entry[0]):
            entry[0], entry[1] = offset, detail

    def report(self, on_problem: Callable[[Problem], None]) -> None:
        """Gives each kind once, and forgets them."""
        for code, (offset, detail, count) in self._seen.items():
            severity, message = _MESSAGES[code]
            if detail:
                message = f"{message} ({detail})"
            on_problem(Problem(code, message, severity, count, offset))
        self._seen.clear()
