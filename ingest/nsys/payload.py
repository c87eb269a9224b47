"""NCCL's payloads in NVTX events: the bytes of `binaryData` by their schemas, and `jsonText`."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..classify import Dtype, dtype_of, nccl_dtype
from ..sorting import NULL
from .tables import Report

HEADER_BYTES = 32
"""Before a payload: domain, schema, size and offset of the payload, 64 bits each."""

_SIZE = {
    1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 8, 8: 8, 9: 8, 10: 8,
    11: 1, 12: 1, 13: 2, 14: 2, 15: 4, 16: 4, 17: 8, 18: 8, 22: 8, 23: 8,
}  # fmt: skip
"""Bytes of an integer entry by NVTX's type number, on 64-bit Linux."""
_SIGNED = frozenset({1, 3, 5, 7, 9, 11, 13, 15, 17})

FIELDS = {
    "NCCL communicator ID": "comm",
    "Message size [bytes]": "bytes",
    "Root": "root",
    "Peer rank": "peer",
    "No. of ranks": "size",
    "Rank": "place",
}
"""Names of the schema entries that are read: the field each becomes."""

INTEGERS = (*FIELDS.values(), "seq", "operation", "count")
"""What payloads say in numbers."""

JSON_FIELDS = {
    "ncclcommunicatorid": "comm", "commhash": "comm", "communicatorid": "comm",
    "messagesizebytes": "bytes", "bytes": "bytes", "root": "root", "peerrank": "peer",
    "peer": "peer", "noofranks": "size", "nranks": "size", "rank": "place", "commrank": "place",
    "seqnumber": "seq", "operationid": "operation", "count": "count", "datatype": "dtype",
}  # fmt: skip


class Entry(NamedTuple):
    """Where a field stands in a payload, and how it is stored."""

    field: str
    offset: int
    size: int
    signed: bool


def schemas(report: Report) -> dict[tuple[int, int], list[Entry]]:
    """Entries by (domain, schema); processes declare the same ones, each is kept once."""
    out: dict[tuple[int, int], dict[str, Entry]] = {}
    for r in report.small("NVTX_PAYLOAD_SCHEMA_ENTRIES").to_pylist():
        field, size = FIELDS.get(r["name"] or ""), _SIZE.get(r["type"])
        offset = r["offset"] or 0
        if field is None or size is None or not 0 <= offset < 4096:
            continue
        entry = Entry(field, offset, size, r["type"] in _SIGNED)
        out.setdefault((r["domainId"] or 0, r["schemaId"] or 0), {}).setdefault(field, entry)
    return {key: list(entries.values()) for key, entries in out.items()}


def decode(
    blobs: pa.Array, known: dict[tuple[int, int], list[Entry]]
) -> tuple[dict[str, np.ndarray], int]:
    """`INTEGERS` by name (`NULL` absent; unsigned ones of 64 bits keep their bits), and the number
    of payloads that no schema describes or that are too short.
    """
    n = len(blobs)
    out = {f: np.full(n, NULL) for f in INTEGERS}
    lost = 0
    lengths = np.zeros(n, np.int64)
    offsets = np.frombuffer(blobs.buffers()[1], np.int32)[blobs.offset : blobs.offset + n + 1] \
        if n else np.zeros(1, np.int32)  # fmt: skip
    offsets = offsets.astype(np.int64)
    lengths = np.diff(offsets)
    lengths[blobs.is_null().to_numpy(zero_copy_only=False)] = 0
    raw = blobs.buffers()[2] if n else None
    data = np.frombuffer(raw, np.uint8) if raw is not None else np.zeros(0, np.uint8)
    whole = np.flatnonzero(lengths >= HEADER_BYTES)
    lost += int(((lengths > 0) & (lengths < HEADER_BYTES)).sum())
    if not len(whole):
        return out, lost
    domain = _gather(data, offsets[whole], 8, False)
    schema = _gather(data, offsets[whole] + 8, 8, False)
    done = np.zeros(len(whole), bool)
    for (d, s), entries in known.items():
        mine = (domain == np.uint64(d & (2**64 - 1))) & (schema == np.uint64(s & (2**64 - 1)))
        if not mine.any():
            continue
        done |= mine
        for e in entries:
            rows = whole[mine & (lengths[whole] >= HEADER_BYTES + e.offset + e.size)]
            values = _gather(data, offsets[rows] + HEADER_BYTES + e.offset, e.size, e.signed)
            out[e.field][rows] = values.astype(np.int64)
    return out, lost + int((~done).sum())


def _gather(data: np.ndarray, at: np.ndarray, size: int, signed: bool) -> np.ndarray:
    """Little-endian integers of `size` bytes at these positions."""
    block = data[at[:, None] + np.arange(size)]
    return np.ascontiguousarray(block).view(f"<{'i' if signed else 'u'}{size}").ravel()


def of_json(text: str | None) -> dict:
    """Fields of a row's JSON payload; empty where there is none."""
    if not text or len(text) > 65536:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    out: dict = {}
    todo, depth = [found], 0
    while todo and depth < 4:
        inner = []
        for one in todo:
            if not isinstance(one, dict):
                continue
            for key, value in one.items():
                bare = "".join(c for c in key.lower() if c.isalnum())
                if isinstance(value, dict):
                    inner.append(value)
                elif bare in JSON_FIELDS:
                    out.setdefault(JSON_FIELDS[bare], _plain(JSON_FIELDS[bare], value))
        todo, depth = inner, depth + 1
    return {k: v for k, v in out.items() if v is not None}


def _plain(field: str, value: object) -> object:
    if field == "dtype":
        return value if isinstance(value, str) else None
    if isinstance(value, str) and len(value) < 24:
        try:
            value = int(value, 0)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    if not -(1 << 63) <= value < 1 << 64:
        return None
    return value - (1 << 64) if value >= 1 << 63 else value


def dtype_named(text: str | int | None) -> Dtype | None:
    """The element type that a payload's text or number means."""
    if isinstance(text, str):
        bare = text.strip().lower().removeprefix("nccl")
        if bare.isascii() and bare.isdigit() and len(bare) < 3:
            text = int(bare)
        else:
            return dtype_of(bare)
    return nccl_dtype(text) if isinstance(text, int) else None
