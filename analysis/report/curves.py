"""Curves of benchmarks (`cost_curves`) in the panel of bandwidth: points, lines and the fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from .. import units
from ..query import frame
from ..screen import clean
from .parts import note, table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST_FACETS = 12
"""Curves that have a chart: those of the most measurements."""

MOST_POINTS = 400
"""Points of one chart: the largest sizes."""

MOST_FIT_ROWS = 24
"""Fits in the table."""

SAID = (
    "A chart named as a benchmark's is no work of this job: a point is the median of what the "
    "benchmark measured at one size, when nobody is late."
)

KEY = (
    "op", "n_ranks", "n_hosts", "dtype", "redop", "in_place", "algo", "proto", "channels",
    "library", "device_name", "tool",
)  # fmt: skip
"""What a curve is of, as `cost_curve_fit` groups it."""


def gather(con: DuckDBPyConnection) -> dict[str, pl.DataFrame]:
    """`curves` (a curve and a size) and `curve_fits` (`cost_curve_fit`), for `bandwidth.gather`.

    A point has `n` measurements and the median, least and greatest of their bus bandwidth (GB/s),
    as the benchmark printed it, or S/T times the factor of the operation where it did not or
    rounded it to 0.
    """
    points = frame(
        con.sql("""
        WITH rates AS (
            SELECT * REPLACE (lower(algo) AS algo),
                coalesce(
                    nullif(busbw_bytes_per_s, 0) / 1e9,
                    bytes / time_ns * busbw_factor(op, n_ranks)
                ) AS rate
            FROM cost_curves WHERE bytes > 0 AND time_ns > 0
        )
        SELECT op, n_ranks, n_hosts, dtype, redop, in_place, algo, proto, channels, library,
            device_name, tool, bytes, count(*) AS n, median(rate) AS gbps, min(rate) AS low_gbps,
            max(rate) AS high_gbps
        FROM rates WHERE rate > 0
        GROUP BY ALL
        ORDER BY ALL
        """)
    )
    fits = frame(
        con.sql("""
        SELECT *, CASE WHEN how = 'recorded' THEN algorithm END AS algo,
            _hockney_messages(op, algorithm, n_ranks) AS messages,
            _hockney_volume(op, algorithm, n_ranks) AS volume,
            busbw_factor(op, n_ranks) AS factor
        FROM cost_curve_fit
        ORDER BY op, n_ranks, n_hosts, dtype, redop, in_place, algorithm, proto, channels, library,
            device_name, tool
        """)
    )
    return {"curves": points, "curve_fits": fits}


def facets(
    found: Mapping[str, pl.DataFrame],
    curve: Callable[[Mapping[str, Any]], list[list[float]]],
    said: Callable[[pl.DataFrame, pl.DataFrame], str],
) -> list[dict[str, Any]]:
    """The charts as `bandwidth.facets` gives them; of no communicator (place -1)."""
    points, fits = found["curves"], found["curve_fits"]
    kinds = (
        points.group_by(KEY, maintain_order=True)
        .agg(pl.col("n").sum())
        .sort("n", descending=True, maintain_order=True)
    )
    out = []
    for kind in kinds.head(MOST_FACETS).iter_rows(named=True):
        same = [pl.col(k).eq_missing(pl.lit(kind[k])) for k in KEY]
        lines = fits.filter(*same)
        good = lines.filter(pl.col("caveat").is_null())
        shown = points.filter(*same).sort("bytes").tail(MOST_POINTS)
        columns = ("bytes", "gbps", "low_gbps", "high_gbps", "n")
        out.append(
            {
                "title": _title(kind),
                "points": [
                    [-1, size, *(float(f"{v:.4g}") for v in rates), n]
                    for size, *rates, n in shown.select(columns).iter_rows()
                ],
                "lines": [{"comm": -1, "at": curve(f)} for f in good.iter_rows(named=True)],
                "said": said(good, lines),
                "of": "measurement",
            }
        )
    return out


def _title(kind: Mapping[str, Any]) -> str:
    ranks = None if kind["n_ranks"] is None else units.counted(kind["n_ranks"], "rank")
    parts = (kind["op"], ranks, kind["dtype"], _place(kind), kind["algo"], kind["proto"])
    return clean(" · ".join(["benchmark", *(str(p) for p in parts if p)]))


def _place(row: Mapping[str, Any]) -> str:
    return {True: "in place", False: "out of place"}.get(row["in_place"], "")


def tables(
    found: Mapping[str, pl.DataFrame],
    with_error: Callable[[Any, float | None, float | None], str],
    rate: Callable[[Mapping[str, Any]], str],
) -> list[str]:
    """The fits of the curves as a folded table, and how many more there are."""
    fits = found.get("curve_fits", pl.DataFrame())
    if fits.is_empty():
        return []
    rows = [
        {
            **{k: f[k] for k in ("op", "n_ranks", "dtype", "tool", "n")},
            "place": _place(f),
            "sizes": f"{units.size(f['min_bytes'])} to {units.size(f['max_bytes'])}",
            "alpha": with_error(units.time, f["alpha_ns"], f["alpha_error_ns"])
            if f["alpha_ns"] is not None
            else units.NOTHING,
            "rate": rate(f),
            "algorithm": f"{f['algorithm']} ({f['how']})",
            "caveat": f["caveat"] or "",
        }
        for f in fits.head(MOST_FIT_ROWS).iter_rows(named=True)
    ]
    columns = {
        "op": "operation",
        "n_ranks": "ranks",
        "dtype": "type",
        "place": "buffers",
        "n": "measurements",
        "sizes": "sizes",
        "alpha": "alpha (± error)",
        "rate": "B (± error)",
        "algorithm": "algorithm",
        "tool": "tool",
        "caveat": "why no line",
    }
    out = [table(rows, columns, right=("sizes", "alpha", "rate"), fold="The fits of benchmarks")]
    left = fits.height - len(rows)
    return [*out, note(f"{left} more: retime sql 'FROM cost_curve_fit'.")] if left > 0 else out
