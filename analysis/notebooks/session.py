"""What a notebook begins with: its job and connection, and how it shows charts and words."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt
import polars as pl

from ...ingest.errors import RetimeError
from .. import doors
from ..colours import COLOURS
from ..names import apart
from ..query import compute_once, tuples
from ..screen import clean

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ..doors import Job, Warehouse

GREY = "#7c7c7c"
"""Read on white and on black."""

CLASSES = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
"""The colours of the classes of a step, as in the report."""

MOST_ROWS = 20_000
"""Rows of a chart's data; the notebooks keep well below."""


def begin(warehouse: str | None = None, job: str | None = None, *keep: str) -> Job:
    """The job of a notebook, with what many queries need computed once, and the views `keep`.

    Without arguments the environment says which: RETIME_WAREHOUSE, RETIME_JOB.
    Raises WarehouseError or UsageError where that names no job.
    """
    look()
    found = doors.open(warehouse).job(job or os.environ.get("RETIME_JOB") or None)
    found.show()
    if keep:
        compute_once(found.con, *keep)
    return found


def begin_fleet(warehouse: str | None = None) -> tuple[Warehouse, DuckDBPyConnection]:
    """A warehouse and a connection to all its jobs. Raises WarehouseError where it has none."""
    look()
    found = doors.open(warehouse)
    con = found.connect()
    compute_once(con)
    return found, con


Row = tuple[str, int | None, str]
"""Job, step, side."""


class Sides(NamedTuple):
    """Two jobs, or two halves of one, that are compared."""

    before: Job
    after: Job
    steps_before: str | None
    """Steps as `diff` takes them; None for all."""
    steps_after: str | None
    con: DuckDBPyConnection
    """Of both jobs, with the table `sides` (job, step, side)."""
    words: str

    def diff(self) -> tuple[dict[str, Any] | None, str]:
        """`analysis.diff.compare` of the two, or None and the reason, as Markdown."""
        from .. import diff

        if self.before is self.after and self.steps_before is None:
            return None, plain(
                f"job {self.after.id} has fewer than two steps, so it has no halves, and no job "
                "before is given. BASELINE, or retime notebook JOB --against BEFORE, names one; "
                "where annotations are the steps, retime ingest --step-annotation says which."
            )
        try:
            found = diff.diff(
                self.before, self.after, steps_a=self.steps_before, steps_b=self.steps_after
            )
        except RetimeError as e:
            return None, plain(f"{e}.")
        return found, ""

    def foreseen(self, policy: str) -> tuple[pl.DataFrame, str]:
        """The step before, re-timed under a policy, in ms; else no row and why, as Markdown."""
        why_not = ""
        try:
            got = doors.replay(self.before, [policy])
            rows = [
                {
                    "policy": policy,
                    "measured_before_ms": got["measured_ns"] / 1e6,
                    "replayed_ms": p["step_ns"] / 1e6,
                    "low_ms": p["low_ns"] / 1e6,
                    "high_ms": p["high_ns"] / 1e6,
                    "fidelity_percent": got["fidelity_pct"],
                }
                for p in got["policies"]
            ]
        except RetimeError as e:
            rows, why_not = [], plain(str(e))
        numbers = ("measured_before_ms", "replayed_ms", "low_ms", "high_ms", "fidelity_percent")
        schema = {"policy": pl.String, **dict.fromkeys(numbers, pl.Float64)}
        return pl.DataFrame(rows, schema), why_not


def pair(
    warehouse: str | None = None, baseline: str | None = None, job: str | None = None
) -> Sides:
    """The two sides of a comparison: `baseline` and `job`, or the halves of `job`'s steps.

    Without arguments the environment says which: RETIME_WAREHOUSE, RETIME_BASELINE, RETIME_JOB.
    """
    after = begin(warehouse, job)
    other = baseline or os.environ.get("RETIME_BASELINE") or None
    if other is not None and other != after.id:
        before = begin(warehouse, other)
        con = after.warehouse.connect([before.id, after.id])
        rows = [(j.id, s, side) for j, side in ((before, "before"), (after, "after"))
                for s in _steps(j) or [None]]  # fmt: skip
        sides = Sides(before, after, None, None, con, f"Before: `{other}`. After: `{after.id}`.")
        return _with_sides(sides, rows)
    steps = _steps(after)
    if len(steps) < 2:
        sides = Sides(after, after, None, None, after.con, f"`{after.id}` has no two steps.")
        return _with_sides(sides, [(after.id, s, "after") for s in steps or [None]])
    half = len(steps) // 2
    first, second = steps[:half], steps[half:]
    rows: list[Row] = [(after.id, s, "before") for s in first]
    rows += [(after.id, s, "after") for s in second]
    words = (
        f"Before: steps {first[0]} to {first[-1]} of `{after.id}`. After: steps {second[0]} to "
        f"{second[-1]}. For two jobs set BASELINE, or `retime notebook JOB --against BASELINE`."
    )
    text_a, text_b = (",".join(map(str, half)) for half in (first, second))
    return _with_sides(Sides(after, after, text_a, text_b, after.con, words), rows)


