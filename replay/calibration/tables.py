"""The calibration as rows: of each communicator, of levels, of benchmarks, and of late ranks."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from .. import models
from ..policy import ReplayJob
from . import fits, link_sources, tau
from .hockney import Fit, NoFit, fit
from .levels import LEVELS

_NUMBERS = (
    "alpha_ns",
    "alpha_error_ns",
    "bandwidth_bytes_per_s",
    "bandwidth_error_bytes_per_s",
    "error_pct",
)


def table(job: ReplayJob) -> list[dict[str, Any]]:
    """The calibration: a row a communicator, operation and algorithm, by communicator.

    Each has `comm`, `dim`, `op`, `algo`, `level`, `n` (ranks), `alpha_ns`, `bandwidth_bytes_per_s`
    and their standard errors (None where `caveat` says why, and of 2 collectives),
    `separated` (sizes tell one from the other), `alpha_from` (own, lent by others, assumed) and
    `lender`, `classes` (`SizeClass`: none or two), `collectives`, `min_bytes`, `max_bytes`,
    `error_pct` (how far 90 % of them are at most from what is said), and what `tau.of` gives.
    """
    known = fits.of(job)
    waits = tau.waits(known.graph)
    dims = _dims(job)
    out = []
    for rows, algo in known.groups:
        comm, op = rows["comm"][0], rows["op"][0]
        row = _row(known, dims, comm, op, algo, int(rows["n"][0]), rows, rows, waits)
        try:
            found = fit(rows, algo)
        except (NoFit, models.NoModel) as e:
            out.append({**row, "caveat": str(e)})
            continue
        source, lender = "own", None
        if not found.separated:
            found, source, lender = _lent(known, (rows, algo), found)
        out.append({**row, **_numbers(found), "alpha_from": source, "lender": lender})
    return out + _unfitted(known, dims, waits)


def _row(
    known: fits.Fits,
    dims: dict[str, str],
    comm: str,
    op: str,
    algo: str,
    n: int,
    rows: pl.DataFrame,
    whole: pl.DataFrame,
    waits: pl.DataFrame,
) -> dict[str, Any]:
    """A row without a fit; `whole` are the rows of which all ranks were seen."""
    return {
        "comm": comm,
        "dim": dims.get(comm, "unknown"),
        "op": op,
        "algo": algo,
        "level": known.level(comm).words(),
        "n": n,
        **dict.fromkeys(_NUMBERS),
        "separated": False,
        "alpha_from": None,
        "lender": None,
        "classes": [],
        **tau.of(whole.join(waits, on="collective", how="inner")),
        "collectives": len(rows),
        "min_bytes": int(rows["bytes"].to_numpy().min()),
        "max_bytes": int(rows["bytes"].to_numpy().max()),
        "caveat": None,
    }


def _lent(known: fits.Fits, group: fits.Group, found: Fit) -> tuple[Fit, str, str | None]:
    for lender in known.lenders(found.comm, found.op):
        better = fits.lent(group, lender)
        if better is not None:
            return better, "lent", lender.words()
    return found, "assumed", None


def _unfitted(known: fits.Fits, dims: dict[str, str], waits: pl.DataFrame) -> list[dict[str, Any]]:
    """A row for each communicator and operation with no collective that can be fitted."""
    there = {(rows["comm"][0], rows["op"][0]) for rows, _ in known.groups}
    out = []
    rest = known.graph.instances.filter(pl.col("n") > 1)
    for (comm, op), rows in rest.group_by("comm", "op", maintain_order=True):
        if (comm, op) in there:
            continue
        n, seen = int(rows["n"].max()), int(rows["seen"].max())  # type: ignore[arg-type]
        whole = rows.filter(pl.col("seen") >= pl.col("n"))
        caveat = "none has a size: nothing tells what a byte costs"
        if not len(whole):
            caveat = (
                f"seen on {seen} of {n} ranks: how much of their time is waiting is not known; "
                "record all ranks"
            )
        row = _row(known, dims, str(comm), str(op), "?", n, rows, whole, waits)
        out.append({**row, "caveat": caveat})
    return sorted(out, key=lambda row: (row["comm"], row["op"]))


def pools(job: ReplayJob) -> list[dict[str, Any]]:
    """The calibration by fabric level: a row a level and operation, and one of all of its own.

    `level`, `op` (`all operations`), `comms` (how many), `min_n`, `max_n` (their ranks), and alpha,
    bandwidth, errors, classes and ranges as in `table`. Left out: what `table` says already (of
    one communicator), and levels whose sizes are too alike.
    """
    known = fits.of(job)
    by_level: dict[fits.Level, dict[str, list[int]]] = {}
    for rows, _ in known.groups:
        ops = by_level.setdefault(known.level(rows["comm"][0]), {})
        ops.setdefault(rows["op"][0], []).append(int(rows["n"][0]))
    out = []
    for level in sorted(by_level, key=lambda one: (LEVELS.index(one.name), one.per_host)):
        ops = by_level[level]
        kinds: list[tuple[str | None, list[int]]] = [*sorted(ops.items())]
        if len(ops) > 1:
            kinds.append((None, [n for sizes in ops.values() for n in sizes]))
        for op, sizes in kinds:
            one = sizes[0] if len(set(sizes)) == 1 and op is not None else None
            found = known.pool(level, op, one)
            if found is None or not found.separated or (op and found.comms < 2):
                continue
            out.append(
                {
                    "level": level.words(),
                    "op": op or "all operations",
                    "algo": found.algo,
                    "comms": found.comms,
                    "min_n": min(sizes),
                    "max_n": max(sizes),
                    **_numbers(found),
                    "collectives": found.instances,
                    "min_bytes": found.min_bytes,
                    "max_bytes": found.max_bytes,
                }
            )
    return out


def curves(job: ReplayJob) -> list[dict[str, Any]]:
    """The job's benchmarks (`cost_curves`): a row an operation, number of ranks and algorithm.

    `op`, `algo`, `n`, and alpha, bandwidth, errors, classes and ranges as in `table`.
    """
    return [
        {
            "op": f.op,
            "algo": f.algo,
            "n": f.n,
            **_numbers(f),
            "collectives": f.instances,
            "min_bytes": f.min_bytes,
            "max_bytes": f.max_bytes,
        }
        for f in link_sources.curves(job)
    ]


def lateness(job: ReplayJob) -> list[dict[str, Any]]:
    """`tau.lateness` of the collectives seen on all ranks: a row a communicator and rank."""
    known = fits.of(job)
    whole = known.graph.instances.filter((pl.col("seen") >= pl.col("n")) & (pl.col("n") > 1))
    return tau.lateness(known.graph, whole, job.facts.get("ranks"))


def _numbers(found: Fit) -> dict[str, Any]:
    numbers = {name: _finite(getattr(found, name)) for name in _NUMBERS}
    classes = [
        {k: _finite(v) if isinstance(v, float) else v for k, v in c._asdict().items()}
        for c in found.classes
    ]
    return {**numbers, "separated": found.separated, "classes": classes}


def _finite(value: float) -> float | None:
    """None for what JSON has no number for."""
    return float(value) if math.isfinite(value) else None


def _dims(job: ReplayJob) -> dict[str, str]:
    comms = job.facts.get("comms")
    if comms is None or not len(comms):
        return {}
    rows = comms.select(pl.col("comm").cast(pl.String), pl.col("dim").cast(pl.String))
    return {c: d for c, d in rows.iter_rows() if c is not None and d is not None}
