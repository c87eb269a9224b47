"""A job's folder in an object store as one listing tells it, and its manifests with few requests.

Where a job has many sources, whoever read their manifests one by one writes all of them into one
object below `_sources`, which later readers take in their place: a manifest there counts only
while the one that it was made from still has the tag that the listing gives it.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections import OrderedDict
from typing import NamedTuple

import msgspec

from .errors import WarehouseError
from .keeping import tombstone
from .manifest import (
    LAYOUT,
    MAX_MANIFEST_BYTES,
    BadManifest,
    Generation,
    Manifest,
    checked_manifest,
    generation_manifest_name,
    parse_generation,
    parse_manifest,
)
from .store import Entry, Folder, TooLarge
from .store.reading import know, side_by_side

MANIFESTS = "_manifests"
SOURCES = "_sources"

LISTED_FROM = 32
"""So many manifests that no list has are worth a new one, and an eighth of those that one has."""

MOST_LISTED_BYTES = 256 << 20
_TRIES = 20


class Listed(msgspec.Struct, frozen=True):
    """A manifest, and the tag of the object that it was read from."""

    file: str
    tag: str
    manifest: Manifest


class SourceList(msgspec.Struct, frozen=True):
    """Manifests of many sources of a job in one object."""

    sources: list[Listed]
    layout: int = LAYOUT


class Look(NamedTuple):
    """A job at one moment."""

    entries: dict[str, Entry]
    """all that is in its folder"""
    manifests: dict[str, Manifest | BadManifest]
    """by file name, those of sources"""
    unlisted: int
    """manifests that no list has"""

    def missing(self, of: Manifest | Generation) -> str | None:
        """The first file of a manifest that is not there in its full size."""
        for part in of.parts:
            entry = self.entries.get(part.file)
            if entry is None or entry.bytes != part.bytes:
                return part.file
        return None

    def stands(self, folder: Folder, generation: Generation) -> bool:
        """Whether all files of a generation are there; their sizes are known from then on."""
        if self.missing(generation) is not None:
            return False
        for part in generation.parts:
            know(folder.address(part.file), part.bytes)
        return True


def look(folder: Folder) -> Look:
    """The job as it is now: one listing, and its manifests. Raises StoreBusy, StoreRefused.

    A job that is pruned meanwhile is seen whole or not at all (`keeping.tombstone`).
    """
    for _ in range(_TRIES):
        found = _look(folder)
        if found is not None:
            return found
    raise WarehouseError(f"{folder}: changes faster than it can be read; try again")


def _look(folder: Folder) -> Look | None:
    """The same; None where a manifest went away while others were read."""
    entries = folder.entries()
    stone = tombstone.read(folder) if tombstone.FILE in entries else tombstone.NONE
    names = manifest_names(entries)
    names = tombstone.alive(folder, MANIFESTS, names, stone)
    known = _from_lists(folder, entries, names)
    unlisted = len(names) - len(known)
    for name in names:
        if name not in known and (m := _held(_key(folder, name, entries))) is not None:
            known[name] = m
    singly = [n for n in names if n not in known]
    for name, m in zip(singly, side_by_side(lambda n: read(folder, n), singly, True), strict=True):
        known[name] = m
        if isinstance(m, Manifest):
            _hold(_key(folder, name, entries), m)
    found = {n: m for n in names if (m := known[n]) is not None}
    if len(found) < len(names) or tombstone.read(folder) != stone:
        return None
    for m in found.values():
        for part in m.parts if isinstance(m, Manifest) else ():
            if (entry := entries.get(part.file)) is not None:
                know(folder.address(part.file), entry.bytes)
    return Look(entries, found, unlisted)


HELD = 4096
_manifests: OrderedDict[tuple[str, str], Manifest] = OrderedDict()
"""Those read last, by address and tag: a writer looks at a job several times."""
_lock = threading.Lock()


def _key(folder: Folder, name: str, entries: dict[str, Entry]) -> tuple[str, str]:
    file = f"{MANIFESTS}/{name}"
    return folder.address(file), entries[file].tag


def _held(key: tuple[str, str]) -> Manifest | None:
    with _lock:
        return _manifests.get(key)


def _hold(key: tuple[str, str], manifest: Manifest) -> None:
    with _lock:
        _manifests[key] = manifest
        while len(_manifests) > HELD:
            _manifests.popitem(last=False)


def manifest_names(entries: dict[str, Entry]) -> list[str]:
    """Names of the manifests of sources in a listing."""
    names = [e.removeprefix(f"{MANIFESTS}/") for e in entries if e.startswith(f"{MANIFESTS}/")]
    return sorted(n for n in names if is_source(n))


def is_source(name: str) -> bool:
    """Whether a file among the manifests is a source's."""
    return name.endswith(".json") and not name.startswith("derived-") and "/" not in name


def read(folder: Folder, name: str) -> Manifest | BadManifest | None:
    """A source's manifest, or what is wrong with it; None where it is gone."""
    file = f"{MANIFESTS}/{name}"
    address = folder.address(file)
    try:
        return parse_manifest(address, folder.read(file, MAX_MANIFEST_BYTES))
    except FileNotFoundError:
        return None
    except TooLarge:
        return BadManifest(address, f"it has more than {MAX_MANIFEST_BYTES} bytes")
    except BadManifest as e:
        return e


def read_generation(folder: Folder, id: str) -> Generation | None:
    """A derived generation's manifest; None where it is gone or cannot be used."""
    file = f"{MANIFESTS}/{generation_manifest_name(id)}"
    try:
        return parse_generation(folder.address(file), folder.read(file, MAX_MANIFEST_BYTES))
    except (FileNotFoundError, TooLarge, BadManifest):
        return None


def _from_lists(
    folder: Folder, entries: dict[str, Entry], names: list[str]
) -> dict[str, Manifest | BadManifest | None]:
    """What the newest list of sources knows of manifests that stand as it read them."""
    lists = sorted(
        (e.modified_ns, name)
        for name, e in entries.items()
        if name.startswith(f"{SOURCES}/") and e.bytes <= MOST_LISTED_BYTES
    )
    tags = {n: entries[f"{MANIFESTS}/{n}"].tag for n in names}
    for _, name in lists[:-3:-1]:
        try:
            listed = msgspec.json.decode(folder.read(name, MOST_LISTED_BYTES), type=SourceList)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue  # superseded in this moment, or damaged: the manifests themselves are there
        found: dict[str, Manifest | BadManifest | None] = {}
        for one in listed.sources if listed.layout == LAYOUT else ():
            if one.tag and tags.get(one.file) == one.tag:
                with contextlib.suppress(BadManifest):
                    address = folder.address(f"{MANIFESTS}/{one.file}")
                    found[one.file] = checked_manifest(address, one.manifest)
        return found
    return {}


def write_list(folder: Folder, seen: Look) -> None:
    """Writes the manifests of a look into one object, where that saves later readers requests.

    The lists before go. It is a help and no more: where it cannot be written there is none.
    """
    if seen.unlisted < max(LISTED_FROM, (len(seen.manifests) - seen.unlisted) // 8):
        return
    sources = [
        Listed(name, seen.entries[f"{MANIFESTS}/{name}"].tag, m)
        for name, m in seen.manifests.items()
        if isinstance(m, Manifest)
    ]
    data = msgspec.json.encode(SourceList(sources))
    if len(data) > MOST_LISTED_BYTES:
        return
    with contextlib.suppress(WarehouseError, OSError):
        folder.put(f"{SOURCES}/{secrets.token_hex(8)}.json", data)
        folder.remove([n for n in seen.entries if n.startswith(f"{SOURCES}/")])
