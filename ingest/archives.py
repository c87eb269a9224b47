"""Archives: the members of zip and tar files as sources, streamed, never unpacked to a path."""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import struct
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, cast

from .errors import Damaged, UnusableInput
from .gunzip import BLOCK, GZIP, OUT_BYTES, Gunzip, check_size, read_exactly, stream_defect
from .pickles.npz import is_npz_head
from .pickles.torchfile import is_torch_head
from .schema import Problem
from .source import LocalFile, Source

ZIP = b"PK\x03\x04"
EMPTY_ZIP = b"PK\x05\x06"
END_BYTES = 65536
"""How much of each end of a compressed tar's members is kept from the pass that lists them."""

_BAD_ZIP = (
    zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError, ValueError,
    IndexError, OverflowError, struct.error, zlib.error, lzma.LZMAError,
)  # fmt: skip
"""What the zip reader raises for damaged archives; UnicodeDecodeError is a ValueError."""

OnProblem = Callable[[str, Problem], None]
"""Called with the display name of the place and what was odd about it."""


def is_tar(head: bytes) -> bool:
    """A tar header stands at the start (its magic, and a checksum that adds up)."""
    if len(head) < 512 or head[257:262] != b"ustar":
        return False
    try:
        stated = int(head[148:156].strip(b"\0 ") or b"0", 8)
    except ValueError:
        return False
    return stated == sum(head[:148]) + 8 * 0x20 + sum(head[156:512])


def zip_members(path: str, on_problem: OnProblem, name: str | None = None) -> Iterator[Source]:
    """Members of a local zip, shown as those of `name` where it is a copy of that."""
    name = name or path
    try:
        with zipfile.ZipFile(path) as z:
            infos = [i for i in z.infolist() if i.filename and not i.is_dir()]
    except _BAD_ZIP as e:
        raise Damaged(f"a zip archive that cannot be read: {e}", path=name) from e
    n = 0
    for info in sorted(infos, key=lambda i: natural_order(i.filename)):
        shown = f"{name}!{display(info.filename)}"
        mode = info.external_attr >> 16
        if mode & 0o170000 == 0o120000:
            on_problem(shown, Problem("archive_link", "a link in an archive; skipped", "info"))
        elif _hidden(info.filename):
            continue
        elif info.flag_bits & 1:
            on_problem(shown, Problem("encrypted", "an encrypted member; skipped", "lost"))
        elif not info.file_size:
            on_problem(shown, Problem("empty_file", "the member is empty; skipped", "warning"))
        else:
            n += 1
            opened = _ZipMember(path, info.header_offset, shown)
            try:
                with opened() as f:
                    head = read_exactly(f, 512)
            except UnusableInput as e:
                what = str(e).removeprefix(f"{shown}: ")
                on_problem(shown, Problem("unusable", what, "lost"))
                continue
            yield _member_source(shown, info.compress_size, opened, head, on_problem)
    if not n:
        raise UnusableInput("nothing in it", path=name)


@dataclass(frozen=True)
class _ZipMember:
    """Opens a zip member, found by where its header stands: names may repeat."""

    path: str
    header_offset: int
    shown: str

    def __call__(self) -> BinaryIO:
        try:
            archive, members = _opened_zip(self.path)
            info = members[self.header_offset]
            member = cast(BinaryIO, archive.open(info))
        except (KeyError, *_BAD_ZIP) as e:
            raise UnusableInput(f"zip member cannot be read: {e}", path=self.shown) from e
        # It would keep the last piece back where the checksum is wrong.
        setattr(member, "_expected_crc", None)  # noqa: B010
        return cast(BinaryIO, _Counted(member, self.shown, info))


_zips: dict[tuple, tuple[zipfile.ZipFile, dict[int, zipfile.ZipInfo]]] = {}
_zips_lock = threading.Lock()
OPEN_ZIPS = 4
"""Zip archives whose list of members is kept: to read it for each member takes the square of it."""


def _opened_zip(path: str) -> tuple[zipfile.ZipFile, dict[int, zipfile.ZipInfo]]:
    """An archive and its members by where their headers stand; open until others take its place."""
    stat = os.stat(path)
    identity = (path, stat.st_ino, stat.st_size, stat.st_mtime_ns)
    with _zips_lock:
        found = _zips.pop(identity, None)
        if found is None:
            archive = zipfile.ZipFile(path)
            found = (archive, {i.header_offset: i for i in archive.infolist()})
        _zips[identity] = found
        while len(_zips) > OPEN_ZIPS:
            # Members that are being read keep their file open.
            _zips.pop(next(iter(_zips)))[0].close()
    return found


