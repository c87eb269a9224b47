"""Protobuf's wire format, written: numbers, texts and messages as fields of a message."""

from __future__ import annotations

import struct

MASK = (1 << 64) - 1
_SHORT = [bytes([n]) for n in range(0x80)]


def varint(value: int) -> bytes:
    """A number as a varint; negative ones as their 64-bit two's complement."""
    if 0 <= value < 0x80:
        return _SHORT[value]
    value &= MASK
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """An integer, boolean or enum field (not of the zigzag or fixed types)."""
    return varint(field << 3) + varint(value)


def double(field: int, value: float) -> bytes:
    """A double field."""
    return varint(field << 3 | 1) + struct.pack("<d", value)


def data(field: int, value: bytes) -> bytes:
    """A message, bytes or packed field."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def text(field: int, value: str, longest: int = 1000) -> bytes:
    """A string field of at most `longest` characters; half characters are replaced."""
    return data(field, shortened(value, longest).encode("utf-8", "replace"))


def packed(field: int, values: list[int]) -> bytes:
    """A packed repeated integer field; nothing for an empty list."""
    return data(field, b"".join(map(varint, values))) if values else b""


def delimited(message: bytes) -> bytes:
    """A message behind its length, as files of many messages have it."""
    return varint(len(message)) + message


def shortened(value: str, longest: int) -> str:
    """The text, or its beginning and an ellipsis where it is longer than `longest`."""
    return value if len(value) <= longest else value[: longest - 1] + "…"
