"""Steps of a job whose sources mark none: by annotations, else inferred from what recurs.

An annotation that recurs and is named like a step (or that the user names) tells a rank's steps.
Without one they are inferred where two anchors agree (`cuts`): the optimizer, and the sequence of
collectives between. All ranks must agree on which step is which (`agree`). Bounds on the device
follow from launches, as they do for marked steps (`kineto.steps.device_windows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..kineto.rawbatch import NULL
from ..kineto.steps import HostSteps, device_windows, step_index_at
from ..matching.hosts import replace_column
from ..matching.participations import code, codes, ints
from ..schema import COLLECTIVES, STEPS, Problem
from . import agree, annotated, cuts
from .work import Read, Work, of_parts


class Found(NamedTuple):
    """The steps of a job and its collectives with the step of each; problems on the way."""

    steps: pa.Table
    collectives: pa.Table
    problems: list[Problem]


class _OfRank(NamedTuple):
    steps: HostSteps
    begin_ns: np.ndarray
    end_ns: np.ndarray
    by_launch: bool
    rows: np.ndarray
    """rows of `collectives` of this rank"""
    index: np.ndarray
    """step of each of them, -1 outside"""
    numbered: bool
    found_by: str


def find(
    marked: pa.Table,
    collectives: pa.Table,
    events: Iterable[tuple[Sequence[Read], list[int]]],
    pattern: str = "",
) -> Found:
    """Steps for a job of which `marked` are those that sources mark.

    `events` are the parts with the events of each source, to be read, and its ranks. Marked steps
    stand as they are; where any rank has some, none are inferred. With `pattern` the annotations of
    that name are the steps of the ranks that have them, whatever was marked.
    """
    if len(marked) and not pattern:
        return Found(marked, collectives, [])
    columns = _Columns(collectives)
    found: dict[int, _OfRank] = {}
    why: dict[int, str] = {}
    for parts, ranks in events:
        for work in of_parts(parts, [r for r in ranks if r not in found]):
            one = _of_rank(work, columns, pattern)
            if isinstance(one, _OfRank):
                found[work.rank] = one
            elif one and (len(work.name) or len(columns.of(work.rank))):
                why.setdefault(work.rank, one)
    if pattern and not found:
        text = f"no rank has an annotation {pattern!r}: --step-annotation names none"
        return Found(marked, collectives, [Problem("steps_unclear", text)])
    return _settled(marked, collectives, columns, found, why, bool(pattern))


class _Columns:
    """The columns of `collectives` that are looked at."""

    def __init__(self, table: pa.Table):
        self.rank, self.event = ints(table, "rank"), ints(table, "event_id")
        self.collective = ints(table, "collective_id")
        self.start = ints(table, "start_ns", int(NULL))
        self.asked = ints(table, "enqueued_ns", int(NULL))
        op, ops = codes(table.column("op"))
        comm, _ = codes(table.column("comm"))
        self.kind = code(comm, op)
        size = np.maximum(ints(table, "in_bytes"), ints(table, "out_bytes"))
        # Routed tokens and uneven parts differ from step to step.
        varies = [i for i, o in enumerate(ops) if o in ("all_to_all", "send", "recv", "send_recv")]
        self.size = np.where(np.isin(op, varies), -1, size)

    def of(self, rank: int) -> np.ndarray:
        """Rows of a rank."""
        return np.flatnonzero(self.rank == rank)


def _of_rank(work: Work, c: _Columns, pattern: str) -> _OfRank | str:
    rows = c.of(work.rank)
    when = _asked_at(work, c, rows)
    told = annotated.find(work, pattern)
    if told is not None:
        steps, numbered = told
        return _placed(work, steps, rows, when, numbered, "annotation")
    if pattern:
        return ""
    use = rows[when != NULL]
    order = np.lexsort((c.event[use], c.start[use], when[when != NULL]))
    use, sorted_when = use[order], when[when != NULL][order]
    found = cuts.find(work, cuts.Tokens(sorted_when, c.kind[use], c.size[use]))
    if isinstance(found, str):
        return found
    steps = HostSteps(np.arange(len(found.begin_ns)), found.begin_ns, found.end_ns)
    return _placed(work, steps, rows, when, False, "inferred")


def _asked_at(work: Work, c: _Columns, rows: np.ndarray) -> np.ndarray:
    """When each collective was asked for, on the clock of `work.when_ns`; NULL not known."""
    order = np.argsort(work.event_id)
    at = np.searchsorted(work.event_id[order], c.event[rows])
    at = order[np.minimum(at, len(order) - 1)] if len(order) else np.zeros(len(rows), np.int64)
    here = work.event_id[at] == c.event[rows] if len(order) else np.zeros(len(rows), bool)
    asked = np.where(c.asked[rows] != NULL, c.asked[rows], c.start[rows])
    alone = asked if work.by_launch else c.start[rows]
    return np.where(here, work.when_ns[at] if len(order) else NULL, alone)


def _placed(
    work: Work, steps: HostSteps, rows: np.ndarray, when: np.ndarray, numbered: bool, by: str
) -> _OfRank:
    """The steps with their windows on the device and the step of each collective."""
    # Without launches nothing ties device work to an annotation: it is its own window then.
    tied = work.by_launch or by == "inferred"
    index = step_index_at(steps, work.when_ns) if tied else np.full(len(work.name), -1)
    begin, end = device_windows(steps, index, work.start_ns, work.end_ns)
    at = step_index_at(steps, when)
    return _OfRank(steps, begin, end, work.by_launch, rows, at, numbered, by)


def _settled(
    marked: pa.Table,
    collectives: pa.Table,
    c: _Columns,
    found: dict[int, _OfRank],
    why: dict[int, str],
    forced: bool,
) -> Found:
    """The steps of all ranks under common numbers, where they can be had."""

    def unclear(text: str, n: int = 1) -> Found:
        if not why and not found:
            return Found(marked, collectives, [])
        told = f"no marks of steps, and none are inferred: {text}"
        return Found(marked, collectives, [Problem("steps_unclear", told, "info", n)])

    if not found:
        return unclear(next(iter(why.values()), ""), max(len(why), 1))
    if 2 * len(found) < len(found) + len(why):
        return unclear(f"on most ranks {next(iter(why.values()))}", len(why))
    ways = {o.found_by for o in found.values()}
    if len(ways) > 1:  # an annotation on some ranks: what is inferred on others is left out
        found = {r: o for r, o in found.items() if o.found_by == "annotation"}
    numbers = {r: o.steps.number for r, o in found.items()}
    if not all(o.numbered for o in found.values()):
        index = np.full(len(collectives), -1)
        for one in found.values():
            index[one.rows] = one.index
        by = agree.offsets(
            c.rank, c.collective, index, {r: len(o.steps.number) for r, o in found.items()}
        )
        if isinstance(by, str):
            return unclear(by)
        numbers = {r: np.arange(len(o.steps.number)) + by[r] for r, o in found.items()}
    others = np.isin(ints(marked, "rank"), list(found), invert=True)
    kept = marked.filter(pa.array(others)) if forced else None
    tables = [_rows(r, numbers[r], found[r]) for r in sorted(found)]
    steps = pa.concat_tables([*([kept] if kept is not None else []), *tables])
    step = ints(collectives, "step", int(NULL)).copy()
    for r, one in found.items():
        step[one.rows] = np.where(one.index >= 0, numbers[r][one.index], NULL)
    column = pa.array(step, mask=step == NULL)
    problems = []
    if why:
        some = ", ".join(str(r) for r in sorted(why)[:8])
        text = f"steps of rank {some} are not found: {next(iter(why.values()))}"
        problems.append(Problem("steps_unclear", text, "info", len(why)))
    return Found(
        steps.unify_dictionaries(),
        replace_column(collectives, COLLECTIVES, "step", column),
        problems,
    )


def _rows(rank: int, numbers: np.ndarray, one: _OfRank) -> pa.Table:
    n = len(numbers)
    columns = {
        "rank": np.full(n, rank, np.int32),
        "step": numbers,
        "start_ns": one.begin_ns,
        "end_ns": one.end_ns,
        "found_by": [one.found_by] * n,
    }
    if one.by_launch or one.found_by == "annotation":
        columns |= {"host_start_ns": one.steps.start_ns, "host_end_ns": one.steps.end_ns}
    return pa.Table.from_batches([STEPS.batch(columns)])
