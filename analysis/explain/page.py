"""The page of an explanation: what a step would take, two timelines of one step, what moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from .. import trust, units
from ..replay_screen import estimate, policy_words
from ..report.assemble import HERE as REPORT
from ..report.assemble import style as report_style
from ..report.document import bundled, document
from ..report.parts import Bars, chart, items, legend, note, section, table, text
from ..report.stretches import CLASSES
from ..report.timeline import LEGEND
from . import moved

HERE = Path(__file__).parent

SCRIPTS = (
    *(REPORT / f"{name}.js" for name in ("marks", "select", "lanes", "zoomed")),
    HERE / "both.js",
    HERE / "panels.js",
    REPORT / "start.js",
)

CONTENTS = {
    "both": "before and after",
    "byrank": "by rank",
    "moved": "what moved",
    "tried": "tried",
    "basis": "what this rests on",
}
"""Panels by id, as the bar at the top names them."""

PARTS = {
    "compute_ns": "compute",
    "wait_ns": "wait",
    "transfer_ns": "transfer",
    "copy_ns": "copies",
    "idle_ns": "idle",
}
"""Columns of `moved.SAVED` in words."""

LEAST_SAID = 1e-3
"""A part that changes by less than this share of what changes most is not named in the head."""


def page(data: Mapping[str, Any]) -> str:
    """The whole HTML text of what `gather` found."""
    several = len(data["result"]["policies"]) > 1
    body = [_head(data), _both(data), _by_rank(data), _moved(data)]
    body += [_tried(data)] if several else []
    links = "".join(
        f'<a href="#{id}" data-go="{id}">{words}</a>'
        for id, words in CONTENTS.items()
        if several or id != "tried"
    )
    bar = f"""<nav id="bar" aria-label="page">
