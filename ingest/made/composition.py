"""What a step's time is made of, down to kernels and collectives (view `step_composition`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .aligned import Windows
from .segmented import LEAST, runs
from .walk import COMM, COMPUTE, COPY, LAST_ID, Activity, Stretches, before

CLASSES = ("compute", "exposed_transfer", "exposed_comm_unsplit", "exposed_wait",
           "exposed_memcpy")  # fmt: skip


class Signed(NamedTuple):
    """A rank's participations by what they are known by; arrays of one length."""

    event: np.ndarray
    """`LEAST` where no event carries it"""
    start_ns: np.ndarray
    end_ns: np.ndarray
    signature: np.ndarray
    """code of dimension, operation and size class in order of their text; `LEAST` null"""


class Composed(NamedTuple):
    """Time by step, class and name or signature; arrays of one length."""

    step: np.ndarray
    """`LEAST` outside"""
    kind: np.ndarray
    name: np.ndarray
    """code, -1 null or where `signature` tells"""
    signature: np.ndarray
    """`LEAST` null"""
    ns: np.ndarray
    pieces: np.ndarray


class _Own(NamedTuple):
    """Intervals of a class, cut where earlier ones of it still ran; in order of time."""

    row: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray


def compose(a: Activity, s: Stretches, windows: Windows | None, signed: Signed) -> Composed:
    """The rows of the view for one rank."""
    # Most of a rank is compute: what it comes to is few rows before the rest is looked at.
    lanes = {COMPUTE: _own(a, COMPUTE)}
    computed = _summed(*_computed(a, lanes[COMPUTE], s))
    lanes |= {kind: _own(a, kind) for kind in (COMM, COPY)}
    exposed = _exposed(a, lanes, windows, signed)
    return _summed(*(np.concatenate(c) for c in zip(computed, exposed, strict=True)))


def together(parts: list[Composed]) -> Composed:
    """What stretches of time that do not overlap come to."""
    return parts[0] if len(parts) == 1 else _summed(*map(np.concatenate, zip(*parts, strict=True)))


def _summed(
    step: np.ndarray, kind: np.ndarray, name: np.ndarray, signature: np.ndarray, ns: np.ndarray,
    pieces: np.ndarray,
) -> Composed:  # fmt: skip
    of = runs(step, kind, signature, name)
    first = of.order[of.first]
    return Composed(
        step[first], kind[first], name[first], signature[first], of.total(ns), of.total(pieces)
    )


def _own(a: Activity, kind: int) -> _Own:
    rows = np.flatnonzero((a.kind == kind) & (a.end_ns > a.start_ns))
    order = np.lexsort((a.end_ns[rows], _turn(a.event[rows]), a.start_ns[rows]))
    rows = rows[order]
    start, end = a.start_ns[rows], a.end_ns[rows]
    begin = before(end)
    np.maximum(begin, start, out=begin)
    del start
    kept = end > begin
    return _Own(rows[kept], begin[kept], end[kept])


def _turn(event: np.ndarray) -> np.ndarray:
    return np.where(event == LEAST, LAST_ID + 2, event)


def _computed(a: Activity, own: _Own, s: Stretches) -> tuple[np.ndarray, ...]:
    """The rows of compute by stretch and name, to each stretch its part."""
    to_ns, name = s.to_ns, a.name[own.row]
    at = np.searchsorted(s.from_ns, own.start_ns, "right") - 1
    # How many stretches more each reaches into, those without length too.
    more = np.maximum(0, np.searchsorted(s.from_ns, own.end_ns) - 1 - at)
    of = np.repeat(np.arange(len(at)), more)
    nth = np.arange(len(of)) - np.repeat(np.cumsum(more) - more, more)
    del more
    later = at[of] + 1 + nth
    ns = np.minimum(own.end_ns, to_ns[at])
    ns -= own.start_ns
    rest = np.minimum(own.end_ns[of], to_ns[later]) - s.from_ns[later]
    most = int(name.max(initial=-1)) + 2
    key = np.concatenate([at, later]) * most
    key += np.concatenate([name, name[of]]) + 1
    by = np.argsort(key, kind="stable")
    first = _changes(key[by])
    found = key[by[first]]
    ns = _totals(np.concatenate([ns, rest])[by], first)
    begins = _totals((by < len(at)).astype(np.int64), first)
    none = np.full(len(found), LEAST)
    return s.step[found // most], np.zeros(len(found), np.int64), found % most - 1, none, ns, begins


def _changes(values: np.ndarray) -> np.ndarray:
    """Places at which another value begins."""
    return np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])


def _totals(values: np.ndarray, first: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values, first) if len(first) else values[:0]


def _covers(lane: _Own, t: np.ndarray) -> np.ndarray:
    """bool[t]: the interval that began last by then runs on."""
    at = np.searchsorted(lane.start_ns, t, "right") - 1
    return np.append(lane.end_ns, LEAST)[at] > t


