"""What a team says of a job: tags (`cluster=a`) and notes, with who said it and when.

They lie in `_labels/<number>.json`, each file all of them; the highest number counts. A change
writes the next number, only where that is not there yet, so that of two changes at once neither is
lost, and no lock is needed. Labels are apart from settings: no derived table depends on them.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from .errors import UsageError, WarehouseError
from .settings import check_text

if TYPE_CHECKING:
    from .store import Folder

FOLDER = "_labels"
"""Name in the job's folder; hive readers skip what begins with an underscore."""

KEEP = "keep"
"""Jobs with this tag are never pruned."""

MOST_BYTES = 4 << 20
"""A larger file is not read: it is an input like any other."""

MOST_TAGS = 64
MOST_NOTES = 500
LONGEST_VALUE = 1000
LONGEST_NOTE = 8000
LONGEST_AUTHOR = 100
"""Characters."""

KEPT_S = 3600.0
"""So long a file stays after another took its place: somebody may be about to open it, and whoever
is about to write the next number must find it taken."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,63}")
_NUMBERED = re.compile(r"([0-9]{6,15})\.json")
_TRIES = 50


class Tag(msgspec.Struct, frozen=True):
    """A tag's value ("" for one that is only a name), who set it, and when."""

    value: str
    author: str
    at_ns: int


class Note(msgspec.Struct, frozen=True):
    """A note's text, who wrote it, and when."""

    text: str
    author: str
    at_ns: int


class Labels(msgspec.Struct, frozen=True):
    """All that was said of a job. `problem` says why none of it can be read, where that is so."""

    tags: dict[str, Tag] = {}
    notes: list[Note] = []
    problem: str = ""

    @property
    def values(self) -> dict[str, str]:
        """Tag -> value, by name."""
        return {key: self.tags[key].value for key in sorted(self.tags)}


def read(job: Folder) -> Labels:
    """A job's labels; empty where nobody said anything, or what was said is damaged."""
    return _newest(job)[1]


def _newest(job: Folder) -> tuple[int, Labels]:
    """The number and content of the file that counts; (0, nothing) where there is none."""
    number = 0
    for _ in range(_TRIES):
        try:
            number = max(_numbers(job), default=0)
            if not number:
                return 0, Labels()
            text = job.read(_file(number), MOST_BYTES)
        except FileNotFoundError:
            continue  # another change came in between, and removed it
        except OSError as e:
            return number, Labels(problem=f"{job}/{FOLDER}: cannot be read: {e.strerror or e}")
        return number, _decoded(f"{job}/{_file(number)}", text)
    return number, Labels(problem=f"{job}/{FOLDER}: changes faster than it can be read")


def _decoded(place: str, text: bytes) -> Labels:
    wrong = f"{place}: not labels (%s); remove it, and say them anew"
    try:
        found = msgspec.json.decode(text, type=Labels)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        return Labels(problem=wrong % e)
    # What is beyond the bounds was not written here: it is left out, not shown without end.
    tags = {
        k: Tag(t.value[:LONGEST_VALUE], t.author[:LONGEST_AUTHOR], t.at_ns)
        for k, t in sorted(found.tags.items())
        if _KEY.fullmatch(k)
    }
    notes = [
        Note(n.text[:LONGEST_NOTE], n.author[:LONGEST_AUTHOR], n.at_ns)
        for n in found.notes[-MOST_NOTES:]
    ]
    return Labels(dict(list(tags.items())[:MOST_TAGS]), notes)


def tag(
    job: Folder,
    said: Mapping[str, str] | None = None,
    *,
    remove: Iterable[str] = (),
    author: str | None = None,
) -> Labels:
    """Sets and removes tags; gives all labels as they then are.

    Raises UsageError, and changes nothing, for a name or a value that cannot be one and for a tag
    to be removed that there is not; WarehouseError where the job cannot be written.
    """
    said, gone = dict(said or {}), list(remove)
    for key, value in said.items():
        check_key(key)
        check_text(value, f"tag {key}")
        if len(value) > LONGEST_VALUE:
            raise UsageError(f"tag {key}: {len(value)} characters; at most {LONGEST_VALUE}")
    who, now = author_of(author), time.time_ns()

    def change(old: Labels) -> Labels:
        tags = dict(old.tags)
        for key in gone:
            if tags.pop(key, None) is None:
                have = ", ".join(sorted(tags)) or "no tags"
                raise UsageError(f"no tag {key[:80]!r} to remove: the job has {have}")
        tags |= {
            key: Tag(value, who, now)
            for key, value in said.items()
            if key not in tags or tags[key].value != value
        }
        if len(tags) > MOST_TAGS:
            raise UsageError(f"{len(tags)} tags: a job has at most {MOST_TAGS}")
        return msgspec.structs.replace(old, tags=tags)

    return _changed(job, change)