<div class="links">{links}</div>
<div class="picks"><label>Ranks <input id="ranks" size="9" placeholder="0, 4-7"
autocomplete="off" spellcheck="false"></label>
<span id="chip" role="status" hidden></span>
<button type="button" id="clear" hidden>clear (Esc)</button></div>
</nav>"""
    drawing = data["drawing"]
    beside = text(Path(data["timeline"]).name)
    return document(
        f"{text(data['result']['job'])}: {text(policy_words(data['entry']))}",
        bar=bar,
        body="\n".join([*body, _basis(data)]),
        footer=f"Both timelines, every task of the step, are in {beside} beside this page: "
        "open it at <code>https://ui.perfetto.dev</code>.",
        data={"both": drawing, "ranks": data["ranks"]},
        code=bundled(SCRIPTS),
        style=report_style() + (HERE / "page.css").read_text(encoding="utf-8"),
    )


def _head(data: Mapping[str, Any]) -> str:
    result, entry = data["result"], data["entry"]
    n = len(result["steps"])
    gain = entry["gain_pct"]
    less = "shorter" if gain >= 0 else "longer"
    over = f"mean of {units.counted(n, 'step')}" if n > 1 else "one step"
    after = estimate(entry, n)
    value, _, between = after.rstrip(")").partition(" (")
    interval = f"({between}, interval) · " if between else ""
    out = [
        f"<h1>{text(result['job'])}</h1>",
        f'<p class="about">{text(policy_words(entry))} · {units.counted(data["n_ranks"], "rank")} '
        f"· {over}</p>",
        f'<p class="big">A step takes <strong>{units.time(result["measured_ns"], 4)}'
        f'<span class="arrow">→</span>{text(value)}</strong> '
        f'<span class="of">{text(interval)}{units.percent(abs(gain) / 100)} {less}</span></p>',
        items(data["doubts"], "said"),
        _tiles(entry),
        note(_drawn(data), "lead"),
    ]
    return f"<header>{''.join(out)}</header>"


def _tiles(entry: Mapping[str, Any]) -> str:
    got, floors = entry["recovered"], entry["floors"]
    shown = [
        ("exposed_wait", "wait saved, a rank and step", got["wait_ns"]),
        ("exposed_transfer", "transfer saved", got["transfer_ns"]),
        ("exposed", "exposed communication saved", got["exposed_ns"]),
        ("idle_launch_bound", "floor: communication free", floors["free_communication_ns"]),
        ("idle_launch_bound", "floor: busiest link", floors["busiest_link_ns"] or None),
    ]
    tiles = "".join(
        f'<div class="tile"><span class="dot {colour}"></span><span class="what">{words}</span>'
        f'<strong>{units.time(ns)}</strong><span class="picked"></span></div>'
        for colour, words, ns in shown
    )
    link = note(f"Busiest link: {floors['link']}.") if floors["link"] else ""
    return f'<div class="tiles">{tiles}</div>{link}'


def _drawn(data: Mapping[str, Any]) -> str:
    """Which step is drawn, and what it is shorter by on the mean rank."""
    before, after = data["before_ns"], data["after_ns"]
    said = (
        f"Drawn is step {data['step'].step} ({data['step'].why}): re-timed {units.time(before, 4)} "
        f"unchanged, {units.time(after, 4)} after{_change(before, after)}."
    )
    aside = data["time_factor"] - 1
    if aside:
        more = f"{units.percent(abs(aside))} {'more' if aside > 0 else 'less'}"
        said += f" The estimate has {more} for what is of no step and is not drawn."
    by_rank: pl.DataFrame = data["by_rank"]
    means = {c: float(by_rank[c].sum()) / by_rank.height for c in PARTS} if len(by_rank) else {}
    least = max(0.5, LEAST_SAID * max(map(abs, means.values()), default=0.0))
    parts = sorted(((v, PARTS[c]) for c, v in means.items() if abs(v) >= least), reverse=True)
    if not parts:
        return f"{said} Nothing of it moves."
    words = ", ".join(f"{units.time(abs(v))} {'less' if v > 0 else 'more'} {w}" for v, w in parts)
    return f"{said} A rank has, on the mean, {words}."


def _change(before: float, after: float) -> str:
    if before == after:
        return ""
    share = units.percent(abs(1 - after / before))
    return f", {share} {'shorter' if after < before else 'longer'}"


def _both(data: Mapping[str, Any]) -> str:
    drawing = data["drawing"]
    lanes = [lane for side in drawing["sides"] for lane in side["lanes"].values()]
    present = {v % 8 for lane in lanes for v in lane["run"]}
    shown = {w: k for w, k in LEGEND.items() if CLASSES.index(k) in present or k == "idle"}
    rows: pl.DataFrame = data["by_rank"]
    if len(rows.filter(pl.col("earlier_ns") > 0)):
        shown["ends earlier by this much"] = "earlier"
    if len(rows.filter(pl.col("earlier_ns") < 0)):
        shown["ends later by this much"] = "later"
    said = []
    left_out = data["n_ranks"] - len(drawing["lanes"])
    if left_out > 0:
        said.append(
            f"{len(drawing['lanes'])} of {data['n_ranks']:,} ranks have a lane: those whose step "
            "changes most. The table below has all."
        )
    small = []
    if drawing["merged_under_ns"]:
        small.append(
            f"Stretches shorter than {units.time(drawing['merged_under_ns'])} are merged; "
            f"{units.percent(drawing['merged_share'])} of the time is drawn as the class around it."
        )
    if drawing["unnamed"]:
        small.append(
            f"The {units.count(drawing['unnamed'])} shortest tasks have no name under the pointer."
        )
    tools = (
        '<div class="tools"><label>Order <select id="order"><option value="apart">before above '
        'after</option><option value="paired">rank by rank</option></select></label>'
        '<button type="button" data-zoom="in">zoom in</button>'
        '<button type="button" data-zoom="out">zoom out</button>'
        '<button type="button" data-zoom="all">whole step</button></div>'
    )
    return section(
        "both",
        f"Step {data['step'].step}, before and after",
        note(
            "Both begin at the same moment; dashed lines show where the last rank ends. Point at a "
            "task to see it outlined on both sides, and what it was on the other. Drag over a part "
            "to see it larger; click a rank to follow it."
        ),
        items(said, "said"),
        tools,
        legend(shown),
        chart("both", "two timelines of a step, one lane a rank, before and after"),
        note(" ".join(small)) if small else "",
    )


def _by_rank(data: Mapping[str, Any]) -> str:
    frame: pl.DataFrame = data["by_rank"]
    parts = {c: w for c, w in PARTS.items() if (frame[c] != 0).any()}
    rows = []
    for r in frame.iter_rows(named=True):
        earlier = r["earlier_ns"]
        rows.append(
            {
                "rank": r["rank"],
                "bar_earlier": max(0, earlier),
                "bar_later": max(0, -earlier),
                "earlier": units.time(earlier),
                "before": units.time(r["before_ns"], 4),
                "after": units.time(r["after_ns"], 4),
                **{c: units.time(r[c]) for c in parts},
            }
        )
    longest = float(frame.select(pl.col("earlier_ns").abs().max()).item() or 0) if rows else 0.0
    titles = {
        "rank": "rank",
        "earlier": "ends earlier by",
        "before": "ends before",
        "after": "ends after",
        **{c: f"{w} saved" for c, w in parts.items()},
    }
    return section(
        "byrank",
        "What moved, by rank",
        note(
            "When each rank ends the step, from the moment at which the first begins it. What is "
            "saved adds up to what the rank's own step is shorter by; waits and transfers beside "
            "computation are of the computation. A minus is time that it has more of."
        ),
        table(
            rows,
            titles,
            bars=Bars(
                "ends earlier (later)",
                {"bar_earlier": "earlier", "bar_later": "later"},
                longest,
                narrow=True,
            ),
            right=[t for t in titles if t != "rank"],
        ),
    )


def _moved(data: Mapping[str, Any]) -> str:
    names: pl.DataFrame = data["by_name"]
    singles: pl.DataFrame = data["singles"]
    if names.is_empty() and singles.is_empty():
        return section("moved", "What moved, by name", note("Nothing does."))
    named = [
        {
            "what": r["what"],
            "n": _counts(r["n_before"], r["n_after"]),
            "before": units.time(r["before_ns"]),
            "after": units.time(r["after_ns"]),
            "saved": units.time(r["saved_ns"]),
            "most": f"rank {r['rank']}",
        }
        for r in names.iter_rows(named=True)
    ]
    titles = {
        "what": "what",
        "n": "times",
        "before": "before",
        "after": "after",
        "saved": "saved",
        "most": "most of it on",
    }
    parts = [
        note(
            f"Of all that runs or waits in the step, the {units.counted(len(named), 'name')} with "
            "the greatest change; means over ranks of what a rank spends on each. What the device "
            "and the host do at once, and what lies beside computation, counts in full."
        ),
        table(named, titles, right=("n", "before", "after", "saved")),
    ]
    for by, title in (
        ("saved_ns", "Single tasks and collectives that take another time"),
        ("earlier_ns", "Single tasks and collectives that start at another moment"),
    ):
        rows = [_single(r) for r in moved.most(singles, by).iter_rows(named=True)]
        if rows:
            made = table(rows, SINGLES, right=[c for c in SINGLES if c not in ("what", "who")])
            parts.append(f"<h3>{text(title)}</h3>{made}")
    parts.append(
        note(
            "Starts count from the begin of the step. A collective starts when its last rank is "
            "there; it takes the mean over its ranks of wait and transfer."
        )
    )
    return section("moved", "What moved, by name", *parts)


SINGLES = {
    "what": "what",
    "who": "on",
    "start_before": "starts before",
    "start_after": "starts after",
    "earlier": "earlier by",
    "takes_before": "takes before",
    "takes_after": "takes after",
    "saved": "saved",
}


def _single(r: Mapping[str, Any]) -> dict[str, str]:
    return {
        "what": r["what"],
        "who": f"rank {r['rank']}" if r["rank"] >= 0 else units.counted(r["ranks"], "rank"),
        "start_before": units.time(r["start_before_ns"], 4),
        "start_after": units.time(r["start_after_ns"], 4),
        "earlier": units.time(r["earlier_ns"]),
        "takes_before": units.time(r["takes_before_ns"]),
        "takes_after": units.time(r["takes_after_ns"]),
        "saved": units.time(r["saved_ns"]),
    }


def _counts(before: int, after: int) -> str:
    return units.count(before) if before == after else f"{before:,} → {after:,}"


def _tried(data: Mapping[str, Any]) -> str:
    result = data["result"]
    n = len(result["steps"])
    rows = [
        {
            "policy": policy_words(p),
            "step": estimate(p, n),
            "gain": units.percent(p["gain_pct"] / 100),
            **{c: units.time(p["recovered"][f"{c}_ns"]) for c in ("wait", "transfer", "exposed")},
            "drawn": "drawn" if p is data["entry"] else "",
        }
        for p in result["policies"]
    ]
    titles = {
        "policy": "policy",
        "step": "a step takes (interval)",
        "gain": "gain",
        "wait": "wait saved",
        "transfer": "transfer saved",
        "exposed": "exposed saved",
        "drawn": "",
    }
    right = ("gain", "wait", "transfer", "exposed")
    return section("tried", "All that was tried", table(rows, titles, right=right))


def _basis(data: Mapping[str, Any]) -> str:
    result, entry = data["result"], data["entry"]
    n = len(result["steps"])
    unit = "step" if n == 1 else f"step (mean of {n})"
    parts = [
        note(
            f"Measured {units.time(result['measured_ns'], 4)} a {unit}, {trust.fidelity(result)}. "
            f"{trust.BY_CONSTRUCTION}"
        )
    ]
    if trust.path(result):
        parts.append(note(f"The {trust.path(result)}."))
    parts += _list("Warnings", [w for w in entry["warnings"] if w not in data["doubts"]], "warn")
    parts += _list("Assumptions", entry["assumptions"], "")
    if data["beside"]:
        parts += _list("Of the drawing", data["beside"], "")
    return section("basis", "What this rests on", *parts)


def _list(title: str, texts: Sequence[str], kind: str) -> list[str]:
    return [f"<h3>{title}</h3>", items(texts, kind)] if texts else []
