"""Whether alignment found how wrong the hosts' clocks were set: recovered offsets against known."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from .truth import of


class Check(NamedTuple):
    """One run: the largest error of a rank's offset, against the run's median transfer."""

    run: str
    error_ns: float
    claimed_ns: float
    """The largest error that alignment says it may have made; NaN where it tied nothing."""
    transfer_ns: float

    @property
    def share(self) -> float:
        """The error in median transfers."""
        return self.error_ns / self.transfer_ns


def check(job: Any, root: Path, run: str, repeat: int = 0) -> Check:
    """The check of an ingested run. A host that nothing tied counts with its whole offset."""
    truth = of(root, run, repeat)
    assert truth is not None
    ranks = pl.read_parquet(job.snapshot.files["ranks"]).sort("rank")
    known = np.array([truth["clock_offset_ns"][str(r)] for r in ranks["rank"]], float)
    found = ranks["clock_offset_ns"].fill_null(0).to_numpy().astype(float)
    off = (found - found[0]) + (known - known[0])
    claimed = ranks["clock_error_ns"].cast(float).fill_null(np.nan).to_numpy()
    took = job.collective_instances()["transfer_ns"].drop_nulls().median() or np.nan
    return Check(run, float(np.abs(off).max()), float(claimed.max()), float(took))


def lines(checks: list[Check]) -> list[str]:
    """The checks in a few lines: the worst run, and all in sum."""
    share = np.array([100 * c.share for c in checks])
    worst = checks[int(np.nanargmax(share))]
    inside = sum(c.error_ns <= c.claimed_ns for c in checks)
    return [
        "",
        "## Clocks",
        "",
        f"Host clocks were set wrong in {len(checks)} runs; the recovered offsets are off by "
        f"{np.nanmedian(share):.2f} % of the run's median transfer (median; 90 % of runs within "
        f"{np.nanpercentile(share, 90):.2f} %, worst {np.nanmax(share):.2f} %: {worst.run}, "
        f"{worst.error_ns / 1e3:.0f} us of {worst.transfer_ns / 1e6:.1f} ms). "
        f"{inside} of {len(checks)} are within the error that alignment states.",
    ]
