"""Where results go: a file that appears whole or not at all, in the place of no device or pipe."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..ingest.errors import UsageError
from .names import shorter

LONGEST = 120
"""Characters of a name in a message."""

_WORDS = {
    stat.S_IFBLK: "device",
    stat.S_IFCHR: "device",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFDIR: "folder",
}


def checked(path: str | os.PathLike[str]) -> Path:
    """The file that a result may be written to: `path`, or what it points to as a symbolic link.

    Raises UsageError where there is something else than a file, and for a name that no file can
    have. Nothing is made.
    """
    name = os.fspath(path)
    if not name:
        raise UsageError("the name of the file to write is empty")
    if name.endswith(os.sep):
        raise UsageError(f"{_said(name)} ends like a folder: name a file")
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError:
        mode = None
    except (OSError, ValueError) as e:
        raise _failed(name, e) from e
    if mode is not None and not stat.S_ISREG(mode):
        what = _WORDS.get(stat.S_IFMT(mode), "special file")
        raise UsageError(f"{_said(name)} is a {what}: name a file")
    return Path(os.path.realpath(name))


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when the block ends, and leaves nothing if it fails.

    Folders above it are made; a file that was there keeps its rights. Raises UsageError where it
    cannot be written: see `checked`.
    """
    target = checked(path)
    part = target.parent / f".retime-{os.getpid()}-{secrets.token_hex(4)}.part"
    try:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with part.open("xb") as out:
                yield out
            if target.exists():
                part.chmod(stat.S_IMODE(target.stat().st_mode))
            part.replace(target)
        except OSError as e:
            # An error of a file that is read within the block is not about this one.
            if e.filename in (None, *map(str, (part, target, *target.parents))):
                raise _failed(os.fspath(path), e) from e
            raise
    finally:
        with suppress(OSError):
            part.unlink()


def checked_folder(path: str | os.PathLike[str]) -> Path:
    """The folder that results may be written to. Raises UsageError for what is none; makes none."""
    name = os.fspath(path)
    if not name:
        raise UsageError("the name of the folder to write to is empty")
    try:
        if not stat.S_ISDIR(os.stat(name).st_mode):
            raise UsageError(f"{_said(name)} is no folder: name one")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as e:
        raise _failed(name, e) from e
    return Path(name)


def folder(path: str | os.PathLike[str]) -> Path:
    """A folder for results, made where it is not there. Raises UsageError where that fails."""
    made = checked_folder(path)
    try:
        made.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise _failed(os.fspath(path), e) from e
    return made


def _failed(name: str, error: OSError | ValueError) -> UsageError:
    why = error.strerror if isinstance(error, OSError) and error.strerror else error
    return UsageError(f"{_said(name)} cannot be written: {why}")


def _said(name: str) -> str:
    return shorter(name, LONGEST)
