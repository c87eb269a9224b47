"""Perfetto's packets of slices and counters, encoded from arrays by compiled code.

Numbers of fields are those of `protos/perfetto/trace` (TracePacket, TrackEvent, DebugAnnotation).
"""

from __future__ import annotations

import numpy as np

from ...ingest.compiled import compiled

NULL = np.int64(-(2**63))
"""An argument that a slice does not have."""

INTEGER, REAL, TEXT = 0, 1, 2
"""Kinds of arguments: a number, the bits of a double, the id of an interned text."""

NEEDS_STATE = 2
_AT_LEAST = 96
"""Bytes of a packet without its arguments, at most."""
_AN_ARGUMENT = 32
"""Bytes of an argument, at most."""


def slices(
    marks: np.ndarray,
    start_ns: np.ndarray,
    end_ns: np.ndarray,
    track: np.ndarray,
    name: np.ndarray,
    category: np.ndarray,
    args: np.ndarray,
    arg_kind: np.ndarray,
    arg_name: np.ndarray,
    flow_ptr: np.ndarray,
    flow: np.ndarray,
    sequence: int,
) -> np.ndarray:
    """Bytes (uint8) of the packets of `marks` (`lanes.marks`), all other arrays by slice.

    `name`, `category` and `arg_name` [k] are interned ids (0: none); `args` is int64 [n, k]. The
    flows of slice i are flow[flow_ptr[i] : flow_ptr[i + 1]].
    """
    begins = marks[marks >= 0]
    n_flows = int((flow_ptr[begins + 1] - flow_ptr[begins]).sum()) if len(begins) else 0
    room = len(marks) * _AT_LEAST + len(begins) * args.shape[1] * _AN_ARGUMENT + 10 * n_flows
    out = np.empty(room, np.uint8)
    most = _AT_LEAST + args.shape[1] * _AN_ARGUMENT + 10 * n_flows
    n = _slices(
        marks, start_ns, end_ns, track, name, category, args, arg_kind, arg_name, flow_ptr, flow,
        sequence, out, np.empty(most, np.uint8), np.empty(_AT_LEAST, np.uint8),
    )  # fmt: skip
    return out[:n]


def samples(time_ns: np.ndarray, track: np.ndarray, value: np.ndarray, sequence: int) -> np.ndarray:
    """Bytes (uint8) of the packets of counters' samples; `value` is float64."""
    out = np.empty(len(time_ns) * _AT_LEAST, np.uint8)
    bits = np.ascontiguousarray(value, np.float64).view(np.int64)
    scratch = np.empty(_AT_LEAST, np.uint8)
    return out[: _samples(time_ns, track, bits, sequence, out, scratch, scratch.copy())]


@compiled
def _varint(out, at, value):  # pragma: no cover - compiled
    v = np.uint64(value)
    while v > np.uint64(0x7F):
        out[at] = np.uint8((v & np.uint64(0x7F)) | np.uint64(0x80))
        v >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(v)
    return at + 1


@compiled
def _fixed64(out, at, value):  # pragma: no cover - compiled
    v = np.uint64(value)
    for _ in range(8):
        out[at] = np.uint8(v & np.uint64(0xFF))
        v >>= np.uint64(8)
        at += 1
    return at


@compiled
def _packet(out, at, time, sequence, event, size, head):  # pragma: no cover - compiled
    """Writes a packet (field 1 of Trace) round a track event of `size` bytes."""
    head[0] = 0x40  # timestamp (8)
    h = _varint(head, 1, time)
    head[h] = 0x50  # trusted_packet_sequence_id (10)
    h = _varint(head, h + 1, sequence)
    head[h] = 0x68  # sequence_flags (13)
    h = _varint(head, h + 1, NEEDS_STATE)
    head[h] = 0x5A  # track_event (11)
    h = _varint(head, h + 1, size)
    out[at] = 0x0A
    at = _varint(out, at + 1, h + size)
    out[at : at + h] = head[:h]
    at += h
    out[at : at + size] = event[:size]
    return at + size


@compiled
def _argument(out, at, name, kind, value):  # pragma: no cover - compiled
    out[at] = 0x22  # debug_annotations (4), of less than 128 bytes
    length = at + 1
    at += 2
    out[at] = 0x08  # name_iid (1)
    at = _varint(out, at + 1, name)
    if kind == REAL:
        out[at] = 0x29  # double_value (5)
        at = _fixed64(out, at + 1, value)
    elif kind == TEXT:
        out[at] = 0x88  # string_value_iid (17)
        out[at + 1] = 0x01
        at = _varint(out, at + 2, value)
    else:
        out[at] = 0x20  # int_value (4)
        at = _varint(out, at + 1, value)
    out[length] = at - length - 1
    return at


@compiled
def _slices(
    marks, start, end, track, name, category, args, arg_kind, arg_name, flow_ptr, flow, sequence,
    out, event, head,
):  # pragma: no cover - compiled  # fmt: skip
    at = 0
    for m in marks:
        i = m if m >= 0 else ~m
        event[0] = 0x48  # type (9): 1 begins, 2 ends a slice
        event[1] = 1 if m >= 0 else 2
        event[2] = 0x58  # track_uuid (11)
        e = _varint(event, 3, track[i])
        if m >= 0:
            if category[i] > 0:
                event[e] = 0x18  # category_iids (3)
                e = _varint(event, e + 1, category[i])
            event[e] = 0x50  # name_iid (10)
            e = _varint(event, e + 1, name[i])
            for k in range(args.shape[1]):
                if args[i, k] != NULL:
                    e = _argument(event, e, arg_name[k], arg_kind[k], args[i, k])
            for f in range(flow_ptr[i], flow_ptr[i + 1]):
                event[e] = 0xF9  # flow_ids (47)
                event[e + 1] = 0x02
                e = _fixed64(event, e + 2, flow[f])
        at = _packet(out, at, start[i] if m >= 0 else end[i], sequence, event, e, head)
    return at


@compiled
def _samples(time, track, bits, sequence, out, event, head):  # pragma: no cover - compiled
    at = 0
    for i in range(len(time)):
        event[0] = 0x48
        event[1] = 4  # a counter's sample
        event[2] = 0x58
        e = _varint(event, 3, track[i])
        event[e] = 0xE1  # double_counter_value (44)
        event[e + 1] = 0x02
        e = _fixed64(event, e + 2, bits[i])
        at = _packet(out, at, time[i], sequence, event, e, head)
    return at
