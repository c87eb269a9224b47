"""A source: one input as a stream of bytes, with the name, size and digest it is known by."""

from __future__ import annotations

import contextlib
import hashlib
import io
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from .errors import UnusableInput
from .gunzip import BLOCK, Gunzip, read_exactly
from .hashed import Hashed


@dataclass(frozen=True)
class LocalFile:
    """Opens a local file."""

    path: str

    def __call__(self) -> BinaryIO:
        return open(self.path, "rb")


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
    members: tuple[Source, ...] = ()
    """The files of a bundle: a folder (or part of an archive) that is one source. `name` is the
    folder then, `size_bytes` the sum, and there are no bytes of its own to open."""
    _sha256: str | None = field(default=None, repr=False)
    _stored_head: bytes = field(default=b"", repr=False)
    _stored_tail: bytes = field(default=b"", repr=False)

    def know(self, head: bytes, tail: bytes, sha256: str | None) -> None:
        """Gives what a pass over the stored bytes has seen already: both ends and the digest."""
        self._stored_head, self._stored_tail, self._sha256 = head, tail, sha256

    @property
    def sha256(self) -> str:
        """Hex digest of the stored bytes (of the member, for an archive); computed once."""
        if self._sha256 is None:
            digest = hashlib.sha256()
            if self.members:
                for member in sorted(self.members, key=lambda m: m.name):
                    inner = member.name.removeprefix(self.name)
                    digest.update(f"{inner}\n{member.sha256}\n".encode(errors="replace"))
            else:
                with self.open_stored() as f:
                    while block := f.read(BLOCK):
                        digest.update(block)
            self._sha256 = digest.hexdigest()
        return self._sha256

    @contextlib.contextmanager
    def as_file(self) -> Iterator[Path]:
        """A local path with the decompressed bytes, for libraries that open files themselves.

        The file itself where it is plain; else a temporary one, whose name owes nothing to the
        source's, removed at the end. Raises UnusableInput as `open` does, and where that would
        take more than half of what the temporary folder has free.
        """
        if self.mmap_path is not None:
            yield self.mmap_path
            return
        with tempfile.TemporaryDirectory(prefix="retime-") as folder:
            path = Path(folder) / "source"
            most, n = shutil.disk_usage(folder).free // 2, 0
            with self.open() as f, open(path, "wb") as out:
                while block := f.read(BLOCK):
                    n += len(block)
                    if n > most:
                        raise UnusableInput(
                            f"needs more than {most >> 20} MiB in the temporary folder: "
                            "unpack it and give the file itself, or set TMPDIR",
                            path=self.name,
                        )
                    out.write(block)
            yield path

    def open(self) -> BinaryIO:
        """The decompressed bytes, streaming and in bounded memory; the caller closes it.

        A gzip stream that is cut or corrupt ends early: `stream_defect` says why afterwards.
        Raises UnusableInput while reading where the output is out of all proportion.
        """
        return self._inflated(self.open_stored())

    def open_hashed(self, beside: bool = False) -> BinaryIO:
        """As `open`; closed after all was read, `sha256` is known without reading it again.

        With `beside` a thread hashes plain bytes: `Hashed` says how long they have to stay.
        """
        stored = self.open_stored()
        if self._sha256 is None:
            hashed = Hashed(stored, self._know_digest, beside and not self.compressed)
            stored = cast(BinaryIO, hashed)
        return self._inflated(stored)

    def _know_digest(self, sha256: str) -> None:
        self._sha256 = sha256

    def _inflated(self, stored: BinaryIO) -> BinaryIO:
        if not self.compressed:
            return stored
        archive = getattr(self.open_stored, "archive", None)
        on_disk = self.size_bytes if archive is None else min(self.size_bytes, archive.size_bytes)
        return cast(BinaryIO, Gunzip(stored, self.name, self.open_stored, on_disk))

    def head(self, n: int = 65536) -> bytes:
        """The first `n` decompressed bytes (fewer where there are fewer)."""
        if self._stored_head:
            known: BinaryIO = io.BytesIO(self._stored_head)
            if self.compressed:
                known = cast(BinaryIO, Gunzip(known, self.name))
            start = read_exactly(known, n)
            if len(start) == n or len(self._stored_head) == self.size_bytes:
                return start
        with self.open() as f:
            return read_exactly(f, n)

    def tail(self, n: int) -> bytes:
        """About the last `n` decompressed bytes.

        By seeking in a plain file; else what is known of them (which may be less); else by reading
        all of it once.
        """
        if self.mmap_path is not None:
            with open(self.mmap_path, "rb") as f:
                f.seek(max(0, self.size_bytes - n))
                return f.read(n)
        if self._stored_tail and not self.compressed:
            return self._stored_tail[-n:]
        last: deque[bytes] = deque(maxlen=2)
        with self.open() as f:
            while block := read_exactly(f, n):
                last.append(block)
        return b"".join(last)[-n:]
