"""An object as a file with random access: ranges are fetched as they are read, and no more."""

from __future__ import annotations

import io
import os

from .addresses import shown
from .drivers import driver
from .patience import Short, patiently

WHOLE_BYTES = 256 << 10
"""A smaller object is fetched in one request."""

TAIL_BYTES = 64 << 10
"""Fetched at once when the end of a larger one is read: Parquet's footer is mostly in it."""


def fetched(address: str, start: int, end: int) -> bytes:
    """Exactly these bytes of an object.

    Raises StoreRefused where it does not have them (it is cut, or its listing lies), StoreBusy
    and FileNotFoundError.
    """

    def once() -> bytes:
        data = driver(address.partition("://")[0]).get(address, start, end)
        if len(data) != end - start:
            raise Short(
                f"{len(data)} bytes came for the {end - start} from byte {start}: it is cut, or "
                "its size is not what was said"
            )
        return data

    return patiently(once, shown(address)) if end > start else b""


class RemoteFile(io.RawIOBase):
    """An object of known size. `ahead` bytes are read at once by whoever reads it in order."""

    def __init__(self, address: str, size: int, ahead: int = 0):
        super().__init__()
        self.address = address
        self.size = size
        self._ahead = ahead
        self._at = 0
        self._held_at = 0
        self._held = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1, /) -> bytes:  # type: ignore[override]
        if self.closed:
            raise ValueError("read of a closed file")
        left = max(0, self.size - self._at)
        n = left if size is None or size < 0 else min(size, left)
        if not n:
            return b""
        data = self._between(self._at, self._at + n)
        self._at += len(data)
        return data

    def _between(self, start: int, end: int) -> bytes:
        held_to = self._held_at + len(self._held)
        if not (self._held_at <= start and end <= held_to):
            at, until, known = start, end, b""
            if self.size <= WHOLE_BYTES:
                at, until = 0, self.size
            elif self._ahead:
                if self._held_at <= start < held_to:
                    known = self._held[start - self._held_at :]
                until = min(self.size, max(end, start + len(known) + self._ahead))
            elif start >= self.size - TAIL_BYTES:
                at, until = self.size - TAIL_BYTES, self.size
            data = known + fetched(self.address, at + len(known), until)
            if (at, until) == (start, end):
                return data  # nobody reads it a second time
            self._held_at, self._held = at, data
        return self._held[start - self._held_at : end - self._held_at]
