"""What a policy is: a named, documented pure function from a replay job to a replay job."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, NamedTuple

import polars as pl

from ..ingest.errors import UsageError
from ..ingest.schema import TABLES
from ..ingest.tasks.tables import timed
from .graph import TaskGraph
from .quantities import bandwidth_bytes_per_s, size_bytes, time_ns


@dataclass(frozen=True)
class ReplayJob:
    """A job ready to be re-timed: its graph and what policies need to know about it.

    `facts` holds what is known beside the graph, by name: `measured` (the unchanged graph),
    `ranks`, `comms`, `collectives`, `steps` (frames), `tables` (a callable: a table's name -> its
    frame), `unread` (names of frames that `frame` reads from there), `fabric` (a `fabric.Fabric`,
    or None). `assumptions` and `warnings` grow as policies apply.
    """

    graph: TaskGraph
    job: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def with_graph(self, **arrays) -> ReplayJob:
        """A copy whose graph has some arrays replaced."""
        return replace(self, graph=self.graph.with_(**arrays))

    def table(self, name: str) -> pl.DataFrame:
        """A table of the job's warehouse (`ingest.schema.TABLES`); no rows where it has none."""
        read = self.facts.get("tables")
        if read is not None:
            return read(name)
        empty = pl.from_arrow(TABLES[name].schema.empty_table())
        assert isinstance(empty, pl.DataFrame)
        return empty

    def frame(self, name: str) -> pl.DataFrame | None:
        """A frame of `facts`; read now where the graph needed none (`facts["unread"]`)."""
        found = self.facts.get(name)
        if found is not None or name not in self.facts.get("unread", ()):
            return found
        rows = self.table(name)
        return rows.filter(timed()) if name == "collectives" else rows

    def note(self, *, assumptions: tuple[str, ...] = (), warnings: tuple[str, ...] = ()):
        """A copy with further assumptions and warnings (each said once)."""
        return replace(
            self,
            assumptions=tuple(dict.fromkeys(self.assumptions + assumptions)),
            warnings=tuple(dict.fromkeys(self.warnings + warnings)),
        )


class Stage(IntEnum):
    """What a policy changes, in the order in which policies are applied.

    First what is computed where, then what must be moved for it, then how, over which links, under
    what, and when ranks come: each stage sees what those before it made of the job.
    """

    PLACEMENT = 1
    """parallelism, replicate-experts, place-experts, reshard."""
    VOLUME = 2
    """batch-a2a, compress."""
    ALGORITHM = 3
    """algorithm, hierarchical, rail-balance, wave-schedule, select, congestion-aware, optical,
    on-package, host-staged."""
    LINKS = 4
    """scale-fabric, datapath, launch-path, isolate-storage."""
    SCHEDULE = 5
    """sm-budget, tile-overlap, megakernel, overlap."""
    ARRIVALS = 6
    """align-arrivals."""
    RUN = 7
    """checkpoint: what is not of a step."""


class Param(NamedTuple):
    """One parameter of a policy: `type` is int, float, bool, str or `integers`."""

    name: str
    type: Callable[[str], Any]
    default: Any
    unit: str
    meaning: str
    choices: tuple[Any, ...] = ()