class _Counted(io.RawIOBase):
    """A zip member that refuses to give more than `MAX_MEMBER_BYTES`, or too much for its input.

    Damage ends it and sets `corrupt`. The member itself is read OUT_BYTES at a time, however it is
    asked: of what one read of it has gathered nothing comes where that meets the damage.
    """

    def __init__(self, raw: BinaryIO, name: str, info: zipfile.ZipInfo):
        super().__init__()
        self._raw = raw
        self._name = name
        self._info = info
        self._rest = memoryview(b"")
        self._crc = 0
        self.n_out = 0
        self.corrupt: str | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        if len(view) and not self._rest:
            self._rest = memoryview(self._more())
        n = min(len(view), len(self._rest))
        view[:n], self._rest = self._rest[:n], self._rest[n:]
        return n

    def _more(self) -> bytes:
        if self.corrupt is not None:
            return b""
        try:
            chunk = self._raw.read(OUT_BYTES)
        except _BAD_ZIP as e:
            self.corrupt = str(e) or "it ends early"
            return b""
        self.n_out += len(chunk)
        self._crc = zlib.crc32(chunk, self._crc)
        if not chunk and self._crc != self._info.CRC:
            self.corrupt = "its checksum is wrong"
        check_size(self._info.compress_size, self.n_out, self._name)
        return chunk

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Listed(NamedTuple):
    """A member as the pass over a tar saw it; `sha256` where that pass read all of it."""

    shown: str
    at: int
    size: int
    head: bytes
    tail: bytes
    sha256: str | None


def tar_members(archive: Source, on_problem: OnProblem) -> Iterator[Source]:
    """Members of a tar, compressed or not; each is found again by its position when opened.

    A compressed one has to be read through to be listed, so heads and digests are taken on the way.
    """
    found: list[_Listed] = []
    with archive.open() as f:
        try:
            with tarfile.open(fileobj=f, mode="r|") as tar:
                for member in tar:
                    shown = f"{archive.name}!{display(member.name)}"
                    if member.isdir() or _hidden(member.name):
                        continue
                    if not member.isreg() or member.issparse():
                        kind = "a link or special file in an archive; skipped"
                        on_problem(shown, Problem("archive_link", kind, "info"))
                    elif not member.size:
                        on_problem(
                            shown, Problem("empty_file", "the member is empty; skipped", "warning")
                        )
                    else:
                        found.append(_list(tar, member, shown, archive.compressed))
                        # The tar keeps each header it has read; a big archive has many.
                        tar.members = []  # type: ignore[attr-defined]
        except (tarfile.TarError, EOFError, OSError, zlib.error, OverflowError) as e:
            problem = f"the archive is cut or damaged: {e}; members before are kept"
            on_problem(archive.name, Problem("truncated_archive", problem, "lost"))
        else:
            defect = stream_defect(f)
            if defect and not getattr(f, "trailing", False):
                on_problem(archive.name, Problem("truncated_archive", defect, "lost"))
    if not found:
        raise UnusableInput("nothing in it", path=archive.name)
    for m in sorted(found, key=lambda m: natural_order(m.shown)):
        opened = _TarMember(archive, m.at, m.size)
        source = _member_source(m.shown, m.size, opened, m.head, on_problem)
        if archive.compressed:
            source.know(m.head, m.tail, m.sha256)
        yield source


def _list(tar: tarfile.TarFile, member: tarfile.TarInfo, shown: str, whole: bool) -> _Listed:
    at, size = member.offset_data, member.size
    head, tail, digest = b"", b"", None
    data = tar.extractfile(member)
    if data is not None:
        try:
            head = read_exactly(cast(BinaryIO, data), min(END_BYTES, size))
            if whole:
                sha = hashlib.sha256(head)
                tail = head
                while block := data.read(BLOCK):
                    sha.update(block)
                    tail = (tail + block)[-END_BYTES:]
                digest = sha.hexdigest()
        except (tarfile.TarError, EOFError, OSError):
            # Cut inside this member: what is there of it is still read; the next header tells.
            digest = None
    return _Listed(shown, at, size, head, tail if digest else b"", digest)


_parked: dict[tuple, tuple[int, BinaryIO]] = {}
_parked_lock = threading.Lock()
PARKED_STREAMS = 4
"""Compressed archives that stay open between members, so that the next one is read on from there.

Without it each member of a compressed tar would cost inflating all before it.
"""


