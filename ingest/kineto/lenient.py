"""One event's bytes to its declared fields with the standard library, mending what is broken.

The slow reference: it decides what an event says, and the fast readers hand it whatever they
refuse. Three readings are tried: strict JSON; a walk that forgives what leaves the structure clear
(NaN, stray commas, missing values, bare words, control characters, bad UTF-8 and escapes); and,
between the event's `{` and what looks like the next event, quotes inside strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator
from decimal import Decimal
from typing import NamedTuple

from ..schema import Problem
from ..values import exact, scaled
from . import jsontext
from .blocks import BATCH_ROWS, BLOCK_BYTES, MALFORMED, MAX_EVENT_BYTES, ByteStream, read_array
from .jsontext import Broken, Num, Span, Unfinished
from .rawbatch import (
    ARG,
    EVENT,
    FIELDS,
    NULL,
    BatchBuilder,
    Envelope,
    ProblemTally,
    RawBatch,
    Symbols,
)

_EVENT_FIELDS = {f.key: f for f in FIELDS if f.where == EVENT}
_ARG_FIELDS = {f.key: f for f in FIELDS if f.where == ARG}

_NEXT_EVENT = re.compile(
    rb'\}[ \t\r\n]*(?:,[ \t\r\n]*\{[ \t\r\n]*"(?:ph|name|cat|pid|tid|ts|dur|id|args|s|bp)"'
    rb'[ \t\r\n]*:|\][ \t\r\n]*(?:,[ \t\r\n]*"\w+"[ \t\r\n]*:|\}))'
)
_LAST_EVENT = re.compile(rb"\}[ \t\r\n,]*\][ \t\r\n]*\}?[ \t\r\n]*\Z")


class Event(NamedTuple):
    """One event as it was read.

    `values`: column to integer or text (absent columns are left out, or NULL); `extra`: the whole
    args where ph is "C"; `end`: one past its `}`; `notes`: (problem code, detail) pairs.
    `values` is None where nothing could be read.
    """

    values: dict[str, int | str] | None
    extra: dict | None
    end: int
    notes: list[tuple[str, str]]


class _Pairs(list):
    """An object's members in file order, so that a key given twice is seen."""


def parse_event(buf, start: int, end: int, *, final: bool) -> Event:
    """Reads the event whose `{` is at `start`; bytes of `buf` count up to `end`.

    `final` says that the file ends at `end`. Raises `Unfinished` where more bytes are needed, or,
    if final, where the event was cut off.
    """
    stop = min(end, start + MAX_EVENT_BYTES)
    try:
        try:
            return _strict(buf, start, stop)
        except ValueError:
            return _walked(buf, start, stop, [])
    except Unfinished:
        if not final and stop == end:
            raise
        reason = "too long or unfinished"
    except Broken:
        reason = "quotes"
    return _bounded(buf, start, end, final, reason)


def _strict(buf, start: int, stop: int) -> Event:
    after = jsontext.nested_end(buf, start, stop)
    raw = bytes(buf[start:after])
    notes: list[tuple[str, str]] = []
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "replace")
    try:
        pairs = json.loads(
            text,
            object_pairs_hook=_Pairs,
            parse_float=Num,
            parse_int=Num,
            parse_constant=_refuse,
        )
    except RecursionError:
        raise ValueError from None
    args = [v for k, v in pairs if k == "args"]
    values = _values(pairs, args, raw, notes)
    return Event(values, _extra(values, raw), after, notes)


def _refuse(word: str) -> None:
    raise ValueError(word)


def _walked(buf, start: int, stop: int, notes: list[tuple[str, str]]) -> Event:
    repairs: set[str] = set()
    pairs, after = jsontext.object_pairs(buf, start, stop, repairs)
    args: list[object] = []
    for key, value in pairs:
        if key == "args":
            if isinstance(value, Span) and buf[value.start] == 0x7B:
                members, closed = jsontext.object_pairs(buf, value.start, stop, repairs)
                if closed != value.end:
                    raise Broken
                value = _Pairs(members)
            args.append(value)
    if repairs:  # else it is in what nobody reads, which the compiled scan does not look into
        notes.append(("malformed_event", ", ".join(sorted(repairs))))
    values = _values(pairs, args, buf, notes)
    return Event(values, _extra(values, bytes(buf[start:after])), after, notes)


def _bounded(buf, start: int, end: int, final: bool, reason: str) -> Event:
    limit = min(end, start + MAX_EVENT_BYTES)
    m = _NEXT_EVENT.search(buf, start, limit)
    if m is None and final and limit == end:
        m = _LAST_EVENT.search(buf, max(start, end - 4096), end)
    if m is None:
        if limit == end:
            raise Unfinished
        return Event(None, None, limit, [("event_too_large", "")])
    after = m.start() + 1
    mended = jsontext.escape_inner_quotes(bytes(buf[start:after]))
    try:
        event = _walked(mended, 0, len(mended), [])
    except (Broken, Unfinished):
        return Event(None, None, after, [("lost_event", reason)])
    notes = [("malformed_event", reason), *(n for n in event.notes if n[0] != "malformed_event")]
    return Event(event.values, event.extra, after, notes)


def _values(
    pairs: list[tuple[str, object]], args: list[object], buf, notes: list[tuple[str, str]]
) -> dict[str, int | str]:
    values: dict[str, int | str] = {}
    _take(pairs, _EVENT_FIELDS, values, buf, notes)
    if len(args) > 1:
        notes.append(("duplicate_key", "args"))
    if args and isinstance(args[-1], _Pairs):
        _take(args[-1], _ARG_FIELDS, values, buf, notes)
    return values


