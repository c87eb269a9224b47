"""Events of the profiler plugin's files, one a line, also where the line is no JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..texts import lines
from ..values import scaled

if TYPE_CHECKING:
    from ..sources import Source

_MAX_LINE = 4 << 20
_BARE = re.compile(r'(": ?)(\(nil\)|-?(?!true|false|null)[A-Za-z_]\w{0,63}|0[xX][0-9a-fA-F]{1,16})'
                   r"(?= ?[,}])")  # fmt: skip
"""2.28 to 2.29.2 print pointers and the names of types bare; a time may be `-nan`."""

# Fractions stay text: they have more digits than a float keeps, and may have any exponent.
_DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)


def events(source: Source, on_odd: Callable[..., None]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(byte offset, event) in the order of the file; offsets of events that share a line are it.

    Tells of invalid lines that could be mended (`invalid_json`, info), of those that could not
    (`lost_event`) and of a file without its end (`truncated`).
    """
    open_array, last = False, 0
    for offset, line, whole_line in lines(source, on_odd, _MAX_LINE):
        text = line.decode("utf-8", "replace").strip()
        last = offset + len(line)
        if text.startswith("["):
            open_array = True
            text = text[1:].lstrip()
        if text.endswith("]"):
            open_array = False
            text = text[:-1].rstrip()
        text = text.rstrip(", ")
        if text in ("", "{}"):
            continue
        found = _objects(text)
        if found is None:
            mended = _BARE.sub(r'\1"\2"', text)
            found = _objects(mended) if mended != text else None
            if found is not None:
                on_odd(
                    "invalid_json",
                    "lines that are no JSON: pointers and names of types without quotes, as NCCL "
                    "2.28 to 2.29.2 print them; they are read all the same",
                    "info",
                    offset=offset,
                )
        if found is None:
            what = "is no event" if whole_line else "is cut"
            on_odd("lost_event", f"a line {what}; it is left out", "lost", offset=offset)
            continue
        for event in found:
            if event:
                yield offset, event
    if open_array:
        on_odd(
            "truncated",
            "the file ends without the closing bracket: its process ended while writing; what came "
            "before is kept",
            "lost",
            offset=last,
        )


def _objects(text: str) -> list[dict[str, Any]] | None:
    """The objects of a line, with commas between them; None where anything else is in it."""
    found, at = [], 0
    try:
        while at < len(text):
            value, at = _DECODER.raw_decode(text, at)
            if not isinstance(value, dict):
                return None
            found.append(value)
            while at < len(text) and text[at] in ", \t":
                at += 1
    except (ValueError, RecursionError):
        return None
    return found


def time_ns(value: Any) -> int | None:
    """Integer ns of a time in microseconds; None where it is none, or 0: never taken."""
    ns = scaled(value, 3)
    return ns if ns is not None and 0 < ns < 1 << 62 else None
