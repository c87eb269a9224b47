"""Arguments of a few events, read again from their text: those the declared columns do not hold."""

from __future__ import annotations

import io
import json
from collections import deque
from pathlib import Path
from typing import BinaryIO

KEPT_BYTES = 64 << 20
"""How much of a stream's newest text stays at hand where it cannot be read twice."""

MAX_EVENT_BYTES = 1 << 20


class KeepingStream(io.RawIOBase):
    """Passes a stream on and keeps its newest text, so that an event's can be looked at again."""

    def __init__(self, raw: BinaryIO):
        super().__init__()
        self._raw = raw
        self._kept: deque[tuple[int, bytes]] = deque()
        self._end = 0
        self._keeping = True

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:  # type: ignore[override]
        block = self._raw.read(size)
        if block and self._keeping:
            self._keep(bytes(block))
        return block

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        n = self._raw.readinto(view)  # type: ignore[attr-defined]
        if n and self._keeping:
            self._keep(bytes(view[:n]))
        return n

    def stop_keeping(self) -> None:
        """Lets go of the text: nothing of this stream will be looked at again."""
        self._keeping = False
        self._kept = deque()

    def _keep(self, block: bytes) -> None:
        kept = self._kept  # the reader may be a thread of its own, and the text be let go meanwhile
        kept.append((self._end, block))
        self._end += len(block)
        while len(kept) > 1 and self._end - kept[1][0] > KEPT_BYTES:
            kept.popleft()

    def text_at(self, offset: int) -> bytes:
        """The kept text from a byte on (at most MAX_EVENT_BYTES); empty where it is gone."""
        out = b""
        for start, block in tuple(self._kept):
            if start <= offset < start + len(block) or out:
                out += block[max(0, offset - start) :][: MAX_EVENT_BYTES - len(out)]
                if len(out) == MAX_EVENT_BYTES:
                    break
        return out


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


def args_at(text: KeepingStream | FileText, offset: int) -> dict | None:
    """The args of the event whose `{` is at a byte; None where they cannot be read."""
    decoder = json.JSONDecoder(strict=False)
    for size in (8192, MAX_EVENT_BYTES):
        found = (
            text.text_at(offset, size)
            if isinstance(text, FileText)
            else text.text_at(offset)[:size]
        )
        try:
            event, _ = decoder.raw_decode(found.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        args = event.get("args") if isinstance(event, dict) else None
        return args if isinstance(args, dict) else None
    return None


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
