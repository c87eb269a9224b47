"""Oddities in Kineto events, counted by kind: a million of one are one problem with a count."""

from __future__ import annotations

import numpy as np

from ..schema import Problem

MESSAGES: dict[str, tuple[str, str]] = {
    "no_time": (
        "lost",
        "an event without a usable time (none, or at or before 0 while the others are days later); "
        "left out",
    ),
    "time_out_of_range": ("lost", "an event after the year 2116; left out"),
    "no_duration": ("warning", "a complete event without a duration that fits; 0 is kept"),
    "negative_duration": ("warning", "an event that ends before it starts; duration 0 is kept"),
    "absurd_duration": (
        "warning",
        "a duration of over 7 days, or far over the whole trace's; 0 is kept",
    ),
    "flows_not_stored": ("info", "flow arrows; not stored, correlation ids say the same"),
    "metadata_not_stored": ("info", "names and order of tracks for a viewer; not stored"),
    "phase_not_stored": ("lost", "an event of a phase that is not understood; left out"),
    "counter_not_numeric": ("lost", "a counter whose sample is not a number; left out"),
    "unknown_dtype": ("warning", "a collective's element type is not known; bytes are null"),
    "group_mismatch": (
        "warning",
        "a process group's size on a kernel is not that of its entry in pg_config; "
        "members are left unknown",
    ),
    "members_unknown": (
        "warning",
        "a process group's members are not all in the trace; it is told apart by name and size",
    ),
    "bad_member_list": ("warning", "a process group's list with ranks that cannot be; not used"),
    "splits_truncated": (
        "warning",
        "a list of all-to-all splits that is cut, or of impossible numbers; null, totals are kept",
    ),
    "size_out_of_range": (
        "warning",
        "a number of a collective (a size, a rank) that cannot be; null",
    ),
    "comm_unknown": ("info", "a collective without a process group in the trace; comm is null"),
    "xpu_no_ranks": (
        "warning",
        "a collective of an XPU as its call on the host (xccl::...), without group, ranks, sizes "
        "and sequence number: comm is null and the time is the host's (record_shapes=True in a "
        "release with record_param_comms gives more)",
    ),
    "calls_without_kernels": (
        "info",
        "calls of a device's collectives without their kernels: not participations",
    ),
    "step_twice": ("warning", "a step's annotation stands twice; the first is kept"),
    "no_steps": ("info", "no ProfilerStep annotations: steps only by others, or by what recurs"),
    "steps_late": (
        "info",
        "device rows given out before their launches were read; their step is null",
    ),
    "no_events": ("info", "metadata only: no events in the trace"),
    "args_out_of_reach": ("info", "calls whose arguments were no longer at hand; sizes are null"),
}
"""Severity and message by code."""


class Tally:
    """Counts by code, with the first byte offset of each."""

    def __init__(self) -> None:
        self._seen: dict[str, list] = {}

    def add(self, code: str, offset: int | None = None, count: int = 1) -> None:
        """Notes `count` oddities of a code in MESSAGES, the first at a byte of the stream."""
        if not count:
            return
        entry = self._seen.setdefault(code, [offset, 0])
        entry[1] += count
        if offset is not None and (entry[0] is None or offset < entry[0]):
            entry[0] = offset

    def add_rows(self, code: str, offsets: np.ndarray) -> None:
        """Notes one oddity for each byte offset given."""
        if len(offsets):
            self.add(code, int(offsets.min()), len(offsets))

    def count(self, code: str) -> int:
        """How often a code was noted."""
        return self._seen[code][1] if code in self._seen else 0

    def problems(self) -> list[Problem]:
        """One problem a code, in the order first met."""
        return [
            Problem(code, MESSAGES[code][1], MESSAGES[code][0], n, offset)
            for code, (offset, n) in self._seen.items()
        ]
