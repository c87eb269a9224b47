"""Ways of a case by turns: A B C A B C, so that what disturbs the machine disturbs all alike."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retime.ingest import caches

from . import process
from .case import Case, Way

Rounds = dict[str, list[dict[str, Any] | None]]
InDoubt = Callable[[Case, Rounds, dict[str, str]], set[str]]

PACKAGE = Path(caches.__file__).parents[1]

FURTHER = 2
"""Rounds more, at most, while a goal is close: of all that decide it, whoever wins by them."""


def measured(
    case: Case,
    runs: int,
    scratch: Path,
    tell: Callable[[str], None],
    by_cpu: bool = False,
    in_doubt: InDoubt | None = None,
) -> tuple[Rounds, dict[str, str]]:
    """What each way took in each round (None where it is not run so often), and what is missing.

    A way that fails is missing, with its last words. Ways that are `in_doubt` after all rounds run
    in FURTHER ones too, those that run in few rounds as well. A round in which ours compiled, and
    kept what it compiled for all times after, is run again: what that costs is a case of its own.
    """
    rounds: Rounds = {w.name: [] for w in case.ways if not w.missing}
    missing = {w.name: w.missing for w in case.ways if w.missing}
    for k in range(runs + FURTHER):
        doubted = set() if k < runs or in_doubt is None else in_doubt(case, rounds, missing)
        if k >= runs and not doubted:
            break
        for way in case.ways:
            if way.name in missing:
                continue
            wanted = way.name in doubted if k >= runs else way.rounds is None or k < way.rounds
            if not wanted:
                rounds[way.name].append(None)
                continue
            before = _kept_code() if way.role == "ours" else None
            try:
                took = process.run(way, scratch, by_cpu)
                if before is not None and _kept_code() != before:
                    tell(f"{case.name:44.44} {way.name:44.44} compiled in {took['wall_s']:.1f} s")
                    took = process.run(way, scratch, by_cpu)
            except process.Failed as e:
                missing[way.name] = f"failed: {e}"
                rounds.pop(way.name)
                tell(f"{case.name:44.44} {way.name:44.44} failed: {e}")
                continue
            rounds[way.name].append(took)
            tell(_line(case, way, k, took))
    return rounds, missing


def _kept_code() -> set[tuple[str, int]]:
    """Files of machine code that runs of this user find, and when they were written."""
    found = set()
    for folder, names in (
        (PACKAGE, "**/__pycache__/*.nb?"),
        (Path(os.environ.get("NUMBA_CACHE_DIR") or PACKAGE / "none"), "**/*.nb?"),
        (caches.folder(), "code-*"),
    ):
        for path in folder.glob(names):
            if path.suffix == ".making":  # a process of its own is at it
                continue
            with contextlib.suppress(OSError):
                found.add((str(path), path.stat().st_mtime_ns))
    return found


def _line(case: Case, way: Way, k: int, took: dict[str, Any]) -> str:
    seconds = took[way.clock] if took.get(way.clock) is not None else took["wall_s"]
    return (
        f"{case.name:44.44} {way.name:44.44} {k + 1}  {seconds:9.3f} s  "
        f"cpu {took['cpu_s']:8.2f} s  peak {took['peak_bytes'] / 1e6:6.0f} MB"
    )