def _identity(archive: Source) -> tuple:
    """What tells an archive from another one that was put in its place."""
    opener = archive.open_stored
    if not isinstance(opener, LocalFile):
        return (archive.name,)
    stat = os.stat(opener.path)
    return (opener.path, stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _unpark(identity: tuple, at: int) -> tuple[int, BinaryIO] | None:
    """An open stream of an archive at or before a byte, with its position."""
    with _parked_lock:
        known = _parked.get(identity)
        if known is not None and known[0] <= at:
            return _parked.pop(identity)
    return None


def _park(identity: tuple, at: int, stream: BinaryIO) -> None:
    with _parked_lock:
        old = [_parked.pop(identity, None)]
        _parked[identity] = (at, stream)
        while len(_parked) > PARKED_STREAMS:
            old.append(_parked.pop(next(iter(_parked))))
    for entry in old:
        if entry is not None:
            entry[1].close()


def _forget_parked() -> None:
    """In a forked child: its parent reads the same open files, from one position for both."""
    global _parked_lock, _zips_lock
    _parked_lock, _zips_lock = threading.Lock(), threading.Lock()
    _parked.clear()
    _zips.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parked)


@dataclass(frozen=True)
class _TarMember:
    """Opens a tar member: `size` bytes at byte `at` of the (decompressed) archive."""

    archive: Source
    at: int
    size: int

    def __call__(self) -> BinaryIO:
        if not self.archive.compressed:
            stream = self.archive.open()
            stream.seek(self.at)
            return cast(BinaryIO, _Window(stream, self.at, self.size))
        identity = _identity(self.archive)
        position, stream = _unpark(identity, self.at) or (0, self.archive.open())
        while position < self.at:
            skipped = len(stream.read(min(self.at - position, BLOCK)))
            if not skipped:
                break
            position += skipped
        window = _Window(stream, position, self.size, park_as=identity)
        return cast(BinaryIO, window)


class _Window(io.RawIOBase):
    """The next `size` bytes of a stream that stands at byte `at`."""

    def __init__(self, raw: BinaryIO, at: int, size: int, park_as: tuple | None = None):
        super().__init__()
        self._raw = raw
        self._at = at
        self._left = size
        self._park_as = park_as
        # A reader's thread may be reading when the window is closed.
        self._lock = threading.Lock()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        with self._lock:
            if self.closed:
                raise ValueError("read of a closed member")
            chunk = self._raw.read(min(len(view), self._left))
            view[: len(chunk)] = chunk
            self._left -= len(chunk)
            self._at += len(chunk)
        return len(chunk)

    @property
    def cut(self) -> bool:
        """The stream ended inside the window."""
        return self._left > 0 and bool(getattr(self._raw, "cut", False))

    def close(self) -> None:
        with self._lock:
            if not self.closed:
                if self._park_as is None:
                    self._raw.close()
                else:
                    _park(self._park_as, self._at, self._raw)
            super().close()


def _member_source(
    shown: str,
    stored_bytes: int,
    opened: Callable[[], BinaryIO],
    head: bytes,
    on_problem: OnProblem,
) -> Source:
    inner = head
    if head[:2] == GZIP:
        inner = read_exactly(cast(BinaryIO, Gunzip(io.BytesIO(head), shown)), 512)
    if outside(shown.partition("!")[2]):
        told = (
            "its name points outside the archive; only its content is read, and nothing is ever "
            "written by that name"
        )
        on_problem(shown, Problem("archive_path", told))
    saved = is_torch_head(head) or is_npz_head(head)
    if (head[:4] == ZIP and not saved) or is_tar(inner):
        nested = "an archive in an archive is not opened: unpack it first"
        on_problem(shown, Problem("nested_archive", nested, "lost"))
    return Source(
        name=shown, size_bytes=stored_bytes, open_stored=opened, compressed=head[:2] == GZIP
    )


def _hidden(member: str) -> bool:
    parts = member.replace("\\", "/").split("/")
    return "__MACOSX" in parts or any(p.startswith(".") and p not in (".", "..") for p in parts)


def outside(member: str) -> bool:
    """Whether a member's name is absolute or climbs out with `..`."""
    parts = member.replace("\\", "/").split("/")
    return parts[0] == "" or ".." in parts or parts[0][1:2] == ":"


def display(name: str) -> str:
    """A name from an archive made safe to print: no control characters, bounded length."""
    clean = "".join(c if c.isprintable() else "?" for c in name)
    return clean if len(clean) <= 300 else clean[:150] + "..." + clean[-147:]


def natural_order(name: str) -> tuple[list, str]:
    """Sort key that puts rank2 before rank10."""
    parts: list[tuple[int, int, str]] = []
    run = ""
    for ch in name + "\0":
        if run and ch.isdecimal() != run[-1].isdecimal():
            if run.isdecimal():
                # As text: a member's name may have more digits than int() takes.
                digits = "".join(str(int(d)) for d in run).lstrip("0")
                parts.append((0, len(digits), digits))
            else:
                parts.append((1, 0, run))
            run = ""
        run += ch
    return parts, name
