"""What stragglers cost: a job's step against its ideal, by operation, rank and stage.

Definitions of the straggler study (OSDI'25). T is the mean step of a replay without launch
delays; T_ideal the same with every operation at its ideal (`ideal.durations_ns`). The slowdown
S = T / T_ideal. The slowdown of a group keeps that group at its own durations while all else is
ideal. A worker's score is the lower of its dp rank's and its stage's slowdown. M_W (M_S) is the
share of T - T_ideal that goes away when only the slowest 3 % of the workers by score, at least
one (only the last stage), are made ideal.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import islice
from math import ceil
from typing import Any

import numpy as np

from ...ingest.errors import UnusableInput
from ...ingest.tasks.codes import distinct
from .. import lanes, load, recorded, steps
from ..graph import Kind, TaskGraph
from . import ideal

SLOWEST_SHARE = 0.03
MAX_OPS = 32


@dataclass(frozen=True)
class Stragglers:
    """Times are means over steps in ns; slowdowns and shares have no unit; None: not defined."""

    slowdown: float
    m_w: float | None
    m_s: float | None
    launch_slowdown: float
    """Measured step over the replay without launch delays."""
    measured_ns: float
    replayed_ns: float
    ideal_ns: float
    slowest_ranks: list[int]
    by_op: list[dict[str, Any]]
    by_rank: list[dict[str, Any]]
    by_stage: list[dict[str, Any]]
    by_dp_rank: list[dict[str, Any]]
    by_step: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """What `retime stragglers --json` prints."""
        return asdict(self)


def of_snapshot(snapshot: Any) -> Stragglers:
    """`analyse` of a job in the warehouse, on the graph that the study's definitions need.

    For recorded operations that is the one without launch delays and with the dependencies of
    the schedule only. Raises UnusableInput for a job without steps or with nothing to replay.
    """
    if load.source(snapshot.files) == "recorded":
        graph = recorded.load(snapshot.files, job=snapshot.job, launches=False).graph
    else:
        graph = load.load(snapshot).graph
    if not (graph.step >= 0).any():
        raise UnusableInput(f"job {snapshot.job!r} has no steps: there is no ideal to compare")
    return analyse(graph)


def analyse(graph: TaskGraph) -> Stragglers:
    """Slowdowns of a job from its task graph.

    Launch delays (`gap_ns`) are left out for recorded operations, as the study does. A traced
    job (a graph with marks, `steps.step_times`) keeps them: they pin what the trace does not
    name, and without them its ranks would no longer start their steps where they did.
    Stages and dp ranks come from `graph.extra` ("stage", "dp_rank") where the source has them;
    without them `by_stage`, `by_dp_rank` are empty, m_s is None and a worker's score is its own
    slowdown. Ops are those of `graph.op_names`, send and recv of one direction taken together,
    beyond the 32 that differ most from their ideal counted as "other".
    Raises ValueError for a graph without steps.
    """
    if "begins" not in graph.extra:
        graph = graph.with_(gap_ns=np.zeros_like(graph.gap_ns))
    best = ideal.durations_ns(graph)
    if not (graph.step >= 0).any():
        raise ValueError("the graph has no steps to compare")
    op, op_names = _operations(graph, best)
    ranks, rank = _groups(graph.rank)
    stages, stage = _groups(graph.extra.get("stage"))
    dp_ranks, dp = _groups(graph.extra.get("dp_rank"))
    all_own, none = (np.zeros(graph.n, np.int8), 0), (np.zeros(graph.n, np.int8), 1)
    groupings = ((op, len(op_names)), (stage, len(stages)), (dp, len(dp_ranks)), (rank, len(ranks)))
    groups = [(group, i) for group, count in groupings for i in range(count)]
    spans = lanes.step_times(graph, best, [all_own, none, *groups])
    numbers, measured = steps.measured(graph)
    own, perfect, *each = spans.mean(axis=1).tolist()
    if not perfect > 0:
        raise UnusableInput("the ideal step takes no time: the recorded durations are all 0")
    measured_ns = float(measured.mean())
    slowdowns = iter([t / perfect for t in each])
    by_op, by_stage, by_dp, by_rank = ([*islice(slowdowns, count)] for _, count in groupings)

    first = _first(rank, len(ranks))
    stage_of = stage[first] if len(stages) else np.full(len(ranks), -1)
    dp_of = dp[first] if len(dp_ranks) else np.full(len(ranks), -1)
    score = [
        min(by_dp[d], by_stage[s]) if min(d, s) >= 0 else alone
        for s, d, alone in zip(stage_of, dp_of, by_rank, strict=True)
    ]
    slowest = [int(i) for i in np.argsort(-np.array(score), kind="stable")]
    slowest = slowest[: max(1, ceil(SLOWEST_SHARE * len(ranks)))]
    # Groups made ideal while the rest keep their own durations.
    rest = [(np.isin(rank, slowest), False)]
    if len(stages) > 1:
        rest.append((stage == len(stages) - 1, False))
    without = lanes.step_times(graph, best, rest).mean(axis=1).tolist()
    over = own - perfect
    return Stragglers(
        slowdown=own / perfect,
        m_w=(own - without[0]) / over if over > 0 else None,
        m_s=(own - without[1]) / over if over > 0 and len(stages) > 1 else None,
        launch_slowdown=measured_ns / own,
        measured_ns=measured_ns,
        replayed_ns=own,
        ideal_ns=perfect,
        slowest_ranks=[int(ranks[i]) for i in slowest],
        by_op=_rows({"op": op_names, "slowdown": by_op}, worst_first=True),
        by_rank=_rows(
            {
                "rank": ranks,
                "stage": [int(stages[s]) if s >= 0 else None for s in stage_of],
                "dp_rank": [int(dp_ranks[d]) if d >= 0 else None for d in dp_of],
                "slowdown": by_rank,
                "score": score,
            }
        ),
        by_stage=_rows({"stage": stages, "slowdown": by_stage}),
        by_dp_rank=_rows({"dp_rank": dp_ranks, "slowdown": by_dp}),
        by_step=_rows(
            {
                "step": numbers,
                "measured_ns": measured,
                "replayed_ns": spans[0],
                "ideal_ns": spans[1],
                "slowdown": spans[0] / spans[1],
            }
        ),
    )


def _operations(graph: TaskGraph, best: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Code of each task's operation (-1: none) and the codes' names."""
    names = [n.removesuffix("send").removesuffix("recv") for n in graph.op_names]
    named = zip(names, graph.op_names, strict=True)
    names = [short + "pp-comm" if short.endswith("-") else full for short, full in named]
    kept = sorted(set(names))
    # A place more, at the end, for the tasks of none.
    code = np.array([kept.index(n) for n in names] + [len(kept)])[graph.op]
    code[~graph.is_(*ideal.WORK, Kind.TRANSFER)] = len(kept)
    off = np.bincount(code, np.abs(graph.dur_ns - best), len(kept) + 1)[:-1]
    used = np.bincount(code, minlength=len(kept) + 1)[:-1] > 0
    ranked = np.argsort(-off, kind="stable")
    ranked = ranked[used[ranked]]
    top = ranked[:MAX_OPS]
    place = np.full(len(kept) + 1, -1)
    place[ranked] = len(top)
    place[top] = np.arange(len(top))
    out = [kept[i] for i in top] + (["other"] if len(ranked) > len(top) else [])
    return place[code], out


def _groups(column: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The values of a column from 0 on, sorted, and each task's place among them (-1: none)."""
    if column is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    values, place = distinct(column)
    none = int(np.searchsorted(values, 0))
    return values[none:], np.maximum(place - none, -1).astype(np.int32)


def _first(place: np.ndarray, count: int) -> np.ndarray:
    """The first task of each of `count` groups, int64."""
    known = np.flatnonzero(place >= 0)[::-1]
    first = np.zeros(count, np.int64)
    first[place[known]] = known
    return first


def _rows(columns: dict[str, Any], *, worst_first: bool = False) -> list[dict[str, Any]]:
    plain = {k: np.asarray(v).tolist() for k, v in columns.items()}
    rows = [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
    return sorted(rows, key=lambda r: -r["slowdown"]) if worst_first else rows
