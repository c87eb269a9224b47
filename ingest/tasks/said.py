"""What is to be said of the tasks of a job: what is odd about it, what had to be assumed."""

from __future__ import annotations

from .job import Job


def of_job(whole: Job, unmatched: int) -> list[str]:
    """What is odd about a job's tables, `unmatched` communication kernels of all pieces in it."""
    said = []
    if unmatched:
        said.append(
            f"{unmatched} communication kernels carry nothing to match them by: kept as "
            "tasks of their rank, joined with nobody"
        )
    said += whole.all.warnings
    if not whole.marked:
        said.append("the trace marks no steps: the whole of it is taken as step 0")
    if whole.twice:
        said.append(
            f"{whole.twice} windows of steps that their rank has already: the first of each is "
            "taken"
        )
    return said


def assumptions(handed_over: bool, inferred: bool) -> tuple[str, ...]:
    """What had to be assumed where a host thread waits for another, where waits are inferred."""
    said = []
    if handed_over:
        said.append(
            "a host thread silent for over 100 us while another one launched was waiting for "
            "that one"
        )
    if inferred:
        said.append(
            "waits between streams are inferred (an event record and a wait side by side; a start "
            "that only another stream's end explains): the trace does not name them"
        )
    return tuple(said)
