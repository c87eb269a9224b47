"""A hang in words, and on a terminal: whom to look at first, then who is missing where."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..ingest.suggested import command
from . import units
from .screen import clean

if TYPE_CHECKING:
    from rich.console import Console

MOST = 8
"""Sentences of a kind, and ranks by name, before the rest is counted."""


LAG = "If the job was still running when it was dumped, this may be lag alone."
"""What dumps cannot tell: ranks write them at different moments."""


def show_hang(out: Console, hang: Mapping[str, Any]) -> None:
    """Prints what `hangs.find` found."""
    out.print(headline(hang), style="bold red")
    wrap = textwrap.TextWrapper(
        max(20, out.width), "  ", subsequent_indent="    ", break_on_hyphens=False
    )
    for title, texts in parts(hang):
        out.print(title, style="bold")
        for text in texts:
            for line in wrap.wrap(text):
                out.print(line, soft_wrap=True)
    out.print(LAG, style="dim")
    rows = clean(command("sql", "FROM hangs"))
    out.print(f"({rows} has every collective that was under way)", style="dim", soft_wrap=True)


def headline(hang: Mapping[str, Any]) -> str:
    """The ranks to look at first, in a sentence; who left no dump is as likely as any."""
    silent = sorted({r for c in hang["collectives"] for r in c["silent"]})
    if not hang["roots"]:
        if not silent:
            return "Hang: every rank that others wait for waits for somebody itself."
        return f"Hang: others wait for {ranks_words(silent)}, of whom no dump tells."
    also = f", and at {ranks_words(silent)}, of whom there is no dump" if silent else ""
    return f"Hang: look at {ranks_words([r['rank'] for r in hang['roots']])} first{also}."


def parts(hang: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Titles with their sentences: why, who is missing where, and which pairs wait."""
    found = [("Why:", _most([root_sentence(r) for r in hang["roots"]]))]
    for kind, title in (
        ("missing", "Missing from collectives that others are in:"),
        ("stuck", "Not completed where others have:"),
        ("silent", "Members without a dump, who may have entered or not:"),
    ):
        of_kind = [c for c in hang["collectives"] if c["kind"] == kind]
        found.append((title, _most([collective_sentence(c) for c in of_kind])))
    pairs = pair_sentences(hang["pairs"])
    found.append(("Sends and receives whose other end has nothing under way:", pairs))
    return [(title, texts) for title, texts in found if texts]


def root_sentence(root: Mapping[str, Any]) -> str:
    """Why a rank is one to look at first."""
    who = f"Rank {root['rank']}"
    if root["why"] == "idle":
        return (
            f"{who} has nothing under way: its process stopped before it enqueued what the others "
            "wait for."
        )
    what = f"{root['op']}{number(root)}{group_words(root)}"
    if root["why"] == "stuck":
        return (
            f"{who} stands in {what}, which {ranks_words(root['completed'])} "
            f"{_has(root['completed'])} completed: its device is behind."
        )
    if root["peer"] is not None:
        return f"{who} stands in a {root['op']} with rank {root['peer']}, whose end is under way."
    return f"{who} stands in {what}, which every member has entered and none has completed."


def collective_sentence(c: Mapping[str, Any]) -> str:
    """Who is in one collective and who is not."""
    if c["kind"] == "missing":
        said = f"{ranks_words(c['missing'])} never entered it"
        inside = sorted([*c["entered"], *c["completed"]])
        if inside:
            said += f"; {ranks_words(inside)} {_has(inside)}"
    elif c["kind"] == "stuck":
        said = (
            f"{ranks_words(c['entered'])} {_has(c['entered'])} not completed it; "
            f"{ranks_words(c['completed'])} {_has(c['completed'])}"
        )
    else:
        inside = sorted([*c["entered"], *c["completed"]])
        said = f"{ranks_words(inside)} {_has(inside)} entered it"
    if c["silent"]:
        said += f"; {ranks_words(c['silent'])} left no dump"
    more = f" ({c['n'] - 1:,} more like it there)" if c["n"] > 1 else ""
    return f"{clean(str(c['op']))}{number(c)}{group_words(c)}: {said}.{more}"


def pair_sentences(pairs: Sequence[Mapping[str, Any]]) -> list[str]:
    """One sentence for the sends, one for the receives."""
    out = []
    for op, verb in (("recv", "receive from"), ("send", "send to")):
        found = [p for p in pairs if p["op"] == op]
        if not found:
            continue
        ranks = sorted({p["rank"] for p in found})
        peers = sorted({p["peer"] for p in found})
        waits = "waits" if len(ranks) == 1 else "wait"
        text = f"{ranks_words(ranks).capitalize()} {waits} to {verb} {ranks_words(peers)}"
        if 1 < len(found) <= MOST:
            way = verb.split()[1]
            each = ", ".join(f"{p['rank']} {way} {p['peer']}" for p in found)
            text += f" ({each})"
        out.append(f"{text}.")
    return out


def number(row: Mapping[str, Any]) -> str:
    """` #12` of a collective; empty where it has no number."""
    return "" if row["seq"] is None else f" #{row['seq']}"


def group_words(row: Mapping[str, Any]) -> str:
    """` of NAME (tp, 4 ranks)` of a communicator; empty where it is not known."""
    if not row.get("group_name") and not row.get("n_ranks"):
        return ""
    dim = row.get("dim")
    inner = [dim] if dim and dim != "unknown" else []
    if row.get("n_ranks"):
        inner.append(units.counted(row["n_ranks"], "rank"))
    name = clean(str(row["group_name"])) if row.get("group_name") else "a communicator"
    return f" of {name} ({', '.join(inner)})" if inner else f" of {name}"


def ranks_words(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 1 and 4 to 9`: runs of three or more shortened, the rest counted."""
    ordered = sorted(ranks)
    runs: list[list[int]] = []
    for r in ordered:
        if runs and runs[-1][-1] == r - 1:
            runs[-1].append(r)
        else:
            runs.append([r])
    parts: list[tuple[str, int]] = []
    for run in runs:
        if len(run) > 2:
            parts.append((f"{run[0]} to {run[-1]}", len(run)))
        else:
            parts += [(str(r), 1) for r in run]
    words = [p for p, _ in parts[:MOST]]
    if left := sum(n for _, n in parts[MOST:]):
        words.append(f"{left:,} more")
    text = " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    return f"{'rank' if len(ordered) == 1 else 'ranks'} {text}"


def _has(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _most(texts: Sequence[str]) -> list[str]:
    left = len(texts) - MOST
    return [*texts[:MOST], *([f"(and {left:,} more)"] if left > 0 else [])]
