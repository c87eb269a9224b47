"""Arrays that wait in a temporary file until they are wanted."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np


class ScratchError(OSError):
    """The temporary folder, which the message names, has no room or cannot be written."""


class Scratch:
    """Arrays in a file that nobody else sees, which is made when the first is put there.

    Several may share one: it goes with the last who holds it. Raises ScratchError.
    """

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._end = 0

    def put(self, values: np.ndarray) -> int:
        """Where in the file they begin."""
        with _told():
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
            at, left = self._end, memoryview(np.ascontiguousarray(values)).cast("B")  # type: ignore
            while left:
                n = os.pwrite(self._file.fileno(), left, self._end)
                self._end, left = self._end + n, left[n:]
        return at

    def get(self, at: int, n: int, kind: type = np.int64) -> np.ndarray:
        """The kind[n] that begin there."""
        assert self._file is not None
        out = np.empty(n, kind)
        left, done = memoryview(out).cast("B"), 0  # type: ignore
        with _told():
            while done < len(left):
                got = os.preadv(self._file.fileno(), [left[done:]], at + done)
                if not got:
                    raise OSError(errno.EIO, "A file was cut off")
                done += got
        return out

    def __del__(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Says of errors inside that they are of the temporary folder, and what to do."""
    try:
        yield
    except OSError as e:
        folder = f" {tempfile.tempdir}" if tempfile.tempdir else ""
        what = f"{e.strerror} in the temporary folder{folder}, where many rows wait (set TMPDIR)"
        raise ScratchError(e.errno, what) from e
