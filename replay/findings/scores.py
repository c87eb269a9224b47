"""What each rank's own slowness costs the job: the step with that rank as the median one is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...ingest.schema import REPLAY_SCORES
from ...ingest.tasks.codes import distinct
from .. import lanes
from .. import steps as timing
from ..graph import Kind, TaskGraph
from ..run import DRAWS
from .median_rank import at_median

REPLAYED, NEVER_LAST, ALONE = "replay", "never last", "joined with no rank"


class Scores(NamedTuple):
    """One a rank (arrays [r]), ns; `how` says which are of a replay."""

    rank: np.ndarray
    saved_ns: np.ndarray
    """float64 [r, s]: by how much each step is shorter; negative where it is longer."""
    how: list[str]
    step_ns: float
    """The unchanged replay's step, mean over steps."""


def scores(graph: TaskGraph, start: np.ndarray, end: np.ndarray, step: np.ndarray) -> Scores:
    """By how much each step is shorter with one rank's own work as the median rank's.

    `start` and `end` (int64 [n], ns) are the unchanged replay's, `step` that of each task
    (`task_steps`). What changes is in `median_rank`; all else, and all other ranks, stay. A rank
    that was last at no collective held nobody up: it is not replayed and saves 0. One that no
    collective joins with another rank has nobody to hold up. One replay a rank that is replayed,
    eight at once, each linear in tasks.
    """
    _, base = timing.step_times(graph, start, end)
    ranks = distinct(graph.rank[graph.rank >= 0])[0]
    joined, last = _joined_and_last(graph, end)
    how = [REPLAYED if r in last else NEVER_LAST if r in joined else ALONE for r in ranks.tolist()]
    saved = np.zeros((len(ranks), len(base)))
    if last:
        best_dur, best_gap = at_median(graph, step)
        replayed = np.flatnonzero(np.array(how) == REPLAYED)
        saved[replayed] = base - lanes.one_rank_other(graph, best_dur, best_gap, ranks[replayed])
    return Scores(ranks, saved, how, float(base.mean()) if len(base) else 0.0)


def _joined_and_last(graph: TaskGraph, end: np.ndarray) -> tuple[set[int], set[int]]:
    """Ranks that meet another one in a collective, and those that were the last to arrive at one.

    Of ranks that arrive in the same ns all are last.
    """
    arrive = np.flatnonzero((graph.kind == Kind.ARRIVE) & (graph.collective >= 0))
    if not len(arrive):
        return set(), set()
    _, instance = np.unique(graph.collective[arrive], return_inverse=True)
    instance = instance.reshape(-1)
    rank, at = graph.rank[arrive], end[arrive]
    n = int(instance.max()) + 1
    low, high = np.full(n, np.iinfo(np.int32).max), np.full(n, -1)
    np.minimum.at(low, instance, rank)
    np.maximum.at(high, instance, rank)
    ready = np.full(n, np.iinfo(np.int64).min)
    np.maximum.at(ready, instance, at)
    met = (low < high)[instance]
    return set(rank[met].tolist()), set(rank[met & (at == ready[instance])].tolist())


def interval(saved_ns: np.ndarray) -> tuple[float, float]:
    """Low and high of the mean over steps (float64 [s]).

    The 2.5 and 97.5 percentiles of a bootstrap over steps (seed 0), as `run.interval`; with fewer
    than three steps the least and the greatest step.
    """
    k = len(saved_ns)
    if k < 3:
        return float(saved_ns.min()), float(saved_ns.max())
    drawn = np.random.default_rng(0).integers(0, k, (DRAWS, k))
    low, high = np.percentile(saved_ns[drawn].mean(1), [2.5, 97.5])
    return float(low), float(high)


def rows(found: Scores) -> pa.RecordBatch:
    """The table `replay_scores`: nulls for ranks that are joined with no other."""
    known = [h != ALONE for h in found.how]
    spans = [interval(s) for s in found.saved_ns]

    def column(values: list[float]) -> list[int | None]:
        return [round(v) if k else None for v, k in zip(values, known, strict=True)]

    return REPLAY_SCORES.batch(
        {
            "rank": found.rank,
            "score_ns": column(found.saved_ns.mean(1).tolist()),
            "low_ns": column([low for low, _ in spans]),
            "high_ns": column([high for _, high in spans]),
            "step_ns": [round(found.step_ns)] * len(known),
            "how": found.how,
        }
    )
