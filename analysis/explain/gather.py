"""Everything that an explanation shows, from a job and what its replay says of some policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from ...replay import run
from ...replay.policy import ReplayJob
from ...replay.scenarios import Chosen
from .. import units
from ..replay_screen import policy_words
from ..screen import clean
from . import chosen, drawing, moved, names, pairs, sides


def gather(
    job: ReplayJob,
    result: Mapping[str, Any],
    plans: Sequence[Sequence[Chosen]],
    asked: int | None = None,
) -> dict[str, Any]:
    """What `page` draws: of `run.replay`'s result, whose scenarios were `plans`, on a step.

    `result`; `entry`, the scenario drawn; `step` (`chosen.Step`); `sides`, `before_ns` and
    `after_ns`; `by_rank`, `by_name` and `singles` (`moved`); `drawing` (`drawing.data`); `ranks`
    and `n_ranks`; `doubts`, the warnings that come before all; `beside`, what is to be said of the
    drawing; `time_factor`, what the estimate has more of than steps (checkpoints, failures).
    """
    at = chosen.scenario(result["policies"])
    entry = result["policies"][at]
    base = run.baseline(job)
    step = chosen.step(base.job.graph, asked)
    lines = run.timelines(base, plans[at], (step.step,))
    graph, after_graph = base.job.graph, lines.after.graph
    before = sides.of(graph, lines.before_start_ns, lines.before_end_ns, step.step)
    after = sides.of(after_graph, lines.after_start_ns, lines.after_end_ns, step.step)
    same = pairs.of(graph, after_graph)
    inside = moved.members(before, after, same, step.step)
    rows = sides.stretches(before), sides.stretches(after)
    by_rank = moved.by_rank(before, after, *rows)
    hosts = _hosts(base.job.facts)
    dim_of = names.dims(base.job.facts)
    lanes = drawing.kept(by_rank, hosts)
    picture = drawing.data((before, after), rows, same, lanes, hosts, dim_of)
    words = policy_words(entry)
    for side, of, title in zip(
        picture["sides"], (before, after), ("Before, as re-timed", f"After {words}"), strict=True
    ):
        side["title"] = f"{title}: {units.time(of.step_ns, 4)}"
    return {
        "result": result,
        "entry": entry,
        "step": step,
        "sides": (before, after),
        "before_ns": before.step_ns,
        "after_ns": after.step_ns,
        "by_rank": by_rank,
        "by_name": moved.by_name(before, after, inside),
        "singles": moved.singles(before, after, inside, same, dim_of),
        "drawing": picture,
        "ranks": [{"rank": r, "host": _clean(hosts.get(r))} for r in before.ranks.tolist()],
        "n_ranks": len(before.ranks),
        "doubts": [w for w in entry["warnings"] if w.startswith(run.DOUBTFUL)],
        "beside": _beside(same, len(result["steps"]) > 1),
        "time_factor": float(lines.after.facts.get("time_factor", 1.0)),
    }


def _beside(same: pairs.Pairs, several: bool) -> list[str]:
    said = []
    if len(same.new) or len(same.gone):
        said.append(
            f"the policy makes {units.counted(len(same.new), 'task')} that the trace has not and "
            f"does without {units.count(len(same.gone))}: such a job is re-timed whole, and the "
            "step drawn comes behind what it makes of the steps before"
        )
    elif several:
        said.append(
            "in the drawing only this step is changed: it begins as it did, and the steps before "
            "and behind it are as they were"
        )
    return said


def _hosts(facts: Mapping[str, Any]) -> dict[int, str | None]:
    ranks = facts.get("ranks")
    if not isinstance(ranks, pl.DataFrame) or "host" not in ranks.columns:
        return {}
    return dict(ranks.select("rank", pl.col("host").cast(pl.String)).iter_rows())


def _clean(host: str | None) -> str | None:
    return None if host is None else clean(host)
