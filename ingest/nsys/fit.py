"""Columns as a carrier gave them, brought to the declared kind: int64, double, text or bytes."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

import pyarrow as pa

from .arrow import compute as pc
from .columns import ARROW, BYTES, INT, REAL, TEXT

OnOdd = Callable[..., None]


def fit(column: pa.Array, kind: str, odd: OnOdd, where: str) -> pa.Array:
    """The column in the Arrow type of its kind; what does not fit becomes null and is counted.

    Unsigned 64-bit numbers keep their bits as signed ones. Text that is not UTF-8 keeps what can
    be read; an empty text is null, as the carriers do not agree on which of the two they write.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    had = len(column) - column.null_count
    if pa.types.is_null(column.type) or not had:
        return pa.nulls(len(column), ARROW[kind])
    fitted = {INT: _ints, REAL: _reals, TEXT: _texts, BYTES: _bytes}[kind](column)
    lost = had - (len(fitted) - fitted.null_count)
    if lost and kind not in (TEXT, BYTES):
        odd("wrong_type", f"values of {where} that are no {kind}: taken as missing", count=lost)
    return fitted


def _ints(column: pa.Array) -> pa.Array:
    t = column.type
    if pa.types.is_int64(t):
        return column
    if pa.types.is_integer(t) or pa.types.is_boolean(t):
        return column.cast(pa.int64(), safe=False)
    if pa.types.is_timestamp(t) or pa.types.is_duration(t):
        return column.cast(pa.int64(), safe=False)
    if pa.types.is_floating(t):
        return _whole(column.cast(pa.float64()))
    if _is_bytes_like(t):
        return pa.array([_int_of(v) for v in _texts(column).to_pylist()], pa.int64())
    return pa.nulls(len(column), pa.int64())


def _whole(column: pa.Array) -> pa.Array:
    """Floats that are integers; a writer without nullable integers had to use them."""
    fits = pc.and_(pc.equal(pc.floor(column), column), pc.less(pc.abs(column), float(1 << 62)))
    kept = pc.if_else(pc.fill_null(fits, False), column, pa.scalar(None, pa.float64()))
    return kept.cast(pa.int64())


def _int_of(text: str | None) -> int | None:
    if text is None or len(text) > 24:
        return None
    try:
        value = int(text)
    except ValueError:
        return None
    if (1 << 63) <= value < (1 << 64):
        value -= 1 << 64
    return value if -(1 << 63) <= value < (1 << 63) else None


def _reals(column: pa.Array) -> pa.Array:
    t = column.type
    if pa.types.is_integer(t) or pa.types.is_boolean(t):
        column = column.cast(pa.int64(), safe=False).cast(pa.float64(), safe=False)
    elif pa.types.is_floating(t):
        column = column.cast(pa.float64())
    elif _is_bytes_like(t):
        column = pa.array([_float_of(v) for v in _texts(column).to_pylist()], pa.float64())
    else:
        return pa.nulls(len(column), pa.float64())
    finite = pc.fill_null(pc.is_finite(column), False)
    return pc.if_else(finite, column, pa.scalar(None, pa.float64()))


def _float_of(text: str | None) -> float | None:
    try:
        return None if text is None or len(text) > 64 else float(text)
    except ValueError:
        return None


def _is_bytes_like(t: pa.DataType) -> bool:
    return (
        pa.types.is_string(t)
        or pa.types.is_large_string(t)
        or pa.types.is_binary(t)
        or pa.types.is_large_binary(t)
        or pa.types.is_fixed_size_binary(t)
        or t in (pa.string_view(), pa.binary_view())
    )


def _texts(column: pa.Array) -> pa.Array:
    t = column.type
    if not _is_bytes_like(t):
        if pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_boolean(t):
            return column.cast(pa.string())
        return pa.nulls(len(column), pa.string())
    raw = _bytes(column)
    try:
        text = raw.cast(pa.string())
    except pa.ArrowInvalid:
        text = pa.array(
            [None if v is None else v.decode("utf-8", "replace") for v in raw.to_pylist()],
            pa.string(),
        )
    return pc.if_else(pc.equal(pc.binary_length(text), 0), pa.scalar(None, pa.string()), text)


def _bytes(column: pa.Array) -> pa.Array:
    t = column.type
    if not _is_bytes_like(t):
        return pa.nulls(len(column), pa.binary())
    if pa.types.is_string(t):
        column = column.view(pa.binary())
    elif not pa.types.is_binary(t):
        column = column.cast(pa.binary())
    return pc.if_else(pc.equal(pc.binary_length(column), 0), pa.scalar(None, pa.binary()), column)


def bytes_of_text(text: str) -> bytes:
    """The bytes that a JSON text stands for: hex digits or base64; else the text's own."""
    bare = text.removeprefix("0x")
    try:
        return bytes.fromhex(bare)
    except ValueError:
        pass
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode("utf-8", "replace")
