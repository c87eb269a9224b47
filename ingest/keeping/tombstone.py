"""What says that a job was pruned: which manifests count no more, before any of them is removed.

`_pruned.json` names each manifest with the digest of its bytes. One that is written later counts,
even under the same name: the same traces may come again. Whoever read a job's manifests while they
went finds the tombstone afterwards, so nobody takes half a job for a whole one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ..store import Folder

FILE = "_pruned.json"
"""Name in the job's folder; hive readers skip what begins with an underscore."""

MOST_BYTES = 64 << 20
"""A larger file is not read: it is an input like any other."""


class Tombstone(msgspec.Struct, frozen=True):
    """When a job was pruned and by whom, and the SHA-256 of each manifest that it had, by name.

    `parts` are the files that those manifests named, in an object store: there others' uploads for
    manifests still to come lie beside them, and their age alone does not tell them apart.
    `problem` says why it cannot be read, where that is so: then nothing is taken to be pruned.
    """

    at_ns: int = 0
    author: str = ""
    manifests: dict[str, str] = {}
    parts: list[str] = []
    problem: str = ""

    def has(self, name: str, data: bytes) -> bool:
        """Whether a manifest of this name and content was pruned."""
        return self.manifests.get(name) == digest(data)


NONE = Tombstone()


def digest(data: bytes) -> str:
    """What a tombstone knows a manifest by."""
    return hashlib.sha256(data).hexdigest()


def read(job: Folder) -> Tombstone:
    """A job's tombstone; NONE where it has none."""
    place = f"{job}/{FILE}"
    try:
        return msgspec.json.decode(job.read(FILE, MOST_BYTES), type=Tombstone)
    except FileNotFoundError:
        return NONE
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        return Tombstone(problem=f"{place}: not a tombstone ({e}); remove it")
    except OSError as e:
        return Tombstone(problem=f"{place}: cannot be read: {e.strerror or e}")


def write(
    job: Folder, manifests: dict[str, str], author: str, parts: Iterable[str] = ()
) -> Tombstone:
    """Adds manifests (name -> digest) and parts to a job's tombstone; gives it as it then is."""
    old = read(job)
    named = sorted({*old.parts, *parts})
    new = Tombstone(time.time_ns(), author, {**old.manifests, **manifests}, named)
    job.put(FILE, msgspec.json.encode(new))
    return new


def alive(job: Folder, folder: str, names: list[str], stone: Tombstone | None = None) -> list[str]:
    """Those of a job's manifests (`names` in `folder`) that were not pruned."""
    stone = read(job) if stone is None else stone

    def stands(name: str) -> bool:
        if name not in stone.manifests:
            return True
        try:
            return not stone.has(name, job.read(f"{folder}/{name}", MOST_BYTES))
        except OSError:
            return False

    return [n for n in names if stands(n)]
