"""The what-if of a report: which policies a job is tried under, and what came of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..ingest.errors import RetimeError

if TYPE_CHECKING:
    from ..replay.run import Baseline
    from .doors import Job


def candidates(facts: Mapping[str, Any], ops: set[str]) -> list[tuple[str, str]]:
    """Policies worth trying on a job, with what each asks in words.

    `facts` is `Job.show()`, with a culprit of its own or of a replay (`culprit.find`); `ops` the
    operations of its collectives.
    """
    out = []
    if facts.get("waited_for") is not None:
        out.append(("align-arrivals", "nobody arrives late"))
    culprit = facts.get("culprit")
    if culprit is not None:
        rank = culprit["rank"]
        out.append((f"align-arrivals:ranks={rank}", f"rank {rank} is not late"))
    if facts.get("framework") == "recorded":
        out.append(("align-arrivals:to=ideal", "every operation at its ideal"))
    elif "all_reduce" in ops:
        out.append(("algorithm:op=all_reduce,algo=ring", "all-reduce as a ring"))
        out.append(("algorithm:op=all_reduce,algo=tree", "all-reduce as a tree"))
    return out


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
    tried: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The baseline (`measured_ns`, `replayed_ns`, `fidelity_pct`, `critical_path`) and `rows`.

    `lead` names the policies about lateness, which a headline quotes. A row has the policy as
    typed, `words`, and either the entry of the replay or `error`, the sentence that says why there
    is none. Where the job cannot be replayed at all (`base` says why), `error` is that and the
    baseline is absent. What stands in `tried` (`culprit.find`) is not replayed again.
    """
    from ..replay import run

    lead = [spec for spec, _ in tries if spec == "align-arrivals" or ":ranks=" in spec]
    out: dict[str, Any] = {"rows": [], "error": None, "lead": lead}
    if not tries:
        return out
    if isinstance(base, str):
        return {**out, "error": base}
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
            known = (tried or {}).get(spec)
            row |= run.estimate(base, run.plan([spec])[0]) if known is None else known
        except RetimeError as e:
            row["error"] = str(e)
        out["rows"].append(row)
    return out
