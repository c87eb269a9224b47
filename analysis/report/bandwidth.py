"""The panel of bandwidth against size: what collectives reached, and Hockney's line in it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from .. import units
from ..names import shorter
from ..query import frame
from ..screen import clean
from . import curves
from .parts import Panel, absent, chart, note, section, table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TITLE = "Bandwidth against size"

MOST_FACETS = 8
"""Kinds of collective that have a chart: those that transfer longest."""

MOST_POINTS = 400
"""Points of one chart: those of the most collectives."""

MOST_FITS = 3
"""Lines of one chart: those through the most collectives."""

MOST_FIT_ROWS = 24
"""Fits in the table."""

OWN = (
    "Bus bandwidth over transfer alone: a point is the median of the collectives of one size of "
    "one communicator, with a whisker to their tenth and ninetieth hundredth."
)

LINE = "The line is T = p alpha + q S/B, its band two standard errors. It is no NIC's line rate."

KEY = ("op", "dim", "n_ranks")


def gather(con: DuckDBPyConnection) -> dict[str, pl.DataFrame]:
    """`points` (a communicator, operation and size), `fits` (`hockney_fit`), `members`.

    A point has `n` collectives, the median, tenth and ninetieth hundredth of their bus bandwidth
    over transfer (GB/s), and `transfer_ns` in all. A fit has p (`messages`), q (`volume`) and the
    factor from algorithm to bus bandwidth with it. `curves` and `curve_fits`, of benchmarks, are
    those of `curves.gather`.
    """
    points = frame(
        con.sql("""
        SELECT comm, dim, op, n_ranks, bytes, count(*) AS n,
            median(busbw_transfer_gbps) AS gbps,
            quantile_cont(busbw_transfer_gbps, 0.1) AS low_gbps,
            quantile_cont(busbw_transfer_gbps, 0.9) AS high_gbps,
            sum(transfer_ns)::BIGINT AS transfer_ns
        FROM collective_instances
        WHERE bytes > 0 AND busbw_transfer_gbps > 0
        GROUP BY ALL
        ORDER BY op, dim, n_ranks, bytes, comm
        """)
    )
    fits = frame(
        con.sql("""
        SELECT *, _hockney_messages(op, algorithm, n_ranks) AS messages,
            _hockney_volume(op, algorithm, n_ranks) AS volume,
            busbw_factor(op, n_ranks) AS factor
        FROM hockney_fit ORDER BY n DESC, op, comm, algorithm
        """)
    )
    members = frame(
        con.sql("SELECT DISTINCT ON (comm) comm, name, ranks FROM comms ORDER BY comm, name")
    )
    return {"points": points, "fits": fits, "members": members, **curves.gather(con)}


def took_ns(fit: Mapping[str, Any], size: float) -> tuple[float, float]:
    """T = p alpha + q S / B of a fit at a size in bytes, and its standard error, both in ns.

    The errors of alpha and B are added as if independent; in a fit they go against each other, so
    the band is rather too wide.
    """
    rate = fit["bandwidth_bytes_per_s"] / 1e9
    moved = fit["volume"] * size / rate
    time = fit["messages"] * fit["alpha_ns"] + moved
    of_alpha = fit["messages"] * (fit["alpha_error_ns"] or 0.0)
    of_rate = moved * (fit["bandwidth_error_bytes_per_s"] or 0.0) / 1e9 / rate
    return time, math.hypot(of_alpha, of_rate)


def curve(fit: Mapping[str, Any], points: int = 33) -> list[list[float]]:
    """[bytes, GB/s, low, high] along a fit, bus bandwidth; low and high are two errors away."""
    low, high = math.log(fit["min_bytes"]), math.log(fit["max_bytes"])
    out = []
    for i in range(points):
        size = math.exp(low + (high - low) * i / (points - 1))
        time, error = took_ns(fit, size)
        if time <= 0:
            continue
        moved = fit["factor"] * size
        fastest = max(time - 2 * error, time / 20)
        row = (size, moved / time, moved / (time + 2 * error), moved / fastest)
        out.append([float(f"{v:.4g}") for v in row])
    return out


def facets(found: Mapping[str, pl.DataFrame]) -> list[dict[str, Any]]:
    """The charts: `title`, `points`, `lines`, `said`; the longest transfer first.

    A point is [place of the communicator in `members`, bytes, GB/s, low, high, collectives].
    """
    points, fits = found["points"], found["fits"]
    place = {c: i for i, c in enumerate(found["members"]["comm"].to_list())}
    kinds = (
        points.group_by(KEY)
        .agg(pl.col("transfer_ns").sum(), pl.col("n").sum())
        .sort("transfer_ns", *KEY, descending=[True, False, False, False], nulls_last=True)
    )
    out = []
    for kind in kinds.head(MOST_FACETS).iter_rows(named=True):
        same = [pl.col(k).eq_missing(pl.lit(kind[k])) for k in KEY]
        mine = points.filter(*same)
        lines = fits.filter(*same)
        good = lines.filter(pl.col("caveat").is_null())
        shown = mine.sort("n", "bytes", descending=[True, False]).head(MOST_POINTS)
        columns = ("comm", "bytes", "gbps", "low_gbps", "high_gbps", "n")
        out.append(
            {
                "title": _title(kind),
                "points": [
                    [place.get(comm, -1), size, *(float(f"{v:.4g}") for v in rates), n]
                    for comm, size, *rates, n in shown.select(columns).iter_rows()
                ],
                "lines": [
                    {"comm": place.get(f["comm"], -1), "at": curve(f)}
                    for f in good.head(MOST_FITS).iter_rows(named=True)
                ],
                "said": _said(good, lines),
            }
        )
    return out


def _title(kind: Mapping[str, Any]) -> str:
    dim = kind["dim"] if kind["dim"] not in (None, "unknown") else None
    ranks = None if kind["n_ranks"] is None else units.counted(kind["n_ranks"], "rank")
    return clean(" · ".join(str(p) for p in (kind["op"], dim, ranks) if p))


def _said(good: pl.DataFrame, all: pl.DataFrame) -> str:
    if good.is_empty():
        why = all["caveat"].drop_nulls().to_list()
        return f"No line: {why[0]}." if why else "No line."
    f = good.row(0, named=True)
    alpha = _with_error(units.time, f["alpha_ns"], f["alpha_error_ns"])
    rate = _rate(f)
    many = "" if good.height == 1 else f" (the first of {good.height} communicators)"
    return f"alpha {alpha}, B {rate}, {f['algorithm']} {f['how']}{many}"


def _with_error(words: Any, value: float | None, error: float | None) -> str:
    return words(value) if error is None else f"{words(value)} ± {words(error)}"


def _rate(f: Mapping[str, Any]) -> str:
    value, error = f["bandwidth_bytes_per_s"], f["bandwidth_error_bytes_per_s"]
    if value is None:
        return units.NOTHING
    return _with_error(units.rate, value / 1e9, None if error is None else error / 1e9)


def render(found: Mapping[str, pl.DataFrame]) -> Panel:
    """The panel from what `gather` found."""
    measured = found.get("curves", pl.DataFrame())
    if found["points"].is_empty() and measured.is_empty():
        why = (
            "No collective has both a size and a transfer time that is known, so there is no "
            "bandwidth. Traces of all ranks with sizes have it: torch.profiler records them with "
            "record_shapes=True, the NCCL Inspector plugin (NCCL_PROFILER_PLUGIN) without."
        )
        return absent("bandwidth", TITLE, why)
    names = dict(found["members"].select("comm", "name").iter_rows())
    rows = [
        {
            "op": f["op"],
            "dim": f["dim"],
            "comm": shorter(str(names.get(f["comm"]) or f["comm"] or units.NOTHING), 28),
            "n_ranks": f["n_ranks"],
            "n": f["n"],
            "alpha": _with_error(units.time, f["alpha_ns"], f["alpha_error_ns"])
            if f["alpha_ns"] is not None
            else units.NOTHING,
            "rate": _rate(f),
            "tau": _with_error(units.time, f["tau_ns"], f["tau_spread_ns"]),
            "algorithm": f"{f['algorithm']} ({f['how']})",
            "caveat": f["caveat"] or "",
        }
        for f in found["fits"].head(MOST_FIT_ROWS).iter_rows(named=True)
    ]
    columns = {
        "op": "operation",
        "dim": "dimension",
        "comm": "communicator",
        "n_ranks": "ranks",
        "n": "collectives",
        "alpha": "alpha (± error)",
        "rate": "B (± error)",
        "tau": "tau (± spread)",
        "algorithm": "algorithm",
        "caveat": "why no line",
    }
    left = found["fits"].height - len(rows)
    more = f"{left} more: retime sql 'FROM hockney_fit'." if left > 0 else ""
    made = facets(found) if found["points"].height else []
    if measured.height:
        made += curves.facets(found, curve, _said)
    said = [OWN] if found["points"].height else []
    said += [curves.SAID, LINE] if measured.height else [LINE]
    used = {p[0] for f in made for p in f["points"]} - {-1}
    members = found["members"]["ranks"].to_list()
    return Panel(
        section(
            "bandwidth",
            TITLE,
            note(" ".join(said)),
            chart("bandwidth", "bus bandwidth against message size, with the fitted line"),
            table(rows, columns, right=("alpha", "rate", "tau"), fold="The fits") if rows else "",
            note(more) if more else "",
            *curves.tables(found, _with_error, _rate),
        ),
        {
            "facets": made,
            "members": {i: m for i, m in enumerate(members) if i in used and m is not None},
        },
    )
