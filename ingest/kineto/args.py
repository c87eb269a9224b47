"""Arguments of a few events, read again from their text: those the declared columns do not hold."""

from __future__ import annotations

import json
from pathlib import Path

from .call_texts import MAX_EVENT_BYTES


class FileText:
    """The text of a plain file at a byte, by seeking."""

    def __init__(self, path: Path):
        self._file = open(path, "rb")  # noqa: SIM115 (closed by close)

    def text_at(self, offset: int, first_bytes: int = 8192) -> bytes:
        """Text from a byte on: enough for most events, MAX_EVENT_BYTES where `first_bytes` asks."""
        self._file.seek(offset)
        return self._file.read(first_bytes)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def args_at(text: FileText, offset: int) -> dict | None:
    """The args of the event whose `{` is at a byte; None where they cannot be read."""
    for size in (8192, MAX_EVENT_BYTES):
        found, event = _first_object(text.text_at(offset, size))
        if found:
            return event
    return None


def args_in(text: bytes) -> dict | None:
    """The args of the event whose `{` a text begins with; None where they cannot be read."""
    return _first_object(text)[1]


def _first_object(text: bytes) -> tuple[bool, dict | None]:
    """Whether a text begins with a whole event, and its args."""
    try:
        event, _ = json.JSONDecoder(strict=False).raw_decode(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return False, None
    args = event.get("args") if isinstance(event, dict) else None
    return True, args if isinstance(args, dict) else None


def elements(dims: object) -> int | None:
    """Number of elements of a call's first tensor, or of all tensors of its first list.

    `dims` is the profiler's `Input Dims`: `[[4, 2], []]`, or `[[[4], [2]]]` for a list of tensors.
    """
    first = dims[0] if isinstance(dims, list) and dims else None
    if not isinstance(first, list) or not first:
        return None
    shapes = first if all(isinstance(v, list) for v in first) else [first]
    total = 0
    for shape in shapes:
        n = 1
        for size in shape:
            if not isinstance(size, int) or size < 0:
                return None
            n *= size
        total += n
    return total


def input_elements(args: dict) -> tuple[int | None, str | None]:
    """Elements and type name of a call's first input, where shapes were recorded."""
    kinds = args.get("Input type")
    kind = kinds[0] if isinstance(kinds, list) and kinds and isinstance(kinds[0], str) else None
    return elements(args.get("Input Dims")), kind
