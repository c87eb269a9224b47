"""The operations on objects over pyarrow's own file systems, where fsspec has no package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from .drivers import Driver
from .folder import Entry

BLOCK = 8 << 20


def file_system(scheme: str) -> pafs.FileSystem | None:
    """pyarrow's file system for a scheme; None where it speaks none of that name."""
    try:
        return pafs.FileSystem.from_uri(f"{scheme}:///")[0]
    except (pa.ArrowException, ValueError, OSError, NotImplementedError):
        return None


class Arrow(Driver):
    """Over a pyarrow file system, which has no conditional writes: one looks first."""

    def path(self, address: str) -> str:
        return address.partition("://")[2].strip("/")

    def get(self, address: str, start: int, end: int) -> bytes:
        with self.fs.open_input_file(self.path(address)) as f:
            end = min(end, f.size())
            return f.read_at(end - start, start) if end > start else b""

    def head(self, address: str) -> Entry | None:
        info = self.fs.get_file_info(self.path(address))
        return _entry(info) if info.type == pafs.FileType.File else None

    def put(self, address: str, data: bytes, new: bool) -> None:
        if new and self.head(address) is not None:
            raise FileExistsError(address)
        self._make_parent(address)
        with self.fs.open_output_stream(self.path(address)) as out:
            out.write(data)

    def put_file(self, address: str, source: Path) -> None:
        self._make_parent(address)
        with open(source, "rb") as f, self.fs.open_output_stream(self.path(address)) as out:
            while block := f.read(BLOCK):
                out.write(block)

    def _make_parent(self, address: str) -> None:
        self.fs.create_dir(self.path(address).rpartition("/")[0], recursive=True)

    def below(self, address: str) -> Iterator[tuple[str, Entry]]:
        root = self.path(address) + "/"
        for info in self._listed(address, True):
            if info.type == pafs.FileType.File:
                yield info.path.removeprefix(root), _entry(info)

    def names(self, address: str) -> list[str]:
        return sorted(info.base_name for info in self._listed(address, False))

    def _listed(self, address: str, recursive: bool) -> list[Any]:
        selector = pafs.FileSelector(self.path(address), allow_not_found=True, recursive=recursive)
        return self.fs.get_file_info(selector)

    def remove(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            if self.head(address) is not None:
                self.fs.delete_file(self.path(address))


def _entry(info: Any) -> Entry:
    ns = int(info.mtime_ns or 0)
    return Entry(int(info.size or 0), f"{info.size}-{ns}", ns)
