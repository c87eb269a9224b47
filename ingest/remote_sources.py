"""Sources in object stores and behind other URLs: found by listing, fetched when they are read."""

from __future__ import annotations

import contextlib
import fnmatch
import io
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, cast

from .archives import EMPTY_ZIP, ZIP, OnProblem, is_tar, natural_order
from .errors import StoreRefused, UnusableInput
from .gunzip import GZIP, Gunzip, read_exactly
from .schema import Problem
from .source import LocalFile, Source
from .store import addresses
from .store.drivers import driver
from .store.patience import patiently
from .store.remote_file import RemoteFile, fetched

HEAD_BYTES = 64 << 10
AHEAD_BYTES = 4 << 20
PIECE_BYTES = 8 << 20
PIECES_AT_ONCE = 4
MOST_META_BYTES = 1 << 20

_MAGIC = re.compile(r"[*?\\[]")


class Scratch:
    """A folder among the temporary files, made when it is first asked for; it goes with this."""

    def __init__(self) -> None:
        self._path: Path | None = None

    @property
    def path(self) -> Path:
        """Where it is."""
        if self._path is None:
            from .owners import SCRATCH, owner

            self._path = Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{owner()}."))
            weakref.finalize(self, shutil.rmtree, self._path, ignore_errors=True)
        return self._path


@dataclass(frozen=True)
class RemoteObject:
    """Opens an object: its bytes in order, fetched some megabytes ahead."""

    url: str
    size_bytes: int
    tag: str

    def __call__(self) -> BinaryIO:
        raw = RemoteFile(self.url, self.size_bytes, ahead=AHEAD_BYTES)
        return cast(BinaryIO, io.BufferedReader(raw))


def objects_of(given: str, on_problem: OnProblem) -> Iterator[RemoteObject]:
    """The objects that a URL names: one, those below it (hidden ones skipped), or a glob's.

    Raises UnusableInput where there is none or the store refuses, StoreBusy where it is busy.
    """
    addresses.check(given)
    shown = addresses.shown(given)
    try:
        if is_pattern(given):
            found = _matching(given)
            if not found:
                raise UnusableInput("no object matches this pattern", path=shown)
        else:
            one = _one(given)
            found = [one] if one is not None else [] if is_web(given) else _below(given)
            if not found:
                raise UnusableInput("no such object or folder", path=shown)
    except StoreRefused as e:
        raise UnusableInput(str(e).removeprefix(f"{shown}: "), path=shown) from e
    for one in sorted(found, key=lambda o: natural_order(o.url)):
        if one.size_bytes or len(found) == 1:
            yield one
        else:
            what = "the object is empty; skipped"
            on_problem(addresses.shown(one.url), Problem("empty_file", what, "warning"))


def is_pattern(url: str) -> bool:
    """Whether a URL is a glob. After a `?` a web address has its query."""
    return _MAGIC.search(url) is not None and not is_web(url)


def is_web(url: str) -> bool:
    """Whether a URL is a web address: of one file, as there are no listings."""
    return url.startswith(("http://", "https://"))


def _one(url: str) -> RemoteObject | None:
    if url.endswith("/"):
        return None
    scheme = url.partition("://")[0]
    shown = addresses.shown(url)
    entry = patiently(lambda: driver(scheme).head(url), shown)
    return None if entry is None else RemoteObject(url, entry.bytes, entry.tag)


def _below(folder: str) -> list[RemoteObject]:
    base = folder.rstrip("/")
    if not base.partition("://")[2]:
        raise UnusableInput("it names no bucket", path=addresses.shown(folder))
    made = driver(base.partition("://")[0])
    listed = patiently(lambda: dict(made.below(base)), addresses.shown(folder), "listed")
    return [
        RemoteObject(f"{base}/{name}", entry.bytes, entry.tag)
        for name, entry in listed.items()
        if not any(part.startswith(".") for part in name.split("/"))
    ]


def _matching(pattern: str) -> list[RemoteObject]:
    magic = _MAGIC.search(pattern)
    assert magic is not None
    above = pattern[: magic.start()].rpartition("/")[0]
    wanted = pattern[len(above) + 1 :].split("/")
    return [o for o in _below(above) if _matches(o.url[len(above) + 1 :].split("/"), wanted)]


def _matches(parts: list[str], wanted: list[str]) -> bool:
    """Whether a path is what a pattern names, or below a folder that it names."""
    if not wanted:
        return True
    if wanted[0] == "**":
        return any(_matches(parts[n:], wanted[1:]) for n in range(len(parts) + 1))
    return (
        bool(parts) and fnmatch.fnmatchcase(parts[0], wanted[0]) and _matches(parts[1:], wanted[1:])
    )