def _take(pairs, fields, values: dict[str, int | str], buf, notes) -> None:
    seen: set[str] = set()
    for key, value in pairs:
        field = fields.get(key)
        if field is None:
            continue
        if key in seen:
            notes.append(("duplicate_key", key))
        seen.add(key)
        column = field.column
        # A later value replaces an earlier one whole, also where it is null.
        values.pop(column, None)
        if field.kind == "sym":
            text = symbol_text(value, buf)
            if text is not None:
                values[column] = text
            continue
        if field.kind == "char":
            if isinstance(value, str) and not isinstance(value, Num):
                values[column] = ord(value) if len(value) == 1 and value < "\x80" else 0
            continue
        if field.kind == "id":
            values.pop(column + "_sym", None)
            if isinstance(value, str) and not isinstance(value, Num):
                values[column + "_sym"] = jsontext.whole_characters(value)[0]
                continue
        if value is None:
            continue
        number = (
            nanoseconds(value)
            if field.kind == "us"
            else product(value, buf)
            if field.kind == "product"
            else integer(value)
        )
        if number == NULL:
            notes.append(("number_range", key))
        else:
            values[column] = number


_INTEGER = re.compile(r"[+-]?\d+")
_HEX = re.compile(r"[+-]?0[xX][0-9a-fA-F]+")


def nanoseconds(value: object) -> int:
    """Integer ns of microseconds given as a number or a string; NULL where it is neither.

    A fraction of a nanosecond is rounded half to even.
    """
    if not isinstance(value, str):
        return NULL
    ns = scaled(value, 3)
    return NULL if ns is None else ns


def integer(value: object) -> int:
    """An integer from a number, a bool or a string (decimal or hex); NULL where it is none.

    2**63 to 2**64-1 come back as the int64 with the same bits.
    """
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, str):
        return NULL
    text = value.strip()
    if len(text) > 64 or not text.isascii():
        return NULL
    if _INTEGER.fullmatch(text):
        number = int(text)
    elif _HEX.fullmatch(text):
        number = int(text, 16)
    else:
        whole = exact(text, 0)
        if whole is None or Decimal(text) != whole:
            return NULL
        number = whole
    return _in_64_bits(number)


def _in_64_bits(number: int) -> int:
    if -(2**63) < number < 2**63:
        return number
    return number - 2**64 if 2**63 < number < 2**64 else NULL


def product(value: object, buf) -> int:
    """The product of an array of integers (or a lone integer); NULL where it is none."""
    items = _items(value, buf)
    if items is None:
        return integer(value)
    out = 1
    for item in items:
        if not isinstance(item, Num) or not _INTEGER.fullmatch(item) or len(item) > 20:
            return NULL
        out *= int(item)
        if not -(2**63) < out < 2**63:
            return NULL
    return out if items else NULL


def symbol_text(value: object, buf) -> str | None:
    """The text of a string, number, bool or flat array; None for null and objects."""
    if isinstance(value, str):
        return jsontext.whole_characters(value)[0]
    if isinstance(value, bool):
        return "true" if value else "false"
    items = _items(value, buf)
    if items is None or any(not isinstance(i, str) for i in items):
        return None
    return jsontext.whole_characters("[" + ", ".join(items) + "]")[0]


def _items(value: object, buf) -> list | None:
    """The items of an array, which may still be a span of `buf`; None if it is no array."""
    if isinstance(value, Span):
        text = bytes(buf[value.start : value.end]).decode("utf-8", "replace")
        try:
            value = json.loads(text, parse_float=Num, parse_int=Num, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, list) and not isinstance(value, _Pairs) else None


def _extra(values: dict[str, int | str], event: bytes) -> dict | None:
    return counter_args(event) if values.get("ph") == ord("C") else None


def counter_args(event: bytes) -> dict | None:
    """All args of a counter event from its bytes, numbers as Python's; None where it has none."""
    text = event.decode("utf-8", "replace")
    try:
        args = json.loads(text, strict=False).get("args")
    except (ValueError, RecursionError, AttributeError):
        try:
            pairs, _ = jsontext.object_pairs(event, 0, len(event), set())
            span = dict(pairs).get("args")
            if not isinstance(span, Span) or event[span.start] != 0x7B:
                return None
            members, _ = jsontext.object_pairs(event, span.start, len(event), set())
        except (Broken, Unfinished):
            return None
        args = {k: _plain(v) for k, v in members}
    return args if isinstance(args, dict) else None


def _plain(value: object) -> object:
    if isinstance(value, Num):
        try:
            return int(value) if _INTEGER.fullmatch(value) else float(value)
        except ValueError:
            return str(value)
    return None if isinstance(value, Span) else value


def read_events(
    stream: ByteStream,
    envelope: Envelope,
    on_problem: Callable[[Problem], None],
    *,
    batch_rows: int = BATCH_ROWS,
    block_bytes: int = BLOCK_BYTES,
    call_texts: bool = False,
) -> Generator[RawBatch]:
    """The events of a trace as batches, every one of them read by the standard library.

    The reference that the fast readers are held against; some 3 MB/s. Same signature, rows and
    errors as `scanner.read_events`.
    """
    symbols = Symbols()
    builder = BatchBuilder(min(batch_rows, 8192), call_texts)
    tally = ProblemTally()

    def scan(window, pos: int) -> tuple[int, int]:
        return pos, MALFORMED

    return read_array(
        stream,
        envelope,
        on_problem,
        scan,
        builder,
        lambda: builder.take(symbols),
        tally,
        block_bytes,
    )
