"""What stragglers cost: a job's step against its ideal, by operation, rank and stage.

Definitions of the straggler study (OSDI'25). T is the mean step of a replay without launch
delays; T_ideal the same with every operation at its ideal (`ideal.durations_ns`). The slowdown
S = T / T_ideal. The slowdown of a group keeps that group at its own durations while all else is
ideal. A worker's score is the lower of its dp rank's and its stage's slowdown. M_W (M_S) is the
share of T - T_ideal that goes away when only the slowest 3 % of the workers by score, at least
one (only the last stage), are made ideal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

import numpy as np

from ...ingest.errors import UnusableInput
from .. import engine, load, recorded, steps
from ..graph import Kind, TaskGraph
from . import ideal

SLOWEST_SHARE = 0.03
MAX_OPS = 32
CELLS = 1 << 24
"""Tasks times what-ifs that are replayed at once: bounds memory, not the result."""


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
    numbers, spans = _spans(graph, np.stack([graph.dur_ns, best]))
    _, measured = steps.measured(graph)
    own, perfect = spans.mean(axis=1).tolist()
    if not perfect > 0:
        raise UnusableInput("the ideal step takes no time: the recorded durations are all 0")
    measured_ns = float(measured.mean())

    def slowdowns(masks: Sequence[np.ndarray]) -> list[float]:
        return [t / perfect for t in _means(graph, best, masks)]

    op, op_names = _operations(graph, best)
    ranks = np.unique(graph.rank[graph.rank >= 0])
    first = np.array([int(np.argmax(graph.rank == r)) for r in ranks])
    stage, stages = _groups(graph, "stage")
    dp, dp_ranks = _groups(graph, "dp_rank")
    by_op = slowdowns([op == i for i in range(len(op_names))])
    by_stage = slowdowns([stage == s for s in stages])
    by_dp = slowdowns([dp == d for d in dp_ranks])
    by_rank = slowdowns([graph.rank == r for r in ranks])
    if len(stages) and len(dp_ranks):
        of_stage = dict(zip(stages, by_stage, strict=True))
        of_dp = dict(zip(dp_ranks, by_dp, strict=True))
        score = [min(of_dp[dp[i]], of_stage[stage[i]]) for i in first]
    else:
        score = by_rank
    slowest = [int(i) for i in np.argsort(-np.array(score), kind="stable")]
    slowest = slowest[: max(1, ceil(SLOWEST_SHARE * len(ranks)))]
    # Groups made ideal while the rest keep their own durations.
    rest = [~np.isin(graph.rank, ranks[slowest])]
    if len(stages) > 1:
        rest.append(stage != stages[-1])
    without = _means(graph, best, rest)
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
                "stage": stage[first] if len(stages) else [None] * len(ranks),
                "dp_rank": dp[first] if len(dp_ranks) else [None] * len(ranks),
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


def _spans(graph: TaskGraph, durations_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and how long each took in each what-if, float64 [k, s]."""
    starts, ends = engine.replay_many(graph, durations_ns)
    timed = [steps.step_times(graph, *both) for both in zip(starts, ends, strict=True)]
    return timed[0][0], np.stack([took for _, took in timed])


def _means(graph: TaskGraph, best: np.ndarray, own: Sequence[np.ndarray]) -> list[float]:
    """Mean step of a what-if for each mask: own durations where it holds, else the ideal."""
    at_once = max(1, CELLS // max(graph.n, 1))
    means: list[float] = []
    for k in range(0, len(own), at_once):
        durations = [np.where(mask, graph.dur_ns, best) for mask in own[k : k + at_once]]
        _, spans = _spans(graph, np.stack(durations))
        means += spans.mean(axis=1).tolist()
    return means


def _operations(graph: TaskGraph, best: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Code of each task's operation (-1: none) and the codes' names."""
    names = [n.removesuffix("send").removesuffix("recv") for n in graph.op_names]
    named = zip(names, graph.op_names, strict=True)
    names = [short + "pp-comm" if short.endswith("-") else full for short, full in named]
    kept = sorted(set(names))
    code = np.array([kept.index(n) for n in names] + [-1])[graph.op]
    used = (code >= 0) & np.isin(graph.kind, [*ideal.WORK, Kind.TRANSFER])
    code = np.where(used, code, -1)
    off = np.bincount(code[used], np.abs(graph.dur_ns - best)[used], len(kept))
    ranked = np.argsort(-off, kind="stable")
    ranked = ranked[np.isin(ranked, code)]
    top = ranked[:MAX_OPS]
    place = np.full(len(kept) + 1, -1)
    place[ranked] = len(top)
    place[top] = np.arange(len(top))
    out = [kept[i] for i in top] + (["other"] if len(ranked) > len(top) else [])
    return place[code], out


def _groups(graph: TaskGraph, name: str) -> tuple[np.ndarray, np.ndarray]:
    column = graph.extra.get(name)
    if column is None:
        column = np.full(graph.n, -1)
    return column, np.unique(column[column >= 0])


def _rows(columns: dict[str, Any], *, worst_first: bool = False) -> list[dict[str, Any]]:
    plain = {k: np.asarray(v).tolist() for k, v in columns.items()}
    rows = [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
    return sorted(rows, key=lambda r: -r["slowdown"]) if worst_first else rows
