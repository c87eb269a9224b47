"""The what-if of a report: which policies a job is tried under, and what came of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ingest.errors import RetimeError
from .doors import Job, replay


def candidates(facts: Mapping[str, Any], ops: set[str]) -> list[tuple[str, str]]:
    """Policies worth trying on a job, with what each asks in words.

    `facts` is `Job.show()`, `ops` the operations of its collectives.
    """
    out = [("align-arrivals", "nobody arrives late")]
    last = facts.get("waited_for")
    if last is not None:
        out.append((f"align-arrivals:ranks={last['rank']}", f"rank {last['rank']} is not late"))
    if facts.get("framework") == "recorded":
        out.append(("align-arrivals:to=ideal", "every operation at its ideal"))
    if "all_reduce" in ops:
        out.append(("algorithm:op=all_reduce,algo=ring", "all-reduce as a ring"))
        out.append(("algorithm:op=all_reduce,algo=tree", "all-reduce as a tree"))
    return out


def estimates(job: Job, tries: list[tuple[str, str]]) -> dict[str, Any]:
    """The baseline (`measured_ns`, `replayed_ns`, `fidelity_pct`, `error`) and `rows`.

    A row has the policy as typed, `words`, and either the entry of the replay or `error`, the
    sentence that says why there is none.
    """
    out: dict[str, Any] = {"rows": [], "error": None}
    for spec, words in tries:
        try:
            result = replay(job, [spec])
        except RetimeError as e:
            out["rows"].append({"policy": spec, "words": words, "error": str(e)})
            continue
        out |= {k: result[k] for k in ("measured_ns", "replayed_ns", "fidelity_pct", "steps")}
        entry = result["policies"][-1]
        out["rows"].append({"policy": spec, "words": words, "error": None, **entry})
    if out["rows"] and all(r["error"] for r in out["rows"]):
        out["error"] = out["rows"][0]["error"]
    return out
