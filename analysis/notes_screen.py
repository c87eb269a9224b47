"""What replays assume and warn of on a terminal: a sentence once, under the policies it is of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .manual_screen import show_terms
from .screen import clean

if TYPE_CHECKING:
    from rich.console import Console

MOST_NAMES = 4
"""Policies named over a group of sentences; more are counted."""


def grouped(
    policies: Sequence[Mapping[str, Any]], key: str, of_all: Sequence[str] = ()
) -> list[tuple[str, list[str]]]:
    """Sentences of `key` ("assumptions", "warnings") by whose they are: (words, sentences).

    `of_all` are of the baseline, and so of every policy; their words, and those of what every
    policy says, are "". What a policy says alone is not said again where it is one of several
    together. Each sentence is in one group, all policies' first, then in the policies' order.
    """
    alone = [i for i, p in enumerate(policies) if " + " not in p["name"]]
    whose: dict[str, list[int]] = {}
    for i, p in enumerate(policies):
        for text in p.get(key) or ():
            whose.setdefault(text, []).append(i)
    groups: dict[tuple[int, ...], list[str]] = {(): list(dict.fromkeys(of_all))}
    for text, holders in whose.items():
        if text in groups[()]:
            continue
        held = [i for i in holders if i in alone] if alone else holders
        everybody = held and len(held) == len(alone or policies)
        groups.setdefault(() if everybody else tuple(held or holders), []).append(text)
    order = sorted(groups, key=lambda held: (len(held) > 0, held))
    return [(_whose(policies, held), groups[held]) for held in order if groups[held]]


def _whose(policies: Sequence[Mapping[str, Any]], held: Sequence[int]) -> str:
    """Names of policies; of one that is there several times, at how many of its points."""
    points = Counter(p["name"] for p in policies)
    names = []
    for name, n in Counter(policies[i]["name"] for i in held).items():
        short = "all together" if " + " in name else clean(name)
        names.append(short if n == points[name] else f"{short} ({n:,} of {points[name]:,} points)")
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def show_notes(
    out: Console,
    policies: Sequence[Mapping[str, Any]],
    key: str,
    word: str,
    style: str,
    of_all: Sequence[str] = (),
) -> None:
    """`assumes: …`, a sentence each; under the names of policies what only they say."""
    for whose, texts in grouped(policies, key, of_all):
        if whose:
            out.print(f"{word} ({whose}):", style=style)
        show_terms(
            out, [("-" if whose else f"{word}:", t) for t in texts],
            indent="  " if whose else "", style=style, rest=style, gap=1,
        )  # fmt: skip
