"""What commands print of a job: figures and sentences on a terminal, plain text when piped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import units
from .columns import Cells, cells, lines, show_table
from .manual_screen import show_terms
from .names import apart, shorter
from .replay_screen import estimate, joined, policy_words
from .screen import clean, console, to_json

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Cells",
    "cells",
    "clean",
    "console",
    "estimate",
    "lines",
    "policy_words",
    "shorter",
    "show_table",
    "to_json",
]
"""Of the modules below, for those who print what is here, too."""

STYLES = {
    "compute": "green",
    "wait": "red",
    "transfer": "yellow",
    "unsplit": "magenta",
    "memcpy": "cyan",
    "idle": "dim",
}


def bar(share: float, width: int, encoding: str | None) -> str:
    """A bar of `share` of `width` columns; `#` where the stream has no block characters."""
    full = max(0.0, min(1.0, share)) * width
    if (encoding or "").lower().replace("-", "") != "utf8":
        return "#" * round(full)
    whole, eighths = divmod(round(full * 8), 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[eighths] if eighths else "")


def show_split(out: Console, classes: Sequence[Mapping[str, Any]], *, zero: bool = False) -> None:
    """The split of a step: class, mean time, share and a bar, in the order of the rows."""
    from rich.text import Text

    from .frames import words_of

    rows = [r for r in classes if zero or r["mean_ns"] > 0]
    if not rows:
        return
    words = [clean(words_of(r["class"])) for r in rows]
    times = [units.time(r["mean_ns"]) for r in rows]
    shares = [units.percent(r["share"]) for r in rows]
    w, t, s = (max(map(len, c)) for c in (words, times, shares))
    room = max(8, min(40, out.width - (2 + w + 2 + t + 2 + s + 2)))
    for r, word, ns, share in zip(rows, words, times, shares, strict=True):
        line = Text(f"  {word:<{w}}  {ns:>{t}}  {share:>{s}}  ", no_wrap=True)
        line.append(bar(r["share"], room, out.encoding), style=STYLES.get(r["group"], ""))
        out.print(line, soft_wrap=True)


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


def show_job(out: Console, facts: Mapping[str, Any]) -> None:
    """`retime show`: facts in lines, then the split of the step, then who is waited for."""
    from rich.text import Text

    def line(label: str, text: str, style: str = "") -> None:
        out.print(Text.assemble((f"{label:<13}", "bold"), (text, style)), soft_wrap=False)

    world = facts.get("world_size")
    of_world = f" of {world}" if world else ""
    hosts = facts.get("hosts") or 0
    where = f" on {units.counted(hosts, 'host')}" if hosts else ", hosts not known"
    used, comms = facts.get("comms_used", facts["comms"]), facts["comms"]
    of_comms = units.counted(comms, "communicator")
    if used < comms:
        of_comms = f"{used:,} of {of_comms}"
    device = f", {clean(facts['device_name'])}" if facts.get("device_name") else ""
    line("job", clean(str(facts.get("job", ""))))
    empty = not facts["ranks_seen"] and not facts["participations"]
    none_seen = "none: no source is the trace of a rank"
    line("ranks", none_seen if empty else f"{facts['ranks_seen']}{of_world}{where}{device}")
    files = units.counted(facts.get("sources") or 0, "file")
    line("from", f"{clean(str(facts.get('framework')))}, {files}")
    if facts.get("holds"):
        line("holds", _holdings_words(facts["holds"]))
    if empty:
        _show_problems_line(line, facts)
        out.print()
        tables = list(facts.get("holds") or ())
        ask = f" retime sql 'FROM {tables[0]}' has the rows." if tables else ""
        out.print(f"No rank's work is in this job: there is no step to split.{ask}")
        return
    line("clocks", clocks_sentence(facts))
    n = facts["steps"]
    which = f", {facts['first_step']} to {facts['last_step']}" if n > 1 else ""
    by = clean(facts.get("steps_found_by") or "")
    found = f" ({'' if by == 'inferred' else 'by '}{by})" if n and by else ""
    none = (
        "none found"
        if facts["scope"] == "nothing"
        else "none found: times below are of whole traces"
    )
    line("steps", f"{n}{which}{found}" if n else none)
    line(
        "collectives",
        f"{facts['collectives']:,} on {of_comms}, in "
        f"{units.counted(facts['participations'], 'participation')}",
    )
    line(
        "matched",
        f"{facts['exact']:,} exact, {facts['order']:,} by order, {facts['partial']:,} partial",
    )
    _show_problems_line(line, facts)
    out.print()
    if facts.get("hang"):
        from .hang_screen import show_hang

        show_hang(out, facts["hang"])
        if facts["scope"] == "nothing":
            return
        out.print()
    show_headline(out, facts)
    _show_fix(out, facts)
    job = clean(str(facts.get("job", "")))
    out.print(
        f"\nnext: retime report {job} (what to fix first), retime notebook {job}", style="dim"
    )


def _show_fix(out: Console, facts: Mapping[str, Any]) -> None:
    """What to fix first and its gain, or which command re-times a job too large to do at once."""
    from rich.text import Text

    fix = facts.get("fix_first")
    if fix is None:
        return
    job = clean(str(facts.get("job", "")))
    said = (
        f"{fix['head']}. {fix['gain']}"
        if fix["head"]
        else (f"too large a job to re-time at once: retime report {job} says what, and its gain.")
    )
    out.print()
    out.print(Text.assemble(("Fix first: ", "bold"), said))


def _holdings_words(holds: Mapping[str, int]) -> str:
    from .tracking import ROWS

    return ", ".join(f"{n:,} {ROWS.get(table, table)}" for table, n in holds.items())


def _show_problems_line(line: Callable[..., None], facts: Mapping[str, Any]) -> None:
    lost = facts["problems_lost"]
    line(
        "problems",
        f"{lost} lost input, {units.counted(facts['problems_warning'], 'warning')}, "
        f"{units.counted(facts['problems_info'], 'note')}",
        "bold red" if lost else "",
    )


def show_headline(out: Console, facts: Mapping[str, Any]) -> None:
    """Where the step went and who is waited for."""
    for text in facts.get("contradictions") or ():
        out.print(f"warning: {clean(text)}", style="yellow")
    if facts["scope"] == "nothing":
        out.print("No GPU work in this job: there is no step to split.")
    else:
        what = "Step" if facts["scope"] == "step" else "Trace of a rank (no steps found)"
        over = "ranks and steps" if facts["scope"] == "step" else "ranks"
        out.print(f"{what}: {units.time(facts['step_ns'])}, mean over {over}", style="bold")
        show_split(out, facts["classes"])
    out.print()
    if unseen_sentence(facts):
        out.print(f"warning: {unseen_sentence(facts)}", style="yellow")
    out.print(straggler_sentence(facts))


def show_stragglers(out: Console, result: Mapping[str, Any]) -> None:
    """`retime stragglers`: the slowdown, then who and what it comes from."""
    out.print(f"slowdown S = {result['slowdown']:.3f}", style="bold")
    # Only recorded operations are replayed without them, and only those have stages.
    delays = " without launch delays" if result.get("by_stage") else ""
    out.print(
        f"a step takes {units.time(result['replayed_ns'])}{delays}, and would take "
        f"{units.time(result['ideal_ns'])} with every operation at its ideal"
    )
    if result["slowdown"] <= 1:
        out.print("that is no slowdown: there is nothing for a rank or an operation to explain")
    slowest = joined(result.get("slowest_ranks") or [])
    shares = []
    if result.get("m_w") is not None:
        shares.append((f"M_W = {result['m_w']:.3f}", f"of that goes with rank {slowest} ideal"))
    if result.get("m_s") is not None:
        shares.append((f"M_S = {result['m_s']:.3f}", "of that goes with the last stage ideal"))
    for name, words in shares:
        out.print(f"{name}  share {words}")
    if result.get("said"):
        out.print(f"\n{result['said']}")
    _show_ideals(out, result.get("ideals") or [])
    for key in ("by_op", "by_stage", "by_rank"):
        rows = sorted(result.get(key) or [], key=lambda r: -r["slowdown"])
        if not rows:
            continue
        columns = [k for k in rows[0] if any(r[k] is not None for r in rows)]
        out.print()
        out.print(f"{key.replace('_', ' ')}: slowdown with all else ideal", style="bold")
        texts = [
            {k: f"{r[k]:.3f}" if isinstance(r[k], float) else clean(str(r[k])) for k in columns}
            for r in rows[:12]
        ]
        if "op" in columns:
            for text, op in zip(texts, apart([t["op"] for t in texts]), strict=True):
                text["op"] = op
        table = cells(texts)
        table.numeric = [k != "op" for k in columns]
        for line in lines(table, out.width):
            out.print(line)
        if len(rows) > 12:
            out.print(f"({len(rows) - 12} more; --json has all)", style="dim")


def _show_ideals(out: Console, found: Sequence[Mapping[str, Any]]) -> None:
    """The ideals beside each other: the step that each gives, the gain, what it assumes."""
    from . import ideals

    if len(found) < 2:
        return
    out.print("\nthe ideals beside each other", style="bold")
    rows = ideals.texts(found)
    table = cells(rows, {"ideal": "", "step": "step", "gain": "gain"})
    table.numeric = [False, True, True]
    heads, *firsts = lines(table, out.width)
    out.print(heads)
    # Lines below the rows say what had no room.
    for first, row in zip(firsts, rows, strict=False):
        out.print(first)
        show_terms(out, [("  ", row["assumes"])], indent="", style="")
    out.print(ideals.WHY_APART, style="dim")
