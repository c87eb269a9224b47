"""Everything that the page says of a job, computed once: frames and figures, no markup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import frames, whatif
from ..query import compute_once
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
    compute_once(con, *SHARED)
    none = "the page was made without what is re-timed"
    found = job.whatif(facts) if estimates else whatif.estimates(none, [])
    return {
        "facts": facts,
        "ranks": stretches.lanes(con),
        "steps": stretches.steps(con),
        "timeline": timeline.gather(con),
        "breakdown": frames.split(con, "rank"),
        "waits_by_dim": frames.waits_by_dim_and_op(con),
        "stragglers": stragglers.gather(con, scores=bool(estimates and facts["steps"])),
        "study": job.study_of_pairs(facts) if estimates else None,
        "bandwidth": bandwidth.gather(con),
        "overlap": frames.overlap_by_rank(con),
        "rails": rails.gather(con),
        "experts": experts.gather(con),
        "contention": contention.gather(con),
        "whatif": found,
        "problems": frames.problem_kinds(con).to_dicts(),
    }
