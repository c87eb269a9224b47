"""The links inside a job's hosts: of its own collectives there, its fabric, its devices' name."""

from __future__ import annotations

from ..policy import ReplayJob
from . import calibrate, link_sources, messages


def link(job: ReplayJob, op: str) -> link_sources.Found:
    """Alpha, bandwidth and words: of a communicator of one host, else of the fabric, else assumed.

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
    there = job.facts.get("fabric")
    within = None if there is None else link_sources.inside_of(there)
    if there is not None and within is not None:
        alpha, rate = messages.inside_ns(there), within.usable_bytes_per_s
        said = f"fabric {there.name}: {alpha / 1e3:.3g} us and {rate / 1e9:.3g} GB/s"
        return alpha, rate, said
    return link_sources.machine(job, "intra host")