def _steps(job: Job) -> list[int]:
    rows = tuples(job.con, "SELECT DISTINCT step FROM steps ORDER BY step")
    return [s for (s,) in rows if s is not None]


def _with_sides(sides: Sides, rows: list[Row]) -> Sides:
    con = sides.con
    con.execute("CREATE OR REPLACE TEMP TABLE sides (job VARCHAR, step BIGINT, side VARCHAR)")
    con.executemany("INSERT INTO sides VALUES (?, ?, ?)", rows)
    return sides


def plain(text: str) -> str:
    """Text from a trace as Markdown that means just that text."""
    return re.sub(r"[^\w\s.,:;%/=()'-]|_", lambda m: f"&#{ord(m[0])};", clean(text))


class Said:
    """Words that a notebook shows as Markdown."""

    def __init__(self, text: str):
        self.text = text

    def _repr_markdown_(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


def say(text: str) -> Said:
    """Markdown as the output of a cell, in every kind of notebook."""
    return Said(text)


def drawn(chart: Any, otherwise: str) -> Any:
    """The chart, or, where it has no data, the words that say why and how to get some."""
    # Altair moves the data of layers that share it to the whole.
    data = getattr(chart, "data", None)
    return chart if isinstance(data, pl.DataFrame) and data.height else Said(f"*{otherwise}*")


def look() -> None:
    """Charts that read on white and on black: nothing behind them, grey words."""
    alt.theme.enable("retime")
    alt.data_transformers.enable("retime", max_rows=MOST_ROWS)


def _harmless(data: Any = None, max_rows: int = MOST_ROWS) -> Any:
    """Altair's own way of a chart's data, after names are cleaned and cut, apart still.

    What draws pictures ends its process at a control character.
    """
    if data is None:
        return lambda data: _harmless(data, max_rows)
    if isinstance(data, pl.DataFrame):
        data = data.with_columns(
            pl.Series(name, shown_apart(data[name].cast(pl.String)), pl.String)
            for name, kind in data.schema.items()
            if kind in (pl.String, pl.Categorical, pl.Enum)
        )
    return alt.default_data_transformer(data, max_rows=max_rows)


alt.data_transformers.register("retime", _harmless)


LONGEST_LABEL = 120
"""Characters of a name in a chart."""


def shown_apart(texts: pl.Series) -> list[str | None]:
    """Names as a chart shows them, null where there is none."""
    known = [t for t in texts.unique(maintain_order=True) if t is not None]
    shown = dict(zip(known, apart([clean(t) for t in known], LONGEST_LABEL), strict=True))
    return [None if t is None else shown[t] for t in texts]


@alt.theme.register("retime", enable=False)
def _theme() -> alt.theme.ThemeConfig:
    text = {"labelColor": GREY, "titleColor": GREY, "labelFontSize": 12, "titleFontSize": 12}
    look: Any = {
        "config": {
            "background": "transparent",
            "view": {"stroke": None, "continuousWidth": 620, "continuousHeight": 260,
                     "discreteWidth": 620, "discreteHeight": {"step": 18}},
            "axis": {**text, "titleFontWeight": "normal", "gridColor": GREY, "gridOpacity": 0.25,
                     "domainColor": GREY, "tickColor": GREY},
            "header": text,
            "legend": {**text, "orient": "top", "columns": 4, "labelLimit": 260,
                       "symbolBaseFillColor": GREY, "symbolBaseStrokeColor": GREY},
            "mark": {"color": "#0072B2"},
            "title": {"color": GREY},
            "range": {"category": ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00",
                                   "#56B4E9", "#F0E442", GREY]},
        }
    }  # fmt: skip
    return look
