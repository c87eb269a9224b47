"""The result as Markdown: a row a stage, a column a size, and how each grows with the events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def growth(events: Sequence[float], values: Sequence[float]) -> float | None:
    """The power of the number of events that fits best: 1 is as fast as the data.

    Least squares in logarithms. None for fewer than two sizes.
    """
    if len(events) < 2 or min(values) <= 0:
        return None
    return float(np.polyfit(np.log(events), np.log(values), 1)[0])


def markdown(sizes: list[dict[str, Any]]) -> str:
    """Tables of one run: the job's sizes, stages, views, and what was found of the truth."""
    events = [s["events"] for s in sizes]
    heads = [f"{s['ranks']:,} ranks" for s in sizes]
    whole = [
        ["events", *(f"{e / 1e6:.2f} M" for e in events), ""],
        *(_row(what, sizes, events, lambda s, k=key: s[k], _mb)
          for what, key in (("traces (gzip)", "trace_bytes"), ("warehouse", "warehouse_bytes"))),
    ]  # fmt: skip
    stages, memory = [], []
    for name in sizes[0]["stages"]:
        of = lambda s, key, n=name: s["stages"][n][key]  # noqa: E731
        stages.append(_both(name, sizes, events, of))
        memory.append(_row(name, sizes, events, lambda s, f=of: f(s, "peak_bytes"), _mb))
    if all(s["views"] for s in sizes):
        stages.append(
            _both("all views, added up", sizes, events,
                  lambda s, key: sum(v[key] for v in s["views"]))
        )  # fmt: skip
        most = _most(sizes, "peak_mb")
        memory.append(
            _row(f"largest view ({most})", sizes, events,
                 lambda s: 1e6 * max(v["peak_mb"] for v in s["views"]), _mb)
        )  # fmt: skip
    parts = [
        _table(["bytes", *heads, "grows as"], whole),
        _table(["seconds (of CPU)", *heads, "grows as"], stages),
        _table(["peak memory", *heads, "grows as"], memory),
    ]
    if all(s["views"] for s in sizes):
        parts.append(_table(["slowest views, s", *heads, "grows as"], _slowest(sizes, events)))
    if all("found" in s for s in sizes):
        parts.append(_found(sizes))
    return "\n".join(parts)


def _most(sizes: list[dict[str, Any]], key: str) -> str:
    return max(sizes[-1]["views"], key=lambda v: v[key])["view"]


def _slowest(sizes: list[dict[str, Any]], events: list[int], n: int = 8) -> list[list[str]]:
    named = sorted(sizes[-1]["views"], key=lambda v: -v["seconds"])[:n]

    def of(size: dict[str, Any], key: str, name: str) -> float:
        return next(v[key] for v in size["views"] if v["view"] == name)

    return [
        _both(f"`{v['view']}`", sizes, events, lambda s, key, n=v["view"]: of(s, key, n))
        for v in named
    ]  # fmt: skip


def _found(sizes: list[dict[str, Any]]) -> str:
    rows = []
    for i, of in enumerate(sizes[0]["found"]):
        said = [s["found"][i] for s in sizes]
        rows.append([of["what"], *((f["found"] if f["right"] else f"WRONG: {f['found']} for "
                                    f"{f['truth']}") for f in said)])  # fmt: skip
    return _table(["found", *(f"{s['ranks']:,} ranks" for s in sizes)], rows)


def _both(
    name: str, sizes: list[dict[str, Any]], events: list[int], of: Callable[..., float]
) -> list[str]:
    """Wall time and, in brackets, seconds of CPU; the growth is that of CPU."""
    cells = [f"{of(s, 'seconds'):.1f} ({of(s, 'cpu_s'):.1f})" for s in sizes]
    return [name, *cells, _power(events, [of(s, "cpu_s") for s in sizes])]


def _row(
    name: str,
    sizes: list[dict[str, Any]],
    events: list[int],
    of: Callable[[dict[str, Any]], float],
    words: Callable[[float], str],
) -> list[str]:
    values = [of(s) for s in sizes]
    return [name, *map(words, values), _power(events, values)]


def _mb(value: float) -> str:
    return f"{value / 1e6:,.1f} MB" if value < 2e7 else f"{value / 1e6:,.0f} MB"


def _power(events: list[int], values: list[float]) -> str:
    """Over all sizes, and in brackets between the two largest: what is the same for any size
    hides growth among the small ones."""
    whole = growth(events, values)
    if whole is None:
        return ""
    last = growth(events[-2:], values[-2:])
    return f"n^{whole:.2f}" + (f" (n^{last:.2f})" if len(events) > 2 else "")


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
