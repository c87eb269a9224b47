"""How the key ratios moved: a line a run in `benchmarks/history/runs.jsonl`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.scale.measured import ROOT

from .judge import goals

RUNS = ROOT / "benchmarks" / "history" / "runs.jsonl"


def append(found: dict[str, Any], path: Path = RUNS) -> None:
    """Adds a line for the run: when, on what, each goal's figure and whether it is met."""
    line = {
        "date": found["date"],
        "version": found["machine"]["versions"].get("retime", ""),
        "processor": found["machine"]["processor"],
        "cores": found["machine"]["cores"],
        "load": found["machine"]["load"],
        "size": found["size"],
        "clock": found["clock"],
        "goals": {
            key(case, goal): [_figure(goal), goal["verdict"]]
            for case in found["cases"]
            for goal in goals(case)
            if "values" in goal
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as f:
        f.write(json.dumps(line) + "\n")


def rows(path: Path = RUNS) -> list[dict[str, Any]]:
    """The kept lines, oldest first; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def key(case: dict[str, Any], goal: dict[str, Any]) -> str:
    """What a goal is called in the history: case, way, and what it is held against."""
    way = goal.get("ours", goal.get("way"))
    return f"{case['name']}: {way} / {goal.get('other', goal.get('what'))}"


def _figure(goal: dict[str, Any]) -> float:
    value = goal["median_times"] if "ours" in goal else goal["median_value"]
    return float(f"{value:.4g}")
