"""Sources: files, folder entries and archive members that paths name, as byte streams."""

from __future__ import annotations

import glob as globbing
import hashlib
import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from .errors import UnusableInput
from .schema import Problem

GZIP = b"\x1f\x8b"
ZIP = b"PK\x03\x04"
EMPTY_ZIP = b"PK\x05\x06"
BLOCK = 1 << 20
OUT_BYTES = 4 << 20

MAX_MEMBER_BYTES = 1 << 40
"""A stream that inflates beyond this is refused (1 TiB: no single rank's trace is near it)."""

RATIO_AFTER_BYTES = 1 << 30
MAX_RATIO = 2000
"""Beyond `RATIO_AFTER_BYTES` of output, more than this many bytes out for a byte in is refused.

Deflate cannot exceed 1032 on one level, so only crafted (nested) archives get there.
"""

OnProblem = Callable[[str, Problem], None]
"""Called with the display name of the place and what was odd about it."""


class _Gunzip(io.RawIOBase):
    """Decompressed bytes of one or more gzip members in a row, streaming.

    The end of the file before the end of a member ends the stream and sets `cut`; bytes after the
    last member that are not gzip (padding, a stray newline) end it and set `trailing`.
    """

    def __init__(self, raw: BinaryIO, name: str):
        super().__init__()
        self._raw = raw
        self._name = name
        self._in = b""
        self._out = b""
        self._at = 0
        self._eof = False
        self._inflater = _inflater()
        self._members = 0
        self.n_in = 0
        self.n_out = 0
        self.cut = False
        self.trailing = False
        self.corrupt: str | None = None

    def readable(self) -> bool:
        return True

    def _more(self) -> bool:
        """Puts the next decompressed bytes in `_out`; False at the end of the stream."""
        while not self._eof:
            if self._inflater.eof:
                self._members += 1
                rest = self._inflater.unused_data or b""
                while len(rest) < 2 and (more := self._raw.read(BLOCK)):
                    rest += more
                if not rest.startswith(GZIP):
                    self.trailing = bool(rest.strip(b"\0\r\n "))
                    self._eof = True
                    break
                self._in = rest
                self._inflater = _inflater()
            elif not self._in:
                self._in = self._raw.read(BLOCK)
                self.n_in += len(self._in)
            if not self._in:
                self.cut = self._eof = True
            try:
                # Bounded: a crafted MiB may hold a GiB.
                out = (
                    self._inflater.decompress(self._in, OUT_BYTES)
                    if self._in
                    else self._inflater.flush()
                )
            except Exception as e:  # zlib.error and isal's own error have no common base
                self.corrupt = str(e) or type(e).__name__
                self._eof = True
                break
            if self._inflater.eof:
                self._in, self.cut = b"", False
                self._eof = self._eof and not self._inflater.unused_data
            else:
                self._in = self._inflater.unconsumed_tail
            if out:
                self.n_out += len(out)
                self._check_size()
                self._out, self._at = out, 0
                return True
        return False

    def _check_size(self) -> None:
        bomb = self.n_out > RATIO_AFTER_BYTES and self.n_out > MAX_RATIO * max(self.n_in, 1)
        if bomb or self.n_out > MAX_MEMBER_BYTES:
            raise UnusableInput(
                f"refused: {self.n_in} compressed bytes gave over {self.n_out} bytes "
                "(an archive made to fill memory or disk)",
                path=self._name,
                offset=self.n_out,
            )

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        done = 0
        while done < len(view):
            left = len(self._out) - self._at
            if not left:
                if not self._more():
                    break
                left = len(self._out)
            take = min(left, len(view) - done)
            view[done : done + take] = memoryview(self._out)[self._at : self._at + take]
            self._at += take
            done += take
        return done

    def close(self) -> None:
        self._raw.close()
        super().close()


def _inflater():
    try:
        from isal import isal_zlib

        return isal_zlib.decompressobj(wbits=31)
    except ImportError:
        return zlib.decompressobj(wbits=31)


