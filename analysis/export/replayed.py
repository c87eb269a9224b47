"""Replayed timelines: what each rank would have done when under a policy, as a process each."""

from __future__ import annotations

from collections.abc import Sequence as Several
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from ...replay import run
from ...replay import steps as timing
from ...replay.graph import NULL, Kind, TaskGraph
from ...replay.load import load

if TYPE_CHECKING:
    from .chosen import Chosen
    from .perfetto import TraceFile

UNCHANGED = "unchanged"
"""What is asked for in the place of a policy to see the replay that changes nothing."""

KINDS = {
    "compute": ("kernel", (Kind.COMPUTE, Kind.OTHER)),
    "copies": ("memcpy", (Kind.COPY,)),
    "host": ("host_op", (Kind.HOST,)),
}
"""Tracks of a rank beside steps, waits and transfers: the kind that chooses them, their tasks."""


class Replay(NamedTuple):
    """One replayed timeline: its name, the graph as re-timed, when each task starts and ends."""

    name: str
    graph: TaskGraph
    start_ns: np.ndarray
    end_ns: np.ndarray
    warnings: tuple[str, ...]
    inside: np.ndarray | None = None
    """bool [n]: tasks that are written; None for those of the chosen steps."""

    def write(self, file: TraceFile, ranks: Several[int], chosen: Chosen) -> None:
        """Writes it as a process of its own, with a track a rank."""
        number = file.tracks
        pid = max(ranks, default=0) + 1 + number
        process = file.process(pid, f"replay: {self.name}", ("re-timed, not measured",), pid)
        sequence = file.sequence()
        inside = self._inside(chosen)
        arrive, transfer = timing.participations(self.graph)
        parts = np.stack([arrive, transfer])[:, inside[transfer]]
        tasks, parts = _of_ranks(self.graph, np.flatnonzero(inside), parts, ranks)
        for place, rank in enumerate(ranks):
            above = file.track(f"rank {rank}", process, place)
            tracks = self._tracks(rank, chosen, tasks[rank], parts[rank])
            for at, (name, frame) in enumerate(tracks):
                if len(frame):
                    from .timeline import on_lanes

                    group = np.zeros(len(frame), np.int64)
                    track = on_lanes(file, frame, group, {0: (name, above, at)}, False)
                    sequence.slices(frame, track)

    def _inside(self, chosen: Chosen) -> np.ndarray:
        """bool [n]: what is written. What a policy made was never measured, but is of a step."""
        graph = self.graph
        if self.inside is not None:
            return self.inside
        if chosen.steps is None:
            return np.ones(graph.n, bool)
        inside = (graph.start_ns == NULL) & np.isin(graph.step, chosen.steps)
        for step in chosen.steps:
            inside |= timing.within(graph, step)
        return inside

    def _tracks(
        self, rank: int, chosen: Chosen, tasks: np.ndarray, parts: np.ndarray
    ) -> list[tuple[str, pl.DataFrame]]:
        """The rank's tracks, of its tasks [k] and of its participations' arrivals and transfers."""
        graph = self.graph
        found = []
        if chosen.has("step"):
            found.append(("steps", self._steps(rank, chosen)))
        arrive, transfer = parts
        ready = self.start_ns[transfer]
        if chosen.has("wait"):
            found.append(("waits", self._frame(transfer, self.end_ns[arrive], ready, "wait ({})")))
        if chosen.has("transfer"):
            found.append(("transfers", self._frame(transfer, ready, self.end_ns[transfer])))
        for name, (kind, kinds) in KINDS.items():
            if chosen.has(kind):
                at = tasks[np.isin(graph.kind[tasks], kinds)]
                found.append((name, self._frame(at, self.start_ns[at], self.end_ns[at])))
        return found

    def _frame(
        self, task: np.ndarray, start: np.ndarray, end: np.ndarray, form: str = "{}"
    ) -> pl.DataFrame:
        """Slices of tasks, without those that take no time."""
        graph = self.graph
        names = np.array([*graph.op_names, "?"], dtype=object)[graph.op[task]]
        event = graph.extra.get("event_id", np.full(graph.n, -1))[task]
        known = graph.start_ns[task] != NULL
        lasts = pl.Series(end > start)
        frame = pl.DataFrame(
            {
                "start_ns": start,
                "end_ns": end,
                "name": pl.Series(names, dtype=pl.String),
                "step": graph.step[task],
                "bytes": graph.bytes[task],
                "event_id": event,
                "measured_start_ns": np.where(known, graph.start_ns[task], 0),
                "measured_dur_ns": np.where(known, graph.end_ns[task] - graph.start_ns[task], -1),
            }
        )
        there = pl.col("measured_dur_ns") >= 0
        return frame.filter(lasts).with_columns(
            pl.format(form, "name").alias("name"),
            pl.when(pl.col("step") >= 0).then("step").alias("step"),
            pl.when(pl.col("bytes") > 0).then("bytes").alias("bytes"),
            pl.when(pl.col("event_id") >= 0).then("event_id").alias("event_id"),
            pl.when(there).then("measured_start_ns").alias("measured_start_ns"),
            pl.when(there).then("measured_dur_ns").alias("measured_dur_ns"),
        )

    def _steps(self, rank: int, chosen: Chosen) -> pl.DataFrame:
        graph, mine = self.graph, self.graph.rank == rank
        if "begins" in graph.extra:
            opens = np.flatnonzero(mine & (graph.extra["begins"] != NULL))
            closes = np.flatnonzero(mine & (graph.extra["ends"] != NULL))
            spans = _by_step(
                np.concatenate([graph.extra["begins"][opens], graph.extra["ends"][closes]]),
                np.concatenate([self.start_ns[opens], self.start_ns[closes]]),
            )
        else:
            at = np.flatnonzero(mine & (graph.step >= 0))
            spans = _by_step(
                np.concatenate([graph.step[at]] * 2),
                np.concatenate([self.start_ns[at], self.end_ns[at]]),
            )
        if chosen.steps is not None:
            spans = spans.filter(pl.col("step").is_in(chosen.steps))
        return spans.with_columns(name=pl.format("step {}", "step"))


