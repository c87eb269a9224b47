"""The panel of what is shared: SMs that communication holds beside compute, and storage traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from .. import units
from ..names import shorter
from ..query import frame
from .parts import EVERYONE, Panel, absent, note, section, table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TITLE = "Contention: SMs and storage"

MOST_KERNELS = 12
"""Communication kernels in the table: those that run beside compute longest."""

MOST_STEPS = 12
"""Steps in the table: those that storage costs most."""


def gather(con: DuckDBPyConnection) -> dict[str, pl.DataFrame]:
    """`kernels` (`sm_budget`) and `steps` (`storage_interference`), those that cost most first.

    Only kernels that run beside compute, and steps in which storage is seen.
    """
    return {
        "kernels": frame(
            con.sql("""
            SELECT s.*, c.name AS comm_name
            FROM sm_budget AS s LEFT JOIN (
                SELECT comm, any_value(name) AS name FROM comms GROUP BY comm
            ) AS c USING (comm)
            WHERE s.overlapped_ns > 0 AND (s.blocks IS NOT NULL OR s.compute_slowdown IS NOT NULL)
            ORDER BY s.overlapped_ns DESC, s.name, s.comm
            """)
        ),
        "steps": frame(
            con.sql("""
            SELECT * FROM storage_interference
            WHERE stall_ns > 0 OR storage_bytes > 0 OR storage_ns > 0
            ORDER BY stall_max_ns DESC NULLS LAST, storage_bytes DESC NULLS LAST, step
            """)
        ),
    }


def render(found: dict[str, pl.DataFrame]) -> Panel:
    """The panel from what `gather` found."""
    kernels, steps = found["kernels"], found["steps"]
    if kernels.is_empty() and steps.is_empty():
        why = (
            "No communication kernel with a known grid runs beside compute, and no storage traffic "
            "or data-loading stall was seen. Grids come with torch.profiler and Nsight Systems "
            "traces; storage traffic with counters that Nsight Systems samples."
        )
        return absent("contention", TITLE, why)
    return Panel(section("contention", TITLE, EVERYONE, _kernels(kernels), _steps(steps)))


def _kernels(rows: pl.DataFrame) -> str:
    if rows.is_empty():
        return note("No communication kernel with a known grid runs beside compute.")
    shown = [
        {
            **r,
            "name": shorter(r["name"], 44),
            "comm": shorter(str(r["comm_name"] or r["comm"] or units.NOTHING), 24),
            "slower": units.NOTHING
            if r["compute_slowdown"] is None
            else f"{r['compute_slowdown']:.3f} x",
        }
        for r in rows.head(MOST_KERNELS).iter_rows(named=True)
    ]
    columns = {
        "name": "communication kernel",
        "comm": "communicator",
        "active_sms": "SMs it holds",
        "sm_share": "of the device",
        "overlapped_ns": "beside compute",
        "slower": "compute beside it takes",
        "compared": "kernels compared",
        "blocks_source": "blocks from",
    }
    more = rows.height - len(shown)
    return "\n".join(
        (
            "<h3>SMs that communication holds while compute runs</h3>",
            note("A slowdown is what was seen together, whatever the reason."),
            table(shown, columns, right=("slower",)),
            note(f"{more} more: retime sql 'FROM sm_budget'.") if more > 0 else "",
        )
    )


def _steps(rows: pl.DataFrame) -> str:
    if rows.is_empty():
        return ""
    columns = {
        "step": "step",
        "stall_max_ns": "longest stall of a rank",
        "stalled_ranks": "ranks stalled",
        "stall_max_over_mean": "max / mean",
        "storage_bytes": "storage traffic",
        "collectives_beside": "collectives beside it",
        "collectives_slowed": "of them slow",
        "slowdown": "their transfer over their like",
        "source": "how known",
    }
    more = rows.height - MOST_STEPS
    return "\n".join(
        (
            "<h3>Steps that wait for data, or share the network with storage</h3>",
            table(rows.head(MOST_STEPS).to_dicts(), columns),
            note(f"{more} more: retime sql 'FROM storage_interference'.") if more > 0 else "",
        )
    )