class _Counted(io.RawIOBase):
    """A stream that refuses to give more than `MAX_MEMBER_BYTES`, or too much for its input."""

    def __init__(self, raw: BinaryIO, name: str, stored_bytes: int, owner: object = None):
        super().__init__()
        self._raw = raw
        self._name = name
        self._stored = stored_bytes
        self._owner = owner
        self.n_out = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        chunk = self._raw.read(len(view))
        view[: len(chunk)] = chunk
        self.n_out += len(chunk)
        bomb = self.n_out > RATIO_AFTER_BYTES and self.n_out > MAX_RATIO * max(self._stored, 1)
        if bomb or self.n_out > MAX_MEMBER_BYTES:
            raise UnusableInput(
                f"refused: {self._stored} stored bytes gave over {self.n_out} bytes",
                path=self._name,
                offset=self.n_out,
            )
        return len(chunk)

    def close(self) -> None:
        self._raw.close()
        close = getattr(self._owner, "close", None)
        if close is not None:
            close()
        super().close()


@dataclass(frozen=True)
class _File:
    """Opens a local file."""

    path: str

    def __call__(self) -> BinaryIO:
        return open(self.path, "rb")


@dataclass(frozen=True)
class _ZipMember:
    """Opens a zip member, found by where its header stands: names may repeat."""

    path: str
    header_offset: int
    shown: str

    def __call__(self) -> BinaryIO:
        archive = zipfile.ZipFile(self.path)
        try:
            info = next(i for i in archive.infolist() if i.header_offset == self.header_offset)
            member = cast(BinaryIO, archive.open(info))
        except (StopIteration, zipfile.BadZipFile, NotImplementedError, RuntimeError) as e:
            archive.close()
            raise UnusableInput(f"zip member cannot be read: {e}", path=self.shown) from e
        return cast(BinaryIO, _Counted(member, self.shown, info.compress_size, archive))


@dataclass(frozen=True)
class _TarMember:
    """Opens a tar member: `size` bytes at byte `at` of the (decompressed) archive."""

    archive: Source
    at: int
    size: int

    def __call__(self) -> BinaryIO:
        stream = self.archive.open()
        if self.archive.compressed:
            left = self.at
            while left and (skipped := len(stream.read(min(left, BLOCK)))):
                left -= skipped
        else:
            stream.seek(self.at)
        return cast(BinaryIO, _Window(stream, self.size))


@dataclass
class Source:
    """One input: a file, or a member of an archive.

    `name` is for people (`archive.tar!member` for members) and never used as a path.
    `size_bytes` is the size as stored: compressed for a compressed file or zip member.
    `mmap_path` is set for a plain, uncompressed local file and None otherwise. A source can be
    pickled: a worker process opens it again by itself.
    """

    name: str
    size_bytes: int
    open_stored: Callable[[], BinaryIO]
    mmap_path: Path | None = None
    compressed: bool = False
    _sha256: str | None = field(default=None, repr=False)

    @property
    def sha256(self) -> str:
        """Hex digest of the stored bytes (of the member, for an archive); computed once."""
        if self._sha256 is None:
            digest = hashlib.sha256()
            with self.open_stored() as f:
                while block := f.read(BLOCK):
                    digest.update(block)
            self._sha256 = digest.hexdigest()
        return self._sha256

    def open(self) -> BinaryIO:
        """The decompressed bytes, streaming and in bounded memory; the caller closes it.

        A gzip stream that is cut or corrupt ends early: `stream_defect` says why afterwards.
        Raises UnusableInput while reading where the output is out of all proportion.
        """
        stored = self.open_stored()
        if not self.compressed:
            return stored
        return cast(BinaryIO, _Gunzip(stored, self.name))

    def head(self, n: int = 65536) -> bytes:
        """The first `n` decompressed bytes (fewer where there are fewer)."""
        with self.open() as f:
            return read_exactly(f, n)


def stream_defect(stream: BinaryIO) -> str | None:
    """Why a stream from `Source.open` ended before its compressed data did; None if it did not."""
    if getattr(stream, "corrupt", None):
        return f"the compressed data is damaged ({stream.corrupt})"  # type: ignore[attr-defined]
    if getattr(stream, "cut", False):
        return "the compressed data is cut"
    if getattr(stream, "trailing", False):
        return "bytes that are not gzip follow the compressed data"
    return None


