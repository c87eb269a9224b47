"""The last panel: clocks, matching, ranks that are missing, and what was odd in the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import units
from ..sentences import began_sentence, clocks_sentence
from .parts import Panel, items, note, section, table

MOST_PROBLEMS = 12
"""Kinds of problem that the page lists; the rest are counted."""


def render(facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Panel:
    """The panel from `Job.show` and `frames.problem_kinds`."""
    said = [f"Clocks: {clocks_sentence(facts)}."]
    if facts["collectives"] or facts["participations"]:
        said.append(
            f"Matching: {units.counted(facts['exact'], 'collective')} by sequence number, "
            f"{facts['order']:,} by order, {facts['partial']:,} seen on only some of their "
            "ranks (waits of theirs are lower bounds)."
        )
    if facts["unmatched"]:
        said.append(f"{facts['unmatched']:,} participations are matched with no other rank's.")
    world = facts.get("world_size")
    if world and facts["ranks_seen"] < world:
        said.append(
            f"Ranks: {facts['ranks_seen']} of {world} left a trace; waits for the others are not "
            "seen."
        )
    if began_sentence(facts):
        said.append(began_sentence(facts))
    lost = sum(1 for r in rows if r["severity"] == "lost")
    if lost:
        said.append(
            f"Input was lost: {units.counted(lost, 'kind')} of problem below "
            f"{'is' if lost == 1 else 'are'} of severity lost: what it held is not on this page."
        )
    parts = [items(said)]
    if rows:
        rows = [{**r, "sources": r["sources"] or None} for r in rows]
        parts.append("<h3>Problems in the input</h3>")
        columns = {
            "severity": "severity",
            "code": "problem",
            "sources": "files",
            "times": "times",
            "message": "what",
        }
        parts.append(table(rows[:MOST_PROBLEMS], columns))
        if len(rows) > MOST_PROBLEMS:
            left = len(rows) - MOST_PROBLEMS
            parts.append(note(f"{left} more: retime problems {facts.get('job')}"))
    else:
        parts.append(note("No problems were found in the input."))
    return Panel(section("caveats", "How far to trust this", *parts))
