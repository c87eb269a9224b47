"""The jobs of a warehouse beside each other, on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..ingest.errors import UsageError
from . import units
from .columns import show_table

if TYPE_CHECKING:
    from rich.console import Console

    from .doors import Warehouse

COLUMNS: dict[str, dict[str, str]] = {
    "hosts": {
        "host": "host",
        "jobs": "jobs",
        "jobs_compared": "compared",
        "jobs_latest": "latest in",
        "expected": "by chance",
        "chance": "probability",
        "chance_any": "of any host",
        "wait_caused_ns": "wait caused",
        "wait_share": "of all wait",
        "median_lateness_ns": "behind median",
    },
    "fabric": {
        "per": "per",
        "bucket": "from",
        "device_name": "device",
        "dim": "dim",
        "op": "operation",
        "size_class": "size",
        "n_ranks": "ranks",
        "n_hosts": "hosts",
        "jobs": "jobs",
        "busbw_transfer_gbps": "busbw",
        "earlier_gbps": "before",
        "change": "change",
    },
    "jobs": {
        "job": "job",
        "started": "start (UTC)",
        "ranks": "ranks",
        "hosts": "hosts",
        "device_name": "device",
        "steps": "steps",
        "step_median_ns": "step",
        "compute_share": "compute",
        "wait_share": "wait",
        "transfer_share": "transfer",
        "unsplit_share": "wait or transfer",
        "idle_share": "idle",
        "tau_share": "sync tax",
        "clocks": "clocks",
    },
    "kernels": {
        "host": "host",
        "name": "kernel",
        "jobs": "jobs",
        "jobs_slowest": "slowest in",
        "chance": "probability",
        "median_ns": "here",
        "others_median_ns": "elsewhere",
        "slower": "slower by",
        "excess_ns": "in all",
    },
}
"""Column of a row as shown -> its title, by what the rows are of."""

NUMBERS = ("expected", "chance", "chance_any", "change", "slower", "started", "bucket")
"""Columns of texts that are numbers or moments."""

FIRST_TO_GO = {
    "hosts": ("chance_any", "expected", "median_lateness_ns"),
    "fabric": ("device_name", "n_hosts", "jobs", "per"),
    "jobs": ("clocks", "device_name", "hosts", "unsplit_share", "tau_share"),
    "kernels": ("chance", "others_median_ns"),
}
"""Columns that are left out first where there is no room."""

NOTHING = {
    "hosts": "no host has a recorded name in these jobs",
    "fabric": "no collective of which every rank was seen on a comparable clock",
    "kernels": "no kernel ran on several hosts of recorded names in one job",
}


def rows(warehouse: Warehouse, by: str) -> list[dict[str, Any]]:
    """The rows of `fleet_hosts`, `fleet_fabric`, `fleet_jobs` or `fleet_kernels`.

    Raises UsageError for anything else to look by.
    """
    doors = {
        "hosts": warehouse.fleet_hosts,
        "fabric": warehouse.fleet_fabric,
        "jobs": warehouse.fleet_jobs,
        "kernels": warehouse.fleet_kernels,
    }
    if by not in doors:
        raise UsageError(f"--by takes {', '.join(doors)}, not {by!r}")
    return doors[by]().to_dicts()


def unnamed_jobs(warehouse: Warehouse) -> int:
    """Jobs of which no rank's trace recorded the name of its host: by host they are left out."""
    return warehouse.sql("""
        SELECT count(*) AS n FROM jobs j ANTI JOIN (
            FROM ranks WHERE host_source = 'recorded' AND host IS NOT NULL
        ) USING (job)
    """)["n"][0]


def show(
    out: Console, found: Sequence[Mapping[str, Any]], by: str, limit: int, unnamed: int = 0
) -> None:
    """A line a row, with what the columns that need words say, and what is not among the rows.

    `unnamed` is `unnamed_jobs`, where rows are hosts.
    """
    shown = [_shown(r) for r in found]
    show_table(
        out, shown, COLUMNS[by], limit=limit, empty=NOTHING.get(by, "no jobs"), numbers=NUMBERS,
        first_to_go=FIRST_TO_GO.get(by, ()),
    )  # fmt: skip
    if by == "hosts" and any(r["p_value"] is not None for r in found):
        out.print(
            "probability: of being the latest in so many jobs, were all ranks equal (binomial)",
            style="dim",
        )
    if by == "hosts":
        if unnamed:
            left = "job has" if unnamed == 1 else "jobs have"
            is_left = "is" if unnamed == 1 else "are"
            out.print(f"{unnamed:,} {left} no recorded host name and {is_left} left out")
        out.print("also: --by fabric, --by kernels, --by jobs", style="dim")


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if "jobs_latest_expected" in row:
        more["expected"] = f"{row['jobs_latest_expected']:.1f}"
        more["chance_any"] = _probability(row["p_value_any"])
    if "p_value" in row:
        more["chance"] = _probability(row["p_value"])
    if "change" in row:
        more |= {"change": _signed(row["change"]), "bucket": str(row["bucket"])}
    if "ratio" in row:
        more["slower"] = _signed(None if row["ratio"] is None else row["ratio"] - 1)
    if "started_from" in row:
        more["started"] = _moment(row["started_ns"])
    return {**row, **more}


def _moment(epoch_ns: int | None) -> str:
    """A moment in UTC to the minute. Raises nothing: what no calendar has is not shown."""
    try:
        moment = datetime.fromtimestamp((epoch_ns or 0) // 10**9, UTC)
    except (ValueError, OverflowError, OSError):
        return units.NOTHING
    return units.NOTHING if epoch_ns is None else f"{moment:%Y-%m-%d %H:%M}"


def _signed(share: float | None) -> str:
    text = units.percent(share)
    return f"+{text}" if share is not None and share > 0 else text


def _probability(p: float | None) -> str:
    return units.NOTHING if p is None else f"{p:.2g}"
