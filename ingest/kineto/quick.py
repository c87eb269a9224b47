"""The reader that starts at once, for small inputs: msgspec structs of the declared fields.

A block of events is decoded in one call into structs that hold nothing but the declared fields,
then turned into columns. Where msgspec refuses a block, smaller ones are tried, and the event that
it refuses is read by `lenient`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator
from operator import attrgetter

import msgspec
import numpy as np
from msgspec import Raw

from ..schema import Problem
from . import jsontext, lenient
from .blocks import (
    BATCH_ROWS,
    BLOCK_BYTES,
    END,
    FULL,
    MALFORMED,
    MAX_EVENT_BYTES,
    MORE,
    ByteStream,
    Steps,
    Window,
    read_array,
)
from .call_texts import keeping
from .rawbatch import (
    ARG,
    EVENT,
    FIELDS,
    INT_COLUMNS,
    NULL,
    SYM_COLUMNS,
    BatchBuilder,
    Envelope,
    Field,
    ProblemTally,
    RawBatch,
    Symbols,
)

_NO_RAW = Raw()
_TYPES: dict[str, tuple[object, object]] = {
    "char": (str | None, None),
    "sym": (str | None, None),
    "us": (Raw, _NO_RAW),
    "int": (int | str | bool | None, NULL),
    "id": (int | str | bool | None, NULL),
    "product": (list[int] | None, None),
}


def _members(where: int) -> list[tuple]:
    return [
        (f"f{i}", _TYPES[f.kind][0], msgspec.field(default=_TYPES[f.kind][1], name=f.key))
        for i, f in enumerate(FIELDS)
        if f.where == where
    ]


_Args = msgspec.defstruct("_Args", _members(ARG), gc=False)
_Event = msgspec.defstruct(
    "_Event",
    [
        *_members(EVENT),
        ("args", _Args | None, msgspec.field(default=None)),
    ],
    gc=False,
)
_EVENT = msgspec.json.Decoder(_Event)
_EVENTS = msgspec.json.Decoder(list[_Event])  # pyright: ignore
_SPANS = msgspec.json.Decoder(list[Raw])
_NO_ARGS = _Args()

_BOUNDARY = re.compile(
    rb'\}[ \t\r\n]*(?=,[ \t\r\n]*\{[ \t\r\n]*"(?:ph|name|cat|pid|tid|ts|dur|id|args|s)")'
)
_BETWEEN = re.compile(rb"[ \t\r\n,]*")
_SMALL = 16 << 10
_GET = [attrgetter(f"f{i}") for i in range(len(FIELDS))]


def read_events(
    stream: ByteStream,
    envelope: Envelope,
    on_problem: Callable[[Problem], None],
    *,
    batch_rows: int = BATCH_ROWS,
    block_bytes: int = BLOCK_BYTES,
    call_texts: bool = False,
) -> Generator[RawBatch]:
    """The events of a trace as batches of up to `batch_rows` rows, in file order.

    Fills `envelope` (its head before the first batch, its tail after the last). Tells each kind of
    problem once, at the end. Raises UnusableInput where there is no events array. With `call_texts`
    the batches have the text of calls.
    """
    symbols = Symbols()
    builder = BatchBuilder(batch_rows, call_texts)
    tally = ProblemTally()
    scan, take = steps(symbols, builder, tally, block_bytes)
    return read_array(stream, envelope, on_problem, scan, builder, take, tally, block_bytes)


def steps(
    symbols: Symbols, builder: BatchBuilder, tally: ProblemTally, block_bytes: int = BLOCK_BYTES
) -> Steps:
    """What `read_array` scans with, and takes batches with: from an empty builder on."""
    size = block_bytes

    def scan(window: Window, pos: int) -> tuple[int, int]:
        nonlocal size
        while True:
            room = builder.capacity - builder.n
            if not room:
                return pos, FULL
            pos = _BETWEEN.match(window.view, pos, window.n).end()  # type: ignore[union-attr]
            cut = _last_boundary(window.view, pos, min(window.n, pos + size))
            if cut <= pos:
                return _one_by_one(window, pos, builder, symbols, tally)
            chunk = bytes(window.view[pos:cut])
            try:
                events = _EVENTS.decode(b"[" + chunk + b"]")
                spans = _SPANS.decode(b"[" + chunk + b"]")
            except (msgspec.MsgspecError, RecursionError):
                if size <= _SMALL:
                    return _one_by_one(window, pos, builder, symbols, tally)
                # Looking for the one bad event: the good ones around it stay on the fast path.
                size = max(_SMALL, min(size, cut - pos) // 4)
                continue
            # Batches end where the compiled scan ends them: rows are put in order by batch.
            del events[room:], spans[room:]
            starts, end = _offsets(chunk, spans)
            _add_rows(events, starts, spans, window.base + pos, builder, symbols, tally)
            pos += end
            size = min(2 * size, block_bytes)

    return Steps(keeping(scan, builder, symbols, _SYM_AT["name"]), lambda: builder.take(symbols))


def _last_boundary(view, pos: int, end: int) -> int:
    """One past the last `}` before `end` that another event follows; `pos` if there is none."""
    back = 16 << 10
    while True:
        start = max(pos, end - back)
        last = -1
        for m in _BOUNDARY.finditer(view, start, end):
            last = m.start()
        if last >= 0:
            return last + 1
        if start == pos:
            return pos
        back *= 8


def _one_by_one(
    window: Window, pos: int, builder: BatchBuilder, symbols: Symbols, tally: ProblemTally
) -> tuple[int, int]:
    """Reads single events until one is refused or needs more bytes."""
    view, n = window.view, window.n
    for _ in range(64):
        pos = _BETWEEN.match(view, pos, n).end()  # type: ignore[union-attr]
        if pos >= n:
            return pos, MORE
        if view[pos] == 0x5D:
            return pos, END
        if builder.n == builder.capacity:
            return pos, FULL
        if view[pos] != 0x7B:
            return pos, MALFORMED
        try:
            end = jsontext.nested_end(view, pos, min(n, pos + MAX_EVENT_BYTES))
            raw = bytes(view[pos:end])
            event = _EVENT.decode(raw)
        except (jsontext.Unfinished, jsontext.Broken, msgspec.MsgspecError, RecursionError):
            return pos, MALFORMED
        _add_rows([event], [0], [raw], window.base + pos, builder, symbols, tally)
        pos = end
    return pos, MALFORMED


def _offsets(chunk: bytes, spans: list[Raw]) -> tuple[list[int], int]:
    """Where each item of a decoded list begins in its text, and one past the last one's end."""
    find = chunk.find
    end = 0
    starts = []
    for span in spans:
        start = find(b"{", end)
        starts.append(start)
        end = start + len(memoryview(span))
    return starts, end


