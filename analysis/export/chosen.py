"""What of a job is exported: ranks, steps and kinds of slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from ...ingest.errors import UsageError
from ...replay.policy import integers
from ..names import shorter

VIEWS = ("step", "exposed", "idle", "wait", "transfer", "counter")
"""Kinds that come from the views of the library."""

ON_DEVICE = ("kernel", "memcpy", "memset", "gpu_annotation", "sync")
ON_HOST = ("host_op", "runtime", "annotation", "python", "instant", "overhead", "other")
"""Kinds of `events`."""

KINDS = (*VIEWS, *ON_DEVICE, *ON_HOST)


class Chosen(NamedTuple):
    """A choice; None is all."""

    ranks: tuple[int, ...] | None = None
    steps: tuple[int, ...] | None = None
    kinds: tuple[str, ...] = KINDS

    def has(self, *kinds: str) -> bool:
        """Whether any of these kinds is wanted."""
        return any(k in self.kinds for k in kinds)


def choose(
    ranks: str | Sequence[int] | None = None,
    steps: str | Sequence[str | int] | None = None,
    *,
    host: bool = True,
    kinds: str | Sequence[str] | None = None,
) -> Chosen:
    """A choice from what a user gives: `0-7,9`, [`3`, `10-12`], `kernel,wait`.

    Without `host` nothing that ran on a host thread is exported. Raises UsageError for what is
    no list of numbers, and for a kind that there is not.
    """
    wanted = KINDS if kinds is None else _words(kinds)
    if not wanted:
        raise UsageError(f"no kind is given; there are {', '.join(KINDS)}")
    for kind in wanted:
        if kind not in KINDS:
            raise UsageError(f"there is no kind {kind!r} to export; there are {', '.join(KINDS)}")
    if not host:
        wanted = tuple(k for k in wanted if k not in ON_HOST)
    return Chosen(_numbers("--ranks", ranks), _numbers("--step", steps), wanted)


def windows(chosen: Chosen, steps: pl.DataFrame) -> pl.DataFrame | None:
    """The time on each rank that the chosen steps take (`rank`, `since`, `until`); None for all.

    `steps` has `rank`, `step`, `start_ns`, `end_ns`, and `host_start_ns`, `host_end_ns` where the
    host began earlier or ended later. Raises UsageError for a step that is not there.
    """
    if chosen.steps is None:
        return None
    known = sorted(steps["step"].drop_nulls().unique().to_list())
    for step in chosen.steps:
        if step not in known:
            have = f"it has {known[0]} to {known[-1]}" if known else "it has none"
            raise UsageError(f"the job has no step {step}; {have}")
    return (
        steps.filter(pl.col("step").is_in(chosen.steps))
        .select(
            "rank",
            since=pl.min_horizontal("start_ns", "host_start_ns"),
            until=pl.max_horizontal("end_ns", "host_end_ns"),
        )
        .sort("rank", "since")
    )


def _words(value: str | Sequence[str]) -> tuple[str, ...]:
    words = value.split(",") if isinstance(value, str) else value
    return tuple(dict.fromkeys(w.strip() for w in words if w.strip()))


def _numbers(option: str, value: str | Sequence[str | int] | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    parts = [value] if isinstance(value, str) else list(value)
    if not parts:
        return None
    try:
        found = integers("+".join(str(p).replace(",", "+") for p in parts))
    except ValueError as e:
        given = shorter(", ".join(map(str, parts)), 80)
        raise UsageError(f"{option} {given!r}: expected 3 or 0-7,9 ({e})") from e
    return tuple(sorted(set(found)))
