"""A stream that is hashed as it is read: whoever wants its digest need not read it again."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO


class Hashed(io.RawIOBase):
    """Passes a stream on; closed after its end was met, it tells `known` its SHA-256 (hex).

    With `beside` a thread hashes: what a `readinto` gave may be written over by the next but one,
    or once that has returned, not before. It is never behind by more than two reads.
    """

    def __init__(self, raw: BinaryIO, known: Callable[[str], None], beside: bool = False):
        super().__init__()
        self.hashed = raw
        self._known = known
        self._hash = hashlib.sha256()
        self._ended = False
        self._pool = ThreadPoolExecutor(1, "retime-hash") if beside else None
        self._last: Future[None] | None = None
        self._older: Future[None] | None = None
        self.beside = beside

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:  # type: ignore[override]
        if self._older is not None:
            self._older.result()
        part = self.hashed.read(size)
        self._take(part, ended=size < 0 or (not part and size > 0))
        return part

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        if self._older is not None:
            self._older.result()
        n = self.hashed.readinto(view) or 0  # type: ignore[attr-defined]
        self._take(view[:n], ended=not n and len(view) > 0)
        return n

    def _take(self, part: bytes | memoryview, ended: bool) -> None:
        self._ended |= ended
        if len(part):
            if self._pool is None:
                self._hash.update(part)
            else:
                self._older, self._last = self._last, self._pool.submit(self._hash.update, part)

    def close(self) -> None:
        if self.closed:
            return
        if self._pool is not None:
            self._pool.shutdown()
        if self._ended:
            self._known(self._hash.hexdigest())
        self.hashed.close()
        super().close()
