"""Which sources a job has, as far as a writer has to know: what is there already, and whose rank.

A thousand nodes that bring their ranks one after the other must not each read all that came before.
On a disk a job therefore keeps a line of each manifest in one file, `FILE`. A line counts while the
manifest is still the file that it was made of, and tells only where to look: what is said about a
source (it is there, it has that rank) is said of its own manifest, whose files stand.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import msgspec

from . import counting, rooms, store
from .detect import clash_group
from .errors import WarehouseError
from .keeping import packs, tombstone
from .manifest import (
    REMARKS,
    BadManifest,
    Manifest,
    Remark,
    is_pack,
    manifest_name,
    read_manifest,
)
from .store import Folder, Place

FILE = "_roster.json"
"""Name in the job's folder; hive readers skip what begins with an underscore."""

MOST_BYTES = 256 << 20
"""A larger file is not read: it is an input like any other."""

LISTED_FROM = 32
"""So many manifests without a line are worth a new file, and an eighth of those that have one."""


class Line(msgspec.Struct, frozen=True, array_like=True):
    """A manifest, as it was when the file had this `tag`."""

    file: str
    tag: str
    id: str
    name: str
    size_bytes: int
    format: str
    ranks: list[int]


class Lines(msgspec.Struct, frozen=True):
    """What `FILE` holds."""

    lines: list[Line]


