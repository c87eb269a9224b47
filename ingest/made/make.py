"""Writes the tables of what views would compute, beside a job's other derived tables."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import memory
from ..keeping import slices
from ..manifest import Manifest
from ..scratch import ScratchError
from ..store import Folder
from ..writer import PartWriter, Written
from . import (
    added,
    aligned,
    beside,
    causes,
    collectives,
    compared,
    events,
    kernels,
    marks,
    own,
    rails,
    ranks,
    tasks,
    walk,
)
from . import composition as composed
from . import parts as part
from .batches import row_batch, text_array
from .participations import Participations
from .picked import Picked
from .segmented import LEAST, runs

FOLDER = "made"
"""Below the folder that derived tables are written to."""

MOST_WHOLE_ROWS = 700_000
"""A rank with a device and more rows is looked at by parts of its time."""

MANY_GAPS = 250_000
"""Of a rank with so many the memory that they took is given back before more is made."""

_LIBRARY = f"^({'|'.join(ranks.LIBRARY)})"
_SIZES = ((4096, "<4KiB"), (65536, "4KiB-64KiB"), (1 << 20, "64KiB-1MiB"),
          (1 << 24, "1MiB-16MiB"), (1 << 28, "16MiB-256MiB"))  # fmt: skip


def write(
    target: Path,
    job: Folder,
    manifests: Sequence[Manifest],
    tables: dict[str, pa.Table],
    picked: Mapping[str, Picked] = MappingProxyType({}),
) -> list[Written]:
    """Writes below `target` what views would compute over these tables and the sources' events.

    What was `picked` of these, by the source's id, need not be read. Takes transfers out of the
    tables: of a large job they are most of them.

    Gives the files, relative to `target`; none where anything is out of the ordinary, or where the
    temporary folder has no room, which is left to the views. Raises OSError and pyarrow's errors.
    """
    place, opened = target / FOLDER, slices.of(job)
    place.mkdir(exist_ok=True)  # a job whose sources changed meanwhile is derived once more
    writer = PartWriter(place)
    try:
        rails.write(writer, place, opened, manifests, tables)
        tables.pop("transfers", None)
        memory.give_back()
        left_out = _fill(writer, opened, manifests, tables, picked)
        memory.give_back()
        if not tasks.write(writer, job.address, manifests, tables):
            left_out |= tasks.ALL
    except (aligned.Odd, ScratchError):  # the temporary folder may be another disk
        writer.abort()
        shutil.rmtree(place)
        return []
    except BaseException:
        writer.abort()
        raise
    written = [w for w in writer.close() if w.table not in left_out]
    if len({w.table for w in written}) < len(written):  # one file a table is what a job has
        shutil.rmtree(place)
        return []
    return [w._replace(file=os.path.join(FOLDER, w.file)) for w in written]


def _fill(
    writer: PartWriter,
    opened: slices.Open,
    manifests: Sequence[Manifest],
    tables: Mapping[str, pa.Table],
    picked: Mapping[str, Picked],
) -> set[str]:
    """Writes all; gives the tables that are not to be used after all."""
    clocks = aligned.clocks(tables["ranks"])
    windows = aligned.step_windows(tables["steps"], clocks)
    p, late = collectives.write(writer, tables, clocks)
    if any("events" in m.pruned for m in manifests):
        return set()  # the views tell of what is left
    words = events.Words(events.Texts(), events.Texts(), events.Texts())
    its = _Waits(p, words)
    traits = _Traits(words)
    first, stretches, blamed = {}, {}, {}
    if beside.is_large(manifests):
        first = compared.first_steps(tables["steps"], clocks)
        blamed = compared.blamed(late, p.comms, tables["ranks"], windows)
        stretches = compared.find(p, late, tables["ranks"], clocks, windows, first, blamed)
    del p, late  # of a large job they are as large as its tables
    left = set(its.ranks) | set(windows) | set(stretches)
    begins = aligned.moments(tables["ranks"], tables["steps"], clocks)
    on_host = bare = False
    todo = left.union(*(m.ranks for m in manifests if m.tables.get("events")))
    by_rank = events.by_rank(opened, manifests, words, partial(_at_hand, picked))
    for rows in _with_rest(by_rank, left):
        rank = rows.rank
        parts = _parts(
            rows, words, traits, its, clocks.get(rank), windows.get(rank),
            begins.get(rank, np.zeros(0, np.int64)),
        )  # fmt: skip
        whole = _added(rank, stretches.get(rank), first.get(rank), blamed.get(rank))
        for made in parts:
            on_host |= made.on_host
            bare |= made.bare
            writer.write("_made_gaps", _gaps(made, traits, whole.n_gaps))
            whole.take(made)
            del made  # of a large rank what is written makes room for the rest
        if whole.stretches is not None:
            batch = compared.sums(rank, whole.stretches, *whole.covered(), whole.idle_ns)
            writer.write(compared.TABLE, batch)
            del batch
        if whole.late is not None:
            writer.write(own.STRETCHES, own.rows(rank, whole.late))
            writer.write(own.GAPS, own.gap_rows(rank, whole.longest))
        todo.discard(rank)
        if not todo:
            writer.finish("_made_gaps")
        for table, batch in _of_rank(rank, whole, traits, its.signatures):
            writer.write(table, batch)
            del batch
            if not todo:
                writer.finish(table)  # while the next is made
    # What such a rank computes is set against its marks, one interval after another.
    left_out = {"_made_covered"} if on_host else set()
    memory.give_back()
    with_kernels = False
    try:
        with_kernels = beside.write(writer, opened, manifests, tables, stretches)
    except (aligned.Odd, ScratchError):
        left_out |= {beside.TABLE, marks.TABLE}
    if bare or not with_kernels:
        left_out |= {compared.TABLE, compared.KERNELS, own.STRETCHES, own.GAPS}
    return left_out


def _at_hand(
    picked: Mapping[str, Picked], source: Manifest, words: events.Words
) -> events.Rows | None:
    its = picked.get(source.id)
    return its and its.rows(source, words)


def _added(
    rank: int, stretches: compared.Stretches | None, first: compared.FirstStep | None,
    late_on: int | None,
) -> added.Added:  # fmt: skip
    """Takes what is made of a rank; `late_on` is its communicator of `compared.blamed`."""
    if stretches is None:
        return added.Added()
    late = None
    if late_on is not None:
        late = own.stretches(stretches, rank if late_on >= 0 else -1)
    return added.Added(stretches, first, late)


def _parts(
    rows: events.Rows, words: events.Words, traits: _Traits, its: _Waits,
    clock: aligned.Clock | None, windows: aligned.Windows | None, moments: np.ndarray,
) -> Iterator[ranks.OfRank]:  # fmt: skip
    """What there is to tell of a rank: of all its time, or of one part after another."""
    of = its.of(rows.rank)
    if rows.on_device and len(rows) > MOST_WHOLE_ROWS:
        large = part.Large(rows, words, traits.blocking, clock)
        comm = int(words.categories.codes(["comm"])[0])
        yield from large.parts(traits.library, comm, of, its.ready, windows, moments)
    else:
        yield ranks.of_rank(
            rows.whole(), words, traits.blocking, traits.library, of, its.ready, clock, windows,
            moments,
        )  # fmt: skip


def _with_rest(found: Iterator[events.Rows], left: set[int]) -> Iterator[events.Rows]:
    """All ranks with events, then those that only participations or steps know."""
    for one in found:
        left.discard(one.rank)
        yield one
    yield from map(events.without_events, sorted(left))


class _Traits:
    """What names of events say of them, found once for each."""

    def __init__(self, words: events.Words):
        self._words = words
        self._known = -1
        self._blocking = self._library = np.zeros(1, bool)
        self._texts = pa.array([], pa.string())

    def _look(self) -> None:
        names = self._words.names.all
        if len(names) == self._known:
            return
        self._known = len(names)
        self._texts = pa.array(names, pa.string())
        library = pc.match_substring_regex(self._texts, _LIBRARY)  # pyright: ignore
        blocking = pc.is_in(self._texts, pa.array(causes.BLOCKING))  # pyright: ignore
        self._library, self._blocking = (
            np.append(hit.to_numpy(zero_copy_only=False).astype(bool), False)
            for hit in (library, blocking)
        )

    @property
    def blocking(self) -> np.ndarray:
        """bool[names + 1]: calls that hold their thread."""
        self._look()
        return self._blocking

    @property
    def library(self) -> np.ndarray:
        """bool[names + 1]: host operations of the communication library."""
        self._look()
        return self._library

    def names(self, code: np.ndarray) -> pa.Array:
        """The texts of codes of names."""
        self._look()
        return text_array(code, self._texts)

    @property
    def all_names(self) -> list[str]:
        """The texts by code."""
        return self._words.names.all

    def categories(self, code: np.ndarray) -> pa.Array:
        """The texts of codes of categories."""
        return text_array(code, pa.array(self._words.categories.all, pa.string()))


class _Waits:
    """The rows of the view `waits` by rank, and what they say of events."""

    def __init__(self, p: Participations, words: events.Words):
        rows = np.flatnonzero(p.decides & p.timed)
        rows = rows[np.argsort(p.rank[rows], kind="stable")]
        self.ranks, first = np.unique(p.rank[rows], return_index=True)
        self._ends = np.append(first, len(rows))
        event, known = p.event[rows], p.wait_known[rows]
        moves = p.start_ns[rows] + p.wait_ns[rows]
        code, self.signatures = _signatures(p, rows)
        self._all = (
            event, p.start_ns[rows], p.end_ns[rows], np.where(known, moves, p.end_ns[rows]), known,
            words.names.codes(p.ops)[p.op[rows]], code,
        )  # fmt: skip
        carried = event != LEAST
        of = runs(event[carried])
        most = np.iinfo(np.int64).max
        first_moves = of.least(np.where(known, moves, most)[carried])
        self.ready = ranks.Ready(
            event[carried][of.order[of.first]], np.where(first_moves == most, LEAST, first_moves)
        )

    def of(self, rank: int) -> ranks.Parts:
        """Those of one rank."""
        at = int(np.searchsorted(self.ranks, rank))
        if at == len(self.ranks) or self.ranks[at] != rank:
            return ranks.Parts(*(c[:0] for c in self._all))
        return ranks.Parts(*(c[self._ends[at] : self._ends[at + 1]] for c in self._all))


def _signatures(p: Participations, rows: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """By row the code of its dimension, operation and size class, and their texts in order."""
    size = np.searchsorted(np.array([s for s, _ in _SIZES]), p.bytes[rows], "right")
    classes = [*(name for _, name in _SIZES), ">=256MiB", "unknown"]
    size = np.where(p.bytes[rows] == LEAST, len(classes) - 1, size)
    key = (p.dim[rows].astype(np.int64) * len(p.ops) + p.op[rows]) * len(classes) + size
    used, which = np.unique(key, return_inverse=True)
    texts = [
        f"{p.dims[k // len(classes) // len(p.ops)]} {p.ops[k // len(classes) % len(p.ops)]} "
        f"{classes[k % len(classes)]}"
        for k in used.tolist()
        if k >= 0
    ]
    ordered = sorted(texts)
    place = np.full(len(used), LEAST)
    place[used >= 0] = [ordered.index(t) for t in texts]
    return np.where(p.dim[rows] < 0, LEAST, place[which]), ordered


def _in_use(code: np.ndarray, texts: list[str]) -> pa.Array:
    """The texts of codes; those in use alone, each once and in order of its first row."""
    there = np.flatnonzero(code >= 0)[::-1]
    first = np.full(len(texts) + 1, len(code), np.int64)
    first[code[there]] = there  # of several rows the first stays, which comes last
    used = np.flatnonzero(first < len(code))
    place, new = np.zeros(len(texts) + 1, np.int32), {}
    for one in used[np.argsort(first[used])].tolist():
        place[one] = new.setdefault(texts[one], len(new))
    index = pa.array(place[code], mask=code < 0)
    return pa.DictionaryArray.from_arrays(index, pa.array(list(new), pa.string()))


def _of_rank(
    rank: int, whole: added.Added, traits: _Traits, signatures: list[str]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Table and rows, one after another; those that take longest to be ready come last."""
    yield "_made_breakdown", _breakdown(rank, whole)
    yield "_made_covered", _covered(rank, *whole.covered())
    if whole.n_gaps >= MANY_GAPS:
        memory.give_back()
    yield "_made_kernels", _kernels(rank, whole.stats(), traits)
    yield "_made_composition", _composition(rank, whole.composed(), traits, signatures)


