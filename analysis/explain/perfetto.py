"""Both timelines of an explained step as one Perfetto trace: a process each, a track a rank."""

from __future__ import annotations

from pathlib import Path

from ..export.chosen import Chosen
from ..export.perfetto import TraceFile
from ..export.replayed import UNCHANGED, Replay
from .sides import Side


def write(path: Path, name: str, before: Side, after: Side, step: int) -> int:
    """Writes the step before and after (named `name`) and returns the number of slices.

    Both begin where the step began in the unchanged replay, on the job's clock. What is in it is
    what starts within the step on its rank.
    """
    chosen = Chosen(None, (step,))
    ranks = before.ranks.tolist()
    with TraceFile(path, shift_ns=max(0, -before.zero_ns)) as file:
        for side, title in ((before, UNCHANGED), (after, name)):
            replay = Replay(
                title,
                side.graph,
                side.start_ns + before.zero_ns,
                side.end_ns + before.zero_ns,
                (),
                side.begun(),
            )
            replay.write(file, ranks, chosen)
        return file.slices