def source_of(found: RemoteObject) -> Source:
    """The source that an object is, its first bytes known. Raises UnusableInput, StoreBusy."""
    name = addresses.shown(found.url)
    if not found.size_bytes:
        raise UnusableInput("the object is empty, or its size is not told", path=name)
    head = _bytes(found.url, 0, min(HEAD_BYTES, found.size_bytes), name)
    source = Source(
        name=name, size_bytes=found.size_bytes, open_stored=found, compressed=head[:2] == GZIP
    )
    source.know(head, b"", None)
    return source


def is_archive(source: Source) -> bool:
    """Whether a source of `source_of` is a zip or a tar, compressed or not."""
    head = source._stored_head
    if head[:4] in (ZIP, EMPTY_ZIP):
        return True
    if source.compressed:
        inner = cast(BinaryIO, Gunzip(io.BytesIO(head), source.name))
        return is_tar(read_exactly(inner, 512))
    return is_tar(head)


def fetch(found: RemoteObject, target: Path) -> None:
    """Writes an object to a local file. Raises UnusableInput where it cannot be, or changes.

    No more is written than its listing said, and that only where half of the disk's free space
    is enough for it.
    """
    name = addresses.shown(found.url)
    free = shutil.disk_usage(target.parent).free
    if found.size_bytes > free // 2:
        raise UnusableInput(
            f"needs {found.size_bytes >> 20} MiB in {target.parent}, which has {free >> 20} free: "
            "fetch it yourself, or set TMPDIR",
            path=name,
        )
    with open(target, "wb") as out:

        def piece(start: int) -> None:
            data = _bytes(found.url, start, min(start + PIECE_BYTES, found.size_bytes), name)
            os.pwrite(out.fileno(), data, start)

        with ThreadPoolExecutor(PIECES_AT_ONCE) as pool:
            list(pool.map(piece, range(0, found.size_bytes, PIECE_BYTES)))
    now = _one(found.url)
    if now is None or (now.size_bytes, now.tag) != (found.size_bytes, found.tag):
        raise UnusableInput(
            "changed while it was read; ingest it again when its writer has finished", path=name
        )


@contextlib.contextmanager
def here(source: Source, folder: Path) -> Iterator[Source]:
    """The source with its bytes (and its members') in local files of a folder, for a parser.

    The folder is made and removed again. A source that is on this machine is given as it is.
    """
    members = source.members or (source,)
    if not any(isinstance(m.open_stored, RemoteObject) for m in members):
        yield source
        return
    try:
        for n in range(len(members)):
            (folder / str(n)).mkdir(parents=True)
        copies = tuple(_local(m, folder / str(n)) for n, m in enumerate(members))
        yield replace(source, members=copies) if source.members else copies[0]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _local(source: Source, folder: Path) -> Source:
    found = source.open_stored
    if not isinstance(found, RemoteObject):
        return source
    base = found.url.rpartition("/")[2]
    target = folder / "source"
    if (beside := _meta_beside(found.url)) is not None:
        # A reader looks for it by the trace's name.
        target = folder / f"trace-source{_suffix(base)}"
        (folder / "meta-source.yaml").write_bytes(beside)
    fetch(found, target)
    return Source(
        name=source.name,
        size_bytes=source.size_bytes,
        open_stored=LocalFile(str(target)),
        mmap_path=None if source.compressed else target,
        compressed=source.compressed,
    )


def _suffix(base: str) -> str:
    suffix = os.path.splitext(base)[1]
    return suffix if re.fullmatch(r"\.[A-Za-z0-9]{1,10}", suffix) else ""


def _meta_beside(url: str) -> bytes | None:
    above, _, base = url.rpartition("/")
    if not base.startswith("trace-"):
        return None
    meta = f"{above}/meta-{os.path.splitext(base.removeprefix('trace-'))[0]}.yaml"
    scheme, shown = meta.partition("://")[0], addresses.shown(meta)
    try:
        data = patiently(lambda: driver(scheme).get(meta, 0, MOST_META_BYTES + 1), shown)
    except (FileNotFoundError, StoreRefused):
        return None
    return data[: MOST_META_BYTES + 1]


def _bytes(url: str, start: int, end: int, name: str) -> bytes:
    try:
        return fetched(url, start, end)
    except FileNotFoundError as e:
        raise UnusableInput("is no longer there", path=name) from e
    except StoreRefused as e:
        raise UnusableInput(str(e).removeprefix(f"{name}: "), path=name) from e
