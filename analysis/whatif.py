"""The what-if of a report: which policies a job is tried under, and what came of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..ingest.errors import RetimeError
from .terminal import mostly_paired

if TYPE_CHECKING:
    from .doors import Job


def candidates(facts: Mapping[str, Any], ops: set[str]) -> list[tuple[str, str]]:
    """Policies worth trying on a job, with what each asks in words.

    `facts` is `Job.show()`, `ops` the operations of its collectives.
    """
    out = []
    last = facts.get("waited_for")
    if last is not None:
        out.append(("align-arrivals", "nobody arrives late"))
        if not mostly_paired(facts):
            rank = last["rank"]
            out.append((f"align-arrivals:ranks={rank}", f"rank {rank} is not late"))
    if facts.get("framework") == "recorded":
        out.append(("align-arrivals:to=ideal", "every operation at its ideal"))
    elif "all_reduce" in ops:
        out.append(("algorithm:op=all_reduce,algo=ring", "all-reduce as a ring"))
        out.append(("algorithm:op=all_reduce,algo=tree", "all-reduce as a tree"))
    return out


def estimates(job: Job, tries: list[tuple[str, str]]) -> dict[str, Any]:
    """The baseline (`measured_ns`, `replayed_ns`, `fidelity_pct`, `critical_path`) and `rows`.

    `lead` names the policies about lateness, which a headline quotes. A row has the policy as
    typed, `words`, and either the entry of the replay or `error`, the sentence that says why there
    is none. Where the job cannot be replayed at all, `error` says
    why and the baseline is absent. The graph is built once for all tries.
    """
    from ..replay import run
    from ..replay.load import load

    lead = [spec for spec, _ in tries if spec == "align-arrivals" or ":ranks=" in spec]
    out: dict[str, Any] = {"rows": [], "error": None, "lead": lead}
    if not tries:
        return out
    try:
        base = run.baseline(load(job.snapshot))
    except RetimeError as e:
        return {**out, "error": str(e)}
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
