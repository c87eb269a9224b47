"""Manifests: what says that a table's files count, and what they hold."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from pathlib import Path

import msgspec

from .. import __version__
from . import regular
from .errors import RetimeError
from .keeping.summary import Summary
from .schema import PARTS, TABLES

LAYOUT = 1
"""Version of the layout that this code reads and writes."""

PACK_LAYOUT = 2
"""Layout of packs, which code that knows only single sources must not read."""

DERIVATION = 11
"""Raised whenever the same sources would give other derived tables."""

_ONCE_PLAIN = "steps"
"""A table that sources had as it stands before it was derived: their manifests stay good."""

MAX_MANIFEST_BYTES = 64 << 20
"""A larger manifest is not read: it is an input like any other."""

_ID = re.compile(r"[0-9a-f]{64}")
_TOKEN = re.compile(r"[0-9a-f]{12}")

UNSET = msgspec.UNSET


class BadManifest(RetimeError):
    """A manifest that cannot be used: its files are left alone and not read."""

    def __init__(self, path: Path | str, what: str):
        super().__init__(f"{path}: {what}")
        self.file = str(path).rpartition("/")[2]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One Parquet file: path inside the job's folder, rows, size in bytes, SHA-256 of its bytes.

    Of a file that several sources share the part has `rows` rows from `first` on; never written.
    """

    file: str
    rows: int
    bytes: int
    sha256: str
    first: int | None = None


PACKED = "packed"
"""Stands where a format would in a manifest of several sources whose rows share files."""


REMARKS = "remarks"
"""Stands where a format would in a manifest without files: it keeps what was odd about inputs
that became no source."""


class Remark(msgspec.Struct, frozen=True):
    """A problem of a place (a file, an archive's member, a folder) that became no source."""

    place: str
    severity: str
    code: str
    message: str
    count: int
    offset: int | None = None


class Packed(msgspec.Struct, frozen=True):
    """A source in a pack, as its own manifest had it; `rows` are its rows in the pack's files.

    Table -> slices: (number of the pack's file of that table, first row there, rows).
    """

    id: str
    name: str
    sha256: str
    size_bytes: int
    format: str
    ranks: list[int]
    world_sizes: list[int]
    problems: dict[str, int]
    tool_version: str
    created_at_ns: int
    rows: dict[str, list[tuple[int, int, int]]]
    remarks: list[Remark] = []


class Manifest(msgspec.Struct, frozen=True):
    """One source file and the parts that hold its rows.

    `tables` holds what is read as it stands; `views` the source's own rows of the derived tables.
    `problems` counts the occurrences by severity. `world_sizes` are those the source states.
    `packed` are the sources of a pack (`keeping.packs`), `pruned` the tables whose rows were
    removed for their age, and when (ns since the epoch). `columns` tells by table which columns
    its files have (`schema.Table.fingerprint`); older versions did not say.
    """

    id: str
    name: str
    sha256: str
    size_bytes: int
    format: str
    ranks: list[int]
    world_sizes: list[int]
    tables: dict[str, list[Part]]
    views: dict[str, list[Part]]
    problems: dict[str, int]
    tool_version: str
    created_at_ns: int
    layout: int = LAYOUT
    remarks: list[Remark] = []
    packed: list[Packed] = []
    pruned: dict[str, int] = {}
    columns: dict[str, str] = {}
    token: str | msgspec.UnsetType = UNSET
    """Of who wrote it into an object store, in the names of its files: no two writers share one.
    Not said on a disk, where files get their names under a lock."""

    @property
    def parts(self) -> list[Part]:
        """Every file of the source."""
        return [p for t in (*self.tables.values(), *self.views.values()) for p in t]

    @property
    def ids(self) -> list[str]:
        """Ids of the sources that it has the rows of."""
        return [p.id for p in self.packed] if self.format == PACKED else [self.id]


