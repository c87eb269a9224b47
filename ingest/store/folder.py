"""What a folder can do, wherever it lies."""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa


class TooLarge(OSError):
    """A file that is larger than whoever reads it allows; `size` where that is known."""

    def __init__(self, address: str, most_bytes: int, size: int | None = None):
        super().__init__(errno.EFBIG, f"larger than {most_bytes} bytes", address)
        self.size = size


class Entry(NamedTuple):
    """What a listing says of a file."""

    bytes: int
    tag: str
    """changes with the content, as far as the store tells (an ETag, or a time)"""
    modified_ns: int
    """by the store's own clock; 0 where it does not say"""


class Folder(ABC):
    """A folder by its address. Files in it are named relative to it, with `/` between parts.

    What goes wrong is an OSError (FileNotFoundError where there is nothing), or for object stores
    StoreBusy where trying later may help and StoreRefused where it will not.
    """

    @abstractmethod
    def __truediv__(self, name: str) -> Folder:
        """A folder in this one."""

    @abstractmethod
    def __str__(self) -> str:
        """The address as users see it: a path or a URL, never with credentials."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part of the address."""

    @property
    @abstractmethod
    def parent(self) -> Folder:
        """The folder that this one is in."""

    @property
    @abstractmethod
    def local(self) -> Path | None:
        """The path of a folder on a disk; None in an object store."""

    @abstractmethod
    def address(self, file: str) -> str:
        """What `store.reading` opens: an absolute path, or a URL."""

    @abstractmethod
    def read(self, file: str, most_bytes: int) -> bytes:
        """The bytes of a small file. Raises TooLarge, FileNotFoundError, OSError."""

    @abstractmethod
    def names(self, sub: str = "") -> list[str]:
        """Names of the files and folders directly below, sorted; none where it is not there."""

    @abstractmethod
    def entries(self, sub: str = "") -> dict[str, Entry]:
        """Every file below `sub`, at any depth, named relative to this folder."""

    @abstractmethod
    def entry(self, file: str) -> Entry | None:
        """What one file is; None where it is not there."""

    @abstractmethod
    def open(self, file: str) -> pa.NativeFile:
        """A file for reading, with random access."""

    @abstractmethod
    def put(self, file: str, data: bytes | Path, *, new: bool = False) -> None:
        """Writes a file whole or not at all, durably, from bytes or a local file.

        With `new` it raises FileExistsError where a file of other content is there already.
        """

    @abstractmethod
    def remove(self, files: Iterable[str]) -> None:
        """Removes files; one that is gone already is fine."""

    @abstractmethod
    def locked(self, name: str) -> AbstractContextManager[bool]:
        """Holds a lock of this folder; gives False where there are no locks."""

    def sizes(self, sub: str = "") -> dict[str, int]:
        """Bytes of every file below `sub`, named relative to this folder."""
        return {name: e.bytes for name, e in self.entries(sub).items()}


Place = str | os.PathLike[str] | Folder
"""Where a folder is: what `store.folder` takes."""
