"""Whether a job's folder holds what it says: manifests against files, and files without a manifest.

Nothing is changed here: `repair` follows what is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .. import counting, labels, owners, rooms, settings
from ..manifest import (
    PACKED,
    BadManifest,
    Generation,
    Manifest,
    Part,
    generation_manifest_name,
    is_pack,
    manifest_name,
    parse_generation,
    parse_manifest,
)
from . import files, manifests, packs, tombstone
from .findings import INFO, LOST, SEVERITIES, WARNING, Finding, command

if TYPE_CHECKING:
    from ..store import Folder
    from ..warehouse import Warehouse

QUARANTINE = "_quarantine"
"""Where a repair sets aside what lies; hive readers skip what begins with an underscore."""

_KNOWN = (
    rooms.MANIFESTS, rooms.INCOMING, rooms.KEPT, QUARANTINE, labels.FOLDER, "_staged",
    settings.FILE, tombstone.FILE, "_shown.json", "_sources", "_claims",
)  # fmt: skip


class Job(NamedTuple):
    """A job's folder while it is looked at, with the bytes of each of its files."""

    id: str
    folder: Folder
    sizes: dict[str, int]
    url: str

    def finding(self, severity: str, code: str, file: str, what: str, do: str = "") -> Finding:
        """A finding about this job."""
        return Finding(self.id, severity, code, file, what, do)

    @property
    def repair(self) -> str:
        """The command that repairs this job."""
        return command("verify", self.id, "--repair", "--warehouse", self.url)

    def again(self, source: Manifest) -> str:
        """What brings back a source that a repair set aside."""
        if source.format == PACKED:
            return f"{self.repair}, then ingest its {len(source.packed)} sources again"
        ingest = command("ingest", source.name, "--job", self.id, "--warehouse", self.url)
        return f"{self.repair}, then {ingest}"


def verify(
    warehouse: Warehouse, job: str, *, deep: bool = False, looked: files.Looked | None = None
) -> list[Finding]:
    """What is to be said of one job, the worst first; with `deep` every byte is read.

    `looked` is called with the bytes of each file that was. Raises WarehouseError where the job
    cannot be listed.
    """
    folder = warehouse.folder(job)
    with rooms.writing(folder.parent):
        one = Job(job, folder, folder.sizes(), str(warehouse.root))
    found = list(dict.fromkeys(_all(warehouse, one, deep, looked)))
    return sorted(found, key=lambda f: (SEVERITIES.index(f.severity), f.code, f.file))


def _all(
    warehouse: Warehouse, job: Job, deep: bool, looked: files.Looked | None
) -> Iterator[Finding]:
    stone = tombstone.read(job.folder)
    yield from _said(job, stone)
    read, named, odd = _manifests(job, stone)
    yield from odd
    standing = counting.standing(job.folder)
    units = {manifest_name(m): m for m in standing.units}
    claims = [_Claim(t, p, m) for m in units.values() for t, p in _parts(m)]
    counted, left_out = counting.readable_manifests(job.folder)
    yield from _left_out(job, left_out, units)
    made = warehouse.generation(job.id, counted) if counted else None
    if counted and made is None:
        yield job.finding(
            INFO, "not_derived", "", "derived tables are not made yet: the first to read it will",
            command("show", job.id, "--warehouse", job.url),
        )  # fmt: skip
    if made is not None:
        claims += [_Claim(t, p, made) for t, of_it in made.tables.items() for p in of_it]
    missing = [
        m for m in read.values() if isinstance(m, Manifest) and manifest_name(m) not in units
    ]
    superseded = standing.covered
    claims += [
        _Claim(t, p, m) for m in missing if not superseded.issuperset(m.ids) for t, p in _parts(m)
    ]
    wrong = files.wrong(
        job.folder, job.sizes, [(c.table, c.part) for c in claims], deep=deep, looked=looked
    )
    for n, what in wrong:
        yield _lie(job, claims[n], what)
    yield from _orphans(job, named)
    yield from _unfinished(job)
    yield from _kept(job)


class _Claim(NamedTuple):
    """What a manifest says of one of its files."""

    table: str
    part: Part
    owner: Manifest | Generation


def _parts(m: Manifest) -> Iterator[tuple[str, Part]]:
    for table, parts in (*m.tables.items(), *m.views.items()):
        for part in parts:
            yield table, part


def _lie(job: Job, claim: _Claim, what: str) -> Finding:
    owner = claim.owner
    if isinstance(owner, Generation):
        said = f"{what} (derived, manifest {generation_manifest_name(owner.id)})"
        return job.finding(WARNING, "derived_damaged", claim.part.file, said, job.repair)
    said = f"{what} (of {owner.name}, manifest {manifest_name(owner)})"
    return job.finding(LOST, "part_damaged", claim.part.file, said, job.again(owner))