def note(job: Folder, text: str, *, author: str | None = None) -> Labels:
    """Adds a note; gives all labels as they then are.

    Raises UsageError for a text that cannot be one and where there are `MOST_NOTES` already;
    WarehouseError where the job cannot be written.
    """
    check_text(text, "the note")
    if not text.strip():
        raise UsageError("the note is empty")
    if len(text) > LONGEST_NOTE:
        raise UsageError(f"the note has {len(text)} characters; at most {LONGEST_NOTE}")
    new = Note(text, author_of(author), time.time_ns())

    def change(old: Labels) -> Labels:
        if len(old.notes) >= MOST_NOTES:
            raise UsageError(f"the job has {MOST_NOTES} notes, and takes no more: remove some")
        return msgspec.structs.replace(old, notes=[*old.notes, new])

    return _changed(job, change)


def remove_note(job: Folder, number: int) -> Labels:
    """Removes the note of that number, counted from 1; gives all labels as they then are."""

    def change(old: Labels) -> Labels:
        if not 1 <= number <= len(old.notes):
            raise UsageError(f"no note {number}: the job has {len(old.notes)}")
        left = [n for i, n in enumerate(old.notes, 1) if i != number]
        return msgspec.structs.replace(old, notes=left)

    return _changed(job, change)


def parse(words: Iterable[str]) -> dict[str, str]:
    """Tags from words of a command line: `key=value`, or `key` alone. Raises UsageError."""
    said = {}
    for word in words:
        key, _, value = word.partition("=")
        said[check_key(key)] = value
    return said


def check_key(key: str) -> str:
    """The name of a tag itself. Raises UsageError where it cannot be one."""
    if not _KEY.fullmatch(key):
        raise UsageError(
            f"tag {key[:80]!r} is not usable: 1 to 64 letters, digits, '.', '_', '/' and '-', "
            "the first a letter or digit"
        )
    return key


def author_of(author: str | None = None) -> str:
    """Who says it: as given, else $RETIME_AUTHOR, else the user."""
    if author is None:
        author = os.environ.get("RETIME_AUTHOR") or ""
    if not author:
        with contextlib.suppress(OSError, KeyError, ImportError):
            author = getpass.getuser()
    check_text(author, "the author")
    return author[:LONGEST_AUTHOR]


def _changed(job: Folder, change: Callable[[Labels], Labels]) -> Labels:
    try:
        for _ in range(_TRIES):
            number, old = _newest(job)
            if old.problem:
                raise WarehouseError(old.problem)
            new = change(old)
            if new == old:
                return old
            try:
                job.put(_file(number + 1), msgspec.json.encode(new), new=True)
            except FileExistsError:
                continue  # somebody else changed them: what they said stays, too
            _forget_old(job, _file(number + 1))
            return new
    except OSError as e:
        raise WarehouseError(f"{job}/{FOLDER}: cannot be written: {e.strerror or e}") from e
    raise WarehouseError(f"{job}/{FOLDER}: changes faster than it can be written; try again")


def _forget_old(job: Folder, newest: str) -> None:
    entries = job.entries(FOLDER)
    if newest not in entries:
        return
    before = entries[newest].modified_ns - KEPT_S * 1e9
    job.remove([f for f, e in entries.items() if f != newest and e.modified_ns < before])


def _numbers(job: Folder) -> list[int]:
    found = (_NUMBERED.fullmatch(name) for name in job.names(FOLDER))
    return [int(m[1]) for m in found if m]


def _file(number: int) -> str:
    return f"{FOLDER}/{number:06d}.json"
