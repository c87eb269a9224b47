"""The locks of a job, and the end of a folder that holds nothing but them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from . import rooms, store
from .store import Place

COMMIT_LOCK = "lock"
DERIVE_LOCK = "derive.lock"
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF)


@contextlib.contextmanager
def locked(place: Place, name: str = COMMIT_LOCK) -> Iterator[bool]:
    """Holds one of the job's locks; gives False where the file system has no locks.

    The lock goes with the process, however that ends. Without locks two processes that bring
    different traces of one rank in the same instant may both be taken, and
    `counting.readable_manifests` leaves the later one out; nothing else depends on it. In an object
    store the lock of short changes is a claim, and there is no other.
    """
    if (objects := store.in_objects(place)) is not None:
        if name != COMMIT_LOCK:
            yield False
            return
        from .store.claims import claimed

        with claimed(objects, [name]):
            yield True
        return
    job_folder = store.on_disk(place)
    rooms.check(job_folder)
    fd, held = _take_lock(job_folder / rooms.INCOMING / name)
    try:
        yield held
    finally:
        os.close(fd)


def _take_lock(path: Path) -> tuple[int, bool]:
    while True:
        try:
            rooms.make(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # the folder went away in between
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as e:
            if e.errno in NO_LOCKS:
                return fd, False
            os.close(fd)
            raise
        try:
            if os.fstat(fd).st_ino == os.stat(path).st_ino:
                return fd, True
        except FileNotFoundError:
            pass
        os.close(fd)  # whoever held it removed the file: a lock on it excludes nobody


def remove_if_unused(job_folder: Path) -> None:
    """Removes a job's folder that holds no manifest, no unfinished work and no other file."""
    manifests = job_folder / rooms.MANIFESTS
    if manifests.is_dir() and any(manifests.iterdir()):
        return
    with contextlib.suppress(OSError):
        locks = {COMMIT_LOCK, DERIVE_LOCK}
        if any(p.name not in locks for p in (job_folder / rooms.INCOMING).iterdir()):
            return
        with locked(job_folder):
            if manifests.is_dir() and any(manifests.iterdir()):
                return
            for here, _, files in os.walk(job_folder, topdown=False):
                if here == str(job_folder / rooms.INCOMING) and locks.issuperset(files):
                    for name in files:
                        os.unlink(os.path.join(here, name))
                os.rmdir(here)  # refuses a folder with anything in it
