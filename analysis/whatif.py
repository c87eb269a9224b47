"""The what-if of a report: which policies a job is tried under, and what came of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ingest.errors import RetimeError
from .query import tuples
from .sentences import began_apart, mostly_paired

if TYPE_CHECKING:
    from ..replay.run import Baseline
    from .doors import Job


TO_IDEAL = "align-arrivals:to=ideal"
"""The policy whose step is the ideal of the straggler study, with launch delays."""

CHEAP = 250_000
"""Events, and participations four times, of a job that is re-timed in about a second."""

MOST_TOGETHER = 3
"""Ranks that are tried together."""

LEAST_SHED = 0.1
"""Share of all that is shed under which a rank is not among them."""


def candidates(
    facts: Mapping[str, Any], ops: set[str], late: Sequence[int] = ()
) -> list[tuple[str, str]]:
    """Policies worth trying on a job, with what each asks in words.

    `facts` has a culprit (`culprit.find`) or None; `ops` the operations of its collectives; `late`
    the ranks that are late together (`latest`). Where most of the wait is at sends and receives
    nobody is aligned: the schedule itself makes them wait, and no work of a rank could take that
    away. Where no rank is named because ranks began recording apart, none is tried either.
    """
    out = []
    paired = mostly_paired(facts)
    if facts.get("waited_for") is not None and not paired:
        out.append(("align-arrivals", "nobody arrives late"))
    culprit = facts.get("culprit")
    if culprit is not None and not paired:
        rank = culprit["rank"]
        out.append((f"align-arrivals:ranks={rank}", f"rank {rank} is not late"))
    blamed = culprit is not None or not began_apart(facts)
    if 1 < len(late) < facts["ranks_seen"] and not paired and blamed:
        ranks = sorted(late)
        *most, last = map(str, ranks)
        said = f"ranks {', '.join(most)} and {last} together are not late"
        out.append((f"align-arrivals:ranks={'+'.join(map(str, ranks))}", said))
    if facts.get("waited_for") is not None or facts.get("framework") == "recorded" or paired:
        out.append((TO_IDEAL, "every operation takes its ideal time"))
    if facts.get("framework") != "recorded" and "all_reduce" in ops:
        out.append(("algorithm:op=all_reduce,algo=ring", "all-reduce as a ring"))
        out.append(("algorithm:op=all_reduce,algo=tree", "all-reduce as a tree"))
    return out


def latest(base: Baseline) -> list[int]:
    """Ranks that shed most work so that nobody is late: three at most, each a tenth of all of it.

    The ranks that the others wait for are not enough: with those in time others would be last.
    """
    from ..replay import run

    (policy, values), *_ = run.plan(["align-arrivals"])[0]
    graph = base.job.graph
    try:
        aligned = policy.apply(base.job, **values).graph
    except RetimeError:
        return []
    if aligned.n != graph.n:
        return []
    shed = (graph.dur_ns - aligned.dur_ns) + (graph.gap_ns - aligned.gap_ns)
    known = graph.rank >= 0
    by_rank = np.bincount(graph.rank[known], shed[known])
    most = np.argsort(-by_rank, kind="stable")[:MOST_TOGETHER]
    least = LEAST_SHED * by_rank[by_rank > 0].sum()
    return [int(r) for r in most if by_rank[r] > 0 and by_rank[r] >= least]


def is_cheap(job: Job) -> bool:
    """Is the job so small that its re-timing does not keep anybody waiting?"""
    con = job.con
    events, parts = (
        tuples(con, f"SELECT count(*) FROM {t}")[0][0] for t in ("events", "collectives")
    )
    return events + 4 * parts <= CHEAP


def of_job(job: Job, facts: Mapping[str, Any]) -> dict[str, Any]:
    """`estimates` of a job under its `candidates`; a job without steps is one window."""
    base = unchanged(job)
    if isinstance(base, str):
        return estimates(base, [])
    ops = {op for (op,) in tuples(job.con, "SELECT DISTINCT op FROM waits") if op}
    return estimates(base, candidates(facts, ops, latest(base)))


def unchanged(job: Job) -> Baseline | str:
    """The unchanged replay of a job, or the sentence that says why there is none."""
    from ..replay import run
    from ..replay.load import load

    try:
        return run.baseline(load(job.snapshot))
    except RetimeError as e:
        return str(e)


def estimates(
    base: Baseline | str,
    tries: list[tuple[str, str]],
) -> dict[str, Any]:
    """The baseline (`measured_ns`, `replayed_ns`, `fidelity_pct`, `critical_path`) and `rows`.

    `lead` names the policies about lateness, which a headline quotes. A row has the policy as
    typed, `words`, and either the entry of the replay or `error`, the sentence that says why there
    is none. Where the job cannot be replayed at all (`base` says why), `error` is that and the
    baseline is absent.
    """
    from ..replay import run

    lead = [spec for spec, _ in tries if spec == "align-arrivals" or ":ranks=" in spec]
    out: dict[str, Any] = {"rows": [], "error": None, "lead": lead}
    if isinstance(base, str):
        return {**out, "error": base}
    if not tries:
        return out
    out |= {
        "steps": base.steps.tolist(),
        "measured_ns": round(float(base.measured_ns.mean())),
        "replayed_ns": round(float(base.replayed_ns.mean())),
        "fidelity_pct": base.fidelity_pct,
        "critical_path": base.path._asdict(),
    }
    for spec, words in tries:
        row = {"policy": spec, "words": words, "error": None}
        try:
            row |= run.estimate(base, run.plan([spec])[0])
        except RetimeError as e:
            row["error"] = str(e)
        out["rows"].append(row)
    return out
