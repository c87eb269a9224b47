"""Folders of a warehouse and its jobs, on a disk or in an object store, behind one interface."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .. import kinds
from . import addresses
from .folder import Entry, Folder, Place, TooLarge
from .local import LocalFolder

__all__ = [
    "Entry", "Folder", "LocalFolder", "Place", "TooLarge", "folder", "in_objects", "is_address",
    "on_disk", "scratch",
]  # fmt: skip

is_address = addresses.is_address


def folder(place: Place) -> Folder:
    """The folder at a path, a `file://` URL or an object store's address; a Folder as it is.

    Nothing is read or made. Raises UsageError for an address that cannot be one, and later, when
    it is first used, where its package is not installed.
    """
    if isinstance(place, Folder):
        return place
    text = os.fspath(place)
    kinds.check(text)
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    if addresses.is_address(text):
        from .objects import ObjectFolder

        return ObjectFolder(addresses.folder_address(text))
    return LocalFolder(Path(os.path.abspath(os.path.expanduser(text))))


def in_objects(place: Place) -> Folder | None:
    """The folder, where it lies in an object store; None where it is on a disk."""
    found = None if isinstance(place, Path) else folder(place)
    return found if found is not None and found.local is None else None


def on_disk(place: Place) -> Path:
    """The path of a folder that lies on a disk."""
    found = place if isinstance(place, Path) else folder(place).local
    assert found is not None
    return found


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A temporary local folder for unfinished work, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="retime-") as place:
        yield Path(place)
