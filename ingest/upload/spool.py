"""The spool: what is not delivered yet, written down so that no death of a process loses it.

`entries/<id>.json` say what is to go where; `files/<id>/` holds what the spool keeps itself;
`claims/<id>.lock` is locked by who is at an entry, and free again when that process is gone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..errors import UsageError
from . import entry as entries_
from .claims import NO_LOCKS, Claim, lock
from .entry import FAILED, MOST_ENTRY_BYTES, WAITING, WRITING, Entry

MOST_ENTRIES = 10_000
MOST_BYTES = 20 << 30
"""Of files that the spool keeps; $RETIME_SPOOL_BYTES says otherwise."""

FREE_BYTES = 1 << 30
"""So much stays free on the spool's disk: what is kept must not stop a checkpoint."""

UNTOUCHED_S = 600.0
"""Where there are no locks, what is being written is given up after so long without a change."""

_FAR_S = 7200.0
"""No pause is so long: a time to try again that far ahead comes of a clock that was put back."""


class SpoolFull(Exception):
    """The spool's bound would be passed; the message says which and what is the oldest in it."""


def default_folder() -> Path:
    """$RETIME_SPOOL, else a folder of this user's state."""
    named = os.environ.get("RETIME_SPOOL")
    if named:
        return Path(os.path.abspath(os.path.expanduser(named)))
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(os.path.abspath(state)) / "retime" / "spool"


