"""What each rank's own slowness costs the job: the step with that rank as the median one is."""

from __future__ import annotations

from collections.abc import Callable
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
    arrive = np.flatnonzero((graph.kind == Kind.ARRIVE) & (graph.collective >= 0))
    how = held_up(ranks, graph.rank[arrive], graph.collective[arrive], end[arrive])

    def others(replayed: np.ndarray) -> np.ndarray:
        return lanes.one_rank_other(graph, *at_median(graph, step), replayed)

    return of_times(ranks, how, base, others)


def of_times(
    ranks: np.ndarray,
    how: list[str],
    base: np.ndarray,
    others: Callable[[np.ndarray], np.ndarray],
) -> Scores:
    """The scores of ranks by steps' times: `base` (float64 [s], ns), and those of `others` (of
    ranks, float64 [r, s], ns) with one of the ranks that are `REPLAYED` as the median one is."""
    saved = np.zeros((len(ranks), len(base)))
    replayed = np.flatnonzero(np.array(how) == REPLAYED)
    if len(replayed):
        saved[replayed] = base - others(ranks[replayed])
    return Scores(ranks, saved, how, float(base.mean()) if len(base) else 0.0)


def held_up(
    ranks: np.ndarray, rank: np.ndarray, collective: np.ndarray, at_ns: np.ndarray
) -> list[str]:
    """How each of `ranks` is scored, by who arrived when (ns) at which collective."""
    joined, last = _joined_and_last(rank, collective, at_ns)
    return [REPLAYED if r in last else NEVER_LAST if r in joined else ALONE for r in ranks.tolist()]


def _joined_and_last(
    rank: np.ndarray, collective: np.ndarray, at: np.ndarray
) -> tuple[set[int], set[int]]:
    """Ranks that meet another one in a collective, and those that were the last to arrive at one.

    Of ranks that arrive in the same ns all are last.
    """
    if not len(rank):
        return set(), set()
    _, instance = np.unique(collective, return_inverse=True)
    instance = instance.reshape(-1)
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
