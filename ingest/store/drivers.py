"""The few operations on objects that everything is made of, over fsspec's file systems."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from .. import kinds
from ..errors import UsageError, line_of
from .folder import Entry

CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 60


def driver(scheme: str) -> Driver:
    """The driver for addresses of a scheme.

    One a process, as connections do not outlive a fork, and one for the credentials and endpoint
    that the environment names now. Raises UsageError where there is none, with what to install.
    """
    said = hash(frozenset(i for i in os.environ.items() if i[0].startswith(("AWS_", "FSSPEC_"))))
    return _driver(scheme, os.getpid(), said)


@lru_cache(maxsize=8)
def _driver(scheme: str, _: int, __: int) -> Driver:
    import fsspec

    if scheme in ("s3", "s3a"):
        try:
            import s3fs
        except ImportError as e:
            raise UsageError(
                "addresses in S3 need the package s3fs: pip install 'retime[s3]'"
            ) from e
        from .s3 import S3

        made = s3fs.S3FileSystem(
            use_listings_cache=False,
            default_cache_type="none",
            skip_instance_cache=True,
            config_kwargs={
                "connect_timeout": CONNECT_TIMEOUT_S,
                "read_timeout": READ_TIMEOUT_S,
                "retries": {"total_max_attempts": 1},  # `patience` does that
                # Some servers answer a range with the checksum of the whole object.
                "response_checksum_validation": "when_required",
            },
            **_configured("s3"),
        )
        made.retries = 1
        return S3(made)
    try:
        return Driver(fsspec.filesystem(scheme, **_no_cache(scheme)))
    except (ImportError, ValueError) as e:
        from .arrow import Arrow, file_system

        if (found := file_system(scheme)) is not None:
            return Arrow(found)
        if isinstance(e, ImportError):
            kinds.check_package(f"{scheme}://")
            raise UsageError(f"{scheme}:// needs another package: {line_of(e)}") from e
        raise UsageError(
            f"{scheme}://: no such kind of store; there are s3, gs, abfs, hdfs and what else "
            "fsspec has a package for"
        ) from e


def _configured(scheme: str) -> dict[str, Any]:
    """What fsspec's own configuration says for a scheme, but for what is set here."""
    from fsspec.config import conf

    ours = ("use_listings_cache", "default_cache_type", "config_kwargs")
    return {k: v for k, v in conf.get(scheme, {}).items() if k not in ours}


def _no_cache(scheme: str) -> dict[str, Any]:
    return {} if scheme == "memory" else {"use_listings_cache": False}


class Driver:
    """Operations by whole address. They try once, and raise what the file system raises."""

    def __init__(self, fs: Any):
        self.fs = fs
        self.conditions: dict[str, bool] = {}
        """by bucket: whether a write of what is there already is refused when told so; found out
        at the first one"""
        self.finding_out = threading.Lock()

    def path(self, address: str) -> str:
        """What the file system calls an address."""
        return self.fs._strip_protocol(address)

    def get(self, address: str, start: int, end: int) -> bytes:
        """Bytes `start` to `end` (not included), fewer where the object ends before."""
        return self.fs.cat_file(self.path(address), start=start, end=end)

    def head(self, address: str) -> Entry | None:
        """What an object is; None where there is none."""
        try:
            info = self.fs.info(self.path(address))
        except FileNotFoundError:
            return None
        return entry_of(info) if info.get("type") == "file" else None

    def put(self, address: str, data: bytes, new: bool) -> None:
        """Writes an object; with `new` raises FileExistsError where one is there."""
        path = self.path(address)
        self._prepare(path)
        if not new:
            self.fs.pipe_file(path, data)
            return
        try:
            self.fs.pipe_file(path, data, mode="create")
        except (TypeError, NotImplementedError):
            if self.fs.exists(path):
                raise FileExistsError(path) from None
            self.fs.pipe_file(path, data)

    def put_file(self, address: str, source: Path) -> None:
        """Writes an object from a local file."""
        path = self.path(address)
        self._prepare(path)
        self.fs.put_file(str(source), path)

    def _prepare(self, path: str) -> None:
        """Makes the folders above, in stores that have folders."""
        self.fs.makedirs(self.fs._parent(path), exist_ok=True)

    def below(self, address: str) -> Iterator[tuple[str, Entry]]:
        """(path below, entry) of every object below an address."""
        root = self.path(address).rstrip("/") + "/"
        try:
            found = self.fs.find(root.rstrip("/"), detail=True)
        except FileNotFoundError:
            return
        for name, info in found.items():
            if name.startswith(root) and info.get("type") == "file":
                yield name[len(root) :], entry_of(info)

    def names(self, address: str) -> list[str]:
        """Names of what is directly below an address."""
        root = self.path(address).rstrip("/") + "/"
        try:
            found = self.fs.ls(root.rstrip("/"), detail=False)
        except FileNotFoundError:
            return []
        names = {n[len(root) :].strip("/") for n in found if n.startswith(root)}
        return sorted(n for n in names if n and "/" not in n)

    def remove(self, addresses: Iterable[str]) -> None:
        """Removes objects, those that are gone too."""
        for address in addresses:
            try:
                self.fs.rm_file(self.path(address))
            except FileNotFoundError:
                continue


def entry_of(info: dict[str, Any]) -> Entry:
    """What a file system's record of an object says."""
    when = info.get("LastModified") or info.get("mtime") or info.get("created") or 0
    when = info.get("updated") or info.get("last_modified") or when
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(when)
        except ValueError:
            when = 0
    ns = int(when.timestamp() * 1e9) if isinstance(when, datetime) else int(float(when) * 1e9)
    size = int(info.get("size") or 0)
    tag = info.get("ETag") or info.get("etag") or info.get("md5Hash") or f"{size}-{ns}"
    return Entry(size, str(tag).strip('"'), ns)
