"""The estimate of each pair, from the traces before alone, held against the runs after."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import clocks, truth
from .pairs import Pair


class Verdict(NamedTuple):
    """One pair: milliseconds a step, percent."""

    kind: str
    name: str
    before_ms: float
    predicted_ms: float
    low_ms: float
    high_ms: float
    after_ms: float
    noise_pct: float
    """How far repeats of the run after lie apart: half their range, of the mean."""
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...]

    @property
    def error_pct(self) -> float:
        """Predicted against measured."""
        return 100 * (self.predicted_ms / self.after_ms - 1)

    @property
    def covered(self) -> bool:
        """Whether the interval has what was measured in it."""
        return self.low_ms <= self.after_ms <= self.high_ms

    @property
    def gain_pct(self) -> float:
        """What the change really gained."""
        return 100 * (1 - self.after_ms / self.before_ms)

    @property
    def predicted_gain_pct(self) -> float:
        """What the estimate says that it gains."""
        return 100 * (1 - self.predicted_ms / self.before_ms)

    @property
    def sign(self) -> str:
        """right or wrong, or noise where the gain is within it."""
        if abs(self.gain_pct) <= max(self.noise_pct, 0.5):
            return "noise"
        return "right" if self.gain_pct * self.predicted_gain_pct > 0 else "wrong"


def verdicts(
    pairs: tuple[Pair, ...], root: Path, warehouse: Path
) -> tuple[list[Verdict], list[clocks.Check]]:
    """Of every pair whose runs are there; the first repeat of the run before is what is traced.

    And how well the clocks of each run before were found.
    """
    import retime

    warnings.simplefilter("ignore")
    wh = retime.open(str(warehouse))
    known, checks = set(), []
    out = []
    for pair in pairs:
        after = [t for k in range(99) if (t := truth.of(root, pair.after.name, k))]
        before = truth.of(root, pair.before.name, 0)
        if not after or before is None:
            continue
        if pair.before.name not in known:
            traces = sorted(
                map(str, truth.folder_of(root, pair.before.name, 0).glob("rank*.json*.gz"))
            )
            with contextlib.redirect_stderr(io.StringIO()):
                wh.ingest(traces, job=pair.before.name)
            known.add(pair.before.name)
            checks.append(clocks.check(wh.job(pair.before.name), root, pair.before.name))
        fabric = None
        if pair.fabric:
            fabric = str(truth.folder_of(root, pair.before.name, 0) / "fabric.toml")
        said = retime.replay(wh.job(pair.before.name), policies=list(pair.policies), fabric=fabric)
        out.append(_verdict(pair, said, before, after))
    return out, checks


def _verdict(pair: Pair, said: dict[str, Any], before: dict, after: list[dict]) -> Verdict:
    estimate = said["policies"][-1]
    took = [float(np.mean(t["step_ns"])) for t in after]
    mean = float(np.mean(took))
    return Verdict(
        pair.kind, pair.name, float(np.mean(before["step_ns"])) / 1e6,
        estimate["step_ns"] / 1e6, estimate["low_ns"] / 1e6, estimate["high_ns"] / 1e6,
        mean / 1e6, 100 * (max(took) - min(took)) / 2 / mean,
        (*said["warnings"], *estimate["warnings"]), tuple(estimate["assumptions"]),
    )  # fmt: skip
