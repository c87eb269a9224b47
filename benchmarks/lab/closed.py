"""What all-reduces took on the lab's links against their closed forms: its own overhead."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from retime.replay import models

from . import truth
from .pairs import Run
from .shape import EFFICIENCY


class Held(NamedTuple):
    """One size in one run: from the last rank's start to the last one's end, by true clocks."""

    run: str
    algo: str
    ranks: int
    size: int
    took_ms: float
    form_ms: float

    @property
    def over_pct(self) -> float:
        """How much longer than the form it took."""
        return 100 * (self.took_ms / self.form_ms - 1)


def held(run: Run, root: Path) -> list[Held]:
    """The all-reduces of a run whose ranks are on hosts of one seat and one NIC, all alike."""
    said = truth.of(root, run.name, 0)
    shape = run.shape
    plain = shape.per_host == shape.nics == 1 and not shape.slow and run.load.storage is None
    if said is None or not plain or run.load.engine != "sockets":
        return []
    spans: dict[tuple[str, int], list[tuple[int, int]]] = {}
    what: dict[tuple[str, int], tuple[str, int]] = {}
    for rank in range(run.load.ranks):
        off = said["clock_offset_ns"][str(rank)]
        with gzip.open(truth.folder_of(root, run.name, 0) / f"rank{rank}.jsonl.gz") as f:
            for row in map(json.loads, f):
                if row["table"] == "collectives" and row["op"] == "all_reduce":
                    key = row["comm"], row["seq"]
                    spans.setdefault(key, []).append((row["start_ns"] - off, row["end_ns"] - off))
                    what[key] = row["algo"], row["in_bytes"]
    took: dict[tuple[str, int], list[float]] = {}
    for key, parts in spans.items():
        ready, end = (max(p[i] for p in parts) for i in (0, 1))
        took.setdefault(what[key], []).append((end - ready) / 1e6)
    rate, alpha = shape.nic_bps / 8 * EFFICIENCY, run.load.alpha_us * 1e3
    return [
        Held(
            run.name, algo, run.load.ranks, size, float(np.median(t)),
            float(models.time_ns("all_reduce", algo, run.load.ranks, size, alpha, rate)) / 1e6,
        )
        for (algo, size), t in sorted(took.items())
    ]  # fmt: skip


def lines(found: list[Held]) -> list[str]:
    """A row each, and the median by algorithm."""
    out = [f"{'run':<28}{'algorithm':<20}{'ranks':>5}{'bytes':>10}{'took':>11}{'form':>11}  over"]
    out += [
        f"{h.run:<28}{h.algo:<20}{h.ranks:>5}{h.size:>10}{h.took_ms:>8.1f} ms"
        f"{h.form_ms:>8.1f} ms  {h.over_pct:+.1f} %"
        for h in found
    ]
    for algo in sorted({h.algo for h in found}):
        over = [h.over_pct for h in found if h.algo == algo]
        out.append(f"{algo}: {np.median(over):+.1f} % (median of {len(over)})")
    return out