def _beside(lane: _Own, others: Sequence[_Own]) -> list[np.ndarray]:
    """Starts and ends of the intervals that one of the others overlaps or touches."""
    open_ = np.zeros(len(lane.row) + 1, np.int64)
    for other in others:
        np.add.at(open_, np.searchsorted(lane.end_ns, other.start_ns), 1)
        np.add.at(open_, np.searchsorted(lane.start_ns, other.end_ns, "right"), -1)
    its = np.cumsum(open_)[:-1] > 0
    return [lane.start_ns[its], lane.end_ns[its]]


def _until(starts: np.ndarray, ends: np.ndarray, t: np.ndarray) -> np.ndarray:
    """bool[t]: some interval has begun by then and runs on."""
    if not len(starts):
        return np.zeros(len(t), bool)
    order = np.argsort(starts, kind="stable")
    latest = np.maximum.accumulate(ends[order])
    at = np.searchsorted(starts[order], t, "right") - 1
    return (at >= 0) & (latest[np.maximum(at, 0)] > t)


def _exposed(
    a: Activity, lanes: dict[int, _Own], windows: Windows | None, signed: Signed
) -> tuple[np.ndarray, ...]:
    """Rows of communication and copies that no compute runs beside."""
    comm, moves = a.kind == COMM, a.kind != COMPUTE
    edges = [] if windows is None else [windows.start_ns, windows.end_ns]
    # Of compute, which is most of a rank, that alone cuts which communication or copies lie beside.
    edges += _beside(lanes[COMPUTE], (lanes[COMM], lanes[COPY]))
    # Not NumPy's `unique`: it hashes, which for a million times takes a second and not a hundredth.
    t = np.concatenate([a.start_ns[moves], a.end_ns[moves], a.transfer_ns[comm], *edges])
    t.sort()
    t = t[np.append(True, t[1:] != t[:-1])] if len(t) else t
    begin, end = t[:-1], t[1:]
    runs_of = [_covers(lanes[k], begin) for k in (COMPUTE, COMM, COPY)]
    bare = ~runs_of[COMPUTE] & (runs_of[COMM] | runs_of[COPY])
    begin, end, is_comm = begin[bare], end[bare], runs_of[COMM][bare]
    transfer = _until(a.transfer_ns[comm], a.end_ns[comm], begin)
    split = comm & a.unsplit
    unsplit = _until(a.start_ns[split], a.end_ns[split], begin)
    kind = np.where(transfer, 1, np.where(unsplit, 2, np.where(is_comm, 3, 4)))
    step = np.full(len(begin), LEAST)
    if windows is not None and len(begin):
        at = np.searchsorted(windows.start_ns, begin, "right") - 1
        inside = (at >= 0) & (windows.end_ns[np.maximum(at, 0)] > begin)
        step = np.where(inside, windows.step[np.maximum(at, 0)], LEAST)
    row, begins = np.zeros(len(begin), np.int64), np.zeros(len(begin), bool)
    for of_comm, lane in ((True, lanes[COMM]), (False, lanes[COPY])):
        mine = np.flatnonzero(is_comm == of_comm)
        if len(mine):
            at = np.searchsorted(lane.start_ns, begin[mine], "right") - 1
            row[mine], begins[mine] = lane.row[at], lane.start_ns[at] == begin[mine]
    signature = np.full(len(begin), LEAST)
    signature[is_comm] = _signatures(a, comm, signed)[row[is_comm]]
    name = np.where(signature == LEAST, a.name[row], -1)
    return step, kind, name, signature, end - begin, begins.astype(np.int64)


def _signatures(a: Activity, comm: np.ndarray, signed: Signed) -> np.ndarray:
    """Of each activity that is `comm` its signature: by its event, else by its times; `LEAST`
    none."""
    out = np.full(len(a.event), LEAST)
    carried = signed.event != LEAST
    by_event, by_time = (np.flatnonzero(comm & its) for its in (
        a.event != LEAST, a.event == LEAST,
    ))  # fmt: skip
    for rows, keys_of, keys in (
        (by_event, [signed.event[carried]], [a.event]),
        (by_time, [signed.start_ns[~carried], signed.end_ns[~carried]], [a.start_ns, a.end_ns]),
    ):
        said = signed.signature[carried] if len(keys) == 1 else signed.signature[~carried]
        if not len(said) or not len(rows):
            continue
        both = runs(*(np.concatenate([k, b[rows]]) for k, b in zip(keys_of, keys, strict=True)))
        most = np.iinfo(np.int64).max
        told = np.concatenate([np.where(said == LEAST, most, said), np.full(len(rows), most)])
        least = both.least(told)[both.run[len(said) :]]
        out[rows] = np.where(least == most, LEAST, least)
    return out
