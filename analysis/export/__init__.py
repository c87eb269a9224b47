"""Timelines for other tools: one merged trace for the Perfetto UI, execution traces for Chakra."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..doors import Job

FORMATS = ("perfetto", "chakra")


def export(
    job: Job,
    path: str | os.PathLike[str] | None = None,
    to: str = "perfetto",
    *,
    steps: str | Sequence[str | int] | None = None,
    ranks: str | Sequence[int] | None = None,
    host: bool = True,
    kinds: str | Sequence[str] | None = None,
    policies: str | Sequence[Any] = (),
) -> dict[str, Any]:
    """Writes a job's timeline and returns what was written: `path`, `format`, counts, `warnings`.

    `to` is `perfetto` (one file, gzip where `path` ends with `.gz`; default JOB.perfetto-trace) or
    `chakra` (a folder with `trace.RANK.et` for each rank; default JOB-chakra). `steps` and `ranks`
    are numbers or ranges (`0-7,9`); without `host` nothing of the host's threads is exported;
    `kinds` are some of `chosen.KINDS`, and `policies` add replayed timelines (those of
    `retime replay`, or `unchanged`); both are for Perfetto alone.

    Raises UsageError for what there is not, UnusableInput where nothing is left to export.
    """
    from ...ingest.errors import UsageError
    from .. import outfile
    from .chosen import choose

    if to not in FORMATS:
        raise UsageError(f"cannot export to {to!r}: there are {' and '.join(FORMATS)}")
    policies = (policies,) if isinstance(policies, str) else tuple(policies)
    if to == "chakra" and (policies or kinds is not None):
        raise UsageError("policies and kinds are for --to perfetto: Chakra takes the graph whole")
    chosen = choose(ranks, steps, host=host, kinds=kinds)
    if to == "chakra":
        from . import chakra

        target = f"{job.id}-chakra" if path is None else path
        return chakra.write(job, outfile.checked_folder(target), chosen)
    from . import timeline

    target = f"{job.id}.perfetto-trace" if path is None else path
    outfile.checked(target)
    return timeline.write(job, target, chosen, policies)