def _of_ranks(
    graph: TaskGraph, tasks: np.ndarray, parts: np.ndarray, ranks: Several[int]
) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """By rank its tasks [k], and its columns of `parts` [2, k] (tasks too), each in order."""
    found = []
    for of, rows in ((tasks, tasks[None]), (parts[1], parts)):
        order = np.argsort(graph.rank[of], kind="stable")
        sorted_ranks = graph.rank[of][order]
        at = np.searchsorted(sorted_ranks, [ranks, np.add(ranks, 1)] if len(ranks) else [[], []])
        found.append({r: rows[:, order[a:b]] for r, a, b in zip(ranks, *at.tolist(), strict=True)})
    return {r: rows[0] for r, rows in found[0].items()}, found[1]


def _by_step(step: np.ndarray, time: np.ndarray) -> pl.DataFrame:
    return (
        pl.DataFrame({"step": step, "time": time})
        .group_by("step")
        .agg(start_ns=pl.col("time").min(), end_ns=pl.col("time").max())
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .sort("start_ns")
    )


def scenarios(snapshot: Any, policies: Several[Any], steps: tuple[int, ...] | None) -> list[Replay]:
    """The replays asked for, in that order: `unchanged`, each policy alone, then all together.

    With `steps` a policy changes only these: they begin when they did. Raises what
    `replay.run.replay` raises.
    """
    policies = [policies] if isinstance(policies, str) else list(policies)
    if not policies:
        return []
    plain = [p for p in policies if p == UNCHANGED]
    plans = run.plan([p for p in policies if p != UNCHANGED])
    base = run.baseline(load(snapshot))
    said = base.job.warnings
    found = []
    if plain:
        found.append(Replay(UNCHANGED, base.job.graph, base.start_ns, base.end_ns, said))
    for scenario in plans:
        lines = run.timelines(base, scenario, steps)
        after = lines.after
        found.append(
            Replay(
                _name(scenario),
                after.graph,
                lines.after_start_ns,
                lines.after_end_ns,
                tuple(dict.fromkeys((*said, *after.warnings))),
            )
        )
    return found


def _name(scenario: tuple[run.Chosen, ...]) -> str:
    """`name` with the parameters that are not as they are by default."""
    words = []
    for policy, values in scenario:
        default = {p.name: p.default for p in policy.params}
        given = [f"{k}={_text(v)}" for k, v in values.items() if v != default[k]]
        words.append(policy.name + (":" + ",".join(given) if given else ""))
    return " + ".join(words)


def _text(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)
