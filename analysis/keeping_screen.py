"""What the commands that keep a warehouse print: labels, findings, what was pruned or compacted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from . import units
from .columns import show_table
from .screen import clean

if TYPE_CHECKING:
    from rich.console import Console

Rows = Sequence[Mapping[str, Any]]

LONGEST_NOTE = 200
"""Characters of a note where several stand below each other."""

LONGEST_VALUE = 60
"""Characters of a tag's value where several stand in a line."""


def tag_words(tags: Mapping[str, str]) -> str:
    """Tags in one line: `cluster=a, keep`; long values lose their end."""
    words = []
    for key, value in tags.items():
        value = " ".join(value.split())
        cut = value if len(value) <= LONGEST_VALUE else f"{value[: LONGEST_VALUE - 1]}…"
        words.append(clean(f"{key}={cut}" if cut else key))
    return ", ".join(words)


def moment(at_ns: int) -> str:
    """A time since the epoch in ns as `2026-11-30 12:00 UTC`."""
    try:
        return datetime.fromtimestamp(at_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return units.NOTHING


def note_words(said: Mapping[str, Any]) -> str:
    """A note in one line, with who wrote it and when; a long one loses its end."""
    text = " ".join(str(said["text"]).split())
    cut = text if len(text) <= LONGEST_NOTE else f"{text[: LONGEST_NOTE - 1]}…"
    return clean(f"{cut} ({said['author']}, {moment(said['at_ns'])})")


def pruned_words(pruned: Mapping[str, int]) -> str:
    """What was removed of a job for its age, and what that means for who reads it."""
    said = ", ".join(f"{table} on {moment(at)[:10]}" for table, at in sorted(pruned.items()))
    return f"{said}: what is computed from them is as it was kept, or empty; nothing is replayed"


def show_tags(out: Console, said: Rows) -> None:
    """The tags of a job."""
    rows = [{**r, "at": moment(r["at_ns"])} for r in said]
    titles = {"tag": "tag", "value": "value", "author": "set by", "at": "at"}
    show_table(out, rows, titles, empty="no tags")


def show_notes(out: Console, said: Rows) -> None:
    """The notes of a job, each with its number, who wrote it and when."""
    for r in said:
        out.print(f"{r['note']}. {clean(r['author'])}, {moment(r['at_ns'])}", style="dim")
        for line in r["text"].splitlines() or [""]:
            out.print(f"   {clean(line)}", soft_wrap=True)
    if not said:
        out.print("no notes")


def show_findings(out: Console, rows: Rows, limit: int) -> None:
    """What a verification found, the worst first, each with what to do."""
    wrong = [r for r in rows if r["severity"] != "info"]
    for r in rows[:limit]:
        place = clean(f"{r['job']}: {r['file']}" if r["file"] else f"{r['job']}")
        out.print(f"{r['severity']:<8}{place}", style="bold", soft_wrap=True)
        out.print(f"        {clean(r['what'])}", soft_wrap=True)
        if r["done"]:
            out.print(f"        done: {clean(r['done'])}", soft_wrap=True)
        elif r["do"]:
            out.print(f"        do: {clean(r['do'])}", soft_wrap=True)
    if len(rows) > limit:
        out.print(f"({len(rows) - limit} more: --limit, --json)", style="dim")
    notes = units.counted(len(rows) - len(wrong), "note")
    said = units.counted(len(wrong), "finding") if wrong else "sound"
    out.print(f"{said}, {notes}" if len(rows) > len(wrong) else said)


def show_pruned(
    out: Console, rows: Rows, dry: bool, raw_events: bool, limit: int, named: bool = False
) -> None:
    """The jobs that a prune took, or would take, with their bytes.

    Of jobs that a tag spares only the number is said, unless they were `named`.
    """
    from .keeping import KEPT

    spared = Counter(r["status"] for r in rows if r["status"].startswith(KEPT) and not named)
    rows = [r for r in rows if r["status"] not in spared]
    titles = {
        "job": "job",
        "newest": "newest source (UTC)",
        "ranks_seen": "ranks",
        "removed_bytes": "bytes",
        "tags": "tags",
        "status": "",
    }
    shown = [
        {
            **r,
            "newest": r["newest"] and r["newest"].replace(microsecond=0),
            "tags": tag_words({t["key"]: t["value"] for t in r["tags"]}),
        }
        for r in rows
    ]
    show_table(out, shown, titles, limit=limit, empty="nothing to prune")
    if spared:
        words = units.counted(spared.total(), "job that fits is", "jobs that fit are")
        tags = ", ".join(clean(status.removeprefix(KEPT)) for status in spared)
        out.print(f"{words} kept: {tags}", soft_wrap=True)
    if not rows:
        return
    taken = [r for r in rows if r["status"] in ("would go", "pruned")]
    total = units.size(sum(r["removed_bytes"] for r in taken))
    what = "the events of " if raw_events else ""
    if dry:
        out.print(f"would remove {what}{units.counted(len(taken), 'job')}, {total}; --yes does it")
    else:
        out.print(f"removed {what}{units.counted(len(taken), 'job')}, {total}")


def show_freed(out: Console, rows: Rows, limit: int) -> None:
    """What went of jobs that were pruned before, and what is still to go."""
    freed = [r for r in rows if r["removed_bytes"]]
    if rows:
        titles = {"job": "job", "removed_bytes": "bytes", "status": ""}
        show_table(out, rows, titles, limit=limit)
    if freed:
        size = units.size(sum(r["removed_bytes"] for r in freed))
        out.print(f"freed {size} of {units.counted(len(freed), 'job')}")
    else:
        out.print("nothing to prune, nothing to free" + (" yet" if rows else ""))


def show_compacted(out: Console, rows: Rows, limit: int) -> None:
    """Jobs whose small files were put together: files before and after."""
    titles = {
        "job": "job",
        "sources": "sources",
        "files_before": "files before",
        "files_after": "after",
        "stored_bytes": "bytes",
        "status": "",
    }
    show_table(out, rows, titles, limit=limit, empty="no jobs")
