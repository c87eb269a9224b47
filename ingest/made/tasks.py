"""The tasks of a job's ranks and the edges among them: what its graph is put together from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ..errors import WarehouseError
from ..manifest import Manifest
from ..schema import TABLES, TEXT
from ..tasks import stored
from ..writer import FILE_ROWS, ROW_GROUP_ROWS, PartWriter

if TYPE_CHECKING:
    import polars as pl

    from ..tasks.collectives import Participations
    from ..tasks.piece import Piece

ALL = {stored.TASKS, stored.EDGES, stored.PARTS, stored.WORDS}
"""The tables: all of them are there, or none."""

LEAST_EVENTS = 100_000
"""Of fewer a graph is made as soon as what makes it is imported, which deriving is spared."""

LEAST_RANKS = 2
"""Of a single one the graph is made of its events about as fast."""

MOST_EVENTS = 1 << 18
"""Of ranks that are in one file, or in files that share some: with more the graph is made of
events, for what making tasks takes grows with them."""

SHARE_EVENTS = 1 << 15
"""Of ranks that are looked at together, but where one has more."""

MOST_PARTICIPATIONS = 4_000_000
"""Of a job: they are all held at a time."""


def write(
    writer: PartWriter,
    address: Callable[[str], str],
    manifests: Sequence[Manifest],
    tables: Mapping[str, pa.Table],
) -> bool:
    """Writes the tasks of all ranks, rank by rank; gives whether they are there to be used.

    `address` of a file of the job. What is out of the ordinary is left to who makes the graph.
    """
    parts = [p for m in manifests for p in m.tables.get("events", [])]
    if (
        any("events" in m.pruned or _is_recorded(m) for m in manifests)
        or sum(p.rows for p in parts) < LEAST_EVENTS
        or len({r for m in manifests for r in m.ranks}) < LEAST_RANKS
        or max((p.rows for p in parts), default=0) > MOST_EVENTS
        or len(tables["collectives"]) > MOST_PARTICIPATIONS
    ):
        return False
    files = list(dict.fromkeys(p.file for p in parts))
    try:
        return of_files(writer, [address(f) for f in files], sum(p.rows for p in parts), tables)
    except (pa.ArrowException, OSError, ValueError, WarehouseError):
        return False  # a damaged file, of which whoever asks for its graph is told


def of_files(
    writer: PartWriter, files: Sequence[str], events: int, tables: Mapping[str, pa.Table]
) -> bool:
    """`write` of the job whose events, so many, are in these files."""
    from ..tasks import said, shares
    from ..tasks.collectives import collectives
    from ..tasks.events import Words
    from ..tasks.job import Job
    from ..tasks.names import OpNames
    from ..tasks.tables import aligned, timed

    of_ranks = shares.of_files(files, {}, SHARE_EVENTS)
    # Of a file that several sources share some rows may be those of a source that is gone.
    if sum(s.rows for s in of_ranks) != events or max(s.rows for s in of_ranks) > MOST_EVENTS:
        return False
    frames = {name: _frame(tables[name]) for name in ("ranks", "steps", "comms", "collectives")}
    frames["collectives"] = frames["collectives"].filter(timed())
    small = aligned(frames)
    ops, words = OpNames(), Words()
    all_ = collectives(small.collectives, small.comms, ops)
    job = Job(small, all_, words)
    known = _Known(words)
    unmatched, handed_over, inferred = 0, False, False
    rows: Counter[str] = Counter()
    for share in of_ranks:
        piece = job.piece(share)
        unmatched += piece.unmatched
        handed_over |= piece.handed_over
        inferred |= piece.inferred
        for table, batch in _of_piece(piece, all_.parts, known):
            writer.write(table, batch)
            rows[table] += len(batch)
        if max(rows.values(), default=0) > FILE_ROWS:  # one file a table is what a job has
            return False
    further = all_.parts.take(all_.also_row)
    writer.write(stored.PARTS, _participations(further, all_.also_instance))
    texts = [
        (stored.NAME, known.names),
        (stored.OP, list(ops.known)),
        (stored.COMM, all_.comm_names),
        (stored.WARNING, said.of_job(job, unmatched)),
        (stored.ASSUMPTION, said.assumptions(handed_over, inferred)),
    ]
    writer.write(stored.WORDS, _words(texts, known))
    return True


def _is_recorded(m: Manifest) -> bool:
    """Whether a source has operations that were recorded: their graph is another one."""
    return any(word in one.format for word in ("recorded", "straggler") for one in (m, *m.packed))


def _frame(table: pa.Table) -> pl.DataFrame:
    import polars as pl

    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


class _Known:
    """Names and shapes that tasks had so far, numbered as they came."""

    def __init__(self, words):
        self._words = words
        self._number = np.empty(0, np.int32)
        self.names: list[str] = []
        self.first: dict[int, None] = {}
        """Of names those of host segments and marks, in the order of ranks."""
        self.shapes: dict[tuple[int, int], int] = {}

    def numbers(self, code: np.ndarray) -> np.ndarray:
        """The numbers (int32) of names by their codes in the job's words; -1 stays."""
        texts = self._words.texts
        if len(self._number) <= len(texts):
            more = np.full(len(texts) + 1 - len(self._number), -1, np.int32)
            self._number = np.concatenate([self._number[: len(self._number)], more])
        of = self._number
        of[len(texts)] = -1
        for one in _as_they_come(code[of[code] < 0]):
            if one >= 0:
                of[one] = len(self.names)
                self.names.append(texts[one])
        return of[code]

    def shape_numbers(self, shapes: np.ndarray) -> np.ndarray:
        """The numbers (int32) of shapes, int64 [2, n]."""
        known = self.shapes
        return np.array(
            [known.setdefault((a, b), len(known)) for a, b in shapes.T.tolist()], np.int32
        )