def read_exactly(stream: BinaryIO, n: int) -> bytes:
    """`n` bytes from a stream that may give fewer a read; less only at its end."""
    parts = []
    while n > 0 and (part := stream.read(n)):
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def find_sources(paths: list[str], on_problem: OnProblem) -> Iterator[Source]:
    """Every input that the paths name, in a stable order, archives opened one level deep.

    A path is a file, a folder (walked; hidden entries skipped), a glob, or an archive (.zip, .tar,
    .tar.gz, told by content). A file named twice comes once. Raises UnusableInput for a path that
    does not exist, a glob that matches nothing, a folder with nothing in it, an archive without
    members, and an empty file that was named itself.
    """
    seen: set[str] = set()
    for given in paths:
        found = 0
        for path in _files_of(given, on_problem):
            real = os.path.realpath(path)
            if real in seen:
                found += 1
                continue
            seen.add(real)
            named = os.path.normpath(path) == os.path.normpath(given)
            for source in _sources_of_file(path, named, on_problem):
                found += 1
                yield source
        if not found:
            raise UnusableInput("nothing in it", path=given)


def _files_of(given: str, on_problem: OnProblem) -> Iterator[str]:
    if os.path.isdir(given):
        yield from _walk(given, on_problem)
    elif os.path.lexists(given):
        if not os.path.exists(given):
            raise UnusableInput("a link to a file that does not exist", path=given)
        if not os.path.isfile(given):
            raise UnusableInput("neither a file nor a folder", path=given)
        yield given
    elif globbing.has_magic(given):
        matches = sorted(globbing.glob(given, recursive=True), key=_natural)
        if not matches:
            raise UnusableInput("no file matches this pattern", path=given)
        for match in matches:
            if os.path.isdir(match):
                if "**" not in given:
                    yield from _walk(match, on_problem)
            elif os.path.isfile(match):
                yield match
    else:
        raise UnusableInput("no such file or folder", path=given)


def _walk(folder: str, on_problem: OnProblem) -> Iterator[str]:
    def unreadable(e: OSError) -> None:
        on_problem(
            str(e.filename), Problem("unreadable", f"folder cannot be read: {e.strerror}", "lost")
        )

    for here, dirs, files in os.walk(folder, onerror=unreadable):
        dirs[:] = sorted((d for d in dirs if not d.startswith(".")), key=_natural)
        for name in sorted((f for f in files if not f.startswith(".")), key=_natural):
            path = os.path.join(here, name)
            if os.path.isfile(path):
                yield path
            else:
                on_problem(path, Problem("not_a_file", "a broken link or device; skipped", "info"))


def _natural(name: str) -> tuple[list, str]:
    """Sort key that puts rank2 before rank10."""
    parts: list[tuple[int, int, str]] = []
    run = ""
    for ch in name + "\0":
        if run and ch.isdecimal() != run[-1].isdecimal():
            parts.append((0, int(run), "") if run.isdecimal() else (1, 0, run))
            run = ""
        run += ch
    return parts, name


def _sources_of_file(path: str, named: bool, on_problem: OnProblem) -> Iterator[Source]:
    """The file itself, or the members of the archive it is."""
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as f:
            magic = f.read(4)
    except OSError as e:
        if named:
            raise UnusableInput(f"cannot be read: {e.strerror}", path=path) from e
        on_problem(path, Problem("unreadable", f"cannot be read: {e.strerror}", "lost"))
        return
    if not size:
        if named:
            raise UnusableInput("the file is empty", path=path)
        on_problem(path, Problem("empty_file", "the file is empty; skipped", "warning"))
        return
    if magic in (ZIP, EMPTY_ZIP):
        yield from _zip_members(path, on_problem)
        return
    source = Source(
        name=path,
        size_bytes=size,
        open_stored=_File(path),
        mmap_path=None if magic[:2] == GZIP else Path(path),
        compressed=magic[:2] == GZIP,
    )
    if _is_tar(source.head(1024)):
        yield from _tar_members(source, on_problem)
    else:
        yield source


