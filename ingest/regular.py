"""Small files of a job's folder: opened only where they are files, and never waited for."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path


def opened(path: Path) -> io.BufferedReader:
    """The file, open for reading. Raises OSError for what is not one: a pipe, a device, a folder.

    Opening a pipe that nobody writes would wait for ever, and a device may have no end.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a file", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise
