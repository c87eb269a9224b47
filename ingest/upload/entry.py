"""An entry of the spool: one file (or folder) that is to reach a warehouse, written down."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from typing import Literal, NamedTuple

import msgspec

from .. import kinds
from ..errors import UsageError

LAYOUT = 1
MOST_ENTRY_BYTES = 64 << 10
"""A larger entry is not read: nothing that was written down is."""

_BLOCK = 1 << 20
_ID = re.compile(r"[0-9a-f]{16}")
_CREDENTIALS = re.compile(
    r"[?&;][^=&;]*(key|secret|token|passw|credential|signature|sas)[^=&;]*=", re.I
)

WRITING, WAITING, FAILED = "writing", "waiting", "failed"


class Look(NamedTuple):
    """What tells without reading whether a file or folder changed: bytes, newest change (ns)."""

    size_bytes: int
    mtime_ns: int


class Entry(msgspec.Struct, frozen=True):
    """What is to go where, and what became of it so far.

    `path` is absolute, or the name of what the spool itself keeps (`stored`). `state` is `writing`
    (its writer is at it, for as long as it holds the claim), `waiting` (tried again from
    `next_try_s` on) or `failed` (another try would end the same). Times are seconds since 1970.
    `sha256` is known of single files that were not delivered at once.
    """

    id: str
    path: str
    stored: bool
    size_bytes: int
    mtime_ns: int
    job: str
    to: str
    host: str
    since_s: float
    sha256: str | None = None
    state: Literal["writing", "waiting", "failed"] = "waiting"
    attempts: int = 0
    error: str = ""
    next_try_s: float = 0.0
    layout: int = LAYOUT

    @property
    def name(self) -> str:
        """The last part of its path."""
        return os.path.basename(self.path)


def entry_id(path: str, job: str, to: str, host: str) -> str:
    """16 hex digits: the same file to the same job of the same warehouse is one entry."""
    return hashlib.sha256("\0".join((host, path, job, to)).encode()).hexdigest()[:16]


def is_id(text: str) -> bool:
    """Whether a text can be an entry's id."""
    return _ID.fullmatch(text) is not None


def encode(entry: Entry) -> bytes:
    """The entry as a small JSON object."""
    return msgspec.json.format(msgspec.json.encode(entry), indent=1) + b"\n"


def decode(data: bytes) -> Entry:
    """The entry of these bytes. Raises ValueError, in words, where they are not one."""
    try:
        entry = msgspec.json.decode(data, type=Entry)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise ValueError(f"not an entry ({e})") from e
    if entry.layout != LAYOUT:
        raise ValueError(f"its layout is {entry.layout}, this version reads {LAYOUT}; upgrade")
    plain = os.path.basename(entry.path) == entry.path and entry.path not in ("", ".", "..")
    if not is_id(entry.id) or "\0" in entry.path or (not plain if entry.stored else
                                                     not os.path.isabs(entry.path)):  # fmt: skip
        raise ValueError("its id or path is not one that an upload writes")
    return entry


def look(path: str) -> Look:
    """Size and newest change of a file, or of all below a folder. Raises OSError."""
    found = os.stat(path)
    if not os.path.isdir(path):
        return Look(found.st_size, found.st_mtime_ns)
    size, newest = 0, 0
    for here, _, files in os.walk(path):
        for name in files:
            one = os.stat(os.path.join(here, name))
            size, newest = size + one.st_size, max(newest, one.st_mtime_ns)
    return Look(size, newest)


def sha256_of(path: str, most_bytes: int | None = None) -> str | None:
    """Hex digest of a file's bytes (of the first of them); None for a folder. Raises OSError."""
    if os.path.isdir(path):
        return None
    digest, left = hashlib.sha256(), most_bytes
    with open(path, "rb") as f:
        while block := f.read(_BLOCK if left is None else min(_BLOCK, left)):
            digest.update(block)
            left = None if left is None else left - len(block)
    return digest.hexdigest()


def here() -> str:
    """This machine's name, for entries by path: another machine may not have the file."""
    return socket.gethostname()[:120]


def check_address(to: str) -> str:
    """A warehouse's address as it is written down: a local one absolute.

    Raises UsageError for one that no warehouse can have, and for one with credentials in it, which
    it does not repeat: addresses are kept in files and logs.
    """
    if not to:
        raise UsageError("where to? --to URL, or RETIME_WAREHOUSE in the environment")
    to = to.removeprefix("file://") if to.startswith("file:///") else to
    kinds.check(to)
    if "://" not in to:
        return os.path.abspath(os.path.expanduser(to))
    scheme, _, rest = to.partition("://")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    # Azure's addresses have a container's name before an @.
    if ":" in user or (at and scheme.lower().startswith("s3")) or _CREDENTIALS.search(rest):
        raise UsageError(
            f"the {scheme[:20]} address has credentials in it: take them out, and give them by the "
            "environment or the files that the store's own tools use (addresses are logged)"
        )
    return to