def _breakdown(rank: int, whole: added.Added) -> pa.RecordBatch:
    ordinal, ns = whole.worked()
    idle_ordinal, kind, idle_ns = whole.idle()
    n = len(walk.CLASSES)
    classes = np.concatenate([np.tile(np.arange(n), len(ordinal)), n + kind])
    ordinals = np.concatenate([np.repeat(ordinal, n), idle_ordinal])
    s = whole.steps
    steps = np.append(s.step[s.ordinal > 0], LEAST)
    return row_batch(
        "_made_breakdown",
        {
            "rank": np.full(len(classes), rank),
            "ordinal": ordinals,
            "step": steps[ordinals - 1],
            "class": text_array(classes, pa.array([*walk.CLASSES, *causes.CLASSES])),
            "ns": np.concatenate([ns.ravel(), idle_ns]),
        },
    )


def _gaps(made: ranks.OfRank, traits: _Traits, first: int) -> pa.RecordBatch:
    gaps = made.walked.gaps
    n = len(gaps.start_ns)
    return row_batch(
        "_made_gaps",
        {
            "rank": pa.array(np.full(n, made.rank, np.int32)),
            "step": made.stretches.step[gaps.stretch],
            "gap": np.arange(first, first + n),
            "start_ns": gaps.start_ns,
            "dur_ns": gaps.end_ns - gaps.start_ns,
            "class": text_array(made.caused.kind, pa.array(causes.CLASSES)),
            "before": traits.names(made.before),
            "after": traits.names(made.after),
            "launch_ns": made.caused.launch_ns,
            "free_ns": np.where(gaps.free_ns < gaps.start_ns, gaps.free_ns, LEAST),
        },
    )


