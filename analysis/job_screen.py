"""`retime show` on a terminal: facts of a job, the split of its step, who is waited for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..ingest.suggested import command
from . import units
from .keeping_screen import note_words, pruned_words, tag_words
from .screen import clean
from .sentences import clocks_sentence, straggler_sentence, unseen_sentence

if TYPE_CHECKING:
    from rich.console import Console

MOST_NOTES = 3
"""Of a job, the newest; `retime note JOB` has all."""

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
    if facts.get("tags"):
        line("tags", tag_words(facts["tags"]))
    for said in (facts.get("notes") or ())[-MOST_NOTES:]:
        line("note", note_words(said))
    if facts.get("pruned"):
        line("pruned", pruned_words(facts["pruned"]), "yellow")
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
        ask = f" {clean(command('sql', f'FROM {tables[0]}'))} has the rows." if tables else ""
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
    job = str(facts.get("job", ""))
    report, notebook = clean(command("report", job)), clean(command("notebook", job))
    words = f"next: {report} (what to fix first), {notebook}"
    if len(words) > out.width:  # a command a line, whole: they are to be pasted
        words = f"next: {report} (what to fix first)\n      {notebook}"
    out.print(f"\n{words}", style="dim", soft_wrap=True)


def _show_fix(out: Console, facts: Mapping[str, Any]) -> None:
    """What to fix first and its gain, or which command re-times a job too large to do at once."""
    from rich.text import Text

    fix = facts.get("fix_first")
    if fix is None:
        return
    report = clean(command("report", str(facts.get("job", ""))))
    said = (
        f"{fix['head']}. {fix['gain']}"
        if fix["head"]
        else f"too large a job to re-time at once: {report} says what, and its gain."
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
