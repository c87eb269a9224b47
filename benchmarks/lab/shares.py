"""What `retime.replay.doubt` takes changed times to be off by: as its shares were found.

For each pair the share of the changed times that the estimate's interval would have needed to reach
what was measured, beside what steps and runs differ by; by policy the share that nine of ten pairs
of it stay within.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .pairs import Pair
from .predict import verdicts

TRIED = 0.1


def lines(pairs: tuple[Pair, ...], root: Path, warehouse: Path) -> list[str]:
    """A line a pair, then one a policy with its pairs, its ninth decile and what stands."""
    from retime.replay import doubt

    stands = doubt.share
    found = []
    try:
        for off in (0.0, TRIED):
            doubt.share = lambda _, off=off: off
            found.append(verdicts(pairs, root, warehouse)[0])
    finally:
        doubt.share = stands
    by_name = {pair.name: pair for pair in pairs}
    needs: dict[str, list[float]] = {}
    out = []
    for bare, wide in zip(*found, strict=True):
        off = bare.after_ms - bare.predicted_ms
        edge = [(v.high_ms if off > 0 else v.low_ms) - v.predicted_ms for v in (bare, wide)]
        reach = np.sqrt(max(edge[1] ** 2 - edge[0] ** 2, 0)) / TRIED
        left = np.sqrt(max(off**2 - edge[0] ** 2, 0))
        need = left / reach if reach > 0 else (0.0 if left == 0 else np.inf)
        for policy in by_name[bare.name].policies:
            needs.setdefault(_key(policy, doubt.SHARES), []).append(need)
        out.append(f"{bare.name:32} {100 * need:6.1f} %")
    out.append("")
    for key, of in sorted(needs.items()):
        now = 100 * doubt.SHARES.get(key, doubt.UNMEASURED)
        ninth = 100 * float(np.percentile(of, 90, method="higher"))
        said = f"{len(of):3} pairs, nine of ten within {ninth:5.1f} %, set {now:.0f} %"
        out.append(f"{key:24} {said}")
    return out


def _key(policy: str, shares: dict[str, float]) -> str:
    """The entry of `doubt.SHARES` that a policy as it is typed falls under."""
    name, _, values = policy.partition(":")
    fits = [f"{name}:{value}" for value in values.split(",")]
    return next((key for key in fits if key in shares), name)