def _covered(rank: int, moments: np.ndarray, covered: np.ndarray) -> pa.RecordBatch:
    columns = dict(zip(walk.UNIONS, covered.T, strict=True))
    return row_batch(
        "_made_covered", {"rank": np.full(len(moments), rank), "at_ns": moments, **columns}
    )


def _composition(
    rank: int, c: composed.Composed, traits: _Traits, signatures: list[str]
) -> pa.RecordBatch:
    names = traits.all_names
    what = np.where(c.signature == LEAST, c.name, len(names) + c.signature)
    return row_batch(
        "_made_composition",
        {
            "rank": np.full(len(c.step), rank),
            "step": c.step,
            "class": text_array(c.kind, pa.array(composed.CLASSES)),
            "what": _in_use(what, [*names, *signatures]),
            "ns": c.ns,
            "pieces": c.pieces,
        },
    )


def _kernels(rank: int, s: kernels.Stats, traits: _Traits) -> pa.RecordBatch:
    return row_batch(
        "_made_kernels",
        {
            "rank": np.full(len(s.count), rank),
            "name": traits.names(s.name),
            "kind": text_array(s.kind, pa.array(events.KINDS)),
            "category": traits.categories(s.category),
            "count": s.count,
            "total_ns": s.total_ns,
            "median_ns": s.median_ns,
            "p99_ns": s.p99_ns,
        },
    )
