"""The panel of communication under compute: a bar and a row a rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from .parts import Bars, Panel, absent, legend, note, section, table

TITLE = "Communication under compute, by rank"


def render(rows: pl.DataFrame, facts: Mapping[str, Any]) -> Panel:
    """The panel from `frames.overlap_by_rank`."""
    if rows.is_empty():
        none = (
            "No rank communicates, so there is nothing to overlap. If one should: a trace of every "
            "rank with its communication kernels (torch.profiler, Nsight Systems) has it."
        )
        if facts["participations"]:
            none = (
                "No source says when this job's collectives ran: what they overlapped is not "
                "known. A torch.profiler or Nsight Systems trace has it."
            )
        return absent("overlap", TITLE, none)
    bars = Bars(
        "communication",
        {"overlap_ns": "hidden", "exposed_ns": "exposed"},
        float(rows["comm_ns"].max() or 0),  # pyright: ignore[reportArgumentType]
    )
    columns = {
        "rank": "rank",
        "comm_ns": "communication",
        "overlap_ns": "under compute",
        "exposed_ns": "exposed",
        "overlap_share": "overlap",
    }
    total = int(rows["comm_ns"].sum())
    everyone = {
        "rank": None,
        **{c: rows[c].mean() for c in ("comm_ns", "overlap_ns", "exposed_ns")},
        "overlap_share": int(rows["overlap_ns"].sum()) / total if total else None,
    }
    return Panel(
        section(
            "overlap",
            TITLE,
            note(
                "Measured over the whole trace as the time in which both run at once, never from "
                "totals. The first row is the mean over ranks."
            ),
            legend({"under compute": "hidden", "exposed": "exposed"}),
            table([everyone, *rows.to_dicts()], columns, bars=bars),
        )
    )
