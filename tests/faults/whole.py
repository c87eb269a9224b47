"""The one check of these tests: every row of a job exactly once, and nothing besides."""

import contextlib
import hashlib
import os
import re
from collections import defaultdict

import pyarrow.parquet as pq
from retime.ingest import owners, store, tidying
from retime.ingest.errors import NoSources, WarehouseError
from retime.ingest.keeping.verify import verify
from retime.ingest.manifest import parse_generation, parse_manifest
from retime.ingest.run import ingest
from retime.ingest.schema import TABLES
from retime.ingest.warehouse import Warehouse

Rows = dict[str, dict]
"""table -> rank (None where it has none) -> (rows, digest of them in any order)"""


def rows(snapshot) -> Rows:
    """Counts and digests of all rows of a snapshot, but for the time at which it was made."""
    return {table: _of_table(files) for table, files in snapshot.files.items()}


def _of_table(files):
    by_rank = defaultdict(list)
    for file in files:
        for row in _read(file).to_pylist():
            row.pop("created_at_ns", None)
            if row.get("source"):  # a path: the spool keeps traces under paths of its own
                row["source"] = os.path.basename(row["source"])
            by_rank[row.get("rank")].append(repr(sorted(row.items())))
    return {
        rank: (len(texts), hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16])
        for rank, texts in sorted(by_rank.items(), key=lambda one: str(one[0]))
    }


def _read(file):
    above, _, name = file.rpartition("/")
    return pq.ParquetFile(store.folder(above).open(name)).read()


def undisturbed(folder, paths, job="j", **options) -> Rows:
    """What an ingest gives that nothing disturbs, into a warehouse of its own."""
    warehouse = Warehouse(folder)
    ingest(warehouse, list(map(str, paths)), job=job, workers=1, **options)
    found = rows(warehouse.snapshot(job))
    assert found["events"]
    assert found["collectives"]
    return found


def whole(warehouse, job, expected: Rows, paths=()):
    """Every expected row once in every table, all files as told, and no others.

    `paths` are ingested once more before: they add nothing, and what was left behind is gone.
    """
    warehouse = _opened(warehouse)
    if paths:
        report = ingest(warehouse, list(map(str, paths)), job=job, workers=1)
        assert {s.status for s in report.sources} == {"already"}
    snapshot = warehouse.snapshot(job)
    assert snapshot.problems == []
    found = rows(snapshot)
    for table in TABLES:
        assert found[table] == expected[table], table
    _files(warehouse, job, snapshot, orphans=bool(paths))
    if paths:
        assert [f for f in verify(warehouse, job, deep=True) if f.severity != "info"] == []


def partly(warehouse, job, expected: Rows):
    """Each rank's events are there once or not at all, and derived tables are of those ranks."""
    warehouse = _opened(warehouse)
    try:
        if job not in warehouse.jobs():
            return
    except WarehouseError as e:
        if "no warehouse" not in str(e):
            raise
        return
    try:
        snapshot = warehouse.snapshot(job)
    except NoSources:  # an object store's listing tells a job whose first source is on its way
        assert warehouse.root.local is None
        assert warehouse.manifests(job) == ([], [])
        return
    assert snapshot.problems == []
    found = rows(snapshot)
    ranks = sorted(r for m in snapshot.manifests for r in m.ranks)
    assert len(ranks) == len(set(ranks))
    assert found["events"] == {r: expected["events"][r] for r in ranks}
    assert sorted(found["ranks"]) == ranks
    assert sorted(found["collectives"]) == ranks
    _files(warehouse, job, snapshot)


def _opened(place) -> Warehouse:
    return place if isinstance(place, Warehouse) else Warehouse(place)


def _files(warehouse, job, snapshot, orphans=False):
    folder = store.folder(warehouse.job_folder(job))
    parts = [p for m in (*snapshot.manifests, snapshot.generation) for p in m.parts]
    # Derived apart where the job cannot be written, they lie elsewhere.
    derived = {"/".join(f.rsplit("/", 2)[1:]): f for of in snapshot.files.values() for f in of}
    for part in parts:
        above, _, name = derived.get(part.file, folder.address(part.file)).rpartition("/")
        data = store.folder(above).read(name, 1 << 30)
        assert hashlib.sha256(data).hexdigest() == part.sha256, part.file
        assert len(data) == part.bytes
    assert len({(p.file, p.first) for p in parts}) == len(parts)  # of a pack many share a file
    if orphans:
        assert left_behind(folder) == []


def left_behind(folder) -> list[str]:
    """Files of a job's folder that nothing names.

    In an object store, where nobody holds a lock, what a dead writer left goes after a day.
    """
    if folder.local is None:
        with _a_day_later():
            tidying.remove_orphans(folder)
    entries = folder.entries()
    pruned = entries.get("_pruned.json")
    if pruned:  # files of before stay a day, for those who read them
        entries = {f: e for f, e in entries.items() if e.modified_ns > pruned.modified_ns}
    files = set(entries)
    named = {f for f in files if f.startswith("_manifests/") and f.endswith(".json")}
    for file in sorted(named):
        parse = parse_generation if "/derived-" in file else parse_manifest
        manifest = parse(folder.address(file), folder.read(file, 1 << 30))
        named |= {p.file for p in manifest.parts}
    generations = {f[len("_manifests/derived-") : -5] for f in named if "/derived-" in f}
    named |= {f for f in files if f.startswith("_kept/") and f[6:22] in generations}
    named |= {"_incoming/lock", "_incoming/derive.lock", "_settings.json", "_pruned.json"}
    named.add("_roster.json")
    named |= {f for f in files if re.fullmatch(r"_labels/[0-9]+[.]json", f)}
    return sorted(f for f in files - named if not f.startswith("_sources/"))


@contextlib.contextmanager
def _a_day_later():
    before = owners.ABANDONED_S
    owners.ABANDONED_S = -1.0
    try:
        yield
    finally:
        owners.ABANDONED_S = before