class Generation(msgspec.Struct, frozen=True):
    """One making of the derived tables, over exactly the sources whose ids it lists (sorted)."""

    id: str
    sources: list[str]
    tables: dict[str, list[Part]]
    tool_version: str
    created_at_ns: int
    layout: int = LAYOUT
    summary: Summary | None = None
    """the job in one line; None where an older version made it"""
    token: str | msgspec.UnsetType = UNSET
    """As a source's manifest has it."""

    @property
    def parts(self) -> list[Part]:
        """Every file of the generation."""
        return [p for t in self.tables.values() for p in t]


def generation_id(source_ids: list[str], said: str = "") -> str:
    """Id of the derived tables over these sources: 16 hex digits, whatever the order.

    `said` stands for what the user set (`settings.usable`).
    """
    parts = [__version__, str(DERIVATION), *sorted(source_ids), *([said] if said else [])]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def source_manifest_name(source_id: str) -> str:
    """File name of a source's manifest."""
    return f"{source_id[:16]}.json"


_PACK = "pack"
"""Begins the names of packs and of their files, and no digest."""


def pack_manifest_name(pack_id: str) -> str:
    """File name of a pack's manifest."""
    return f"{_PACK}{pack_id[:12]}.json"


def is_pack(manifest_name: str) -> bool:
    """Whether a manifest of this name is a pack's."""
    return manifest_name.startswith(_PACK)


def manifest_name(manifest: Manifest) -> str:
    """File name of a manifest."""
    name = pack_manifest_name if manifest.format == PACKED else source_manifest_name
    return name(manifest.id)


def generation_manifest_name(generation_id: str) -> str:
    """File name of a derived generation's manifest."""
    return f"derived-{generation_id}.json"


def source_part(table: str, source_id: str, n: int, token: str = "") -> str:
    """Path in the job's folder of the n-th file with a source's rows of a table.

    A source's own view of a derived table goes below `_staged`, which hive readers skip.
    """
    room = f"_staged/{table}" if TABLES[table].derived else table
    return f"{room}/{source_id[:16]}{token and '-' + token}-{n:03d}.parquet"


def pack_part(table: str, pack_id: str, n: int, token: str = "") -> str:
    """Path in the job's folder of the n-th file with a pack's rows of a table."""
    return source_part(table, f"{_PACK}{pack_id[:12]}", n, token)


def part_of_source(manifest: Manifest, table: str) -> list[Part]:
    """A source's own parts of a table, whether it is derived by now or not."""
    # Before steps were derived a source's own were a table of their own.
    return (manifest.views if TABLES[table].derived else manifest.tables).get(
        table, manifest.tables.get(table, [])
    )


def generation_part(table: str, generation_id: str, token: str = "") -> str:
    """Path in the job's folder of a derived table's file."""
    return f"{table}/derived-{generation_id}{token and '-' + token}.parquet"


def with_token(manifest: Manifest, token: str) -> tuple[Manifest, dict[str, str]]:
    """The manifest with a writer's token in the names of its files, and their new names by old."""
    names: dict[str, str] = {}
    part = pack_part if manifest.format == PACKED else source_part

    def renamed(of_tables: dict[str, list[Part]]) -> dict[str, list[Part]]:
        out = {}
        for table, parts in of_tables.items():
            goals = [part(table, manifest.id, n, token) for n in range(len(parts))]
            names.update(zip((p.file for p in parts), goals, strict=True))
            out[table] = [
                msgspec.structs.replace(p, file=g) for p, g in zip(parts, goals, strict=True)
            ]
        return out

    tables, views = renamed(manifest.tables), renamed(manifest.views)
    made = msgspec.structs.replace(manifest, tables=tables, views=views, token=token)
    return made, names


def generation_with_token(made: Generation, token: str) -> tuple[Generation, dict[str, str]]:
    """The same of a derived generation."""
    names: dict[str, str] = {}
    tables = {}
    for table, parts in made.tables.items():
        goal = generation_part(table, made.id, token)
        names.update((p.file, goal) for p in parts)
        tables[table] = [msgspec.structs.replace(p, file=goal) for p in parts]
    return msgspec.structs.replace(made, tables=tables, token=token), names


def read_manifest(path: Path) -> Manifest:
    """A source's manifest, checked. Raises BadManifest, or FileNotFoundError where it is gone."""
    return parse_manifest(path, _text(path))


