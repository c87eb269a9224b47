"""Claims: objects that only one of several writers can make, held for the moment of a commit.

A claim has a term. One whose writer died is taken over when it has been watched unchanged for
that long, so nobody's clock is compared with another's.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from ..errors import StoreBusy, StoreRefused
from .folder import Folder, TooLarge

FOLDER = "_claims"

TERM_S = 60.0
"""So long a claim holds for those who wait; whoever has one for half of that looks again."""

PATIENCE_S = 600.0
"""So long others' claims are waited for, one after another."""

SPREAD_S = 1.0
"""Within so long those who wait for one claim take it over, each at a moment of its own."""

MOST_BYTES = 4096


class Claims:
    """Claims that are held; `check` before what they are held for."""

    def __init__(self, folder: Folder, files: Sequence[str]):
        self._folder = folder
        self._files = list(files)
        self._said = secrets.token_hex(16).encode()
        self._since = 0.0
        self._watched: dict[str, tuple[bytes, float]] = {}

    def check(self) -> None:
        """Raises StoreBusy where the claims have gone to another in the meantime.

        They are not surer for it: others count from when they saw them first. What is done after
        half of their term is to be looked at once more when it is done.
        """
        if time.monotonic() - self._since < TERM_S / 2:
            return
        if any(_read(self._folder, f) != self._said for f in self._files):
            raise StoreBusy(f"{self._folder}: too slow: another writer has taken over; try again")

    def take(self) -> bool:
        """Tries once to have all of them; else has none. What stands for too long is removed."""
        self._since = time.monotonic()
        try:
            with ThreadPoolExecutor(min(16, len(self._files))) as pool:
                got = list(pool.map(self._make, self._files))
        except BaseException:
            self._since = -TERM_S  # what was made of them is looked for
            self.release()
            raise
        if all(got):
            return True
        self._folder.remove([f for f, mine in zip(self._files, got, strict=True) if mine])
        for file, mine in zip(self._files, got, strict=True):
            if not mine:
                self._watch(file)
        return False

    def _make(self, file: str) -> bool:
        try:
            self._folder.put(file, self._said, new=True)
            return True
        except FileExistsError:
            return False

    def _watch(self, file: str) -> None:
        said = _read(self._folder, file)
        if said is None:
            self._watched.pop(file, None)
            return
        known, since = self._watched.get(file, (b"", 0.0))
        if known != said:
            self._watched[file] = (said, time.monotonic())
        elif time.monotonic() - since >= TERM_S:
            # Others may have watched it for as long: not all at the same moment.
            time.sleep(random.uniform(0, SPREAD_S))
            if _read(self._folder, file) == said:
                self._folder.remove([file])
            self._watched.pop(file, None)

    def release(self) -> None:
        """Gives the claims back. One that cannot be removed runs out."""
        with contextlib.suppress(StoreBusy, StoreRefused, OSError):
            late = time.monotonic() - self._since >= TERM_S / 2
            mine = [f for f in self._files if not late or _read(self._folder, f) == self._said]
            self._folder.remove(mine)


@contextlib.contextmanager
def claimed(folder: Folder, names: Sequence[str]) -> Iterator[Claims]:
    """Holds claims of these names in a folder. Raises StoreBusy where others do for too long."""
    claims = Claims(folder, [f"{FOLDER}/{name}" for name in names])
    if not names:
        yield claims
        return
    began, pause = time.monotonic(), 0.02
    while not claims.take():
        if time.monotonic() - began > PATIENCE_S:
            raise StoreBusy(f"{folder}: other writers have been at work for long; try again")
        time.sleep(random.uniform(pause / 2, pause))
        pause = min(2 * pause, 2.0)
    try:
        yield claims
    finally:
        claims.release()


def _read(folder: Folder, file: str) -> bytes | None:
    try:
        return folder.read(file, MOST_BYTES)
    except FileNotFoundError:
        return None
    except TooLarge:
        return b"?"
