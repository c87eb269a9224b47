"""The head of the page: what a step takes, what of, which steps are odd, and what to fix first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from .. import fix_first, frames, hang_screen, units
from ..keeping_screen import note_words, pruned_words, tag_words
from ..sentences import straggler_sentence, unseen_sentence
from ..tracking import ROWS
from .parts import note, table, text

TILES = {
    "compute": "compute",
    "wait": "exposed wait",
    "transfer": "exposed transfer",
    "unsplit": "exposed communication (wait not known)",
    "memcpy": "copies alone",
    "idle": "idle",
}

COLOURS = {
    "compute": "compute",
    "wait": "exposed_wait",
    "transfer": "exposed_transfer",
    "unsplit": "exposed_comm_unsplit",
    "memcpy": "exposed_memcpy",
    "idle": "idle_launch_bound",
}

UNSPLIT = "of each collective one rank was seen"
"""Why nothing says what part of communication is wait."""

MOST_OUTLIERS = 4
"""Odd steps that are named."""


def step_words(by_step: pl.DataFrame) -> str:
    """Median and slowest step beside the mean, and the odd ones; empty where steps are alike.

    `by_step` is `stretches.steps`. Odd is more than three robust deviations (1.4826 times the
    median absolute one) and a twentieth above the median.
    """
    whole = by_step.filter(pl.col("ranks") == pl.col("ranks").max()).sort("step")
    if whole.height < 2:
        return ""
    times = whole["mean_ns"]
    median = float(times.median() or 0)  # pyright: ignore[reportArgumentType]
    mad = float((times - median).abs().median() or 0)  # pyright: ignore[reportArgumentType]
    worst = whole.sort("mean_ns", "step").row(-1, named=True)
    if worst["mean_ns"] <= 1.01 * median:
        return ""
    said = (
        f"The median step takes {units.time(median)}, the slowest (step {worst['step']}) "
        f"{units.time(worst['mean_ns'])}."
    )
    odd = whole.filter(pl.col("mean_ns") > max(1.05 * median, median + 3 * 1.4826 * mad))
    odd = odd.sort("mean_ns", descending=True)
    if whole.height >= 4 and odd.height:
        names = ", ".join(str(s) for s in sorted(odd["step"].head(MOST_OUTLIERS)))
        more = f" and {odd.height - MOST_OUTLIERS} more" if odd.height > MOST_OUTLIERS else ""
        noun = "Step" if odd.height == 1 else "Steps"
        verb = "is" if odd.height == 1 else "are"
        said += f" {noun} {names}{more} {verb} far above the others."
    return said


def render(data: Mapping[str, Any]) -> str:
    """The header of the page, from all that was gathered."""
    facts = data["facts"]
    out = [f"<h1>{text(facts.get('job'))}</h1>", f'<p class="about">{_about(facts)}</p>']
    out += _labels(facts)
    if facts.get("hang"):
        out.append(_hang(facts["hang"]))
    if facts["scope"] == "nothing":
        holds = ", ".join(f"{n:,} {ROWS.get(t, t)}" for t, n in (facts.get("holds") or {}).items())
        out.append(note(f"It holds {holds}.", "lead") if holds else "")
        out.append(note(unrecorded_sentence(facts), "lead"))
        return f"<header>{''.join(out)}</header>"
    unit = "step" if facts["scope"] == "step" else "rank's whole trace"
    over = "ranks and steps" if facts["scope"] == "step" else "ranks"
    out.append(
        f'<p class="big">A {unit} takes <strong>{units.time(facts["step_ns"])}</strong>'
        f'<span class="of"> mean over {over}</span></p>'
    )
    out += [note(f"Warning: {said}") for said in facts.get("contradictions") or ()]
    if facts["scope"] == "trace":
        out.append(note("No steps were found in this job, so these are times of whole traces."))
    said = step_words(data["steps"])
    out.append(note(said, "steps") if said else "")
    out += _tiles(facts)
    unseen = unseen_sentence(facts)
    if unseen:
        out.append(note(unseen[0].upper() + unseen[1:], "lead said"))
    out.append(_fix(data))
    return f"<header>{''.join(out)}</header>"


def unrecorded_sentence(facts: Mapping[str, Any]) -> str:
    """What a job without times lacks, and what to record so that there is a step to split."""
    left = "The sections that need it are left out of this page."
    record = (
        "record a few steps of every rank with torch.profiler, Nsight Systems or rocprofv3, and "
        "ingest them into this job"
    )
    if facts["participations"] or facts["ranks_seen"]:
        return (
            "Not recorded: when anything ran on a GPU, so there is no step to split and no wait to "
            f"give. To have both, {record}. {left}"
        )
    return (
        "Not recorded: the work of any rank, so there is no step to split and nobody to wait for. "
        f"To have both, {record}. {left}"
    )


def _about(facts: Mapping[str, Any]) -> str:
    ranks = f"{facts['ranks_seen']}" + (f" of {facts['world_size']}" if facts["world_size"] else "")
    hosts = facts.get("hosts") or 0
    place = units.counted(hosts, "host") if hosts else "hosts not known"
    device = f" · {text(facts['device_name'])}" if facts.get("device_name") else ""
    steps = units.counted(facts["steps"], "step")
    noun = "rank" if ranks == "1" else "ranks"
    return f"{ranks} {noun} · {place}{device} · {steps} · {text(facts.get('framework'))}"


MOST_NOTES = 3
"""Of a job, the newest."""


def _labels(facts: Mapping[str, Any]) -> list[str]:
    """What was said of the job, and what was removed of it."""
    out = []
    if facts.get("tags"):
        out.append(f'<p class="about">{text(tag_words(facts["tags"]))}</p>')
    out += [note(note_words(n)) for n in (facts.get("notes") or ())[-MOST_NOTES:]]
    if facts.get("pruned"):
        out.append(note(f"Pruned: {pruned_words(facts['pruned'])}."))
    return out


def _tiles(facts: Mapping[str, Any]) -> list[str]:
    total = facts["step_ns"]
    tiles, segments = [], []
    # Nothing of it could be split: then no wait and no transfer is not what was found.
    unsplit = facts["unsplit_ns"] and not facts["wait_ns"] and not facts["transfer_ns"]
    for group in frames.GROUPS:
        ns = facts[f"{group}_ns"]
        if group == "unsplit" and not ns:
            continue
        share = ns / total if total else 0.0
        colour = COLOURS[group]
        unknown = group in ("wait", "transfer") and unsplit
        said = "not known" if unknown else units.time(ns)
        part = UNSPLIT if unknown else units.percent(share)
        tiles.append(
            f'<div class="tile" data-group="{group}"><span class="dot {colour}"></span>'
            f'<span class="what">{TILES[group]}</span>'
            f'<strong>{said}</strong><span class="part">{part}</span>'
            '<span class="picked" aria-live="polite"></span></div>'
        )
        segments.append(f'<i class="{colour}" style="width:{share * 100:.3f}%"></i>')
    return [
        f'<div class="strip" aria-hidden="true">{"".join(segments)}</div>',
        f'<div class="tiles">{"".join(tiles)}</div>',
    ]


def _fix(data: Mapping[str, Any]) -> str:
    """The one thing to fix first, who is late and why, and what else there is to gain."""
    facts, whatif = data["facts"], data["whatif"]
    unit = "step" if facts["scope"] == "step" else "trace"
    found = fix_first.candidates(whatif, facts, data.get("study"))
    head, gain = fix_first.sentence(found, whatif, unit)
    one = len(whatif.get("steps") or ()) == 1
    sure = {True: f"of one {unit} alone" if one else "yes", False: "within the interval"}
    measured = whatif.get("measured_ns") or facts["step_ns"]
    rows = [
        {
            "what": c["what"],
            "basis": c["basis"],
            "gain": fix_first.gain_words(c),
            "share": units.percent(c["gain_ns"] / measured) if measured else units.NOTHING,
            "sure": sure[c["sure"]] if c["basis"] == "re-timed" else "not known",
        }
        for c in found
    ]
    columns = {
        "what": "fix",
        "gain": f"gain a {unit} (interval)",
        "share": f"of the {unit}",
        "basis": "how known",
        "sure": "sure",
    }
    parts = [
        f'<p class="first"><span>Fix first</span> <strong>{text(head)}.</strong></p>',
        note(gain, "lead"),
        note(straggler_sentence(facts), "lead"),
    ]
    if data.get("study"):
        parts.append(note(_slowdown_sentence(data["study"]), "lead"))
    if rows:
        parts.append(table(rows, columns, right=("gain", "share")))
    return f'<div class="fix" id="fix">{"".join(parts)}</div>'


def _hang(hang: Mapping[str, Any]) -> str:
    """Whom to look at first and why; who is missing where."""
    out = [f'<p class="big"><strong>{text(hang_screen.headline(hang))}</strong></p>']
    for title, texts in hang_screen.parts(hang):
        inner = "".join(f"<li>{text(t)}</li>" for t in texts)
        out.append(f"<h3>{text(title)}</h3><ul>{inner}</ul>")
    return f'<div class="said">{"".join(out)}{note(hang_screen.LAG)}</div>'


def _slowdown_sentence(found: Mapping[str, Any]) -> str:
    """The straggler study's figures in words."""
    words = (
        f"Against a step with every operation at its ideal ({units.time(found['ideal_ns'])}) it is "
        f"{found['slowdown']:.3f} times as long"
    )
    slowest = ", ".join(map(str, found["slowest_ranks"]))
    shares = []
    if found["m_w"] is not None:
        shares.append(f"{units.percent(found['m_w'])} of the excess goes with rank {slowest} ideal")
    if found["m_s"] is not None:
        shares.append(f"{units.percent(found['m_s'])} with the last pipeline stage ideal")
    return f"{words}: {', '.join(shares)}." if shares else f"{words}."