def _of_piece(piece: Piece, parts: Participations, known: _Known):
    """Table and rows: the tasks of a piece by rank, then start; their edges; participations."""
    columns = _columns(piece, known)
    order = _by_rank_and_start(piece.place(columns["rank"]), columns["start_ns"], len(piece.ranks))
    place = np.empty(piece.n, np.int64)
    place[order] = np.arange(piece.n)
    src, dst = piece.taken_edges()
    inside = np.flatnonzero(src >= 0)  # the rest are those from joins into transfers
    src, dst = place[src[inside]], place[dst[inside]]
    by_dst = np.lexsort((src, dst))
    columns = {name: values[order] for name, values in columns.items()}
    columns["event_id"] = _as_before(columns["event_id"], columns["what"] > stored.LAST_ACTIVITY)
    columns["preds"] = np.bincount(dst, minlength=piece.n)
    yield from _batches(stored.TASKS, columns)
    yield from _batches(stored.EDGES, {"back": (dst - src)[by_dst]})
    arrive = order[columns["what"] == stored.ARRIVE]
    its = parts.take(piece.rows[arrive])
    yield stored.PARTS, _participations(its, its.instance)


def _as_before(values: np.ndarray, of_none: np.ndarray) -> np.ndarray:
    """The values, where there are none those of the row before: so they grow in small steps."""
    row = np.where(of_none, 0, np.arange(len(values)))
    return values[np.maximum.accumulate(row)]


def _by_rank_and_start(rank: np.ndarray, start_ns: np.ndarray, ranks: int) -> np.ndarray:
    from ..tasks.rows import by_time, grouped

    order, first = grouped(rank, ranks)
    return order[by_time(first, start_ns[order])]


