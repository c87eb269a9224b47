"""What uploads say: to Python's logging, and to a file in the spool that stays small."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from pathlib import Path

logger = logging.getLogger("retime.upload")

FILE = "upload.log"
MOST_BYTES = 4 << 20
"""Then the log becomes upload.log.1, which takes the place of the one before."""

MOST_CHARACTERS = 2000


def say(folder: Path | None, level: int, text: str) -> None:
    """One line, at most `MOST_CHARACTERS` of it, nothing in it that acts on a screen. Never raises.

    `folder` is the spool's; a line goes there in one write, so that several processes may.
    """
    line = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text[:MOST_CHARACTERS])
    with contextlib.suppress(Exception):
        logger.log(level, "%s", line)
    if folder is None:
        return
    with contextlib.suppress(OSError, ValueError):
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        data = f"{stamp} {logging.getLevelName(level).lower()} {os.getpid()} {line}\n".encode(
            "utf-8", "backslashreplace"
        )
        path = folder / FILE
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        try:
            os.write(fd, data)
            if os.fstat(fd).st_size > MOST_BYTES:
                os.replace(path, folder / f"{FILE}.1")
        finally:
            os.close(fd)
