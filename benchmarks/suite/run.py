"""The whole run: cases of the stages, measured, judged, profiled where they miss, kept."""

from __future__ import annotations

import datetime
import importlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import growth, judge, process, rounds
from .case import OURS, OUT, PART, STAGES, Case, Way, profiling, way
from .inputs import Inputs
from .machine import machine

MODULES = {
    "machine": ("machine",),
    "start": ("start",),
    "ingest": ("ingest", "formats"),
    "queries": ("queries",),
    "report": ("report",),
    "replay": ("replay",),
    "fabric": ("fabric",),
}
"""Of `stages`, by stage."""
STAGES_IN_ORDER = tuple(MODULES)
FORMAT = 1
"""Of the kept result."""


def cases_of(stage: str, inputs: Inputs, broken: list[str] | None = None) -> Iterator[Case]:
    """The cases of a stage, inputs made as they come: those that `inputs` wants.

    Where an input cannot be made, the cases that follow it are left out and `broken` says so;
    without that list RuntimeError is raised.
    """
    for module in MODULES[stage]:
        importlib.import_module(f".stages.{module}", __package__)
    for cases in STAGES[stage]:
        try:
            for case in cases(inputs):
                if inputs.wants(case.name):
                    yield case
        except RuntimeError as e:
            if broken is None:
                raise
            broken.append(f"{stage}, {cases.__name__}: {str(e).strip().splitlines()[-1]}")
            _tell(broken[-1])


def run(
    stages: Sequence[str],
    inputs: Inputs,
    runs: int,
    scratch: Path,
    keep: Path | None = None,
    by_cpu: bool = False,
    skip: str = "",
) -> dict[str, Any]:
    """Measures; what it gives is what `--json` keeps, written after each case.

    `broken` in it says which inputs could not be made.
    """
    found: dict[str, Any] = {
        "format": FORMAT,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"),
        "runs": runs, "stages": list(stages),
        "size": "tiny" if inputs.tiny else "quick" if inputs.quick else "whole",
        "large": inputs.large,
        "clock": "cpu" if by_cpu else "wall",
        "machine": machine(), "cases": [], "growth": [], "broken": [],
    }  # fmt: skip
    began = time.perf_counter()
    if not inputs.tiny:
        _warm_up(inputs, scratch)
    for stage in stages:
        for case in cases_of(stage, inputs, found["broken"]):
            found["cases"].append(_one(_without(case, skip), runs, scratch, by_cpu))
            found["growth"] = growth.lines(found["cases"])
            found["took_s"] = time.perf_counter() - began
            if keep is not None:
                keep.write_text(json.dumps(found, indent=1) + "\n")
    return found


def _warm_up(inputs: Inputs, scratch: Path) -> None:
    """Lets what is compiled once on a machine be compiled; `stages.start` has what that takes."""
    for command in (
        (sys.executable, "-m", "benchmarks.suite.make", "warm", str(inputs.tiled(30))),
        way("report.from_traces", inputs.demo, OUT, 2),
        way("replay.step", 16, 400, "scale-fabric:factor=2"),
    ):
        try:
            process.run(Way("warm-up", OURS, command, 2), scratch)
        except process.Failed as e:
            _tell(f"warming up: {e}")


def _without(case: Case, skip: str) -> Case:
    """The case with the ways missing whose names have these words."""
    if not skip:
        return case
    ways = (
        w._replace(missing=f"left out (--skip {skip})") if skip in w.name else w for w in case.ways
    )
    return replace(case, ways=tuple(ways))


def _one(case: Case, runs: int, scratch: Path, by_cpu: bool) -> dict[str, Any]:
    took, missing = rounds.measured(case, runs, scratch, _tell, by_cpu, judge.in_doubt)
    kept = judge.judged(case, took, missing)
    for name, part in judge.missed(kept):
        way = next(w for w in case.ways if w.name == name)
        command = tuple(word.replace(PART, part) for word in way.part) if part else way.command
        if not (command := profiling(command)):
            continue
        try:
            told = process.run(way._replace(command=command), scratch)
        except process.Failed as e:
            _tell(f"{case.name}, {name}: no profile: {e}")
            continue
        kept.setdefault("profiles", {})[f"{name}, {part}" if part else name] = told["profile"]
    return kept


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
