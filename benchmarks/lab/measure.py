"""Runs of pairs on real networks, repeated in turn, into a folder a run and repeat."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

from . import machine
from .cores import HELD_UP_S
from .pairs import Run
from .run import run as run_one
from .truth import folder_of

TRIES = 3
"""A run in which the machine stood still is made again, so often at most. Whether it is depends on
the machine alone, never on how long its steps took."""


def _waited_pct(truth: dict[str, Any]) -> float:
    waited = max(r["waited_s"] for r in truth["ranks"].values())
    return 100 * waited * 1e9 / sum(truth["step_ns"])


def measure(runs: dict[str, Run], root: Path, repeats: int, again: bool = False) -> list[str]:
    """Runs what is not there yet, all of the first repeat before any of the second.

    So that what changes slowly on the machine does not hit one run alone. Returns sentences on
    runs that were in trouble each time.
    """
    machine.tools()
    machine.kernel()
    machine.leftovers()
    said = []
    todo = [(k, r) for k in range(repeats) for r in runs.values()
            if again or not (folder_of(root, r.name, k) / "truth.json").exists()]  # fmt: skip
    begun = time.monotonic()
    for i, (k, one) in enumerate(todo):
        for _ in range(TRIES):
            folder = folder_of(root, one.name, k)
            shutil.rmtree(folder, ignore_errors=True)
            done = run_one(one.shape, one.load, folder)
            described = one.shape.toml(one.name, one.load.alpha_us)
            (folder / "fabric.toml").write_text(described)
            if done.truth["held_up_s"] <= HELD_UP_S:
                break
        left = (time.monotonic() - begun) / (i + 1) * (len(todo) - i - 1)
        print(
            f"[{i + 1}/{len(todo)}] {one.name} {k}: {done.step_ns.mean() / 1e6:.1f} ms a step, "
            f"ranks waited for cores for {_waited_pct(done.truth):.1f} %, {left:.0f} s left",
            file=sys.stderr,
        )
        if done.truth["trouble"]:
            said.append(f"{one.name} {k}: {done.truth['trouble']}")
    return said
