"""A job of many ranks in a warehouse: the bundled job's ranks on many hosts, again and again.

Every host is a copy of the bundled job's eight ranks, on a clock of its own and a little late at
random; a rank's events are repeated, later each time, until there are enough. Its collectives are
dealt in turn to a world, a tensor-parallel (the ranks of a host), a data-parallel (a rank of each
host) and an expert-parallel communicator (pairs of hosts); the ones of the last become
all-to-alls. Links, counters, routing, storage reads and an unfinished collective are made up, so
that no view is empty.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from retime import __version__
from retime.ingest import staging
from retime.ingest.derive import derive
from retime.ingest.manifest import Manifest, Part, source_part
from retime.ingest.roster import Roster
from retime.ingest.run import ingest
from retime.ingest.schema import TABLES, event_id
from retime.ingest.stage import source_id
from retime.ingest.warehouse import Warehouse
from retime.ingest.writer import PartWriter

from benchmarks.cluster_surroundings import (
    DEMO_RANKS,
    DIMS,
    Columns,
    comm,
    comms,
    counters,
    routing,
    topology,
    transfers,
)

DEMO = Path(__file__).resolve().parent.parent / "analysis" / "demo_job"
COPY_NS = 235_000_000
"""Longer than what a rank of the bundled job recorded."""
COPY_ID = 10_000_000
COPY_EVENT = 1 << 24
STEPS = 4
LATE_RANK = 13
LATE_NS = 200_000


def make(warehouse: Path, job: str, hosts: int = 8, events: int = 100_000) -> None:
    """Writes a job of `hosts` times 8 ranks with so many events a rank; nothing if it stands."""
    house = Warehouse(warehouse)
    folder = house.job_folder(job)
    world = hosts * DEMO_RANKS
    manifests, _ = house.manifests(job) if folder.exists() else ([], [])
    if len(manifests) == world:
        return
    with tempfile.TemporaryDirectory() as scratch:
        demo = _demo(Path(scratch))
        known = Roster.read(folder)
        with staging.staging(folder) as staged:
            for rank in range(world):
                tables = rank_tables(demo, rank, hosts, events)
                name = f"{job}/rank{rank}.json.gz"
                place = staged / str(rank)
                place.mkdir()
                manifest, moves = _written(place, name, rank, world, tables)
                staging.commit(folder, place, moves, manifest, known)
    derive(folder)


def _demo(scratch: Path) -> list[dict[str, pa.Table]]:
    """For each rank of the bundled job its rows of events, steps, ranks and matched collectives."""
    house = Warehouse(scratch)
    ingest(house, [str(DEMO)], job="demo")
    snapshot = house.snapshot("demo")
    found = []
    whole = pq.read_table(snapshot.files["collectives"][0])
    whole = whole.filter(pc.not_equal(whole["match"], "partial"))  # pyright: ignore
    ids = whole["collective_id"].to_numpy()
    _, first = np.unique(ids, return_index=True)
    place_of = {int(c): n for n, c in enumerate(ids[np.sort(first)])}
    for m in sorted((m for m in snapshot.manifests if m.ranks), key=lambda m: m.ranks):
        its = {
            t: pq.read_table(house.job_folder("demo") / parts[0].file)
            for t, parts in {**m.tables, **m.views}.items()
        }
        own = whole.filter(pc.equal(whole["rank"], m.ranks[0]))  # pyright: ignore
        its["collectives"] = own.append_column(
            "place", pa.array([place_of[c] for c in own["collective_id"].to_pylist()], pa.int64())
        )
        found.append(its)
    return found


def rank_tables(
    demo: list[dict[str, pa.Table]], rank: int, hosts: int, events: int
) -> dict[str, pa.RecordBatch]:
    """The rows of one rank of the large job, by table."""
    host, local = divmod(rank, DEMO_RANKS)
    its = demo[local]
    copies = -(-events // its["events"].num_rows)
    clock = host * 1_300_000
    rng = np.random.default_rng(rank)
    parts = _collectives(its["collectives"], rank, hosts, copies, clock, rng)
    rows = _events(its["events"], rank, copies, clock, parts, events)
    kept = np.isin(parts["event_id"], rows["event_id"])
    last_ns = int((rows["start_ns"] + rows["dur_ns"]).max())
    ended = parts["end_ns"].max()
    parts = {k: v[kept] for k, v in parts.items() if k != "late_ns"}
    steps = _steps(its["steps"], rank, copies, clock)
    n_steps = copies * STEPS
    made = {
        "events": rows,
        "steps": steps,
        "collectives": _with_hang(parts, rank, hosts, ended),
        "ranks": _rank_row(its["ranks"], rank, hosts, int(rows["start_ns"].min()), last_ns),
        "comms": comms(rank, hosts),
        "transfers": transfers(parts, rank, steps, rng),
        "routing": routing(rank, hosts * DEMO_RANKS, n_steps, rng),
        "counters": counters(rank, int(rows["start_ns"].min()), last_ns, rng),
        "topology": topology(rank),
        "progress": {
            "rank": [rank], "comm": [comm("world", rank, hosts)[0]], "last_enqueued": [10**6],
            "last_started": [10**6], "last_completed": [10**6 - 1], "source": ["flight-recorder"],
        },
    }  # fmt: skip
    return {
        t: TABLES[t].batch({c: _values(v) for c, v in columns.items()})
        for t, columns in made.items()
    }


def _values(column: Any) -> Any:
    """Texts and lists as Python's own: Arrow makes no dictionaries of numpy's."""
    plain = isinstance(column, np.ndarray) and column.dtype.kind in "OU"
    return column.tolist() if plain else column


def _plain(table: pa.Table) -> Columns:
    """Columns as numpy arrays, those with nulls and texts as objects."""
    out: Columns = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        numbers = pa.types.is_integer(column.type) and not column.null_count
        out[name] = (
            column.to_numpy()
            if numbers
            else np.array([*column.to_pylist(), None], dtype=object)[:-1]
        )
    return out


def _tiled(column: pa.Array, copies: int, by: int) -> pa.Array:
    """The integers again and again, `by` more each time; nulls stay."""
    more = np.repeat(np.arange(copies, dtype=np.int64) * by, len(column))
    tiled = pa.concat_arrays([column] * copies)
    return pc.add(tiled, pa.array(more).cast(tiled.type))  # pyright: ignore


def _events(
    table: pa.Table, rank: int, copies: int, clock: int, parts: Columns, events: int
) -> Columns:
    table = table.combine_chunks()
    n = table.num_rows * copies
    out: Columns = {
        c: pa.concat_arrays([table[c].combine_chunks()] * copies) for c in table.column_names
    }
    for column, by in (("correlation", COPY_ID), ("external_id", COPY_ID),
                       ("wait_correlation", COPY_ID), ("step", STEPS)):  # fmt: skip
        out[column] = _tiled(table[column].combine_chunks(), copies, by)
    own = table["event_id"].to_numpy() & ((1 << 40) - 1)
    shift = np.repeat(np.arange(copies, dtype=np.int64), len(own))
    ids = (rank << 40) + np.tile(own, copies) + shift * COPY_EVENT
    start = np.tile(table["start_ns"].to_numpy(), copies) + shift * COPY_NS + clock
    dur = np.tile(table["dur_ns"].fill_null(0).to_numpy(), copies)
    by_id = np.argsort(ids)
    at = by_id[np.searchsorted(ids[by_id], parts["event_id"])]
    start[at] = parts["start_ns"]
    dur[at] = parts["end_ns"] - parts["start_ns"]
    names = out["name"].cast(pa.string())
    exchanged = np.zeros(n, bool)
    exchanged[at[parts["op"] == "all_to_all"]] = True
    names = pc.if_else(pa.array(exchanged), "ncclDevKernel_SendRecv(ncclDevKernelArgs)", names)  # pyright: ignore
    order = np.argsort(start, kind="stable")[: events - _loads(copies)]
    out = {c: v.take(pa.array(order)) for c, v in out.items()}
    out["rank"] = np.full(len(order), rank, np.int32)
    out["name"] = names.take(pa.array(order))
    out["event_id"], out["start_ns"], out["dur_ns"] = ids[order], start[order], dur[order]
    return _with_loading(out, rank, copies)


def _loads(copies: int) -> int:
    return copies * STEPS


def _with_loading(rows: Columns, rank: int, copies: int) -> Columns:
    """One data loader's range at the start of each step; every seventh is long."""
    kinds = rows["kind"].cast(pa.string()).to_numpy(zero_copy_only=False)
    begun = np.flatnonzero(
        (kinds == "annotation") & pc.starts_with(rows["name"], "ProfilerStep").to_numpy(False)  # pyright: ignore
    )[: _loads(copies)]
    thread = rows["thread"].take(pa.array(begun)).to_pylist()
    step = rows["step"].take(pa.array(begun)).to_pylist()
    n = len(begun)
    dur = np.where((np.arange(n) + rank) % 7 == 0, 6_000_000, 300_000)
    more = TABLES["events"].batch(
        {
            "rank": [rank] * n,
            "event_id": [(rank << 40) + (1 << 38) + i for i in range(n)],
            "kind": ["annotation"] * n,
            "name": ["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"] * n,
            "thread": thread,
            "start_ns": rows["start_ns"][begun] + 1000,
            "dur_ns": dur,
            "step": step,
        }
    )
    both = pa.Table.from_batches([TABLES["events"].batch(rows), more]).unify_dictionaries()
    both = both.combine_chunks()
    order = np.argsort(both["start_ns"].to_numpy(), kind="stable")
    both = both.take(pa.array(order)).combine_chunks()
    out: Columns = {c: both[c].combine_chunks() for c in both.column_names}
    for c in ("event_id", "start_ns", "dur_ns"):
        out[c] = out[c].to_numpy()
    return out