class Roster:
    """The sources of a job by id, size and rank; brought up to date by `refresh` and `add`."""

    def __init__(self, place: Place):
        self.folder: Folder = store.folder(place)
        self.bad: list[BadManifest] = []
        """What is wrong with manifests that were looked at."""
        self._files: dict[str, Manifest | Line | None] = {}
        self._unchecked: set[str] = set()
        self._by_id: dict[str, str] = {}
        self._by_rank: dict[tuple[str, int], set[str]] = {}
        self._sizes: set[int] = set()

    @classmethod
    def read(cls, place: Place) -> Roster:
        """What is there now. Raises WarehouseError where the job changes too fast to be read."""
        made = cls(place)
        if made.folder.local is None or not made._from_lines():
            manifests, made.bad = counting.readable_manifests(place)
            for e in made.bad:
                made.put(e.file, None)
            # Of a pack as it lies there, or what `sources` gave of it: either has the ids.
            for m in manifests:
                made.put(manifest_name(m), m)
        return made

    @property
    def files(self) -> set[str]:
        """Names of the manifests that are known, those too that cannot be used."""
        return set(self._files)

    @property
    def sizes(self) -> set[int]:
        """Sizes (bytes) that sources have, and perhaps some more."""
        return self._sizes

    @property
    def names(self) -> set[str]:
        """Names of the sources."""
        return {m.name for m in self._lines() if m.format != REMARKS}

    def remarks(self) -> set[Remark]:
        """What was odd about inputs that became no source."""
        said = [f for f, m in self._files.items() if m is not None and m.format == REMARKS]
        return {r for f in said if (m := self._whole(f)) is not None for r in m.remarks}

    def has(self, id: str) -> Manifest | None:
        """The source of this id, if it is there and its files stand."""
        file = self._by_id.get(id)
        unit = None if file is None else self._whole(file)
        return None if unit is None else next((m for m in packs.sources(unit) if m.id == id), None)

    def standing(self, id: str) -> Manifest | None:
        """The same, unless it is left out for another source of its rank."""
        found = self.has(id)
        if found is None or not self.rivals(found.format, found.ranks, besides=id):
            return found
        manifests, _ = counting.readable_manifests(self.folder)
        return next((m for m in manifests if m.id == id), None)

    def rivals(self, format: str, ranks: list[int], *, besides: str = "") -> list[Manifest]:
        """Sources that exclude one of this format and these ranks, in order of their ids."""
        group = clash_group(format)
        if group is None:
            return []
        files = {f for r in ranks for f in self._by_rank.get((group, r), ())}
        found = [m for f in files if (unit := self._whole(f)) for m in packs.sources(unit)]
        return sorted(
            (
                m
                for m in found
                if m.id != besides
                and clash_group(m.format) == group
                and not set(m.ranks).isdisjoint(ranks)
            ),
            key=lambda m: m.id,
        )

    def refresh(self) -> None:
        """Reads the manifests that came since, and forgets those that went (on a disk)."""
        job_folder = store.on_disk(self.folder)
        names = counting.manifest_names(job_folder)
        for name in names:
            if name not in self._files:
                with contextlib.suppress(FileNotFoundError):
                    self._take(name)
        self.forget_all_but(names)

    def put(self, file: str, unit: Manifest | Line | None) -> None:
        """Takes note of a manifest; None for one that cannot be used."""
        self.drop(file)
        self._files[file] = unit
        for m in [] if unit is None else _sources(unit):
            self._by_id[m.id] = file
            self._sizes.add(m.size_bytes)
            if (group := clash_group(m.format)) is not None:
                for rank in m.ranks:
                    self._by_rank.setdefault((group, rank), set()).add(file)

    def drop(self, file: str) -> None:
        """Forgets a manifest."""
        unit = self._files.pop(file, None)
        self._unchecked.discard(file)
        for m in [] if unit is None else _sources(unit):
            if self._by_id.get(m.id) == file:
                del self._by_id[m.id]
            if (group := clash_group(m.format)) is not None:
                for rank in m.ranks:
                    self._by_rank.get((group, rank), set()).discard(file)

    def forget_all_but(self, names: list[str]) -> None:
        """Forgets manifests that are none of these."""
        for gone in self._files.keys() - set(names):
            self.drop(gone)

    def unit(self, file: str) -> Manifest | None:
        """A manifest as it lies there; None where it cannot be used or its files do not stand."""
        return self._whole(file)

    def _from_lines(self) -> bool:
        """Reads the file of lines and what it has none of; False where that will not do."""
        job_folder = store.on_disk(self.folder)
        tags = {}
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), \
                os.scandir(job_folder / rooms.MANIFESTS) as found:  # fmt: skip
            for entry in found:
                if entry.name.endswith(".json") and not entry.name.startswith("derived-"):
                    with contextlib.suppress(FileNotFoundError):
                        s = entry.stat(follow_symlinks=False)
                        tags[entry.name] = f"{s.st_ino}-{s.st_size}-{s.st_mtime_ns}"
        # Which sources of packs and of a job that was pruned count is not for lines to say.
        if any(map(is_pack, tags)) or self.folder.entry(tombstone.FILE) is not None:
            return False
        lines = {m.file: m for m in self._read_lines() if tags.get(m.file) == m.tag}
        for name in sorted(tags):
            if (line := lines.get(name)) is not None:
                self.put(name, line)
                continue
            with contextlib.suppress(FileNotFoundError):
                self._take(name)
        if len(tags) - len(lines) >= max(LISTED_FROM, len(lines) // 8):
            self._write_lines(tags)
        return True

    def _read_lines(self) -> list[Line]:
        try:
            data = self.folder.read(FILE, MOST_BYTES)
            return msgspec.json.decode(data, type=Lines).lines
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return []  # the manifests themselves are there

    def _write_lines(self, tags: dict[str, str]) -> None:
        lines = [
            Line(name, tags[name], m.id, m.name, m.size_bytes, m.format, m.ranks)
            for name, m in sorted(self._files.items())
            if m is not None
        ]
        with contextlib.suppress(WarehouseError, OSError):  # it is a help and no more
            self.folder.put(FILE, msgspec.json.encode(Lines(lines)))

    def _take(self, name: str) -> None:
        path = store.on_disk(self.folder) / rooms.MANIFESTS / name
        try:
            self.put(name, read_manifest(path))
            self._unchecked.add(name)
        except FileNotFoundError:
            raise
        except OSError as e:
            self._refuse(name, BadManifest(path, f"cannot be read: {e.strerror}"))
        except BadManifest as e:
            self._refuse(name, e)

    def _whole(self, file: str) -> Manifest | None:
        """A manifest whose files stand; on a disk what a line says is looked at."""
        unit = self._files.get(file)
        if isinstance(unit, Line) or file in self._unchecked:
            job_folder = store.on_disk(self.folder)
            try:
                unit = counting.whole(job_folder, job_folder / rooms.MANIFESTS / file)
                self.put(file, unit)
            except FileNotFoundError:
                self.drop(file)
                return None
            except (BadManifest, OSError) as e:
                path = job_folder / rooms.MANIFESTS / file
                bad = e if isinstance(e, BadManifest) else BadManifest(path, f"cannot be read: {e}")
                self._refuse(file, bad)
                return None
        return None if isinstance(unit, Line) else unit

    def _refuse(self, file: str, why: BadManifest) -> None:
        self.bad.append(why)
        self.put(file, None)

    def _lines(self) -> Iterator[Manifest | Line]:
        for unit in self._files.values():
            if unit is not None:
                yield from _sources(unit)


def _sources(unit: Manifest | Line) -> list[Manifest] | list[Line]:
    """A line of a pack names no source: such jobs are read whole."""
    return [unit] if isinstance(unit, Line) else packs.sources(unit)
