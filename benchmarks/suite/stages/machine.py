"""The machine by itself: memory moved and integers counted, which no stage can outrun."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.limits.memory import BYTES, GOT
from benchmarks.suite.case import LIMIT, Case, Way, stage, way
from benchmarks.suite.inputs import Inputs


@stage("machine")
def memory(inputs: Inputs) -> Iterator[Case]:
    """Bandwidth."""
    yield Case(
        "machine, memory", "machine", BYTES / 1e6, "MB",
        (Way("copied (read and written)", LIMIT, way("limits.memory.copy"), 1, "inside_s",
             2 * BYTES / 1e6),
         Way("added up (read)", LIMIT, way("limits.memory.add_up"), 1, "inside_s"),
         Way("got from the system", LIMIT, way("limits.memory.got"), 1, "inside_s", GOT / 1e6),
         Way("got, unused for some seconds", LIMIT, way("limits.memory.got_idle"), 1, "inside_s",
             GOT / 1e6)),
    )  # fmt: skip
