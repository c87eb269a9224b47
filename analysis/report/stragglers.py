"""The panel of who is late and why: a row a rank, the costliest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from .. import units
from ..query import frame
from ..sentences import pipeline_sentence
from .parts import Bars, Panel, absent, items, note, section, table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TITLE = "Who is late, and why"

CAUSES = {
    "slower_kernels": "slower kernels",
    "more_work": "more work",
    "late_launches": "late launches",
    "data_loading": "data loading",
    "garbage_collection": "garbage collection",
    "waiting_for_host": "waits for its host",
    "waiting_for_stream": "waits for a stream",
    "memcpy": "copies",
    "earlier_collective": "an earlier collective",
    "slow_link": "a slow link",
    "unknown": "not known",
}
"""Causes of `stragglers` in words; a rank that holds nobody up has none."""


def gather(con: DuckDBPyConnection, *, scores: bool = True) -> pl.DataFrame:
    """`stragglers` with each rank's trend of lateness, those that surely cost a step most first.

    Ranks whose score's whole interval is a gain, then by the wait that they caused the others.
    `scores` False leaves out what a replay gives: score_ns and its interval are null.
    """
    score = "s.score_ns, s.score_low_ns, s.score_high_ns"
    sure = "CASE WHEN s.score_low_ns > 0 THEN s.score_ns END DESC NULLS LAST,"
    if not scores:
        sure = ""
        score = ", ".join(
            f"NULL::BIGINT AS {c}" for c in ("score_ns", "score_low_ns", "score_high_ns")
        )
    return frame(
        con.sql(f"""
        WITH trend AS (
            SELECT rank, any_value(slope_ns_per_step) AS slope,
                any_value(slope_error_ns_per_step) AS error
            FROM lateness_trend GROUP BY rank
        )
        SELECT s.rank, s.host, s.collectives, s.times_last, s.wait_caused_ns, {score},
            s.cause, s.kernel, s.detail,
            CASE WHEN abs(t.slope) > 2 * t.error THEN t.slope END AS slope_ns_per_step
        FROM stragglers AS s LEFT JOIN trend AS t USING (rank)
        ORDER BY {sure} s.wait_caused_ns DESC, s.times_last DESC, s.rank
        """)
    )


def cause_words(cause: str | None) -> str:
    """A cause in words; empty for a rank that holds nobody up."""
    return "" if cause is None else CAUSES.get(cause, cause.replace("_", " "))


def render(rows: pl.DataFrame, facts: Mapping[str, Any]) -> Panel:
    """The panel from what `gather` found."""
    if rows.is_empty() or not rows["times_last"].sum():
        why = (
            "No collective was seen on two ranks with comparable clocks, so who is late is not "
            "known. Traces of every rank of one run, taken over the same steps, tell."
        )
        return absent("stragglers", TITLE, why)
    one = facts.get("steps") == 1
    everything = facts.get("all_wait_ns")
    shown = [
        {
            **r,
            "times": f"{r['times_last']} of {r['collectives']}",
            "part_share": r["wait_caused_ns"] / everything if everything else None,
            "score": units.interval(
                r["score_ns"],
                None if one else r["score_low_ns"],
                None if one else r["score_high_ns"],
            ),
            "cause": cause_words(r["cause"]),
            "detail": r["detail"] or "",
            "trend_ns": r["slope_ns_per_step"],
        }
        for r in rows.iter_rows(named=True)
    ]
    columns = {
        "rank": "rank",
        "host": "host",
        "times": "last",
        "wait_caused_ns": "wait it caused",
        "part_share": "of all wait",
        "score": "gain a step at the median (interval)",
        "trend_ns": "later each step by",
        "cause": "cause",
        "detail": "what it does",
    }
    if (facts.get("hosts") or 0) < 2:
        del columns["host"]
    if rows["score_ns"].is_null().all():
        del columns["score"]
    if rows["slope_ns_per_step"].is_null().all():
        del columns["trend_ns"]
    bars = Bars(
        "wait it caused the others",
        {"wait_caused_ns": "exposed_wait"},
        float(rows["wait_caused_ns"].max() or 0),  # pyright: ignore[reportArgumentType]
        narrow=True,
    )
    said = []
    if rows["score_ns"].is_null().all():
        said.append("What each rank alone costs a step is not known: nothing was re-timed.")
    pipeline = pipeline_sentence(facts)
    if pipeline:
        said.append(pipeline)
    return Panel(
        section(
            "stragglers",
            TITLE,
            note(
                "The wait of the others that would have gone had the rank started with the last "
                "but one; what a step would gain had the rank done its own work as the median "
                "rank does, re-timed; and what it does that the others do not."
            ),
            items(said, "said"),
            table(shown, columns, bars=bars, right=("times", "score")),
        )
    )
