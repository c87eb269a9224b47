"""Which steps of a job a comparison takes."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from ..ingest.errors import UsageError


def chosen(rows: pl.DataFrame, steps: str, job: str) -> pl.DataFrame:
    """The rows whose `step` is one of `steps` (`3,10-12`). Raises UsageError for what is none."""
    have = sorted(rows["step"].drop_nulls().unique().to_list())
    if not have:
        raise UsageError(f"job {job!r} has no steps to choose from")
    wanted: set[int] = set()
    for low, high in _ranges(steps):
        found = [s for s in have if low <= s <= high]
        if not found:
            asked = low if low == high else f"{low}-{high}"
            raise UsageError(f"job {job!r} has no step {asked}; it has {have[0]}-{have[-1]}")
        wanted.update(found)
    return rows.filter(pl.col("step").is_in(sorted(wanted)))


def _ranges(steps: str) -> list[tuple[int, int]]:
    """`3,10-12` -> [(3, 3), (10, 12)]."""
    out = []
    for item in steps.split(","):
        ends = [n.strip() for n in item.split("-")]
        if len(ends) > 2 or not all(n.isascii() and n.isdecimal() and len(n) < 19 for n in ends):
            raise UsageError(f"steps {item[:80]!r} is neither a number nor FIRST-LAST")
        low, high = int(ends[0]), int(ends[-1])
        if high < low:
            raise UsageError(f"steps {item!r} ends before it begins")
        out.append((low, high))
    return out


def taken(name: str, steps: Sequence[int], asked: str | None) -> str | None:
    """Says which steps were taken where a job does not have all that were asked for."""
    if asked is None or all(
        sum(low <= s <= high for s in steps) == high - low + 1 for low, high in _ranges(asked)
    ):
        return None
    runs: list[list[int]] = []
    for s in steps:
        if runs and s == runs[-1][1] + 1:
            runs[-1][1] = s
        else:
            runs.append([s, s])
    words = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    more = f" and {len(words) - 8} more ranges" if len(words) > 8 else ""
    return (
        f"job {name}'s steps {', '.join(words[:8])}{more} are taken: it has no others of those "
        "asked for"
    )
