"""Which job an upload is for where nobody says: the same name on every node of a run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

MOST = 100
"""Characters: what is appended for restarts and windows must still fit into an id."""


def from_environment(environment: Mapping[str, str] | None = None) -> str | None:
    """RETIME_JOB as it stands; else the scheduler's number of the run, and of its restart.

    `slurm-<SLURM_JOB_ID>`, else TORCHELASTIC_RUN_ID (not torchrun's `none`). A job's name has no
    part in it: a Slurm epilog is not told it, and the job's own processes would differ from it.
    """
    env = os.environ if environment is None else environment
    if env.get("RETIME_JOB"):
        return usable(env["RETIME_JOB"])
    if env.get("SLURM_JOB_ID"):
        return usable(f"slurm-{env['SLURM_JOB_ID']}") + _times(env, "SLURM_RESTART_COUNT")
    run = env.get("TORCHELASTIC_RUN_ID", "")
    return usable(run) if run and run != "none" else None


def of_process(job: str | None, environment: Mapping[str, str] | None = None) -> str | None:
    """The job of a training process: `job` or the environment's, and which attempt of it this is.

    A launcher that starts the ranks again, or a queue that does, gives another timeline of each
    rank, which is another job.
    """
    env = os.environ if environment is None else environment
    base = from_environment(env)
    if job:
        base = usable(job) + _times(env, "SLURM_RESTART_COUNT")
    return None if base is None else base + _times(env, "TORCHELASTIC_RESTART_COUNT")


_WORDS = {"SLURM_RESTART_COUNT": "restart", "TORCHELASTIC_RESTART_COUNT": "attempt"}


def _times(env: Mapping[str, str], variable: str) -> str:
    count = env.get(variable, "")
    n = int(count) if count.isascii() and count.isdecimal() and len(count) < 9 else 0
    return f".{_WORDS[variable]}-{n}" if n else ""


def of_window(job: str, window: int) -> str:
    """The job of a process's window-th trace (from 1): a job takes one trace of a rank."""
    return job if window <= 1 else f"{job}.window-{window}"


def usable(text: str) -> str:
    """A job's id made of a text: other characters become dashes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")[:MOST] or "job"
