"""The errors a person can act on: what was found, where, and what to do."""

from __future__ import annotations


class RetimeError(Exception):
    """Base of every error that the command line prints as one sentence.

    `exit_code` is the process's: 2 for usage, 3 where nothing usable is left.
    """

    exit_code = 2


class UsageError(RetimeError):
    """The call itself is wrong: an unknown name, a parameter out of range, a clash of ranks."""

    exit_code = 2


class UnusableInput(RetimeError):
    """A source that gives nothing: not a trace, empty, or refused.

    `path` names the file, `offset` the byte (of the decompressed stream) where that is known.
    """

    exit_code = 3

    def __init__(self, message: str, *, path: str | None = None, offset: int | None = None):
        place = "" if path is None else f"{path}: "
        if offset is not None:
            place = f"{path or ''} at byte {offset}: "
        super().__init__(place + message)
        self.path = path
        self.offset = offset


class Damaged(UnusableInput):
    """A source that held something once: cut or corrupt before anything could be read of it."""


class RankUnknown(UnusableInput):
    """Neither the file's content nor its name says which rank wrote it."""

    exit_code = 2


class WarehouseError(RetimeError):
    """The warehouse cannot be read or written as asked (full disk, no rights, no such job)."""

    exit_code = 3


class NoSources(WarehouseError):
    """A job of which nothing can be read: it is not there, or its first source is not in yet."""


class StoreBusy(WarehouseError):
    """An object store that throttles, fails or cannot be reached, after several tries.

    The same call may succeed later: whoever has time may try again.
    """


class StoreRefused(WarehouseError):
    """What no further try would change: refused access, no such bucket, a damaged object."""


def line_of(error: BaseException) -> str:
    """Another library's error for a message: one line, printable and of bounded length."""
    text = " ".join(str(error)[:1000].split())[:160]
    return "".join(c if c.isprintable() else "?" for c in text) or type(error).__name__
