"""A folder in an object store: a prefix that objects have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ..errors import StoreBusy
from .drivers import Driver, driver
from .folder import Entry, Folder, TooLarge
from .patience import patiently
from .remote_file import RemoteFile


@dataclass(frozen=True)
class ObjectFolder(Folder):
    """A folder by its URL, which ends without a slash."""

    url: str

    @property
    def _driver(self) -> Driver:
        return driver(self.url.partition("://")[0])

    def __truediv__(self, name: str) -> ObjectFolder:
        return ObjectFolder(f"{self.url}/{name}")

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> ObjectFolder:
        above = self.url.rpartition("/")[0]
        return self if above.endswith(("/", ":")) else ObjectFolder(above)

    @property
    def local(self) -> None:
        return None

    def address(self, file: str) -> str:
        return f"{self.url}/{file}"

    def read(self, file: str, most_bytes: int) -> bytes:
        address = self.address(file)
        data = patiently(lambda: self._driver.get(address, 0, most_bytes + 1), address)
        if len(data) > most_bytes:
            raise TooLarge(address, most_bytes)
        return data

    def names(self, sub: str = "") -> list[str]:
        address = self.address(sub) if sub else self.url
        return patiently(lambda: self._driver.names(address), address, "listed")

    def entries(self, sub: str = "") -> dict[str, Entry]:
        address = self.address(sub) if sub else self.url
        above = f"{sub.rstrip('/')}/" if sub else ""
        found = patiently(lambda: dict(self._driver.below(address)), address, "listed")
        return {above + name: entry for name, entry in found.items()}

    def entry(self, file: str) -> Entry | None:
        address = self.address(file)
        return patiently(lambda: self._driver.head(address), address)

    def open(self, file: str) -> pa.NativeFile:
        entry = self.entry(file)
        if entry is None:
            raise FileNotFoundError(f"{self.address(file)}: not there")
        return pa.PythonFile(RemoteFile(self.address(file), entry.bytes), mode="r")

    def put(self, file: str, data: bytes | Path, *, new: bool = False) -> None:
        address = self.address(file)
        if new:
            self._put_new(file, data.read_bytes() if isinstance(data, Path) else data)
        elif isinstance(data, Path):
            patiently(lambda: self._driver.put_file(address, data), address, "written")
        else:
            patiently(lambda: self._driver.put(address, data, False), address, "written")

    def _put_new(self, file: str, data: bytes) -> None:
        """Writes what is not there yet; where the store ignores conditions, after having looked.

        Two writers in the same instant may then both be told that theirs is there.
        """
        address, driver = self.address(file), self._driver
        bucket = self.url.partition("://")[2].partition("/")[0]
        known = driver.conditions.get(bucket)
        if known is None:
            with driver.finding_out:
                known = driver.conditions.get(bucket)
                if known is None:
                    return self._find_out(file, data, bucket)
        if known:
            try:
                patiently(lambda: driver.put(address, data, True), address, "written")
            except FileExistsError:
                # A request whose answer was lost is sent again, and then meets its own object.
                if not self._holds(file, data):
                    raise
            return
        if self.entry(file) is None:
            patiently(lambda: driver.put(address, data, False), address, "written")
        if not self._holds(file, data):
            raise FileExistsError(f"{address}: there already")

    def _find_out(self, file: str, data: bytes, bucket: str) -> None:
        """The same, and whether the bucket keeps conditions: one that does refuses a second time.

        What is not known after a failure is found out by the next write.
        """
        address, driver = self.address(file), self._driver
        if self.entry(file) is not None and not self._holds(file, data):
            raise FileExistsError(f"{address}: there already")
        try:
            patiently(lambda: driver.put(address, data, True), address, "written")
            with contextlib.suppress(StoreBusy):
                patiently(lambda: driver.put(address, data, True), address, "written")
                driver.conditions[bucket] = False
        except FileExistsError:
            driver.conditions[bucket] = True
            if not self._holds(file, data):
                raise

    def _holds(self, file: str, data: bytes) -> bool:
        try:
            return self.read(file, len(data)) == data
        except (TooLarge, FileNotFoundError):
            return False

    def remove(self, files: Iterable[str]) -> None:
        addresses = [self.address(f) for f in files]
        if addresses:
            patiently(lambda: self._driver.remove(addresses), str(self), "removed")

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[bool]:
        yield False