def _add_rows(
    events: list,
    starts: list[int],
    spans: list,
    base: int,
    builder: BatchBuilder,
    symbols: Symbols,
    tally: ProblemTally,
) -> None:
    first = builder.n
    last = first + len(events)
    offsets = np.array(starts, np.int64) + base
    builder.ints[-1, first:last] = offsets
    builder.n = last
    args = [e.args or _NO_ARGS for e in events]
    # By column; where two keys share one, whether the event gives both decides.
    given: dict[str, np.ndarray] = {}
    twice: set[int] = set()
    for i, field in enumerate(FIELDS):
        values = list(map(_GET[i], events if field.where == EVENT else args))
        if field.kind == "char":
            builder.ph[first:last] = [
                ord(v) if v is not None and len(v) == 1 and v < "\x80" else 0 for v in values
            ]
        elif field.kind == "sym":
            builder.syms[_SYM_AT[field.column], first:last] = _codes(values, symbols)
        else:
            column = _integers(field, values, offsets, builder, first, symbols, tally)
            target = builder.ints[_INT_AT[field.column], first:last]
            if field.column not in _SHARED:
                target[:] = column
                continue
            present = np.array([v is not NULL for v in values], bool)
            if field.column in given:
                twice.update(np.flatnonzero(present & given[field.column]).tolist())
                target[present] = column[present]
            else:
                target[:] = column
                given[field.column] = present
    for i in sorted(twice):
        raw = bytes(spans[i])
        again = lenient.parse_event(raw, 0, len(raw), final=True).values or {}
        for column in _SHARED:
            builder.ints[_INT_AT[column], first + i] = again.get(column, NULL)
    for i in np.flatnonzero(builder.ph[first:last] == ord("C")).tolist():
        extra = lenient.counter_args(bytes(spans[i]))
        if extra is not None:
            builder.extras[first + i] = extra


