"""The panel of who is late and why: a row a rank, the costliest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from .. import frames
from ..terminal import pipeline_sentence
from .parts import Panel, absent, note, section, table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TITLE = "Who is late, and why"


def gather(con: DuckDBPyConnection) -> pl.DataFrame:
    """`late_ranks`, those that cost the others most first."""
    return frames.waited_for(con)


def render(rows: pl.DataFrame, facts: Mapping[str, Any]) -> Panel:
    """The panel from what `gather` found."""
    if rows.is_empty():
        why = (
            "No collective was seen on two ranks with comparable clocks, so who is late is not "
            "known. Traces of every rank of one run, taken over the same steps, tell."
        )
        return Panel(absent("stragglers", TITLE, why))
    columns = {
        "rank": "rank",
        "host": "host",
        "times_last": "times last",
        "collectives": "of",
        "wait_caused_ns": "wait it caused",
        "wait_share": "share of all wait",
        "median_lateness_ns": "median lateness",
    }
    pipeline = pipeline_sentence(facts)
    return Panel(
        section(
            "stragglers", TITLE, note(pipeline) if pipeline else "", table(rows.to_dicts(), columns)
        )
    )
