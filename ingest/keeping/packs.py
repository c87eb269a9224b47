"""Packs: many sources of a job whose rows share files, under one manifest that names each.

A pack is a manifest of format `packed`. Its files hold the sources' rows one after the other; for
each source and table it says which rows of which file are its own. What reads the job gets the
sources as before: `sources` gives their manifests, with parts that are slices of the pack's files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..manifest import PACKED, BadManifest, Manifest, Packed, Part, manifest_name
from ..schema import TABLES

if TYPE_CHECKING:
    from pathlib import Path


def sources(unit: Manifest) -> list[Manifest]:
    """The manifests of a pack's sources, the pack being one that `check` finds sound; or itself."""
    if unit.format != PACKED:
        return [unit]
    files = {**unit.tables, **unit.views}
    return [_source(unit, p, files) for p in unit.packed]


def _source(pack: Manifest, p: Packed, files: dict[str, list[Part]]) -> Manifest:
    tables: dict[str, list[Part]] = {}
    views: dict[str, list[Part]] = {}
    for table, slices in p.rows.items():
        of_it = files[table]
        parts = [
            Part(of_it[n].file, rows, of_it[n].bytes, of_it[n].sha256, first)
            for n, first, rows in slices
        ]
        (views if TABLES[table].derived else tables)[table] = parts
    return Manifest(**own(p), tables=tables, views=views, pruned=pack.pruned, columns=pack.columns)


def own(source: Manifest | Packed) -> dict[str, Any]:
    """What a source's own manifest and a pack say of it alike, as fields of either."""
    return {f: getattr(source, f) for f in Packed.__struct_fields__ if f != "rows"}


def check(place: Path | str, pack: Manifest) -> None:
    """Raises BadManifest unless each row of each file is one source's, and each id there once."""
    if pack.format != PACKED:
        return
    files = {**pack.tables, **pack.views}
    ids = [p.id for p in pack.packed]
    if len(set(ids)) < len(ids) or not ids:
        raise BadManifest(place, "a pack that cannot be used: it names a source twice, or none")
    taken: dict[tuple[str, int], list[tuple[int, int]]] = {
        (table, n): [] for table, parts in files.items() for n in range(len(parts))
    }
    for p in pack.packed:
        for table, slices in p.rows.items():
            for n, first, rows in slices:
                if (table, n) not in taken:
                    raise BadManifest(
                        place, f"a pack that cannot be used: no file {n} of {table!r}"
                    )
                taken[table, n].append((first, rows))
    for (table, n), slices in taken.items():
        at = 0
        for first, rows in sorted(slices):
            if first != at or rows < 1:
                break
            at += rows
        if at != files[table][n].rows:
            raise BadManifest(
                place, f"a pack that cannot be used: its sources' rows are not those of {table}"
            )


def is_sound(unit: Manifest) -> bool:
    """Whether `check` finds nothing wrong with it."""
    try:
        check("", unit)
    except BadManifest:
        return False
    return True


class Standing(NamedTuple):
    """What counts of a job's manifests.

    `units` are packs and single sources as they lie in the folder, `covered` the ids of sources
    that a pack has the rows of, `bad` says what is wrong with others.
    """

    units: list[Manifest]
    covered: set[str]
    bad: list[BadManifest]


class Counted(NamedTuple):
    """The packs that count, the sources in them, and packs that contradict those."""

    units: list[Manifest]
    covered: set[str]
    odd: list[Manifest]


def counted(packs: Iterable[Manifest]) -> Counted:
    """Which packs count: no source twice, and none lost.

    The largest counts first, of equals the one without the rows that were pruned. A pack whose
    sources are all in another is superseded; one that shares only some with others cannot be read
    beside them and is left out whole.
    """
    units: list[Manifest] = []
    covered: set[str] = set()
    odd: list[Manifest] = []
    for pack in sorted(
        packs, key=lambda m: (-len(m.packed), -len(m.pruned), m.created_at_ns, m.id)
    ):
        ids = set(pack.ids)
        if not ids & covered:
            units.append(pack)
            covered |= ids
        elif not ids <= covered:
            odd.append(pack)
    return Counted(units, covered, odd)


def settled(good: list[Manifest], bad: list[BadManifest], folder: str) -> Standing:
    """Which of a job's readable manifests count; `folder` is where they are, `bad` the others.

    A source that no pack that counts has, and that has no manifest of its own any more, is lost
    with the pack that had it.
    """
    packed = [m for m in good if m.format == PACKED]
    found = counted(packed)
    single = [m for m in good if m.format != PACKED and m.id not in found.covered]
    there = found.covered | {m.id for m in single}
    lost = [
        BadManifest(
            f"{folder}/{manifest_name(m)}", "shares sources with another pack, so it is left out"
        )
        for m in found.odd
        if not there.issuperset(m.ids)
    ]
    return Standing([*found.units, *single], found.covered, [*bad, *lost])
