"""What is said of a job in sentences: who holds it up, waits that nobody knows, its clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import units
from .screen import clean


def mostly_paired(facts: Mapping[str, Any]) -> bool:
    """Is most of the wait at sends and receives? Being last there is no sign of a slow rank."""
    return (facts.get("paired_wait_share") or 0.0) > 0.5


def pipeline_sentence(facts: Mapping[str, Any]) -> str:
    """Says so where most of the wait is at sends and receives; else empty."""
    if not mostly_paired(facts):
        return ""
    return (
        f"Most of the wait ({units.percent(facts['paired_wait_share'])}) is at sends and receives. "
        "In a pipeline part of it is the schedule itself, so being last there is no fault: retime "
        "stragglers separates the two."
    )


def straggler_sentence(facts: Mapping[str, Any]) -> str:
    """Who holds the job up and why, from `Job.show()`; says so where nobody can tell."""
    last, found = facts.get("waited_for"), facts.get("culprit")
    why = reason_words((found or {}).get("why"))
    if found is not None and found["by"] == "stragglers":
        ranks = found["ranks"]
        who = f"Rank {ranks[0]} is" if len(ranks) == 1 else f"Ranks {_list(ranks)} are"
        text = (
            f"{who} what holds the job up: {units.percent(min(1.0, found['share']))} of what a "
            f"step takes over its ideal goes with {'it' if len(ranks) == 1 else 'them'} at the "
            f"ideal (M_W = {found['share']:.3f})."
        )
        text += f" Rank {found['rank']} {why}." if why else ""
        if last is not None and last["rank"] not in ranks:
            text += f" The others wait longest for rank {last['rank']}"
            text += ", which in a pipeline is no sign of a cause." if mostly_paired(facts) else "."
        return text
    if last is not None and mostly_paired(facts):
        return (
            f"{pipeline_sentence(facts)} Rank {last['rank']} was last at the greatest cost, which "
            "does not make it the straggler."
        )
    if last is None:
        return (
            "No collective was seen on two ranks with comparable clocks: who waits for whom is "
            "not known."
        )
    if found is None:
        return _nobody_sentence(facts, last)
    late = found["late"]
    host = f" on {clean(late['host'])}" if late.get("host") else ""
    text = (
        f"The others wait for rank {late['rank']}{host}: it was last to start in "
        f"{late['times_last']} of {late['collectives']} collectives, and coming with the last but "
        f"one would have spared the others {_caused_words(facts, late)}."
    )
    text += f" Rank {found['rank']} {why}." if why else ""
    return " ".join(t for t in (text, began_sentence(facts)) if t)


def _caused_words(facts: Mapping[str, Any], late: Mapping[str, Any]) -> str:
    """The wait that a rank of `frames.waited_for` caused, and its share of all."""
    said = f"{units.time(late['wait_caused_ns'])}, added up over ranks"
    share, everything = late.get("wait_share"), facts.get("all_wait_ns")
    if share is None or not everything:
        return said
    return f"{said}, {units.percent(share)} of all the wait of all ranks ({units.time(everything)})"


def _nobody_sentence(facts: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    """Why no rank is named though one of them was last at the greatest cost (`culprit.find`)."""
    from .culprit import LEAST_SHARE

    if not facts.get("all_wait_ns") or not last["wait_caused_ns"]:
        return "The traces name no rank: none makes the others wait."
    text = (
        f"The traces name no rank: rank {last['rank']} was last at the greatest cost, "
        f"{_caused_words(facts, last)}, "
    )
    if (last.get("wait_share") or 0.0) < LEAST_SHARE:
        return f"{text}too little to explain the rest. {began_sentence(facts)}".rstrip()
    if began_apart(facts):
        return f"{text}but that follows from when it began recording. {began_sentence(facts)}"
    return f"{text}but that is within the clocks' error or a hundredth of its own time."


MUCH_APART = 0.05
"""Share of a step by which ranks of a one-step capture begin apart before it is said."""


def began_apart(facts: Mapping[str, Any]) -> bool:
    """Did ranks begin their only step (or trace) so far apart that it may be the profiler's?"""
    return (facts.get("start_spread_ns") or 0) > MUCH_APART * (facts.get("step_ns") or 0) > 0


def began_sentence(facts: Mapping[str, Any]) -> str:
    """Says by how much ranks of a one-step capture began apart; empty where that is little."""
    if not began_apart(facts):
        return ""
    return (
        f"Ranks began recording up to {units.time(facts['start_spread_ns'])} apart: the first "
        "collective's wait may be the profiler's own. Record several steps to tell."
    )


def _list(ranks: Sequence[int], most: int = 8) -> str:
    more = f" and {len(ranks) - most} more" if len(ranks) > most else ""
    return ", ".join(map(str, ranks[:most])) + more


def reason_words(why: Mapping[str, Any] | None) -> str:
    """The words of `culprit.reason`, which follow "rank 3"; empty where there is none."""
    return clean(why["words"]) if why is not None else ""


def unseen_sentence(facts: Mapping[str, Any]) -> str:
    """Says how much of communication has a wait that nothing can tell; empty where none has."""
    n, of = facts.get("wait_unknown") or 0, facts.get("participations") or 0
    if not n:
        return ""
    which = "all" if n == of else f"{n:,} of"
    return (
        f"of {which} {units.counted(of, 'participation')} in collectives only one rank was seen: "
        "how much of their time is wait is not known."
    )


def clocks_sentence(facts: Mapping[str, Any]) -> str:
    """How the clocks of the job's ranks were brought together, with the error."""
    kind, error = facts.get("clocks"), facts.get("clock_error_ns")
    within = "" if error is None else f", error up to {units.time(error)}"
    loose = facts.get("ranks_unaligned") or 0
    if not facts.get("ranks_seen", 1):
        return "no ranks: nothing to align"
    if facts.get("ranks_seen") == 1:
        return "one rank: nothing to align"
    known = {
        "one-host": "one clock: all ranks are on one host",
        "aligned": f"hosts aligned by their collectives{within}",
        "partly-aligned": f"partly aligned{within}; nothing ties {loose} ranks to the others",
        "unaligned": "not aligned: nothing ties the hosts together, "
        "so no waits are given between them",
        "recorded": "as recorded: the source gives one clock for all",
        "untimed": "none: no source says when anything ran",
    }
    return known.get(str(kind), clean(str(kind)) if kind else "not known")


def clocks_word(facts: Mapping[str, Any]) -> str:
    """`clocks_sentence` up to its first mark, for a column of a table."""
    return clocks_sentence(facts).partition(":")[0].partition(",")[0].partition(";")[0]
