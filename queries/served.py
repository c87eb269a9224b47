"""The file system of a connection: it opens the files it was given for reading and nothing else."""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn, Protocol

import fsspec

from ..ingest import store
from ..ingest.errors import RetimeError
from ..ingest.store.reading import OpenObject

SCHEME = "retime"
"""Addresses begin with `retime://`. They tell nothing of where a warehouse lies."""

REFUSED = "a warehouse is only read through this connection: nothing is written, moved or removed"


GONE = "is no longer there: the job has changed since this connection was opened, open it again"

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
"""DuckDB keeps nothing of a file that was written just now, nor of one without a time."""


class Source(Protocol):
    """An open file: `read_at` may be called by several threads at once."""

    size: int

    def read_at(self, n_bytes: int, at: int) -> bytes:
        """Up to `n_bytes` from offset `at`; fewer only at the end."""
        ...

    def close(self) -> None:
        """Gives the file back; again does nothing."""
        ...


class ReadOnlyFiles(fsspec.AbstractFileSystem):
    """Files by made-up address, for reading only.

    DuckDB may write wherever it may read, and where it is told to do without a temporary file a
    COPY replaces what it names. Here there is nothing to write with: a file is a path that was
    given when the file system was made, and opening it for anything but reading is refused.
    """

    protocol = SCHEME
    cachable = False

    def __init__(
        self,
        places: Mapping[str, str],
        sizes: Mapping[str, int] | None = None,
        keep: object = None,
    ):
        """`places` maps addresses to paths and URLs, `sizes` URLs to bytes, where they are known.

        `keep` is held for as long as the file system is used.
        """
        super().__init__(skip_instance_cache=True)
        self._places = dict(places)
        self._sizes = dict(sizes or {})
        self._keep = keep

    def open(self, path: str, mode: str = "rb", **_: Any) -> Reading:
        """A file of the warehouse, to read. Raises PermissionError for any other wish."""
        if mode not in ("r", "rb"):
            raise PermissionError(REFUSED)
        return Reading(path, self._places.get(path, ""), self._opened(path))

    def _opened(self, path: str) -> Source:
        place = self._places.get(path)
        if place is None:
            raise FileNotFoundError(f"{path}: no file of this warehouse")
        try:
            if store.is_address(place):
                return OpenObject(place, self._sizes.get(place))
            return LocalFile(place)
        except FileNotFoundError:
            raise FileNotFoundError(f"{path} {GONE}") from None
        except OSError as e:
            # Whoever asks in SQL is not told where on this machine the warehouse lies.
            raise type(e)(f"{path}: {e.strerror or 'cannot be read'}") from None

    def size(self, path: str) -> int:
        """Bytes of a file."""
        source = self._opened(path)
        try:
            return source.size
        finally:
            source.close()

    def modified(self, path: str) -> datetime:
        """When a local file was last written; of objects, which never change, the same always."""
        place = self._places.get(path, "")
        if not place or store.is_address(place):
            return LONG_AGO
        return datetime.fromtimestamp(os.stat(place).st_mtime, UTC)

    def isfile(self, path: str) -> bool:
        """Whether it is one of the files."""
        return path in self._places

    def isdir(self, path: str) -> bool:
        """False: there are no folders."""
        return False

    def glob(self, path: str, *_: Any, **__: Any) -> list[str]:
        """The file of just this address: nothing is a pattern."""
        return [path] if path in self._places else []

    def unstrip_protocol(self, name: str) -> str:
        """An address as it is: all have their scheme."""
        return name

    def ls(self, path: str, *_: Any, **__: Any) -> list[Any]:
        """Nothing: files are not listed."""
        return []

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise PermissionError(REFUSED)

    mv = move = rename = rm = rm_file = delete = _refuse
    touch = mkdir = mkdirs = makedirs = makedir = rmdir = _refuse
    cp = copy = cp_file = put = put_file = upload = pipe = pipe_file = write_bytes = _refuse


class Reading:
    """What DuckDB holds of an open file: its threads share it, each with a position of its own.

    It places the position and then reads. Were there one position, another thread could come in
    between.
    """

    def __init__(self, address: str, place: str, source: Source):
        self._address = address
        self._place = place
        self._source = source
        self._at = threading.local()

    def seek(self, at: int) -> None:
        """Places this thread's position."""
        self._at.value = at

    def tell(self) -> int:
        """This thread's position."""
        return getattr(self._at, "value", 0)

    def read(self, n_bytes: int) -> bytes:
        """The next bytes; fewer than asked for only at the end."""
        at = self.tell()
        try:
            found = self._source.read_at(n_bytes, at)
        except FileNotFoundError:  # objects are not held open
            raise FileNotFoundError(f"{self._address} {GONE}") from None
        except RetimeError as e:
            raise type(e)(str(e).replace(self._place, self._address)) from None
        self._at.value = at + len(found)
        return found

    def close(self) -> None:
        """Gives the file back."""
        self._source.close()


class LocalFile:
    """A regular file of this machine that was not named by a link."""

    def __init__(self, path: str):
        self._handle = -1
        # Opening a pipe that nobody writes would wait for ever, and a link may lead anywhere.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
        self._handle = os.open(path, flags | getattr(os, "O_CLOEXEC", 0))
        found = os.fstat(self._handle)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise OSError(0, "not a file", path)
        self.size = found.st_size

    def read_at(self, n_bytes: int, at: int) -> bytes:
        """Reads without moving a position; other Python threads run meanwhile."""
        found = os.pread(self._handle, n_bytes, at)
        if len(found) == n_bytes or not found:
            return found
        parts = [found]  # a signal or a size beyond 2 GiB may cut a read short
        while (left := n_bytes - sum(map(len, parts))) > 0:
            more = os.pread(self._handle, left, at + n_bytes - left)
            if not more:
                break
            parts.append(more)
        return b"".join(parts)

    def close(self) -> None:
        """Closes the file once."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self) -> None:
        self.close()


def addresses(files: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, dict[str, list[str]]]:
    """For each path of job -> table -> paths the address that it is served under, in their order.

    An address is made of letters, digits, dots, dashes and underscores, so none is a pattern.
    """
    taken: set[str] = set()
    found: dict[str, dict[str, list[str]]] = {}
    for job, tables in files.items():
        found[job] = {}
        for table, paths in tables.items():
            found[job][table] = []
            for path in paths:
                base = re.sub(r"[^A-Za-z0-9._-]", "-", os.path.basename(path))
                address = f"{SCHEME}://{job}/{table}/{base}"
                while address in taken:
                    address = f"{SCHEME}://{job}/{table}/{len(taken)}-{base}"
                taken.add(address)
                found[job][table].append(address)
    return found