def _is_tar(head: bytes) -> bool:
    """A tar header stands at the start (its magic, and a checksum that adds up)."""
    if len(head) < 512 or head[257:262] != b"ustar":
        return False
    try:
        stated = int(head[148:156].strip(b"\0 ") or b"0", 8)
    except ValueError:
        return False
    return stated == sum(head[:148]) + 8 * 0x20 + sum(head[156:512])


def _zip_members(path: str, on_problem: OnProblem) -> Iterator[Source]:
    try:
        with zipfile.ZipFile(path) as z:
            infos = [i for i in z.infolist() if not i.is_dir()]
    except (zipfile.BadZipFile, NotImplementedError, OSError) as e:
        raise UnusableInput(f"a zip archive that cannot be read: {e}", path=path) from e
    n = 0
    for info in sorted(infos, key=lambda i: _natural(i.filename)):
        shown = f"{path}!{display(info.filename)}"
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
            yield _member_source(shown, info.compress_size, opened, on_problem)
    if not n:
        raise UnusableInput("nothing in it", path=path)


def _tar_members(archive: Source, on_problem: OnProblem) -> Iterator[Source]:
    """Members of a tar, compressed or not; each is found again by its position when opened."""
    found: list[tuple[str, int, int]] = []
    with archive.open() as f:
        try:
            with tarfile.open(fileobj=f, mode="r|") as tar:
                for member in tar:
                    shown = f"{archive.name}!{display(member.name)}"
                    if member.isdir() or _hidden(member.name):
                        continue
                    if not member.isreg() or member.issparse():
                        on_problem(
                            shown,
                            Problem(
                                "archive_link",
                                "a link or special file in an archive; skipped",
                                "info",
                            ),
                        )
                    elif not member.size:
                        on_problem(
                            shown, Problem("empty_file", "the member is empty; skipped", "warning")
                        )
                    else:
                        found.append((shown, member.offset_data, member.size))
                        # The stream keeps each header it has read; a big archive has many.
                        tar.members = []  # type: ignore[attr-defined]
        except (tarfile.TarError, EOFError, OSError, zlib.error, OverflowError) as e:
            problem = Problem(
                "truncated_archive", f"the archive is cut or damaged: {e}; members before are kept"
            )
            on_problem(archive.name, problem._replace(severity="lost"))
        else:
            defect = stream_defect(f)
            if defect and not getattr(f, "trailing", False):
                on_problem(archive.name, Problem("truncated_archive", defect, "lost"))
    if not found:
        raise UnusableInput("nothing in it", path=archive.name)
    for shown, at, size in sorted(found, key=lambda m: _natural(m[0])):
        yield _member_source(shown, size, _TarMember(archive, at, size), on_problem)


class _Window(io.RawIOBase):
    """The next `size` bytes of a stream."""

    def __init__(self, raw: BinaryIO, size: int):
        super().__init__()
        self._raw = raw
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        chunk = self._raw.read(min(len(view), self._left))
        view[: len(chunk)] = chunk
        self._left -= len(chunk)
        return len(chunk)

    @property
    def cut(self) -> bool:
        """The stream ended inside the window."""
        return self._left > 0 and bool(getattr(self._raw, "cut", False))

    def close(self) -> None:
        self._raw.close()
        super().close()


def _member_source(
    shown: str, stored_bytes: int, opened: Callable[[], BinaryIO], on_problem: OnProblem
) -> Source:
    with opened() as f:
        magic = read_exactly(f, 512)
    if magic[:4] == ZIP or _is_tar(magic):
        on_problem(
            shown,
            Problem(
                "nested_archive", "an archive in an archive is not opened: unpack it first", "lost"
            ),
        )
    return Source(
        name=shown, size_bytes=stored_bytes, open_stored=opened, compressed=magic[:2] == GZIP
    )


def _hidden(member: str) -> bool:
    parts = member.replace("\\", "/").split("/")
    return "__MACOSX" in parts or any(p.startswith(".") and p not in (".", "..") for p in parts)


def display(name: str) -> str:
    """A name from an archive made safe to print: no control characters, bounded length."""
    clean = "".join(c if c.isprintable() else "?" for c in name)
    return clean if len(clean) <= 300 else clean[:150] + "..." + clean[-147:]
