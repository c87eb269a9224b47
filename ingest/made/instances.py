"""Each collective with what its participations come to: view `_instances`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..matching.participations import codes
from .participations import FROM_ROOT, Participations, by_text
from .segmented import LEAST, Runs, runs


class Instances(NamedTuple):
    """A row a matched collective; arrays of one length, `LEAST` null, codes of texts -1."""

    collective: np.ndarray
    step: np.ndarray
    comm: np.ndarray
    """code in the participations' `comms`, as is `dim` in their `dims`"""
    dim: np.ndarray
    op: np.ndarray
    """code in `ops`"""
    ops: list[str]
    match: np.ndarray
    """code in `matches`"""
    matches: list[str]
    bytes: np.ndarray
    n_ranks: np.ndarray
    n_seen: np.ndarray
    first_start_ns: np.ndarray
    ready_ns: np.ndarray
    end_ns: np.ndarray
    wait_ns: np.ndarray
    n_clocks: np.ndarray
    last_rank: np.ndarray
    skew_ns: np.ndarray
    clock_error_ns: np.ndarray
    wait_known: np.ndarray
    """1 or 0; -1 where nothing is timed"""


def find(p: Participations, match: pa.ChunkedArray) -> Instances:
    """The view's rows; `match` is the column of the participations' table."""
    rows = np.flatnonzero(p.collective != LEAST)
    of = runs(p.collective[rows])
    timed = p.timed[rows]

    def most(values: np.ndarray) -> np.ndarray:
        return of.most(values[rows])

    def least(values: np.ndarray) -> np.ndarray:
        own = values[rows]
        found = of.least(np.where(own == LEAST, _MOST, own))
        return np.where(found == _MOST, LEAST, found)

    comm, at = _least_text(of, p.comm[rows], p.comms)
    dim = np.where(comm < 0, -1, p.dim[rows][at])
    ops = [*p.ops, *({"send_recv"} - set(p.ops))]
    low, _ = _least_text(of, p.op[rows], ops)
    back = np.argsort(by_text(ops)[:-1])
    high = back[of.most(by_text(ops)[p.op[rows]])] if len(rows) else low
    code = {name: ops.index(name) if name in ops else -2 for name in ("recv", "send", "send_recv")}
    pair = (low == code["recv"]) & (high == code["send"])
    rooted = np.isin(low, [i for i, o in enumerate(ops) if o in FROM_ROOT])
    start, root_start = most(p.start_ns), most(p.root_start_ns)
    kinds, matches = codes(match)
    placed = by_text(matches)
    best = of.most(placed[kinds[rows]])
    first_start = least(p.start_ns)
    known = of.most(np.where(timed, p.wait_known[rows], -1))
    return Instances(
        p.collective[rows][of.order[of.first]], least(p.step), comm, dim,
        np.where(pair, code["send_recv"], low), ops,
        np.where(best < 0, -1, np.argsort(placed[:-1])[best] if matches else best), matches,
        most(p.bytes), most(p.n_ranks), most(p.n_seen), first_start,
        np.where(rooted & (root_start != LEAST), root_start, start), most(p.end_ns),
        of.total(np.where(timed, p.wait_ns[rows], 0)), _clocks(p, rows, of),
        of.most(np.where(timed, p.last_rank[rows].astype(np.int64), LEAST)),
        np.where(start == LEAST, LEAST, start - first_start), most(p.clock_error_ns), known,
    )  # fmt: skip


_MOST = np.iinfo(np.int64).max


def _least_text(of: Runs, code: np.ndarray, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """By run the code of the first text in order (-1: all null), and a row that has it."""
    place = by_text(texts)[code]
    # Place and row as one number: the least has both.
    n = max(len(code), 1)
    joint = of.least(np.where(place < 0, len(texts), place) * n + np.arange(len(code)))
    at = joint % n
    return np.where(joint // n == len(texts), -1, code[at] if len(code) else joint), at


def _clocks(p: Participations, rows: np.ndarray, of: Runs) -> np.ndarray:
    """By run how many clocks its timed participations are on."""
    timed = rows[p.timed[rows]]
    one = timed[np.unique(p.same_clock.run[timed], return_index=True)[1]]
    place = np.searchsorted(p.collective[rows][of.order[of.first]], p.collective[one])
    return np.bincount(place, minlength=len(of.first))
