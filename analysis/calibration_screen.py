"""A job's calibration on the terminal: links by communicator, level and benchmark; late ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ..replay.told import short
from . import units
from .columns import show_table
from .screen import clean

if TYPE_CHECKING:
    from rich.console import Console

MOST_RANKS = 3
"""Latest ranks of a communicator that are shown."""

MOST_LATE = 12
"""And of all communicators."""

_FIT = {"alpha": "alpha", "bandwidth": "bandwidth", "sizes": "sizes", "n": "n"}


def show(out: Console, result: Mapping[str, Any]) -> None:
    """The tables that `run.replay` gives with `calibration`; those without a row are left out."""
    out.print("Calibration: T = messages x alpha + bytes / bandwidth, after a wait of tau "
              "(± a standard error)", style="bold")  # fmt: skip
    titles = {"what": "what", "dim": "dim", "ranks": "ranks", "algo": "algo", **_FIT}
    titles |= {"off": "90 % within", "tau": "tau", "p90": "tau p90", "caveat": "caveat"}
    rows = [r for row in result["calibration"] for r in _own(row)]
    show_table(out, rows, titles, empty="no collective was seen with others")
    for lender in dict.fromkeys(r["lender"] for r in result["calibration"] if r.get("lender")):
        out.print(f"lent: {_clean(lender)}", style="dim")
    titles = {"level": "level", "what": "operation", "comms": "comms", "ranks": "ranks", **_FIT}
    levels = [r for row in result.get("calibration_levels") or () for r in _level(row)]
    _also(out, "Pooled by fabric level", levels, titles | {"off": "90 % within"})
    curves = [r for row in result.get("calibration_curves") or () for r in _curve(row)]
    titles = {"what": "operation", "ranks": "ranks", "algo": "algo", **_FIT}
    _also(out, "Benchmarks", curves, titles | {"off": "90 % within"})
    late, more = _late(result.get("lateness") or ())
    titles = {"comm": "comm", "rank": "rank", "late": "late", "p90": "p90", "last": "last to come"}
    _also(out, "Latest ranks, after the first", late, titles | {"n": "n", "clock": "clock error"})
    if more:
        out.print(f"and {more} more ranks of communicators: --json has all", style="dim")


def _also(out: Console, title: str, rows: list[dict[str, str]], titles: dict[str, str]) -> None:
    if rows:
        out.print()
        out.print(title, style="bold")
        show_table(out, rows, titles)


def _own(row: Mapping[str, Any]) -> list[dict[str, str]]:
    ranks = f"{row['n']} {row['level']}" if row["level"] != "unknown" else str(row["n"])
    source = {"lent": "sizes alike: what they do not tell is lent",
              "assumed": "sizes alike: alpha assumed"}.get(row["alpha_from"] or "", "")  # fmt: skip
    first = {
        "what": f"{_clean(row['op'])} on {_clean(row['comm'])}",
        "dim": _clean(row["dim"]),
        "ranks": _clean(ranks),
        "algo": _clean(row["algo"]),
        "tau": _with_error(row["tau_ns"], row["tau_error_ns"]),
        "p90": units.time(row["tau_p90_ns"]),
        "caveat": _clean(row["caveat"] or source),
    }
    return _with_classes(row, first)


def _level(row: Mapping[str, Any]) -> list[dict[str, str]]:
    low, high = row["min_n"], row["max_n"]
    first = {
        "level": _clean(row["level"]),
        "what": _clean(row["op"]),
        "comms": str(row["comms"]),
        "ranks": str(low) if low == high else f"{low} to {high}",
    }
    return _with_classes(row, first)


def _curve(row: Mapping[str, Any]) -> list[dict[str, str]]:
    first = {"what": _clean(row["op"]), "ranks": str(row["n"]), "algo": _clean(row["algo"])}
    return _with_classes(row, first)


def _with_classes(row: Mapping[str, Any], first: dict[str, str]) -> list[dict[str, str]]:
    """A line of the one fit, and under it one a class of sizes, where there are any."""
    empty = {**dict.fromkeys(first, ""), "off": ""}
    classes = [{**empty, "what": f"  {c['bound']}-bound", **_figures(c)} for c in row["classes"]]
    return [{**first, **_figures(row), "off": _pct(row["error_pct"])}, *classes]


def _figures(row: Mapping[str, Any]) -> dict[str, str]:
    n = row["collectives"] if "collectives" in row else row["instances"]
    return {
        "alpha": _with_error(row["alpha_ns"], row["alpha_error_ns"]),
        "bandwidth": _rate(row["bandwidth_bytes_per_s"], row["bandwidth_error_bytes_per_s"]),
        "sizes": _sizes(row["min_bytes"], row["max_bytes"]),
        "n": str(n),
    }


def _sizes(low: int, high: int) -> str:
    if not high:
        return units.NOTHING
    return units.size(low) if low == high else f"{units.size(low)} to {units.size(high)}"


def _late(rows: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, str]], int]:
    """The latest ranks of each communicator, and how many there are besides."""
    shown = [
        r for _, of in groupby(rows, lambda r: r["comm"])
        for r in [r for r in of if r["late_p90_ns"]][:MOST_RANKS]
    ][:MOST_LATE]  # fmt: skip
    made = [
        {
            "comm": _clean(r["comm"]),
            "rank": str(r["rank"]),
            "late": _with_error(r["late_ns"], r["late_error_ns"]),
            "p90": units.time(r["late_p90_ns"]),
            "last": f"{r['last_pct']:.0f} ± {r['last_error_pct']:.0f} %",
            "n": str(r["collectives"]),
            "clock": units.time(r["clock_error_ns"]),
        }
        for r in shown
    ]
    return made, len(rows) - len(shown) if made else 0


def _clean(text: str) -> str:
    """What a trace named, however long, as it may stand on a screen."""
    return clean(short(text))


def _with_error(value: float | None, error: float | None) -> str:
    """A time and its standard error; alone where none is known or it is of something else."""
    if value is None or not error:
        return units.time(value)
    return f"{units.time(value)} ± {units.time(error)}"


def _rate(value: float | None, error: float | None) -> str:
    if value is None:
        return units.NOTHING
    return f"{value / 1e9:.3g}{f' ± {error / 1e9:.2g}' if error else ''} GB/s"


def _pct(value: float | None) -> str:
    return units.NOTHING if value is None else f"{value:.1f} %"
