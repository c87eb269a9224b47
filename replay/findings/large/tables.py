"""The tables that only a replay gives, of a large job in bounded memory: share by share."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from ....ingest import memory
from ....ingest.compiled import compiled
from ....ingest.tasks.codes import distinct
from ... import steps as timing
from ... import sweep
from ...graph import NULL, Kind, TaskGraph
from ...policy import ReplayJob
from .. import joining, scores, slack
from ..task_steps import task_steps
from . import moments, path, shares
from .columns import Columns
from .contract import Contracted, contract
from .medians import Medians


def tables(snapshot: Any, folder: Path) -> dict[str, pa.RecordBatch] | None:
    """The rows of `computed.tables` of a traced job with steps; files in `folder` take its place
    in memory, some 80 bytes a task.

    None where tasks wait for each other in a circle: that takes the whole graph to untie. Raises
    what `computed.tables` does.
    """
    cut = shares.cut(snapshot, Columns(folder))
    if cut is None:
        return None
    memory.give_back()  # what its tables took
    ready = _together(cut, partial(_measured, cut))
    if ready is None:
        return None
    whole = _Replayed(cut, moments.ends(ready)[ready.join])
    del ready
    memory.give_back()
    marks = whole.marks
    found = timing.Marks(marks.rank, marks.begins, marks.ends)
    if not len(found.steps):
        return {}
    both = _together(cut, whole.contracted)
    assert both is not None
    return {
        "critical_path": path.rows(
            cut, whole.replayed, marks, found.steps, whole.arrive_end_ns,
            partial(_ids, snapshot, cut),
        ),
        "slack": whole.slack(both),
        "replay_scores": whole.scores(both, found),
    }  # fmt: skip


def _ids(snapshot: Any, cut: shares.Shares, joins: np.ndarray) -> np.ndarray:
    """int64: `collective_id` of each join, -1 for none."""
    _, of, event = cut.of_part
    asked = np.isin(of, joins)
    found = np.full(len(cut.ready_ns) + 1, -1, np.int64)
    known = joining.collective_ids(snapshot, event[asked], of[asked])
    found[: len(known)] = known
    return found[joins]


def _together(cut: shares.Shares, of: Any) -> moments.Moments | None:
    """The moments of all shares, contracted on all cores."""
    said = sweep.over(of, range(cut.n), tasks=cut.load)
    return moments.together(said, cut.ready_ns)


def _said(
    graph: TaskGraph, kept: np.ndarray, more_ns: np.ndarray, least_ns: np.ndarray
) -> moments.Said:
    is_join = graph.kind == Kind.JOIN
    numbers = graph.collective[is_join]
    joins = np.full(graph.n, -1, np.int64)
    joins[is_join] = np.arange(len(numbers))
    found: Contracted = contract(graph, joins, kept, more_ns, least_ns)
    own = np.repeat(found.task, np.diff(found.ptr))
    rank = graph.rank[np.concatenate([found.arrive, own])]
    asked = np.flatnonzero(kept[found.task])
    return moments.Said(found, numbers, rank, graph.end_ns[found.task], asked)


def _measured(cut: shares.Shares, share: int) -> moments.Said:
    """What ends follow the measurement, as `residual.fill` has it: no task begins (one that keeps
    its end: ends) before it did."""
    graph = cut.graph(share)
    keeps_end = graph.extra["pin"] == 1
    least = np.where(keeps_end, graph.end_ns, graph.start_ns)
    least[graph.start_ns == NULL] = NULL
    more = np.where(keeps_end, 0, graph.dur_ns).reshape(-1, 1)
    return _said(graph, np.zeros(graph.n, bool), more, least)


class _Share(NamedTuple):
    """What is held of a share once it was replayed."""

    arrive_end_ns: np.ndarray
    """int64: ends of its arrivals, by their places in `Shares.arrivals`."""
    marks: np.ndarray
    """int64 [m, 5]: task, rank, the steps that it begins and ends, and its start."""
    ranks: np.ndarray
    arrived: np.ndarray
    """int64 [3, a]: rank, collective and end of every arrival, those too that no join waits for."""


class _Replayed:
    """The unchanged replay of all shares, and what the median rank would take."""

    def __init__(self, cut: shares.Shares, join_end_ns: np.ndarray):
        self._cut, self._join_end = cut, join_end_ns
        order = np.argsort(cut.arrivals.share, kind="stable")
        first = np.searchsorted(cut.arrivals.share[order], np.arange(cut.n + 1))
        self._arrivals = [order[a:b] for a, b in pairwise(first)]
        self._medians = Medians(cut.columns)
        done = sweep.over(self._replay, range(cut.n), tasks=cut.load)
        self._medians.find(cut.n)
        self.arrive_end_ns = np.empty(len(cut.arrivals.share), np.int64)
        for at, share in zip(self._arrivals, done, strict=True):
            self.arrive_end_ns[at] = share.arrive_end_ns
        share = np.repeat(np.arange(cut.n), [len(s.marks) for s in done])
        self.marks = path.Marks(share, *np.concatenate([s.marks for s in done]).T)
        self._ranks = distinct(np.concatenate([s.ranks for s in done]))[0]
        self._arrived = np.concatenate([s.arrived for s in done], axis=1)

    def _replay(self, share: int) -> _Share:
        """Fills a share's gaps and spans, and keeps them with its ends and steps."""
        cut, columns = self._cut, self._cut.columns
        graph = cut.graph(share)
        is_join = graph.kind == Kind.JOIN
        end = np.empty(graph.n, np.int64)
        end[is_join] = self._join_end[graph.collective[is_join]]
        gap, dur = np.zeros(graph.n, np.int64), graph.dur_ns.copy()
        _fill(
            graph.extra["pin"], is_join, graph.start_ns, graph.end_ns, graph.pred_ptr, graph.pred,
            graph.release_ns, gap, dur, end, int(NULL),
        )  # fmt: skip
        graph = graph.with_(gap_ns=gap, dur_ns=dur)
        step = task_steps(ReplayJob(graph, facts=cut.frames))
        columns.put(share, gap_ns=gap, dur_ns=dur, replayed_ns=end, task_step=step)
        self._medians.take(share, graph, step)
        begins, ends = graph.extra["begins"], graph.extra["ends"]
        marks = np.flatnonzero((begins != NULL) | (ends != NULL))
        start = end[marks] - dur[marks]
        said = marks, graph.rank[marks], begins[marks], ends[marks], start
        ranks = distinct(graph.rank[graph.rank >= 0])[0]
        its = cut.arrivals.task[self._arrivals[share]]
        arrive = np.flatnonzero(graph.kind == Kind.ARRIVE)
        arrived = np.stack([graph.rank[arrive], graph.collective[arrive], end[arrive]])
        return _Share(end[its], np.stack(said, axis=1), ranks, arrived)

    def replayed(self, share: int) -> tuple[TaskGraph, np.ndarray, np.ndarray]:
        """A share with its gaps and spans, and its starts and ends (int64 [n], ns)."""
        gap, end = self._cut.columns.some(share, "gap_ns", "replayed_ns")
        graph = self._cut.graph(share).with_(gap_ns=gap)
        return graph, end - graph.dur_ns, end

    def contracted(self, share: int) -> moments.Said:
        """The moments of a share as it is, and with each rank as the median one."""
        graph, _, _ = self.replayed(share)
        step = self._cut.columns.get(share, "task_step")
        dur, gap = self._medians.at_median(share, graph, step)
        more = np.stack([graph.gap_ns + graph.dur_ns, gap + dur], axis=1)
        kept = (graph.extra["begins"] != NULL) | (graph.extra["ends"] != NULL)
        return _said(graph, kept, more, np.full(graph.n, NULL))

    def slack(self, both: moments.Moments) -> pa.RecordBatch:
        """The table `slack`, as `slack.rows`."""
        marks = self.marks
        bound = np.full(len(both.ptr) - 1, slack.UNBOUNDED)
        ending = np.flatnonzero(marks.ends != NULL)
        over = slack.last_of(marks.ends[ending], marks.start_ns[ending])
        bound[both.asked[ending]] = over
        join = moments.latest(both, bound, slack.UNBOUNDED)[both.join]
        by_share = [ending[marks.share[ending] == s] for s in range(self._cut.n)]

        def later(share: int) -> pl.DataFrame:
            graph, _, end = self.replayed(share)
            latest = np.full(graph.n, slack.UNBOUNDED, np.int64)
            its = by_share[share]
            latest[marks.task[its]] = over[np.searchsorted(ending, its)]
            is_join = graph.kind == Kind.JOIN
            latest[is_join] = join[graph.collective[is_join]]
            found = slack.backward(graph, latest, end)
            return slack.by_name(graph, found, self._cut.columns.get(share, "task_step"))

        found = sweep.over(later, range(self._cut.n), tasks=self._cut.load)
        return slack.table(pl.concat(found), self._cut.op_names)

    def scores(self, both: moments.Moments, marks: timing.Marks) -> pa.RecordBatch:
        """The table `replay_scores`, as `scores.rows`."""

        def others(ranks: np.ndarray) -> np.ndarray:
            at = moments.one_rank_other(both, both.asked[marks.tasks], ranks)
            return np.stack([marks.times(one) for one in at])

        how = scores.held_up(self._ranks, *self._arrived)
        base = marks.times(self.marks.start_ns[marks.tasks])
        return scores.rows(scores.of_times(self._ranks, how, base, others))


@compiled
def _fill(
    pin, is_join, start, measured, pred_ptr, pred, release, gap, dur, end, null
):  # pragma: no cover - compiled
    """As `residual.fill`, where the ends of joins are known; `end` gets the others'."""
    for i in range(len(dur)):
        if is_join[i]:
            continue
        a, b = pred_ptr[i], pred_ptr[i + 1]
        ready = release[i] if a == b else end[pred[a]]
        for e in range(a + 1, b):
            ready = max(ready, end[pred[e]])
        if start[i] == null:
            end[i] = ready + dur[i]
            continue
        if pin[i] == 1:
            dur[i] = max(0, measured[i] - ready)
        else:
            gap[i] = max(0, start[i] - ready)
        end[i] = ready + gap[i] + dur[i]
