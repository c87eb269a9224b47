"""Arguments of a few events, read again from their text: those the declared columns do not hold."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np

from ..gunzip import piece

KEPT_BYTES = 64 << 20
"""How much of a stream's newest text stays at hand where it cannot be read twice."""

MAX_EVENT_BYTES = 1 << 20


class KeepingStream(io.RawIOBase):
    """Passes a stream on and keeps its newest text, so that an event's can be looked at again."""

    def __init__(self, raw: object):
        super().__init__()
        self._raw = raw
        self._rest = memoryview(b"")
        # One large piece of memory, used round and round: pages of small ones would cost more to
        # get than what is in them to inflate. What is not used costs nothing.
        self._kept: np.ndarray | None = np.empty(KEPT_BYTES, np.uint8)
        self._end = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        done = 0
        while done < len(view):
            if not self._rest:
                self._rest = memoryview(piece(self._raw))
                if not self._rest:
                    break
            n = min(len(view) - done, len(self._rest))
            part, self._rest = self._rest[:n], self._rest[n:]
            view[done : done + n] = part
            done += n
            if self._kept is not None:
                self._keep(part, self._kept)
        return done

    def stop_keeping(self) -> None:
        """Lets go of the text: nothing of this stream will be looked at again."""
        self._kept = None

    def _keep(self, part: memoryview, kept: np.ndarray) -> None:
        self._end += len(part)
        part = part[-len(kept) :]
        at = (self._end - len(part)) % len(kept)
        n = min(len(part), len(kept) - at)
        kept[at : at + n] = part[:n]
        kept[: len(part) - n] = part[n:]

    def text_at(self, offset: int) -> bytes:
        """The kept text from a byte on (at most MAX_EVENT_BYTES); empty where it is gone."""
        kept = self._kept
        if kept is None or not self._end - len(kept) <= offset < self._end:
            return b""
        at, n = offset % len(kept), min(self._end - offset, MAX_EVENT_BYTES)
        return kept[at : at + n].tobytes() + kept[: max(0, at + n - len(kept))].tobytes()


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
