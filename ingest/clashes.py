"""A job takes one trace of a rank: the error for a second one with other content."""

from __future__ import annotations

from . import store
from .detect import clash_group
from .errors import UsageError
from .manifest import Manifest
from .store import Place
from .suggested import command


class RankClash(UsageError):
    """A rank of the job would get a second trace with other content."""


def check_clash(
    job_folder: Place, name: str, format: str, ranks: list[int], present: list[Manifest]
) -> None:
    """Raises RankClash where a present source that excludes this one has one of the ranks.

    Two timelines of a rank exclude each other, of whatever format; so do two sources of a format
    that gives one a rank. Sources that add to a timeline do not (see `detect.clash_group`).
    """
    group = clash_group(format)
    if group is None:
        return
    for other in present:
        if clash_group(other.format) != group:
            continue
        both = sorted(set(ranks).intersection(other.ranks))
        if both:
            raise clash(job_folder, both[0], name, other.name, stands=True)


def clash(
    job_folder: Place, rank: int, name: str, other: str, *, stands: bool = False
) -> RankClash:
    """The error for two different traces of one rank; `stands` where the job has the other."""
    folder = store.folder(job_folder)
    job = folder.name.removeprefix("job=")
    prune = command("prune", job, "--yes", warehouse=str(folder.parent))
    instead = (
        f"; or, where it is to replace what the job has (which was cut short, say), `{prune}` and "
        "all of the job's traces again"
    )
    return RankClash(
        f"rank {rank} of job {job} clashes: {name} and {other} differ, and a job takes one trace "
        "of a rank (one of each kind that adds to it); ingest the other into a job of its own "
        f"(--job NAME){instead if stands else ''}"
    )
