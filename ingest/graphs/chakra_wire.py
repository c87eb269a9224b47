"""Messages of Chakra's protobuf execution traces, decoded from their bytes.

A file is a row of messages, each behind its length as a varint: GlobalMetadata first, then Nodes.
Lengths and field types are a stranger's: nothing is read or kept beyond what is there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from ..gunzip import read_exactly, stream_defect

if TYPE_CHECKING:
    from ..sources import Source

MAX_MESSAGE_BYTES = 64 << 20
MAX_JUNK = 1000
"""Messages one after another that are no nodes, before a file is given up."""

MAX_FIELDS = 1 << 20
MAX_LIST = 1 << 20


class Bad(ValueError):
    """Bytes that are no message."""


class Node(NamedTuple):
    """One node as written; `type` is a NodeType, `start_us` and `dur_us` are 0 where absent.

    `inputs` is the text of its input values, `attrs` its attributes by name.
    """

    id: int
    name: str
    type: int
    ctrl_deps: list[int]
    data_deps: list[int]
    start_us: int
    dur_us: int
    inputs: str
    attrs: dict[str, object]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place and the place behind it. Raises Bad beyond 64 bits or the end."""
    value = shift = 0
    end = len(data)
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise Bad("varint")


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(field, wire type, value) of each field of a message. Raises Bad where it is none."""
    at, end, n = 0, len(data), 0
    while at < end:
        n += 1
        if n > MAX_FIELDS:
            raise Bad("too many fields")
        key, at = varint(data, at)
        kind, field = key & 7, key >> 3
        value: int | bytes
        if kind == 0:
            value, at = varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = data[at : at + size], at + size
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise Bad("wire type")
        if at > end or not field:
            raise Bad("field")
        yield field, kind, value


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _zigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _text(value: int | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


# Field of AttributeProto: how its value (or each of its list's, one field further) is read.
_FLOATS = {3: "<d", 5: "<f"}
_FIXED = {19: "<I", 21: "<Q", 23: "<i", 25: "<q"}
_VARINTS: dict[int, Callable[[int], object]] = {
    7: _signed,
    9: _signed,
    11: int,
    13: int,
    15: _zigzag,
    17: _zigzag,
    27: bool,
}
_TEXTS = (29, 31)


def attribute(data: bytes) -> tuple[str, object]:
    """Name and value of an AttributeProto: number, bool, text or a list; None for any other."""
    name, value = "", None
    for field, kind, raw in fields(data):
        if field == 1 and kind == 2:
            name = _text(raw)
        elif field % 2 and field > 2:
            value = _scalar(field, kind, raw)
        elif field > 2 and kind == 2 and isinstance(raw, bytes):
            value = _list(field - 1, raw)
    return name, value


def _scalar(field: int, kind: int, raw: int | bytes) -> object:
    if isinstance(raw, int):
        return _VARINTS[field](raw) if field in _VARINTS else None
    if field in _TEXTS and kind == 2:
        return _text(raw)
    form = _FLOATS.get(field) or _FIXED.get(field)
    if form is None or struct.calcsize(form) != len(raw):
        return None
    return struct.unpack(form, raw)[0]


def _list(field: int, data: bytes) -> list:
    out: list = []
    for inner, kind, raw in fields(data):
        if inner != 1 or len(out) >= MAX_LIST:
            continue
        if kind == 2 and isinstance(raw, bytes) and field not in _TEXTS:
            out += _packed(field, raw)
        else:
            out.append(_scalar(field, kind, raw))
    return out


def _packed(field: int, data: bytes) -> list:
    form = _FLOATS.get(field) or _FIXED.get(field)
    if form is not None:
        size = struct.calcsize(form)
        whole = data[: len(data) // size * size]
        return [v for (v,) in struct.iter_unpack(form, whole)][:MAX_LIST]
    return [_VARINTS[field](v) for v in _varints(data)] if field in _VARINTS else []


def _varints(data: bytes) -> list[int]:
    out, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        out.append(value)
    return out


def node(data: bytes) -> Node:
    """The node of a message. Raises Bad where the bytes are no node."""
    ident, name, kind, start, dur, inputs = 0, "", 0, 0, 0, ""
    ctrl: list[int] = []
    deps: list[int] = []
    attrs: dict[str, object] = {}
    for field, wire, raw in fields(data):
        if field in (4, 5):
            into = ctrl if field == 4 else deps
            into += _varints(raw) if isinstance(raw, bytes) and wire == 2 else []
            if isinstance(raw, int):
                into.append(raw)
        elif isinstance(raw, int):
            if field == 1:
                ident = raw
            elif field == 3:
                kind = raw
            elif field == 6:
                start = raw
            elif field == 7:
                dur = raw
        elif wire == 2:
            if field == 2:
                name = _text(raw)
            elif field == 8:
                inputs = next((_text(v) for f, w, v in fields(raw) if f == 1 and w == 2), "")
            elif field == 10:
                key, value = attribute(raw)
                attrs[key] = value
    if not name and not kind:
        raise Bad("neither name nor type")
    return Node(ident, name, kind, ctrl, deps, start, dur, inputs, attrs)


def metadata(data: bytes) -> tuple[str | None, dict[str, object]]:
    """Version and attributes of a GlobalMetadata. Raises Bad where the bytes are none."""
    version, attrs = None, {}
    for field, kind, raw in fields(data):
        if kind != 2 or field not in (1, 2) or not isinstance(raw, bytes):
            raise Bad("metadata")
        if field == 1:
            version = _text(raw)
        else:
            key, value = attribute(raw)
            if not key:
                raise Bad("attribute")
            attrs[key] = value
    return version, attrs


def messages(source: Source, on_odd: Callable[..., None]) -> Iterator[tuple[int, bytes]]:
    """(byte offset, bytes) of each message, streaming; what ends them early is told."""
    at = 0
    with source.open() as f:
        while True:
            got = _length(f)
            if got is None:
                break
            size, used = got
            if size < 0 or size > MAX_MESSAGE_BYTES:
                on_odd(
                    "bad_length",
                    "a message's length is none, or beyond the 64 MiB that a node may have; "
                    "nothing behind it can be found",
                    "lost",
                    offset=at,
                )
                return
            data = read_exactly(f, size)
            if len(data) < size:
                on_odd(
                    "truncated",
                    f"the file ends {size - len(data)} bytes before its last node does; every "
                    "whole node before this byte is kept",
                    "lost",
                    offset=at,
                )
                return
            yield at, data
            at += used + size
        defect = stream_defect(f)
        if defect is not None:
            on_odd("truncated", f"{defect}; what came before is kept", "lost", offset=at)


def _length(f: BinaryIO) -> tuple[int, int] | None:
    """A varint from a stream and its bytes; None at the end, -1 where it is none."""
    value = 0
    for n in range(10):
        byte = f.read(1)
        if not byte:
            return None if not n else (-1, n)
        value |= (byte[0] & 0x7F) << (7 * n)
        if byte[0] < 0x80:
            return value, n + 1
    return -1, 10