def _said(job: Job, stone: tombstone.Tombstone) -> Iterator[Finding]:
    """What is wrong with the job's own small files, and whether it is being pruned."""
    if stone.problem:
        yield job.finding(WARNING, "tombstone_damaged", tombstone.FILE, stone.problem, job.repair)
    elif stone.at_ns:
        yield job.finding(
            INFO, "pruned", tombstone.FILE,
            f"pruned by {stone.author or 'somebody'}; its files go when their readers had time",
            command("prune", job.id, "--grace", "0s", "--yes", "--warehouse", job.url),
        )  # fmt: skip
    for problem in settings.usable(job.folder).problems:
        yield job.finding(WARNING, "settings_damaged", settings.FILE, problem.message, job.repair)
    if said := labels.read(job.folder).problem:
        yield job.finding(WARNING, "labels_damaged", labels.FOLDER, said, job.repair)
    aside = sum(n for f, n in job.sizes.items() if f.startswith(f"{QUARANTINE}/"))
    if aside:
        yield job.finding(
            INFO, "set_aside", QUARANTINE, f"{aside:,} bytes that a repair set aside",
            f"look at it, and remove {job.folder}/{QUARANTINE}",
        )  # fmt: skip
    for file in job.sizes:
        top = file.partition("/")[0]
        if top not in _KNOWN and top not in files.TABLE_FOLDERS:
            yield job.finding(
                INFO, "unknown_file", file, "not a file of a job: nothing here reads it",
                "remove it, if nobody needs it",
            )  # fmt: skip


def _manifests(
    job: Job, stone: tombstone.Tombstone
) -> tuple[dict[str, Manifest | Generation], set[str], list[Finding]]:
    """The readable manifests by name, the files that any manifest names, and what is odd.

    A manifest that cannot be read may name every file that bears its name.
    """
    read: dict[str, Manifest | Generation] = {}
    named: set[str] = set()
    odd: list[Finding] = []
    for file in sorted(job.sizes):
        if not file.startswith(f"{rooms.MANIFESTS}/") or not file.endswith(".json"):
            continue
        name = file.rpartition("/")[2]
        derived = name.startswith(manifests.DERIVED)
        try:
            data = manifests.data(job.folder, name)
            if stone.has(name, data):
                continue
            address = job.folder.address(file)
            found = parse_generation(address, data) if derived else parse_manifest(address, data)
            if isinstance(found, Manifest):
                packs.check(address, found)
            read[name] = found
            named |= {p.file for p in found.parts}
        except FileNotFoundError:
            continue
        except (BadManifest, OSError) as e:
            named |= {f for f in job.sizes if files.stem(f) == name.removesuffix(".json")}
            newer = "upgrade" in str(e)
            odd.append(
                job.finding(
                    WARNING if derived else LOST,
                    "newer_layout" if newer else "manifest_damaged",
                    file,
                    str(e),
                    "pip install --upgrade retime"
                    if newer
                    else job.repair + ("" if derived else ", then ingest its source again"),
                )
            )
    return read, named, odd


def _left_out(
    job: Job, left_out: list[BadManifest], units: dict[str, Manifest]
) -> Iterator[Finding]:
    """Sources that do not count although their files stand: another has one of their ranks."""
    for e in left_out:
        m = units.get(e.file)
        if m is not None:
            yield job.finding(
                LOST, "rank_twice", f"{rooms.MANIFESTS}/{e.file}", str(e),
                f"{job.repair}, then "
                + command("ingest", m.name, "--job", f"{job.id}-2", "--warehouse", job.url),
            )  # fmt: skip
        elif is_pack(e.file) and "shares sources" in str(e):
            yield job.finding(
                LOST, "packs_contradict", f"{rooms.MANIFESTS}/{e.file}", str(e), job.repair
            )


def _orphans(job: Job, named: set[str]) -> Iterator[Finding]:
    entries = job.folder.entries() if tombstone.FILE in job.sizes else {}
    pruned = entries.get(tombstone.FILE)
    for file, size in sorted(job.sizes.items()):
        if pruned and file in entries and entries[file].modified_ns <= pruned.modified_ns:
            continue  # for those who read the job when it was pruned
        top = file.partition("/")[0]
        if top in (rooms.INCOMING, rooms.KEPT, QUARANTINE) or not file.endswith(".parquet"):
            continue
        if file not in named:
            what = f"{size:,} bytes that no manifest names: nothing of retime reads them"
            yield job.finding(WARNING, "orphan", file, what, job.repair)


def _unfinished(job: Job) -> Iterator[Finding]:
    """Work of processes: going on, or left by dead ones."""
    sizes: dict[str, int] = {}
    for file, size in job.sizes.items():
        top, _, rest = file.partition("/")
        if top == rooms.INCOMING and "/" in rest:
            token = rest.partition("/")[0]
            sizes[token] = sizes.get(token, 0) + size
    if job.folder.local is None:
        return
    for token, size in sorted(sizes.items()):
        place = f"{rooms.INCOMING}/{token}"
        if owners.alive(token, job.folder.local / place):
            yield job.finding(INFO, "being_written", place, f"{size:,} bytes so far")
        else:
            what = f"{size:,} bytes of unfinished work that its process left"
            yield job.finding(WARNING, "unfinished", place, what, job.repair)


def _kept(job: Job) -> Iterator[Finding]:
    """Rows that a replay gave: their lists, and files that no list names."""
    from .. import kept

    named: set[str] = set()
    mine = {f: n for f, n in job.sizes.items() if f.startswith(f"{rooms.KEPT}/")}
    for file in sorted(f for f in mine if f.endswith(".json")):
        listed = kept.find(job.folder, file.rpartition("/")[2].removesuffix(".json"))
        parts = [] if listed is None else list(listed.tables.values())
        named |= {file, *(p.file for p in parts)}
        lost = [p.file for p in parts if mine.get(p.file) != p.bytes]
        if listed is None or lost:
            what = "not a list of kept rows" if listed is None else f"{lost[0]} is missing or cut"
            yield job.finding(
                WARNING, "kept_damaged", file, f"{what}: they are computed anew", job.repair
            )
    for file in sorted(set(mine) - named):
        yield job.finding(WARNING, "kept_orphan", file, "kept rows that no list names", job.repair)
