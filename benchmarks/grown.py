"""A job of many more ranks, grown from one that is in a warehouse: its hosts, again and again.

    python -m benchmarks.grown FROM TO [--job cluster] [--times 16]

Writes into the warehouse TO the job of FROM so many times side by side, as one job: each copy has
ranks, hosts, event ids and communicators of its own, and sources too; but the communicator of all
ranks stays one of all copies, whose collectives tie their clocks. Times are the same. The derived
tables are made as always. 64 ranks of 30 steps (`benchmarks.scale.generate`), 16 times, are
1,024 ranks with 103 million events, in minutes instead of the hour that ingesting them takes.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from retime.ingest import staging
from retime.ingest.keeping import slices
from retime.ingest.manifest import Manifest, Part, part_of_source, source_part
from retime.ingest.roster import Roster
from retime.ingest.schema import TABLES, TEXT
from retime.ingest.store import Folder
from retime.ingest.warehouse import Warehouse
from retime.ingest.writer import ROW_GROUP_ROWS, PartWriter

RANKS = ("rank", "peer_rank", "expert_rank", "peer", "root", "member")
OF_RANKS = ("event_id",)
"""Ids that begin with the rank."""


def grow(
    source: Path, goal: Path, job: str, times: int, copies: Sequence[int] | None = None
) -> None:
    """Makes the job stand in `goal`, without derived tables; `copies` are those to write now."""
    old, new = Warehouse(source), Warehouse(goal)
    folder = new.job_folder(job)
    manifests = [m for m in old.manifests(job)[0] if m.parts]
    by = 1 + max(r for m in manifests for r in m.ranks)
    known = Roster.read(folder)
    with staging.staging(folder) as staged:
        for m in manifests:
            for n in range(times) if copies is None else copies:
                if known.has(_id(m, n)) is not None:
                    continue
                place = staged / f"{m.id[:16]}-{n}"
                place.mkdir()
                made, moves = _copy(old.folder(job), m, n, by, times, place)
                staging.commit(folder, place, moves, made, known)


def _id(m: Manifest, n: int) -> str:
    return m.id if n == 0 else hashlib.sha256(f"{m.id} {n}".encode()).hexdigest()


def _copy(
    of: Folder, m: Manifest, n: int, by: int, times: int, place: Path
) -> tuple[Manifest, list[tuple[str, str]]]:
    sha256 = hashlib.sha256(f"{m.sha256} {n}".encode()).hexdigest()
    id = _id(m, n)
    writer = PartWriter(place)
    opened = slices.of(of)
    world: set[str] = set()
    for part in part_of_source(m, "comms"):
        told = slices.rows(opened, part)
        of_all = told.filter(pc.equal(told["size"], pa.scalar(by, pa.int32())))  # pyright: ignore
        world.update(c for c in of_all["comm"].to_pylist() if c is not None)
    for table in {*m.tables, *m.views}:
        for part in part_of_source(m, table):
            rows = moved(slices.rows(opened, part), n, by, times, world)
            for batch in rows.to_batches(max_chunksize=ROW_GROUP_ROWS):
                writer.write(table, batch)
    tables: dict[str, list[Part]] = {}
    views: dict[str, list[Part]] = {}
    moves = []
    for w in writer.close():
        parts = (views if TABLES[w.table].derived else tables).setdefault(w.table, [])
        parts.append(Part(source_part(w.table, id, len(parts)), w.rows, w.bytes, w.sha256))
        moves.append((w.file, parts[-1].file))
    made = msgspec.structs.replace(
        m, id=id, name=f"{n}/{m.name}", sha256=sha256, ranks=[r + n * by for r in m.ranks],
        world_sizes=[w * times for w in m.world_sizes], tables=tables, views=views,
    )  # fmt: skip
    return made, moves


def moved(rows: pa.Table, n: int, by: int, times: int, world: Collection[str]) -> pa.Table:
    """The rows as the n-th copy has them; `world` are the communicators of all ranks."""
    shared = np.zeros(len(rows), bool)
    if "comm" in rows.column_names:
        shared = np.array([c in world for c in rows["comm"].to_pylist()], bool)
    for name in rows.column_names:
        column = rows[name]
        if name in RANKS:
            column = pc.add(column, pa.scalar(n * by, column.type))  # pyright: ignore
        elif name in OF_RANKS:
            column = pc.add(column, pa.scalar((n * by) << 40, pa.int64()))  # pyright: ignore
        elif name == "world_size":
            column = pc.multiply(column, pa.scalar(times, column.type))  # pyright: ignore
        elif name == "ranks":
            lists = column.combine_chunks()
            values = pc.add(lists.values, pa.scalar(n * by, pa.int32()))  # pyright: ignore
            column = pa.ListArray.from_arrays(lists.offsets, values, mask=lists.is_null())
            everybody = list(range(by * times))
            column = pa.array(
                [everybody if all_ and own is not None else own
                 for own, all_ in zip(column.to_pylist(), shared, strict=True)],
                lists.type,
            )  # fmt: skip
        elif name in ("size", "group_size") and "comm" in rows.column_names:
            more = pc.multiply(column, pa.scalar(times, column.type))  # pyright: ignore
            column = pc.if_else(pa.array(shared), more, column)  # pyright: ignore
        elif name in ("comm", "host", "source") and n:
            texts = column.cast(pa.string()).dictionary_encode().combine_chunks()
            known = texts.dictionary.to_pylist()
            stays = world if name == "comm" else ()
            named = [t if t in stays else _named(name, t, n) for t in known]
            column = pa.DictionaryArray.from_arrays(texts.indices, pa.array(named, pa.string()))
        else:
            continue
        field = rows.schema.field(name)
        rows = rows.set_column(rows.column_names.index(name), field, column.cast(field.type))
    return rows.cast(pa.schema([(f.name, TEXT if f.type == TEXT else f.type) for f in rows.schema]))


def _named(column: str, text: str, n: int) -> str:
    if column == "comm":
        return f"{text}-{n}"
    if column == "source":
        return text if "/" not in text else f"{n}/{text}"
    return re.sub(r"[0-9]+$", lambda d: f"{n:02d}{d[0]}", text)


def main() -> None:
    """Grow it and make its derived tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, metavar="FROM")
    parser.add_argument("goal", type=Path, metavar="TO")
    parser.add_argument("--job", default="cluster")
    parser.add_argument("--times", type=int, default=16)
    args = parser.parse_args()
    grow(args.source, args.goal, args.job, args.times)
    Warehouse(args.goal).snapshot(args.job)


if __name__ == "__main__":
    main()
