"""Gzip streams inflated in bounded pieces: several members, cuts, damage and bombs are told."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from typing import BinaryIO

from .errors import UnusableInput

GZIP = b"\x1f\x8b"
PADDING = b"\0\r\n "
"""What may follow a member: blocks are filled up with zeros, and editors end a file with a line."""
BLOCK = 1 << 20
IN_BYTES, OUT_BYTES = 64 << 10, 512 << 10
"""What is read and inflated at a time. What a call leaves of its input is copied, so that much of
it costs a third; and memory of more output goes back to the system each time."""

STEP = 1 << 16

MAX_MEMBER_BYTES = 1 << 40
"""A stream that inflates beyond this is refused (1 TiB: no single rank's trace is near it)."""

RATIO_AFTER_BYTES = 64 << 20
MAX_RATIO = 2000
"""Beyond `RATIO_AFTER_BYTES` of output, more than this many bytes out for a byte in is refused.

Deflate cannot exceed 1032 on one level, so only crafted (nested) archives get there.
"""


def check_size(n_in: int, n_out: int, name: str) -> None:
    """Raises UnusableInput where `n_in` stored bytes gave an absurd number of bytes."""
    if n_out > MAX_MEMBER_BYTES or (n_out > RATIO_AFTER_BYTES and n_out > MAX_RATIO * max(n_in, 1)):
        raise UnusableInput(
            f"refused: {n_in} stored bytes gave over {n_out} bytes "
            "(an archive made to fill memory or disk)",
            path=name,
            offset=n_out,
        )


class Gunzip(io.RawIOBase):
    """Decompressed bytes of one or more gzip members in a row, streaming.

    The end of the file before the end of a member ends the stream and sets `cut`; bytes after the
    last member that are neither gzip nor padding end it and set `trailing`. Damage ends
    it and sets `corrupt`; with `reopen`, which gives the stored bytes once more, the bytes just
    before the damage are given too (else up to OUT_BYTES of them are lost). `stored_bytes` is what
    lies on the disk at most, where `raw` inflates itself: each layer alone may be in proportion.
    """

    def __init__(
        self,
        raw: BinaryIO,
        name: str,
        reopen: Callable[[], BinaryIO] | None = None,
        stored_bytes: int = MAX_MEMBER_BYTES,
    ):
        super().__init__()
        self._stored = stored_bytes
        self._raw = raw
        self._name = name
        self._reopen = reopen
        self._in = b""
        self._out = b""
        self._at = 0
        self._eof = False
        self._inflater = _inflater()
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
                rest = (self._inflater.unused_data or b"").lstrip(PADDING)
                while len(rest) < 2 and (more := self._raw.read(IN_BYTES)):
                    self.n_in += len(more)
                    rest = (rest + more).lstrip(PADDING)
                if not rest.startswith(GZIP):
                    self.trailing = bool(rest)
                    self._eof = True
                    break
                self._in = rest
                self._inflater = _inflater()
            elif not self._in:
                self._in = self._raw.read(IN_BYTES)
                self.n_in += len(self._in)
            if not self._in:
                self.cut = self._eof = True
            try:
                # Bounded: crafted input may hold a thousand times its size.
                out = (
                    self._inflater.decompress(self._in, OUT_BYTES)
                    if self._in
                    else self._inflater.flush()
                )
            except Exception as e:  # zlib.error and isal's own error have no common base
                self.corrupt = str(e) or type(e).__name__
                self._eof = True
                out = b"" if self._reopen is None else _before_damage(self._reopen, self.n_out)
                if not out:
                    break
                self.n_out += len(out)
                self._out, self._at = out, 0
                return True
            if self._inflater.eof:
                self._in, self.cut = b"", False
                self._eof = self._eof and not self._inflater.unused_data
            else:
                self._in = self._inflater.unconsumed_tail
            if out:
                self.n_out += len(out)
                check_size(min(self.n_in, self._stored), self.n_out, self._name)
                self._out, self._at = out, 0
                return True
        return False

    def piece(self) -> bytes:
        """The next decompressed bytes as they come, without a copy; none at the end."""
        if self._at == len(self._out) and not self._more():
            return b""
        out = self._out[self._at :]
        self._at = len(self._out)
        return out

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


def _before_damage(reopen: Callable[[], BinaryIO], skip: int) -> bytes:
    """The bytes from `skip` on of a damaged gzip stream, up to the damage.

    In steps that halve where one meets the damage: what zlib had made of it before is lost.
    """
    out: list[bytes] = []
    done, size, step = 0, 0, STEP
    with reopen() as raw:
        inflater = zlib.decompressobj(wbits=31)
        kept = b""
        while size < 2 * OUT_BYTES:
            kept = kept or raw.read(BLOCK)
            if not kept:
                break
            near = done >= skip
            feed = kept[:step] if near else kept
            before = inflater.copy() if near else inflater
            try:
                part = inflater.decompress(feed, step if near else min(OUT_BYTES, skip - done))
            except zlib.error:
                if not near or step == 1:
                    break
                inflater, step = before, step // 2
                continue
            done += len(part)
            if near:
                out.append(part)
                size += len(part)
            kept = (inflater.unused_data or inflater.unconsumed_tail) + kept[len(feed) :]
            if inflater.eof:
                inflater = zlib.decompressobj(wbits=31)
    return b"".join(out)


def _inflater():
    try:
        from isal import isal_zlib

        return isal_zlib.decompressobj(wbits=31)
    except ImportError:
        return zlib.decompressobj(wbits=31)


def stream_defect(stream: BinaryIO) -> str | None:
    """Why a stream ended before its compressed data did; None if it did not."""
    stream = getattr(stream, "hashed", stream)
    if getattr(stream, "corrupt", None):
        return f"the compressed data is damaged ({stream.corrupt})"  # type: ignore[attr-defined]
    if getattr(stream, "cut", False):
        return "the compressed data is cut"
    if getattr(stream, "trailing", False):
        return "bytes that are not gzip follow the compressed data"
    return None


def piece(stream: object) -> bytes:
    """The next bytes of a stream, as many as it has at hand if it has pieces; none at the end."""
    given = getattr(stream, "piece", None)
    return stream.read(OUT_BYTES) if given is None else given()  # type: ignore[attr-defined]


def read_exactly(stream: BinaryIO, n: int) -> bytes:
    """`n` bytes from a stream that may give fewer a read; less only at its end."""
    parts = []
    while n > 0 and (part := stream.read(n)):
        parts.append(part)
        n -= len(part)
    return b"".join(parts)
