"""Large Kineto files made from the bundled job: its own events again and again, later each time."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

DEMO = Path(__file__).resolve().parent.parent / "analysis" / "demo_job"
_NUMBERS = re.compile(rb'"(ts|correlation|External id|id)": (\d+)')
_STEP = re.compile(rb"ProfilerStep#(\d+)")
_OPEN = b'"traceEvents": ['
_BETWEEN = re.compile(rb"\n  \},\n  \{")
_SHIFT_US = 300_000
_SHIFT_ID = 10_000_000


def write_tiled(path: Path, size_bytes: int, rank: int = 0) -> Path:
    """A trace of about `size_bytes` in Kineto's own layout; kept if it is there already.

    Every copy of the events is shifted in time, ids and step numbers, so that joins stay one to
    one and steps stay apart.
    """
    if path.exists() and path.stat().st_size >= 0.99 * size_bytes:
        return path
    text = gzip.decompress((DEMO / f"rank{rank}.json.gz").read_bytes())
    opening = text.index(_OPEN) + len(_OPEN)
    closing = text.rindex(b"]")
    head, events, tail = text[:opening], text[opening:closing].rstrip(), text[closing:]
    with open(path, "wb") as f:
        f.write(head)
        copies = 0
        while f.tell() < size_bytes:
            if copies:
                f.write(b",")
            f.write(_shifted(_up_to(events, size_bytes - f.tell()), copies))
            copies += 1
        f.write(tail)
    return path


def _up_to(events: bytes, size_bytes: int) -> bytes:
    """The events that fill `size_bytes`, cut behind a whole one."""
    if len(events) <= size_bytes:
        return events
    end = _BETWEEN.search(events, max(0, size_bytes))
    return events if end is None else events[: end.start() + len(b"\n  }")]


def _shifted(events: bytes, copy: int) -> bytes:
    if copy == 0:
        return events

    def number(m: re.Match[bytes]) -> bytes:
        by = _SHIFT_US if m[1] == b"ts" else _SHIFT_ID
        return b'"%s": %d' % (m[1], int(m[2]) + by * copy)

    def step(m: re.Match[bytes]) -> bytes:
        return b"ProfilerStep#%d" % (int(m[1]) + 4 * copy)

    return _STEP.sub(step, _NUMBERS.sub(number, events))