class Spool:
    """A spool in a folder of this user's own, made when first needed."""

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, *, most_bytes: int | None = None
    ):
        """Takes the folder (default: `default_folder`). Raises UsageError where it is no place."""
        self.folder = Path(os.path.abspath(folder)) if folder else default_folder()
        self.most_bytes = _most_bytes() if most_bytes is None else most_bytes
        if os.path.lexists(self.folder):
            self._check()

    def _check(self) -> None:
        try:
            found = os.stat(self.folder)
        except OSError as e:
            raise UsageError(f"spool {self.folder}: {e.strerror}; name another (--spool)") from e
        if not stat.S_ISDIR(found.st_mode):
            raise UsageError(f"spool {self.folder}: not a folder; name another (--spool)")
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise UsageError(
                f"spool {self.folder}: others may write there, and what it says is done; name a "
                "folder of your own, or one below it that is to be made (--spool)"
            )

    def make(self) -> None:
        """Makes the folders. Raises OSError where that cannot be, UsageError where not its own."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._check()
        for name in ("entries", "files", "claims"):
            (self.folder / name).mkdir(exist_ok=True, mode=0o700)
        self._sweep()

    def _sweep(self) -> None:
        """Removes what writers left that died in the middle of an entry, or of its end."""
        stand = set(self.ids())
        partial = [p for p in (self.folder / "entries").glob(".*") if entries_.is_id(p.name[1:17])]
        locks = [p.stem for p in (self.folder / "claims").glob("*.lock")]
        left = [id for id in locks if entries_.is_id(id) and id not in stand]
        for id in {*(p.name[1:17] for p in partial), *left}:
            with contextlib.suppress(OSError):
                claim = self.claim(id)
                if claim is None:
                    continue  # it is being written
                for path in partial if claim.sure else ():
                    if path.name[1:17] == id:
                        path.unlink(missing_ok=True)
                claim.release(not self._entry_path(id).exists())

    # Entries

    def put(self, entry: Entry, *, new: bool = False, durable: bool = True) -> None:
        """Writes an entry down, so that it stands or does not, whatever happens.

        One that is not `durable` stands whatever becomes of processes, but not of the machine.
        Raises OSError where the disk refuses, SpoolFull for a `new` one beyond `MOST_ENTRIES`.
        """
        path = self._entry_path(entry.id)
        if new and not path.exists() and (n := len(self.ids())) >= MOST_ENTRIES:
            raise SpoolFull(f"{n:,} entries wait there already; {self._oldest()}")
        partial = path.with_name(f".{entry.id}.{uuid.uuid4().hex[:8]}")
        try:
            fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as f:
                f.write(entries_.encode(entry))
                f.flush()
                if durable:
                    os.fsync(f.fileno())
            os.replace(partial, path)
            if durable:
                _sync(path.parent)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise

    def ids(self) -> list[str]:
        """Ids of what is written down."""
        try:
            names = os.listdir(self.folder / "entries")
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(n[:-5] for n in names if n.endswith(".json") and entries_.is_id(n[:-5]))

    def get(self, id: str) -> Entry | None:
        """An entry; None where there is none (any more). Raises ValueError where it is damaged."""
        path = self._entry_path(id)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as e:
            raise ValueError(f"{path}: cannot be read: {e.strerror}") from e
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise ValueError(f"{path}: not a file")
        with os.fdopen(fd, "rb") as f:
            data = f.read(MOST_ENTRY_BYTES + 1)
        if len(data) > MOST_ENTRY_BYTES:
            raise ValueError(f"{path}: too large for an entry")
        try:
            entry = entries_.decode(data)
        except ValueError as e:
            raise ValueError(f"{path}: {e}") from e
        if entry.id != id:
            raise ValueError(f"{path}: its id is not the one in its name")
        return entry

    def entries(self) -> tuple[list[Entry], list[str]]:
        """What is written down, the oldest first, and what is wrong with entries that are not."""
        good: list[Entry] = []
        bad: list[str] = []
        for id in self.ids():
            try:
                entry = self.get(id)
            except ValueError as e:
                bad.append(str(e))
                continue
            if entry is not None:
                good.append(entry)
        return sorted(good, key=lambda e: (e.since_s, e.path)), bad

    def due(self, *, all: bool = False) -> list[Entry]:
        """What may be tried now; with `all` everything, also what failed for good."""
        now = time.time()
        found = []
        for e in self.entries()[0]:
            soon = e.next_try_s <= now or e.next_try_s > now + _FAR_S
            if not all and (e.state == FAILED or not soon):
                continue
            if not self.is_elsewhere(e):
                found.append(e)
        return found

    @staticmethod
    def is_elsewhere(entry: Entry) -> bool:
        """Whether its file is on another machine's own disk, and for that one to deliver."""
        by_path = not entry.stored and entry.host != entries_.here()
        return by_path and not os.path.lexists(entry.path)

    def remove(self, entry: Entry) -> None:
        """Forgets an entry, and what the spool keeps of it."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._entry_path(entry.id))
        shutil.rmtree(self.room(entry.id), ignore_errors=True)

    def _entry_path(self, id: str) -> Path:
        return self.folder / "entries" / f"{id}.json"

    def _oldest(self) -> str:
        entries, _ = self.entries()
        if not entries:
            return "none of them can be read"
        first = entries[0]
        since = time.strftime("%Y-%m-%d %H:%M", time.gmtime(first.since_s))
        return (
            f"the oldest since {since} UTC, {first.path} for job {first.job}: deliver "
            "(retime upload --retry) or forget them (retime upload --forget ID)"
        )

    # Files

    def room(self, id: str) -> Path:
        """The folder of what the spool keeps for an entry."""
        return self.folder / "files" / id

    def path_of(self, entry: Entry) -> str:
        """Where an entry's file is."""
        return str(self.room(entry.id) / entry.path) if entry.stored else entry.path

    def bytes_kept(self) -> int:
        """Bytes of the files that the spool keeps itself."""
        total = 0
        for here, _, files in os.walk(self.folder / "files"):
            for name in files:
                with contextlib.suppress(OSError):
                    total += os.lstat(os.path.join(here, name)).st_size
        return total

    def check_room(self, n_bytes: int = 0) -> None:
        """Raises SpoolFull where so many bytes more would pass a bound, OSError where not there."""
        kept = self.bytes_kept()
        if kept + n_bytes > self.most_bytes:
            raise SpoolFull(
                f"{kept >> 20:,} MiB of {self.most_bytes >> 20:,} are kept there; {self._oldest()}"
            )
        if (free := shutil.disk_usage(self.folder).free) < n_bytes + FREE_BYTES:
            raise SpoolFull(f"its disk has {free >> 20:,} MiB free; {self._oldest()}")

    def keep(self, entry: Entry) -> Entry:
        """The entry with its file in the spool: linked where it is the same disk, else copied.

        Raises SpoolFull, OSError; the entry then stands as it was.
        """
        if entry.stored:
            return entry
        room = self.room(entry.id)
        self.check_room(0 if self._same_disk(entry.path) else entry.size_bytes)
        shutil.rmtree(room, ignore_errors=True)
        try:
            if os.path.isdir(entry.path):
                shutil.copytree(entry.path, room / entry.name, copy_function=_link_or_copy)
            else:
                room.mkdir(mode=0o700, parents=True)
                _link_or_copy(entry.path, str(room / entry.name))
            kept = msgspec.structs.replace(entry, path=entry.name, stored=True)
            self.put(kept)
            return kept
        except OSError:
            shutil.rmtree(room, ignore_errors=True)
            raise

    def _same_disk(self, path: str) -> bool:
        return os.stat(path).st_dev == os.stat(self.folder).st_dev

    # Claims

    def claim(self, id: str) -> Claim | None:
        """The claim of an entry, or None where another process has it. Raises OSError."""
        return lock(self.folder / "claims" / f"{id}.lock")

    @contextlib.contextmanager
    def sending(self) -> Iterator[bool]:
        """Whether this process is the spool's sender, for as long as the context lasts."""
        claim = lock(self.folder / "claims" / "sender.lock")
        try:
            yield claim is not None
        finally:
            if claim is not None:
                claim.release(False)

    def take(self, id: str) -> tuple[Entry, Claim] | None:
        """An entry as it stands, and its claim; None where it is another's, gone or damaged.

        What its writer left unfinished when it died is taken as it is.
        """
        claim = self.claim(id)
        if claim is None:
            return None
        try:
            entry = self.get(id)
        except ValueError:
            entry = None
        if entry is None:
            claim.release(not self._entry_path(id).exists())
            return None
        if entry.state == WRITING:
            try:
                seen = entries_.look(self.path_of(entry))
            except OSError:
                seen = entries_.Look(0, 0)
            if not claim.sure and time.time() - seen.mtime_ns / 1e9 < UNTOUCHED_S:
                claim.release(False)
                return None
            entry = msgspec.structs.replace(
                entry, state=WAITING, size_bytes=seen.size_bytes, mtime_ns=seen.mtime_ns
            )
        return entry, claim


def _most_bytes() -> int:
    text = os.environ.get("RETIME_SPOOL_BYTES", "")
    if not text:
        return MOST_BYTES
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise UsageError(f"RETIME_SPOOL_BYTES is a number of bytes, not {text[:40]!r}")
    return int(text)


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target, follow_symlinks=True)
    except OSError:
        shutil.copy2(source, target)
        with open(target, "rb") as f:
            os.fsync(f.fileno())
    return target


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as e:
        if e.errno not in NO_LOCKS:
            raise
    finally:
        os.close(fd)