def _collectives(
    table: pa.Table, rank: int, hosts: int, copies: int, clock: int, rng: np.random.Generator
) -> Columns:
    its = _plain(table)
    n = len(its["place"])
    copy = np.repeat(np.arange(copies, dtype=np.int64), n)
    place = np.tile(its["place"], copies)
    mine = [comm(d, rank, hosts) for d in DIMS]
    dim = place % len(DIMS)
    start = np.tile(its["start_ns"], copies) + copy * COPY_NS + clock
    end = np.tile(its["end_ns"], copies) + copy * COPY_NS + clock
    late = rng.exponential(20_000, len(start)).astype(np.int64)
    late += LATE_NS * (rank == LATE_RANK)
    start = start + np.minimum(late, (end - start) // 2)
    end = end - np.minimum(rng.integers(0, 1500, len(end)), (end - start) // 2)
    size = np.array([len(m) for _, m in mine])[dim]
    op = np.where(dim == 3, "all_to_all", np.tile(its["op"], copies).astype(str))
    inputs = np.array([v or 1 << 20 for v in its["in_bytes"]], dtype=np.int64)
    inputs = np.tile(inputs, copies)
    outputs = np.where(op == "all_gather", inputs * size, inputs)
    splits = [
        rng.multinomial(4096, np.full(s, 1 / s)).tolist() if d == 3 else None
        for s, d in zip(size, dim, strict=True)
    ]
    step = np.array([-1 if s is None else s for s in its["step"]], dtype=np.int64)
    step = np.tile(step, copies)
    moved = np.where(step < 0, -1, step + copy * STEPS)
    return {
        "comm": np.array([c for c, _ in mine], dtype=object)[dim],
        "seq": copy * (int(its["place"].max()) + 1) + place,
        "rank": np.full(len(start), rank, np.int32),
        "op": op,
        "dtype": np.tile(its["dtype"], copies),
        "in_bytes": inputs,
        "out_bytes": outputs,
        "group_size": size,
        "in_splits": np.array([*splits, None], dtype=object)[:-1],
        "out_splits": np.array([*splits, None], dtype=object)[:-1],
        "channels": np.tile(its["channels"], copies),
        "start_ns": start,
        "end_ns": end,
        "stream": np.tile(its["stream"], copies),
        "step": np.array([None if s < 0 else int(s) for s in moved], dtype=object),
        "event_id": (rank << 40)
        + (np.tile(its["event_id"], copies) & ((1 << 40) - 1))
        + copy * COPY_EVENT,
        "source": np.array(["kineto"] * len(start), dtype=object),
        "late_ns": late,
    }


def _with_hang(parts: Columns, rank: int, hosts: int, ended: int) -> Columns:
    """With one more operation on the world that the late rank never enters, as dumps tell it."""
    if rank == LATE_RANK:
        return parts
    more: Columns = {
        "comm": comm("world", rank, hosts)[0], "seq": 10**6, "rank": rank, "op": "all_reduce",
        "dtype": "float32", "in_bytes": 1 << 20, "out_bytes": 1 << 20,
        "group_size": hosts * DEMO_RANKS, "state": "started", "enqueued_ns": int(ended) + 10**6,
        "source": "flight-recorder", "event_id": event_id(rank, "flight-recorder", 1),
    }  # fmt: skip
    pair = {**more, "op": "send" if rank % 2 else "recv", "peer": rank ^ 1, "seq": 10**6 + 1,
            "event_id": event_id(rank, "flight-recorder", 2)}  # fmt: skip
    return {
        c: [*parts.get(c, [None] * len(parts["rank"])), more.get(c), pair.get(c)]
        for c in {*parts, *more, "peer"}
    }


def _steps(table: pa.Table, rank: int, copies: int, clock: int) -> Columns:
    out: Columns = {}
    for c in ("start_ns", "end_ns", "host_start_ns", "host_end_ns"):
        out[c] = pc.add(_tiled(table[c].combine_chunks(), copies, COPY_NS), clock)  # pyright: ignore
    out["step"] = _tiled(table["step"].combine_chunks(), copies, STEPS)
    out["rank"] = np.full(len(out["step"]), rank, np.int32)
    out["found_by"] = ["annotation"] * len(out["step"])
    return out


def _rank_row(table: pa.Table, rank: int, hosts: int, start_ns: int, end_ns: int) -> Columns:
    host, local = divmod(rank, DEMO_RANKS)
    row = {c: [v] for c, v in table.to_pylist()[0].items()}
    return row | {
        "rank": [rank], "host": [f"node{host}"], "host_source": ["recorded"],
        "local_rank": [local], "device": [local], "rail": [local], "dp_rank": [host],
        "world_size": [hosts * DEMO_RANKS], "start_ns": [start_ns], "end_ns": [end_ns],
        "source": [f"rank{rank}.json.gz"],
    }  # fmt: skip


def _written(
    place: Path, name: str, rank: int, world: int, tables: dict[str, pa.RecordBatch]
) -> tuple[Manifest, list[tuple[str, str]]]:
    """Parquet of the tables in `place`, and the manifest of the source that they stand for."""
    writer = PartWriter(place)
    for table, batch in tables.items():
        writer.write(table, batch)
    written = writer.close()
    sha256 = hashlib.sha256(name.encode()).hexdigest()
    identity = source_id(sha256, "kineto")
    kept: dict[str, list[Part]] = {}
    views: dict[str, list[Part]] = {}
    moves = []
    for w in written:
        parts = (views if TABLES[w.table].derived else kept).setdefault(w.table, [])
        goal = source_part(w.table, identity, len(parts))
        parts.append(Part(goal, w.rows, w.bytes, w.sha256))
        moves.append((w.file, goal))
    manifest = Manifest(
        id=identity, name=name, sha256=sha256, size_bytes=0, format="kineto", ranks=[rank],
        world_sizes=[world], tables=kept, views=views, problems={}, tool_version=__version__,
        created_at_ns=time.time_ns(),
    )  # fmt: skip
    return manifest, moves