def _columns(piece: Piece, known: _Known) -> dict[str, np.ndarray]:
    """The columns of a piece's tasks as it numbers them."""
    n = piece.n
    whole = {
        name: _column(piece, name, n)
        for name in ("rank", "step", "start_ns", "end_ns", "event_id", "bytes")
    }
    what, op, detail = np.empty(n, np.int32), np.full(n, -1, np.int32), np.zeros(n, np.int32)
    for name, block in piece.blocks.items():
        its = slice(block.base, block.base + block.n)
        what[its] = _what(name, block.columns)
        if name in ("arrive", "transfer"):
            detail[its] = block.columns["shape"]
            continue
        codes = np.broadcast_to(block.columns["op"], block.n)
        op[its] = known.numbers(codes)
        if name == "activity":
            detail[its] = known.shape_numbers(piece.shapes)[block.columns["shape"]]
        else:
            known.first |= dict.fromkeys(_as_they_come(op[its]))
        if name == "cut":
            detail[its] = block.columns["thread"]
        elif name == "begins":
            whole["bytes"][its] = block.columns["ends"]
    end_ns = whole.pop("end_ns")
    dur_ns = end_ns - whole["start_ns"]
    return whole | {"what": what, "op": op, "detail": detail, "dur_ns": dur_ns}


def _column(piece: Piece, name: str, n: int) -> np.ndarray:
    from ..tasks.piece import COLUMNS, EXTRA

    dtype, default = (COLUMNS | EXTRA)[name]
    out = np.empty(n, dtype)
    for block in piece.blocks.values():
        out[block.base : block.base + block.n] = block.columns.get(name, default)
    return out


def _what(block: str, columns: Mapping[str, np.ndarray]) -> np.ndarray | int:
    places = [i for i, w in enumerate(stored.WHAT) if w.block == block]
    if len(places) == 1:
        return places[0]
    by = "pin" if block == "cut" else "kind"
    table = np.zeros(1 + max(int(getattr(stored.WHAT[i], by)) for i in places), np.int32)
    for i in places:
        table[int(getattr(stored.WHAT[i], by))] = i
    return table[columns[by]]


def _as_they_come(codes: np.ndarray) -> list[int]:
    found, first = np.unique(codes, return_index=True)
    return found[np.argsort(first)].tolist()


def _participations(parts: Participations, collective: np.ndarray) -> pa.RecordBatch:
    columns = {
        "row": parts.row,
        "op": parts.op,
        "comm": parts.comm,
        "collective": collective,
        "bytes": parts.bytes,
        "group_size": parts.group_size,
        "algo": parts.algo,
        "awaited": parts.is_awaited,
        "waits": parts.waits,
    }
    return _batch(stored.PARTS, columns)


def _words(texts: Sequence[tuple[str, Sequence[str]]], known: _Known) -> pa.RecordBatch:
    what = [w for w, of in texts for _ in of]
    text: list[str | None] = [t for _, of in texts for t in of]
    first, shapes = list(known.first), list(known.shapes)
    n, f, s = len(text), len(first), len(shapes)
    what += [stored.FIRST] * f + [stored.SHAPE] * s
    return TABLES[stored.WORDS].batch(
        {
            "what": pa.array(what, pa.string()).dictionary_encode().cast(TEXT),
            "text": pa.array(text + [None] * (f + s), pa.string()).dictionary_encode().cast(TEXT),
            "blocks": [None] * (n + f) + [blocks for blocks, _ in shapes],
            "threads": [None] * (n + f) + [threads for _, threads in shapes],
            "number": [None] * n + first + [None] * s,
        }
    )


def _batches(table: str, columns: Mapping[str, np.ndarray]):
    n = len(next(iter(columns.values())))
    for at in range(0, n, ROW_GROUP_ROWS):
        its = slice(at, at + ROW_GROUP_ROWS)
        yield table, _batch(table, {name: values[its] for name, values in columns.items()})


def _batch(table: str, columns: Mapping[str, np.ndarray]) -> pa.RecordBatch:
    types = {c.name: c.type for c in TABLES[table].columns}
    return TABLES[table].batch(
        {
            name: pa.array(values.astype(types[name].to_pandas_dtype()))
            for name, values in columns.items()
        }
    )