_INT_AT = {c: i for i, c in enumerate(INT_COLUMNS)}
_SYM_AT = {c: i for i, c in enumerate(SYM_COLUMNS)}
_COLUMNS = [f.column for f in FIELDS]
_SHARED = {c for c in _COLUMNS if _COLUMNS.count(c) > 1}


def _codes(values: list, symbols: Symbols) -> np.ndarray | int:
    if values.count(None) == len(values):
        return -1
    codes = {v: symbols.code(v) for v in dict.fromkeys(values) if v is not None}
    codes[None] = -1
    return np.array([codes[v] for v in values], np.int32)


def _integers(
    field: Field,
    values: list,
    offsets: np.ndarray,
    builder: BatchBuilder,
    first: int,
    symbols: Symbols,
    tally: ProblemTally,
) -> np.ndarray:
    if field.kind == "us":
        return _nanoseconds(field, values, offsets, tally)
    if field.kind == "product":
        return _products(field, values, offsets, tally)
    if field.kind == "id":
        texts = [v if type(v) is str else None for v in values]
        code = _codes(texts, symbols)
        builder.syms[_SYM_AT[field.column + "_sym"], first : first + len(values)] = code
        if not isinstance(code, int):
            values = [NULL if type(v) is str else v for v in values]
    if values.count(NULL) == len(values):
        return np.full(len(values), NULL, np.int64)
    if set(map(type, values)) == {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    out = []
    for i, v in enumerate(values):
        if v is None or v is NULL:
            out.append(NULL)
            continue
        number = lenient.integer(v if isinstance(v, (bool, str)) else jsontext.Num(str(v)))
        if number == NULL:
            tally.add("number_range", int(offsets[i]), field.key)
        out.append(number)
    return np.array(out, np.int64)


def _nanoseconds(
    field: Field, values: list[Raw], offsets: np.ndarray, tally: ProblemTally
) -> np.ndarray:
    """Integer ns from JSON text of microseconds: three decimals at once, all else one by one."""
    texts = [bytes(v) for v in values]
    try:
        return np.array(
            [
                int(t.replace(b".", b""))
                if t[-4:-3] == b"."
                else int(t) * 1000
                if t.isdigit()
                else _other_us(t)
                for t in texts
            ],
            np.int64,
        )
    except (ValueError, OverflowError):
        pass
    out = []
    for t, offset in zip(texts, offsets.tolist(), strict=True):
        value = msgspec.json.decode(t, type=str) if t[:1] == b'"' else jsontext.Num(t.decode())
        number = NULL if t in (b"", b"null") else lenient.nanoseconds(value)
        if number == NULL and t not in (b"", b"null"):
            tally.add("number_range", offset, field.key)
        out.append(number)
    return np.array(out, np.int64)


def _other_us(text: bytes) -> int:
    if text:
        raise ValueError(text)
    return NULL


def _products(field: Field, values: list, offsets: np.ndarray, tally: ProblemTally) -> np.ndarray:
    out = []
    for i, v in enumerate(values):
        if v is None:
            out.append(NULL)
            continue
        number = math.prod(v) if v else NULL
        if not 0 < number < 2**31:
            number = lenient.product([jsontext.Num(str(x)) for x in v], b"")
            if number == NULL:
                tally.add("number_range", int(offsets[i]), field.key)
        out.append(number)
    return np.array(out, np.int64)
