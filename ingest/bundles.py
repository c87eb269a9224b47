"""Bundles: files of one folder (or part of an archive) that only together are a source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO, NamedTuple

from .detect import FORMATS, parser
from .source import Source


class NoBytes(NamedTuple):
    """Stands for opening a bundle: it has members, and no bytes of its own."""

    name: str

    def __call__(self) -> BinaryIO:
        raise OSError(f"{self.name} is a folder of files that are read together")


def bundled(
    sources: Iterable[Source], format: str | None = None
) -> list[tuple[Source, str | None]]:
    """The sources, with those that belong together made one; each with its format if that tells.

    A bundle stands where its first member stood. `format` is one that the user forces: then only
    that format's bundles are made.
    """
    asked = [f for f, known in FORMATS.items() if known.bundles and format in (None, f)]
    readers = {f: parser(f) for f in asked}
    out: list[tuple[Source, str | None]] = []
    place: dict[tuple[str, str], int] = {}
    members: dict[int, list[Source]] = {}
    for source in sources:
        claimed = next(
            ((f, folder) for f, r in readers.items() if (folder := r.bundle_of(source.name))), None
        )
        if claimed is None:
            out.append((source, None))
            continue
        if claimed not in place:
            place[claimed] = len(out)
            out.append((source, claimed[0]))
        members.setdefault(place[claimed], []).append(source)
    for (found, folder), at in place.items():
        parts = tuple(members[at])
        whole = Source(
            name=folder,
            size_bytes=sum(p.size_bytes for p in parts),
            open_stored=NoBytes(folder),
            members=parts,
        )
        out[at] = (whole, found)
    return out
