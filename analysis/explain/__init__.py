"""What a policy changes in a step: before and after as one picture, and as one Perfetto trace."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ingest.errors import UsageError
from ...replay import run, scenarios
from ...replay.load import load, with_fabric
from .. import outfile
from ..replay_screen import policy_words
from ..report import save
from ..screen import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..doors import Job

SUFFIXES = (".html", ".htm")


def explain(
    job: Job,
    policies: Sequence[Any],
    path: str | os.PathLike[str] | None = None,
    *,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    step: int | None = None,
    fabric: Any = None,
    **options: Any,
) -> dict[str, Any]:
    """`replay` of a job under policies, its last word drawn beside the unchanged replay.

    Writes a page to `path` (default JOB-explain.html) and both timelines of the step drawn, every
    task of it, beside it as NAME.perfetto-trace.gz. The step drawn is `step`, else the one of
    median time. Of several policies all together are drawn, of a sweep's points the best.

    Returns what `replay.run.replay` gives, and `explained`: `page`, `timeline` (paths), `policy` as
    typed, `step` and `why`, `before_ns` and `after_ns`: what that step takes re-timed. Raises what
    `replay` raises, UsageError without a policy and for a file that cannot be written.
    """
    target = page_path(job.id, path)
    timeline = target.with_suffix(".perfetto-trace.gz")
    for file in (target, timeline):
        outfile.checked(file)
    if not policies:
        raise UsageError("--explain draws what a policy changes: name one with --policy")
    replayed = with_fabric(load(job.snapshot), fabric)
    result = run.replay(replayed, policies, sweep=sweep, step=step, **options)
    from . import gather, perfetto
    from .page import page

    found = gather.gather(replayed, result, scenarios.plan(policies, sweep), step)
    drawn, entry = found["step"], found["entry"]
    save(page({**found, "timeline": str(timeline)}), target)
    before, after = found["sides"]
    perfetto.write(timeline, policy_words(entry), before, after, drawn.step)
    return {
        **result,
        "explained": {
            "page": str(target),
            "timeline": str(timeline),
            "policy": policy_words(entry),
            "step": drawn.step,
            "why": drawn.why,
            "before_ns": round(found["before_ns"]),
            "after_ns": round(found["after_ns"]),
        },
    }


def page_path(job: str, path: str | os.PathLike[str] | None) -> Path:
    """Where the page goes: as given, or JOB-explain.html. Raises UsageError for another suffix."""
    if path is None:
        return Path(f"{job}-explain.html")
    name = os.fspath(path)
    if not name.lower().endswith(SUFFIXES):
        raise UsageError(f"the explanation is a page: end its name, {clean(name)!r}, with .html")
    return Path(name)