def parse_manifest(path: Path | str, data: bytes) -> Manifest:
    """A source's manifest of these bytes, checked; `path` is its address. Raises BadManifest."""
    return checked_manifest(path, _decoded(path, data, Manifest))


def checked_manifest(path: Path | str, m: Manifest) -> Manifest:
    """The manifest itself, where it belongs at this address. Raises BadManifest."""
    _require_layout(path, m)
    _require(path, _ID.fullmatch(m.id) is not None, "its id is not a digest")
    own = manifest_name(m)
    _require(path, str(path).rpartition("/")[2] == own, "its id is not the one in its name")
    token = _token(path, m)
    part = pack_part if m.format == PACKED else source_part
    for staged, tables in ((False, m.tables), (True, m.views)):
        for table, parts in tables.items():
            once = table == _ONCE_PLAIN and not staged
            known = table in PARTS and TABLES[table].derived == (staged or once)
            _require(path, known, f"it names a table {table[:40]!r} that does not belong there")
            expected = [part(table, m.id, n, token) for n in range(len(parts))]
            expected = [e.removeprefix("_staged/") for e in expected] if once else expected
            _check_parts(path, parts, expected)
    return m


def read_generation(path: Path) -> Generation:
    """A derived generation's manifest, checked. Raises as `read_manifest`."""
    return parse_generation(path, _text(path))


def parse_generation(path: Path | str, data: bytes) -> Generation:
    """A derived generation's manifest of these bytes, checked. Raises BadManifest."""
    g = _decoded(path, data, Generation)
    _require_layout(path, g)
    own = generation_manifest_name(g.id)
    _require(path, str(path).rpartition("/")[2] == own, "its id is not the one in its name")
    _require(path, all(_ID.fullmatch(s) for s in g.sources), "a source's id is not a digest")
    token = _token(path, g)
    for table, parts in g.tables.items():
        derived = table in TABLES and (TABLES[table].derived or table == "problems")
        _require(path, derived, f"it names a table {table[:40]!r} that does not belong there")
        _check_parts(path, parts, [generation_part(table, g.id, token)])
    return g


def _token(path: Path | str, m: Manifest | Generation) -> str:
    token = "" if isinstance(m.token, msgspec.UnsetType) else m.token
    _require(path, not token or _TOKEN.fullmatch(token) is not None, "its token is none")
    return token


def encoded(manifest: Manifest | Generation) -> bytes:
    """What is written of a manifest."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def write_manifest(path: Path, manifest: Manifest | Generation) -> None:
    """Writes a manifest and its bytes to the disk proper. Raises OSError."""
    with open(path, "wb") as f:
        f.write(encoded(manifest))
        f.flush()
        os.fsync(f.fileno())


def _text(path: Path) -> bytes:
    try:
        with regular.opened(path) as f:
            size = os.fstat(f.fileno()).st_size
            _require(path, size <= MAX_MANIFEST_BYTES, f"it has {size} bytes")
            return f.read(MAX_MANIFEST_BYTES)
    except OSError as e:
        if e.errno not in (errno.EINVAL, errno.ELOOP):
            raise
        raise BadManifest(path, "not a file") from e


def _decoded(path: Path | str, data: bytes, kind):
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise BadManifest(path, f"not a manifest ({e})") from e


def _require_layout(path: Path | str, m: Manifest | Generation) -> None:
    reads = PACK_LAYOUT if isinstance(m, Manifest) and m.format == PACKED else LAYOUT
    _require(
        path, m.layout == reads, f"its layout is {m.layout}, this version reads {reads}; upgrade"
    )


def _check_parts(path: Path | str, parts: list[Part], expected: list[str]) -> None:
    # The name is a function of table and id: nothing else is ever opened, whatever the file says.
    _require(path, [p.file for p in parts] == expected, "it names files that are not its own")
    sound = all(p.rows >= 0 and p.bytes >= 0 and p.first is None for p in parts)
    _require(path, sound, "it has a negative size, or a slice")


def _require(path: Path | str, holds: bool, what: str) -> None:
    if not holds:
        raise BadManifest(path, f"a manifest that cannot be used: {what}")
