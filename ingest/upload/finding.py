"""What the given paths hold that is to be sent: each trace by its file, archive or folder."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterable
from typing import NamedTuple

from .. import detect
from ..bundles import bundled
from ..errors import Damaged, UnusableInput
from ..schema import Problem
from ..sources import find_sources, sound
from .entry import Look, look

CLOCKS_S = 2.0
"""Clocks of a file server and of this machine may differ by so much."""


class Found(NamedTuple):
    """A file (an archive, a bundle's folder) to send, and how it looked."""

    path: str
    look: Look


class Finding(NamedTuple):
    """What was found: to send, files that are no traces, and (place, problem) that lost input."""

    found: list[Found]
    others: list[str]
    lost: list[tuple[str, Problem]]


def find(paths: list[str], busy: Iterable[str] = ()) -> Finding:
    """The traces that the paths name, as `ingest` would find them, each once and in its order.

    A file that was named itself is sent, trace or not, and so is a damaged one: what is wrong with
    it is told when it is read. Of those that are written to (`busy`) an empty one is taken for a
    trace to come. Raises UnusableInput where no path gives a file.
    """
    odd: list[tuple[str, Problem]] = []
    named = {os.path.normpath(sound(p)) for p in paths}
    found: dict[str, None] = {}
    others: list[str] = []
    to_come = [f for f in busy if os.path.isfile(f) and not os.path.getsize(f)]
    try:
        sources = bundled(find_sources(paths, lambda place, p: odd.append((place, p))))
    except UnusableInput:
        if not to_come:
            raise
        sources = []
    for source, known in sources:
        path = _on_disk(source.name)
        if path is None:
            what = "its name is not UTF-8, so it cannot be written down: rename it"
            odd.append((source.name, Problem("unusable", what, "lost")))
            continue
        if path in found:
            continue
        if known is None and os.path.normpath(path) not in named:
            try:
                detect.detect(source)
            except Damaged:
                pass
            except UnusableInput:
                others.append(source.name)
                continue
        found[path] = None
    looked = []
    for path in [*found, *to_come]:
        try:
            looked.append(Found(os.path.abspath(path), look(path)))
        except OSError as e:
            odd.append((path, Problem("unreadable", f"cannot be read: {e.strerror}", "lost")))
    return Finding(looked, others, [(place, p) for place, p in odd if p.severity == "lost"])


def _on_disk(name: str) -> str | None:
    """The file of a source's name: itself, or the archive that it is a member of."""
    at = len(name)
    while at >= 0:
        if os.path.exists(name[:at]):
            return name[:at]
        at = name.rfind("!", 0, at)
    return None


def files_below(paths: Iterable[str]) -> list[str]:
    """Every file that the paths name, hidden ones of folders left out, of whatever kind."""
    found: dict[str, None] = {}
    for given in paths:
        matches = [given] if os.path.lexists(given) else sorted(glob.glob(given, recursive=True))
        for match in matches:
            if not os.path.isdir(match):
                found[match] = None
                continue
            for here, dirs, files in os.walk(match):
                dirs[:] = sorted(d for d in dirs if not d.startswith("."))
                for name in sorted(files):
                    if not name.startswith("."):
                        found[os.path.join(here, name)] = None
    return list(found)


class Quiet:
    """Tells whether nobody has written to a file for so many seconds.

    By the file's own time where that is in the past; what changes while it is looked at, or has a
    time to come, has to keep still for so long here.
    """

    def __init__(self, idle_s: float):
        self.idle_s = idle_s
        self._seen: dict[str, tuple[Look, float, float]] = {}

    def is_quiet(self, path: str) -> bool:
        """Whether the file (all below a folder) is still; one that is gone is."""
        if self.idle_s <= 0:
            return True
        try:
            now_is = look(path)
        except OSError:
            self._seen.pop(path, None)
            return True
        now = time.monotonic()
        seen = self._seen.get(path)
        if seen is None or seen[0] != now_is:
            old_s = time.time() - now_is.mtime_ns / 1e9 - CLOCKS_S
            before_s = max(0.0, old_s) if seen is None else 0.0
            self._seen[path] = seen = (now_is, now, before_s)
        return seen[2] + now - seen[1] >= self.idle_s


def wait_quiet(paths: list[str], idle_s: float, most_s: float) -> set[str]:
    """Waits until nobody writes to the files any more; gives those still written to (absolute)."""
    quiet, until = Quiet(idle_s), time.monotonic() + most_s
    while True:
        busy = {f for f in files_below(paths) if not quiet.is_quiet(f)}
        if not busy or time.monotonic() >= until:
            return {os.path.abspath(f) for f in busy}
        time.sleep(min(0.5, max(0.05, idle_s / 4), max(0.0, until - time.monotonic())))
