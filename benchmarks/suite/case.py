"""What a benchmark is: one input, several ways over it, what they are held to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.scale import measured

OURS, PEER, LIMIT = "ours", "peer", "limit"
OUT = "{out}"
"""In a command: a fresh folder of this run, removed after it."""

RUN_WAY = "benchmarks.suite.run_way"
PART = "{part}"
"""In the command of a part: its name."""
CLOCKS = ("wall_s", "inside_s", "cpu_s")
"""The whole process; what it says of its own, after start-up; its CPU seconds on all cores."""


class Way(NamedTuple):
    """One command that does the work of a case.

    A command that measures itself prints a JSON object as its last line: `seconds` and, if it
    likes, `cpu_s`, `answer`, `rows`, `parts` (seconds by name), `amount`. `amount` is what one run
    goes through, in the case's unit, where it is not the case's own; what a run tells counts.
    `rounds` is how often it is run at most. `missing` says why it cannot be run here, if so.
    """

    name: str
    role: str
    command: tuple[str, ...] = ()
    cores: int = 1
    clock: str = "wall_s"
    amount: float | None = None
    rounds: int | None = None
    missing: str = ""
    part: tuple[str, ...] = ()
    """the command of one of its parts, PART for its name: what is profiled of a slowest part"""


class Ratio(NamedTuple):
    """How many times faster `ours` is than `other`, by one clock: other's time over ours.

    Work of different amounts is compared by the unit. `at_least` is a goal, `goal` its words.
    """

    ours: str
    other: str
    at_least: float | None = None
    goal: str = ""
    clock: str = ""
    """of both; without, each by its own"""
    instead: tuple[str, str] | None = None
    """What `other` does that `ours` does not, and what `ours` does in its place, as ways: were all
    else the same, the ratio would be other / (other - first + second), its `ceiling`."""


class Bound(NamedTuple):
    """A goal for one way by itself: `seconds`, `rate` (units a second), `peak_bytes`, or `slowest`:
    seconds of the slowest of its parts, of those of `among` if that names some.
    """

    way: str
    what: str
    bound: float
    goal: str
    among: tuple[str, ...] = ()

    @property
    def at_most(self) -> bool:
        return self.what != "rate"


@dataclass(frozen=True)
class Case:
    """One input and what is run on it.

    `n` is its size in `unit`. `growth` names the line of the table of growth in which the ways of
    `grows` stand with `n`. `same` are groups of ways whose answers have to agree.
    """

    name: str
    stage: str
    n: float
    unit: str
    ways: tuple[Way, ...]
    ratios: tuple[Ratio, ...] = ()
    bounds: tuple[Bound, ...] = ()
    growth: str = ""
    grows: tuple[str, ...] = ()
    same: tuple[tuple[str, ...], ...] = ()
    note: str = ""


Cases = Callable[[Any], Iterator[Case]]
STAGES: dict[str, list[Cases]] = {}


def stage(name: str) -> Callable[[Cases], Cases]:
    """Registers a function that gives the cases of a stage; it is told the `inputs.Inputs`."""

    def keep(function: Cases) -> Cases:
        STAGES.setdefault(name, []).append(function)
        return function

    return keep


def cli(*words: object) -> tuple[str, ...]:
    """The command line of the `retime` of this checkout."""
    return tuple(measured.cli(*map(str, words)))


def profiling(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command that does the same work and prints its profile; () for one that cannot."""
    if command[1:3] == ("-m", RUN_WAY):
        return (*command[:3], "--profile", *command[3:])
    if command[:3] == cli()[:3]:
        return (sys.executable, "-m", RUN_WAY, "--profile", "command.retime", *command[3:])
    return ()


def way(name: str, *words: object) -> tuple[str, ...]:
    """The command of a function of `suite.ways` or of `limits`: `module.function`, its words."""
    return (sys.executable, "-m", RUN_WAY, name, *map(str, words))
