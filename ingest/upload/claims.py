"""Claims: who is at an entry has its lock, which goes with the process, however that ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@dataclass
class Claim:
    """The right to work on an entry, until `release` or the end of the process."""

    path: Path
    fd: int
    sure: bool = True
    """False where the file system has no locks."""

    def release(self, done: bool) -> None:
        """Gives it back; `done` removes the lock's file, too."""
        if self.fd < 0:
            return
        if done:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        with contextlib.suppress(OSError):
            # Children that were forked meanwhile hold the same lock: closing alone keeps it.
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        os.close(self.fd)
        self.fd = -1


def lock(path: Path) -> Claim | None:
    """The claim of this lock's file, made if need be; None where another has it. Raises OSError."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            if e.errno in NO_LOCKS:
                return Claim(path, fd, False)  # two may send the same then, and one finds it there
            os.close(fd)
            if e.errno in (errno.EAGAIN, errno.EACCES):
                return None
            raise
        try:
            if os.fstat(fd).st_ino == os.stat(path).st_ino:
                return Claim(path, fd)
        except FileNotFoundError:
            pass
        os.close(fd)  # who held it removed the file: a lock on it excludes nobody
