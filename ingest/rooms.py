"""The folders of a job on a disk: real ones, never links, where anything is written or removed.

Who wrote a warehouse controls every name in it. Behind a link may lie any folder of whoever reads
it, and to derive, to tidy up and to prune is to write and to remove.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import WarehouseError

if TYPE_CHECKING:
    from .store import Place

MANIFESTS = "_manifests"
INCOMING = "_incoming"
KEPT = "_kept"

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


def check(job_folder: Path) -> None:
    """Raises WarehouseError where a folder of the job is a link. The job itself may be one."""
    for room, files_may in ((".", True), ("_staged", True), ("_incoming", False)):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), \
                os.scandir(job_folder / room) as found:  # fmt: skip
            for entry in found:
                if entry.is_symlink() and not (files_may and _is_file(entry)):
                    place = os.path.normpath(os.path.join(job_folder, room, entry.name))
                    raise WarehouseError(
                        f"{place}: a link, through which nothing is written or removed; put the "
                        "folder itself there"
                    )


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a ring of links
        return False


def through_no_link(folder: Path, file: str) -> Path:
    """The path of a file in a folder. Raises OSError where one of the folders between is a link."""
    path = folder / file
    for between in path.parents:
        if between == folder:
            return path
        if between.is_symlink():
            break
    raise OSError(errno.ELOOP, "a link, or not in the folder", str(path))


def make(folder: Path) -> None:
    """Makes a folder; again where another process removed an empty parent in between."""
    for attempt in range(20):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return
        except FileNotFoundError:
            if attempt == 19:
                raise


@contextlib.contextmanager
def writing(place: Place) -> Iterator[None]:
    """Turns OSErrors inside into a WarehouseError that says what to do about `place`."""
    try:
        yield
    except OSError as e:
        if e.errno in _FULL:
            raise WarehouseError(
                f"{place}: the disk (or quota) is full; what was unfinished has been removed, "
                "what was finished stays: free space and run the same command again"
            ) from e
        if e.errno in _REFUSED:
            raise WarehouseError(
                f"{place}: cannot be written ({os.strerror(e.errno)}); "
                "check its owner and mode, or name another with --warehouse"
            ) from e
        raise WarehouseError(f"{place}: writing failed: {e}") from e
