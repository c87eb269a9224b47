"""The links inside a job's hosts: of its own collectives there, else of its devices' name."""

from __future__ import annotations

from ..policy import ReplayJob
from . import calibrate, link_sources


def link(job: ReplayJob, op: str) -> link_sources.Found:
    """Alpha, bandwidth and words: fitted to a communicator that is on one host, else assumed.

    Of several such communicators the one that carried the largest `op`.
    """
    graph = job.facts.get("measured", job.graph)
    best: calibrate.Link | None = None
    for name in graph.comm_names:
        found = calibrate.link(job, name, op)
        if found.level == "intra host" and found.source == "fitted":
            best = found if best is None or found.max_bytes > best.max_bytes else best
    if best is not None:
        return best.alpha_ns, best.bandwidth_bytes_per_s, best.words
    return link_sources.machine(job, "intra host")
