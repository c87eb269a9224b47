"""Everything that the page says of a job, computed once: frames and figures, no markup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ingest.errors import RetimeError
from ...queries.loader import materialise
from .. import culprit, frames, whatif
from ..terminal import mostly_paired
from . import bandwidth, contention, experts, rails, stragglers, stretches, timeline

if TYPE_CHECKING:
    from ..doors import Job

SHARED = ("overlap", "rail_load", "rail_imbalance", "expert_load", "expert_imbalance")
"""Views that panels and other views ask for, and that take a while; `Job.show` keeps others."""


def gather(job: Job, *, estimates: bool = True) -> dict[str, Any]:
    """What `page` shows of a job, by panel; `estimates` False leaves out all that is re-timed."""
    facts = job.show()
    con = job.con
    # Each is asked for more than once, by other views too.
    materialise(con, *SHARED)
    dims = frames.waits_by_dim_and_op(con)
    ops = {op for op in dims["op"].to_list() if op}
    base: Any = "the page was made without what is re-timed"
    tried: dict[str, Any] = {}
    tries: list[tuple[str, str]] = []
    if estimates:
        # A job without steps is replayed as one window.
        base = whatif.unchanged(job)
    if not isinstance(base, str):
        facts["culprit"] = culprit.find(job, facts, base, tried)
        tries = whatif.candidates(facts, ops, whatif.latest(base))
    return {
        "facts": facts,
        "ranks": stretches.lanes(con),
        "steps": stretches.steps(con),
        "timeline": timeline.gather(con),
        "breakdown": frames.split(con, "rank"),
        "waits_by_dim": dims,
        "stragglers": stragglers.gather(con, scores=bool(estimates and facts["steps"])),
        "study": _study(job, facts) if estimates else None,
        "bandwidth": bandwidth.gather(con),
        "overlap": frames.overlap_by_rank(con),
        "rails": rails.gather(con),
        "experts": experts.gather(con),
        "contention": contention.gather(con),
        "whatif": whatif.estimates(base, tries, tried),
        "problems": frames.problem_kinds(con).to_dicts(),
    }


def _study(job: Job, facts: dict[str, Any]) -> dict[str, Any] | None:
    """The straggler study of a job that mostly waits in pairs or is of recorded operations."""
    if not facts["steps"] or not (facts["framework"] == "recorded" or mostly_paired(facts)):
        return None
    try:
        return job.stragglers()
    except RetimeError:
        return None
