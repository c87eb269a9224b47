"""A folder on a disk."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from .. import owners, regular, rooms
from .folder import Entry, Folder, TooLarge


@dataclass(frozen=True)
class LocalFolder(Folder):
    """A folder by its absolute path."""

    path: Path

    def __truediv__(self, name: str) -> LocalFolder:
        return LocalFolder(self.path / name)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def parent(self) -> LocalFolder:
        return LocalFolder(self.path.parent)

    @property
    def local(self) -> Path:
        return self.path

    def address(self, file: str) -> str:
        return os.path.join(self.path, file)

    def read(self, file: str, most_bytes: int) -> bytes:
        with regular.opened(self.path / file) as f:
            size = os.fstat(f.fileno()).st_size
            data = f.read(most_bytes + 1) if size <= most_bytes else b""
        if size > most_bytes or len(data) > most_bytes:
            raise TooLarge(self.address(file), most_bytes, size)
        return data

    def names(self, sub: str = "") -> list[str]:
        try:
            return sorted(os.listdir(self.path / sub))
        except FileNotFoundError:
            return []

    def entries(self, sub: str = "") -> dict[str, Entry]:
        found = {}
        for here, _, files in os.walk(self.path / sub):
            for name in files:
                file = os.path.relpath(os.path.join(here, name), self.path)
                if (entry := self.entry(file)) is not None:
                    found[file.replace(os.sep, "/")] = entry
        return found

    def entry(self, file: str) -> Entry | None:
        try:
            s = os.stat(self.path / file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(s.st_mode):
            return None
        return Entry(s.st_size, f"{s.st_ino}-{s.st_mtime_ns}", s.st_mtime_ns)

    def open(self, file: str) -> pa.NativeFile:
        return pa.OSFile(self.address(file), "rb")

    def put(self, file: str, data: bytes | Path, *, new: bool = False) -> None:
        goal = rooms.through_no_link(self.path, file)
        goal.parent.mkdir(parents=True, exist_ok=True)
        whose = f".{goal.name}.{owners.owner()}."
        handle, part = tempfile.mkstemp(dir=goal.parent, prefix=whose)
        try:
            with os.fdopen(handle, "wb") as out:
                if isinstance(data, Path):
                    with data.open("rb") as f:
                        while block := f.read(1 << 20):
                            out.write(block)
                else:
                    out.write(data)
                out.flush()
                os.fsync(out.fileno())
            os.chmod(part, 0o644)
            if new:
                self._link(part, goal)
            else:
                os.replace(part, goal)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
        _sync(goal.parent)

    @staticmethod
    def _link(part: str, goal: Path) -> None:
        """Gives a finished file its name. Raises FileExistsError for a file of other content."""
        try:
            os.link(part, goal)
        except FileExistsError:
            if goal.is_file() and goal.read_bytes() == Path(part).read_bytes():
                return
            raise
        except OSError:  # a file system without links
            with open(goal, "xb") as out:
                out.write(Path(part).read_bytes())
                out.flush()
                os.fsync(out.fileno())

    def remove(self, files: Iterable[str]) -> None:
        for file in files:
            rooms.through_no_link(self.path, file).unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[bool]:
        from .. import locks  # which locks folders of jobs, and imports this

        with locks.locked(self.path, name) as held:
            yield held


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems do not sync folders
            os.fsync(fd)
    finally:
        os.close(fd)