class Policy(NamedTuple):
    """A policy of the catalogue: `apply(job, **params)` gives a new job, its input untouched."""

    name: str
    summary: str
    source: str
    params: tuple[Param, ...]
    assumptions: tuple[str, ...]
    apply: Callable[..., ReplayJob]
    stage: Stage = Stage.ALGORITHM
    """When it acts among others: policies of a scenario apply in the order of their stages."""
    needs: tuple[str, ...] = ()
    """What the trace must hold, and what to record where it does not."""
    valid: str = ""
    """The range in which the estimate holds."""
    checked: str = ""
    """The published figure or arithmetic that a test holds it to, with its source."""

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Every parameter's value: text as typed on a command line is converted, the rest kept.

        Raises BadParam for a name the policy does not have or a value it cannot take.
        """
        known = {p.name: p for p in self.params}
        for name in given:
            if name not in known:
                takes = ", ".join(known) or "none"
                raise BadParam(f"policy {self.name} has no parameter {name!r}; it takes {takes}")
        return {name: _value(self.name, p, given) for name, p in known.items()}


class BadParam(UsageError):
    """A policy was given a parameter it does not have, or a value it cannot take."""


def _value(policy: str, param: Param, given: Mapping[str, Any]) -> Any:
    if param.name not in given:
        return param.default
    value = given[param.name]
    if isinstance(value, str) and param.type is not str:
        try:
            value = (boolean if param.type is bool else param.type)(value)
        except ValueError as e:
            why = _not_a_number(param, value) if param.type in (int, float) else str(e)
            raise BadParam(f"policy {policy}: {param.name}={_shown(value)}: {why}") from e
    if isinstance(value, list):
        value = tuple(value)
    if param.choices and value not in param.choices:
        choices = ", ".join(map(str, param.choices))
        raise BadParam(f"policy {policy}: {param.name}={_shown(value)}, expected one of {choices}")
    why = _no_value(param, value)
    if why:
        raise BadParam(f"policy {policy}: {param.name}={_shown(value)}: {why}")
    return value


def _not_a_number(param: Param, text: str) -> str:
    said = "expected a number" if param.type is float else "expected a whole number"
    if "+" not in text:
        return said
    each = text.replace("+", ",")
    return f"{said}; a sweep has commas between its values: --sweep {param.name}={each[:40]}"


def _no_value(param: Param, value: Any) -> str:
    """Why a parameter cannot have a value, whatever its policy; empty where it can."""
    if value is None:
        return "" if param.default is None else "expected a value"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            return "expected a finite number"
        beyond = abs(value) > (MOST_INT if param.type is int else MOST)
        if beyond or 0 < abs(value) < 1 / MOST:
            return "beyond anything that is counted or measured"
        whole = param.type is not int or value == int(value)
        return "" if whole else "expected a whole number"
    if param.type in _NUMBERS:
        return "expected a number"
    if param.type in (words, integers) and not isinstance(value, list | tuple):
        return "expected a list"
    return ""


def _shown(value: Any) -> str:
    """A value in a message: not longer than a line."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


MOST_INT = 1 << 40
"""Of any count: loops and arrays of a policy's models are as long as what they count."""

MOST = 1e30
"""Of any number (a bandwidth that is not to matter), and 1 / MOST the least above 0: products of a
few of them stay finite."""


def boolean(text: str) -> bool:
    """`true`, `yes`, `1` and their opposites; ValueError for anything else."""
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in known:
        raise ValueError("expected true or false")
    return known[text.lower()]


MAX_INTEGERS = 1_000_000
"""More than any job has ranks: a list from the command line is expanded in memory."""


def integers(text: str) -> tuple[int, ...]:
    """`0-3+8` -> (0, 1, 2, 3, 8): commas part parameters on a command line, so + joins.

    Raises ValueError for more than MAX_INTEGERS of them, for what is neither a number from 0 on nor
    FIRST-LAST, and for a range that ends before it begins.
    """
    out: list[int] = []
    for part in text.split("+"):
        ends = [n.strip() for n in part.split("-")]
        if len(ends) > 2 or not all(n.isascii() and n.isdecimal() and len(n) < 19 for n in ends):
            raise ValueError(f"{part[:80]!r} is neither a number nor FIRST-LAST")
        low, high = int(ends[0]), int(ends[-1])
        if high < low:
            raise ValueError(f"{part!r} ends before it begins")
        if high - low >= MAX_INTEGERS - len(out):
            raise ValueError(f"more than {MAX_INTEGERS} numbers")
        out += range(low, high + 1)
    return tuple(out)


def words(text: str) -> tuple[str, ...]:
    """`a+b` -> ("a", "b")."""
    return tuple(w for w in text.split("+") if w)


_NUMBERS = (int, float, time_ns, size_bytes, bandwidth_bytes_per_s)
