"""The page of a job: one HTML file that needs no network, from frames to text."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from .. import __version__
from ..ingest.errors import UsageError
from . import culprit, frames, hang_screen, plots, trust, units, whatif
from .terminal import (
    Cells,
    cells,
    clean,
    clocks_sentence,
    estimate,
    pipeline_sentence,
    straggler_sentence,
    to_json,
    unseen_sentence,
)

if TYPE_CHECKING:
    from .doors import Job

GROUP_COLOURS = {
    "compute": "#0072B2",
    "wait": "#D55E00",
    "transfer": "#E69F00",
    "unsplit": "#B8860B",
    "memcpy": "#CC79A7",
    "idle": "#8a8a8a",
}

MOST_PROBLEMS = 12
"""Kinds of problem that the page lists; the rest are counted."""


def write(job: Job, path: str | os.PathLike[str] | None = None) -> Path:
    """Writes the page of `job` to `path` (default: JOB.html here) and returns where it is.

    The file appears whole or not at all. Raises UsageError where it cannot be written.
    """
    return save(page(gather(job)), path if path is not None else f"{job.id}.html")


def save(text: str, path: str | os.PathLike[str]) -> Path:
    """Writes a page whole or not at all. Raises UsageError where it cannot be written."""
    target = Path(path)
    if target.is_dir():
        raise UsageError(f"{target} is a folder: name a file for the page with -o")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:64]}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as f:
                f.write(text)
            os.chmod(name, 0o644)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as e:
        raise UsageError(f"{target}: the page cannot be written: {e.strerror or e}") from e
    return target


def gather(job: Job, *, estimates: bool = True) -> dict[str, Any]:
    """Everything the page says: `facts`, frames by name, `whatif`, `problems`."""
    scripts_soon()
    facts = job.show()
    con = job.con
    by_rank = frames.split(con, "rank")
    dims = frames.waits_by_dim_and_op(con)
    ops = {op for op in dims["op"].to_list() if op}
    base: Any = "it was not tried"
    if estimates and facts["steps"]:
        base = whatif.unchanged(job)
        if not isinstance(base, str):
            facts["culprit"] = culprit.find(job, facts, base)
    tries = whatif.candidates(facts, ops) if estimates and facts["steps"] else []
    recorded = estimates and facts["framework"] == "recorded" and facts["steps"]
    return {
        "facts": facts,
        "stragglers": job.stragglers() if recorded else None,
        "breakdown": by_rank,
        "waits_by_rank": frames.waits_by(con, "rank"),
        "waits_by_dim": dims,
        "overlap": frames.overlap_by_rank(con),
        "waited_for": frames.waited_for(con),
        "whatif": whatif.estimates(base, tries),
        "problems": frames.problem_kinds(con).to_dicts(),
    }


def page(data: Mapping[str, Any]) -> str:
    """The whole HTML text of a page from what `gather` found; needs no trace and no network."""
    facts = data["facts"]
    charts: dict[str, dict[str, Any]] = {}
    sections = [
        _headline(data),
        _breakdown(data, charts),
        _waits(data, charts),
        _overlap(data, charts),
        _whatif(data),
        _caveats(data),
    ]
    body = "\n".join(s for s in sections if s)
    name = _text(facts.get("job"))
    scripts = []
    specs = ""
    if charts:
        specs = f'<script type="application/json" id="charts">{script_json(charts)}</script>'
        scripts = [scripts_soon().result(), DRAW]
    policy = "; ".join(
        (
            "default-src 'none'",
            "script-src " + (" ".join(_digest(s) for s in scripts) or "'none'"),
            "style-src 'unsafe-inline'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    code = "\n".join(f"<script>{s}</script>" for s in scripts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{name}: where the step went</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{body}
</main>
<footer>retime {_text(__version__)}. Times are sums or means of measured intervals; every figure is
in the warehouse: <code>retime sql</code>, <code>retime tables</code>.</footer>
{specs}
{code}
</body>
</html>
"""


def script_json(value: Any) -> str:
    """JSON that can stand inside a script element: nothing in it ends the element or the line."""
    text = to_json(value)
    for c in "<>&\u2028\u2029":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return text


def _digest(script: str) -> str:
    """The Content-Security-Policy source of exactly this script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@functools.cache
def scripts_soon() -> Future[str]:
    """Vega, Vega-Lite and Vega-Embed as one script, from the installed package.

    Making it takes seconds on a core of its own, so it begins before the frames are computed.
    """
    pool = ThreadPoolExecutor(max_workers=1)
    future = pool.submit(_vega)
    pool.shutdown(wait=False)
    return future


def _vega() -> str:
    import vl_convert

    # A carriage return would be normalised by the HTML parser and change the digest.
    text = vl_convert.javascript_bundle()  # pyright: ignore[reportCallIssue]
    return text.replace("\r", "\\r")


def _text(value: Any) -> str:
    """Text from a trace, safe in HTML: control characters written out, markup escaped."""
    return html.escape(clean(str(value)))


def _table(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
    *,
    fold: str | None = None,
    right: Sequence[str] = (),
) -> str:
    """An HTML table of formatted cells; numbers, and columns in `right`, stand to the right.

    `fold` closes it under a title.
    """
    made: Cells = cells(rows, columns)
    numeric = [n or k in right for n, k in zip(made.numeric, columns, strict=True)]
    classes = ["num" if n else "" for n in numeric]
    head = "".join(
        f'<th class="{c}" scope="col">{_text(n)}</th>'
        for n, c in zip(made.names, classes, strict=True)
    )
    lines = []
    for row in made.rows:
        tds = (f'<td class="{c}">{_text(v)}</td>' for v, c in zip(row, classes, strict=True))
        lines.append(f"<tr>{''.join(tds)}</tr>")
    table = (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )
    return f"<details><summary>{_text(fold)}</summary>{table}</details>" if fold else table


def _chart(name: str, label: str) -> str:
    return f'<div class="chart" id="chart-{name}" role="img" aria-label="{_text(label)}"></div>'


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{_text(title)}</h2>\n" + "\n".join(p for p in parts if p) + "</section>"


def _note(text: str) -> str:
    return f'<p class="note">{_text(text)}</p>'


def _headline(data: Mapping[str, Any]) -> str:
    facts = data["facts"]
    ranks = f"{facts['ranks_seen']}" + (f" of {facts['world_size']}" if facts["world_size"] else "")
    hosts = facts.get("hosts") or 0
    place = units.counted(hosts, "host") if hosts else "hosts not known"
    device = f" · {_text(facts['device_name'])}" if facts.get("device_name") else ""
    steps = units.counted(facts["steps"], "step")
    noun = "rank" if ranks == "1" else "ranks"
    framework = _text(facts.get("framework"))
    about = f"{ranks} {noun} · {place}{device} · {steps} · {framework}"
    out = [f"<h1>{_text(facts.get('job'))}</h1>", f'<p class="about">{about}</p>']
    if facts.get("hang"):
        out.append(_hang(facts["hang"]))
    if facts["scope"] == "nothing":
        none = "No work was found on any rank of this job: there is nothing to split."
        if facts["participations"]:
            none = "No source says when anything ran on a GPU: there is no step to split."
        out.append(_note(none))
        return f"<header>{''.join(out)}</header>"
    total = facts["step_ns"]
    unit = "step" if facts["scope"] == "step" else "rank's whole trace"
    out.append(
        f'<p class="big">A {unit} takes <strong>{units.time(total)}</strong>'
        '<span class="of"> mean over ranks and steps</span></p>'
    )
    if facts["scope"] == "trace":
        out.append(_note("No steps were found in this job, so these are times of whole traces."))
    tiles, segments = [], []
    for group in frames.GROUPS:
        ns = facts[f"{group}_ns"]
        if group == "unsplit" and not ns:
            continue
        share = ns / total if total else 0.0
        colour = GROUP_COLOURS[group]
        words = {
            "wait": "exposed wait",
            "transfer": "exposed transfer",
            "unsplit": "exposed communication (wait not known)",
            "memcpy": "memcpy alone",
        }
        tiles.append(
            f'<div class="tile"><span class="dot" style="background:{colour}"></span>'
            f'<span class="what">{words.get(group, group)}</span>'
            f"<strong>{units.time(ns)}</strong><span>{units.percent(share)}</span></div>"
        )
        segments.append(f'<i style="width:{share * 100:.3f}%;background:{colour}"></i>')
    out.append(f'<div class="strip" aria-hidden="true">{"".join(segments)}</div>')
    out.append(f'<div class="tiles">{"".join(tiles)}</div>')
    unseen = unseen_sentence(facts)
    if unseen:
        out.append(f'<p class="lead warned">{_text(unseen[0].upper() + unseen[1:])}</p>')
    out.append(f'<p class="lead">{_text(straggler_sentence(facts))}</p>')
    if data.get("stragglers"):
        out.append(f'<p class="lead">{_text(_slowdown_sentence(data["stragglers"]))}</p>')
    gain = _gain_sentence(data["whatif"])
    if gain:
        out.append(f'<p class="lead">{_text(gain)}</p>')
    return f"<header>{''.join(out)}</header>"


def _hang(hang: Mapping[str, Any]) -> str:
    """Whom to look at first and why; who is missing where."""
    out = [f'<p class="big"><strong>{_text(hang_screen.headline(hang))}</strong></p>']
    for title, texts in hang_screen.parts(hang):
        items = "".join(f"<li>{_text(t)}</li>" for t in texts)
        out.append(f"<h3>{_text(title)}</h3><ul>{items}</ul>")
    return f'<div class="warned">{"".join(out)}{_note(hang_screen.LAG)}</div>'


def _gain_sentence(found: Mapping[str, Any]) -> str:
    """What the first policies that worked say, in words; empty where none did."""
    texts = []
    for row in found["rows"]:
        if row["error"] is None and row["policy"] in found.get("lead", ()):
            took = estimate(row, len(found.get("steps") or ()))
            gain = units.percent(row["gain_pct"] / 100)
            texts.append(f"if {row['words']}, {took}, {gain} less")
    if not texts:
        return ""
    measured = units.time(found["measured_ns"], 4)
    return f"Re-timed from a measured {measured}: " + "; ".join(texts) + "."


def _slowdown_sentence(found: Mapping[str, Any]) -> str:
    """The straggler study's figures in words."""
    text = (
        f"Against a step with every operation at its ideal ({units.time(found['ideal_ns'])}) it is "
        f"{found['slowdown']:.3f} times as long"
    )
    slowest = ", ".join(map(str, found["slowest_ranks"]))
    shares = []
    if found["m_w"] is not None:
        shares.append(f"{units.percent(found['m_w'])} of the excess goes with rank {slowest} ideal")
    if found["m_s"] is not None:
        shares.append(f"{units.percent(found['m_s'])} with the last pipeline stage ideal")
    return f"{text}: {', '.join(shares)}." if shares else f"{text}."


def _breakdown(data: Mapping[str, Any], charts: dict[str, dict[str, Any]]) -> str:
    rows, facts = data["breakdown"], data["facts"]
    what = "step" if facts["scope"] != "trace" else "trace"
    title = f"Where the {what} went, by rank"
    if rows.is_empty():
        return _section(title, _note("No GPU work and no steps were found: nothing to show."))
    shown, said = _most(rows, "rank", "mean_ns")
    charts["breakdown"] = plots.breakdown(shown, what)
    named = rows.with_columns(pl.col("class").map_elements(frames.words_of, return_dtype=pl.String))
    return _section(
        title,
        _note(
            "Every nanosecond is in one class: compute comes before communication, that before "
            "copies, and what is left is idle."
        ),
        said,
        _chart("breakdown", title),
        _table(
            named.to_dicts(),
            {"rank": "rank", "class": "class", "mean_ns": "mean", "share": "share"},
            fold="The numbers",
        ),
    )


def _most(frame: pl.DataFrame, key: str, value: str) -> tuple[pl.DataFrame, str]:
    """The rows of the `plots.MOST_BARS` largest keys, and a note where others were left out."""
    totals = frame.group_by(key).agg(pl.col(value).sum().alias("_total"))
    if totals.height <= plots.MOST_BARS:
        return frame, ""
    keep = totals.sort("_total", key, descending=[True, False]).head(plots.MOST_BARS)[key]
    note = f"The chart shows the {plots.MOST_BARS} longest of {totals.height}; the table has all."
    return frame.filter(pl.col(key).is_in(keep.implode())), _note(note)


def _waits(data: Mapping[str, Any], charts: dict[str, dict[str, Any]]) -> str:
    by_rank, by_dim, last = data["waits_by_rank"], data["waits_by_dim"], data["waited_for"]
    title = "Waiting for other ranks, and moving bytes"
    if by_rank.is_empty():
        none = "This job has no collectives: no rank waits for another."
        if data["facts"]["participations"]:
            none = "No source says when this job's collectives ran: who waited is not known."
        return _section(title, _note(none))
    alone = ""
    if data["facts"]["ranks_seen"] == 1:
        alone = _note(
            "One rank was seen, so nobody's arrival can be compared: how much of its time in "
            "collectives is wait is not known."
        )
    shown, said = _most(
        by_rank.with_columns(
            pl.sum_horizontal("wait_ns", "transfer_ns", "unsplit_ns").alias("_both")
        ),
        "rank",
        "_both",
    )
    charts["waits-rank"] = plots.waits_by_rank(shown)
    charts["waits-dim"] = plots.waits_by_dim(by_dim.head(plots.MOST_BARS))
    pipeline = pipeline_sentence(data["facts"])
    columns = {
        "participations": "participations",
        "wait_ns": "wait",
        "transfer_ns": "transfer",
        "wait_share": "wait share",
    }
    if by_rank["unsplit_ns"].sum():
        columns["unsplit_ns"] = "wait not known"
    late = ""
    if last.height:
        late = "<h3>Who the others wait for</h3>" + _table(
            last.head(16).to_dicts(),
            {
                "rank": "rank",
                "host": "host",
                "times_last": "times last",
                "collectives": "of",
                "wait_caused_ns": "wait it caused",
                "wait_share": "share of all wait",
                "median_lateness_ns": "median lateness",
            },
        )
    return _section(
        title,
        _note(
            "Wait is the time before the last rank had started: no bandwidth can shorten it. "
            "Transfer is the rest."
        ),
        alone,
        late,
        _note(pipeline) if pipeline else "",
        "<h3>By rank</h3>",
        said,
        _chart("waits-rank", "wait and transfer by rank"),
        _table(by_rank.to_dicts(), {"rank": "rank", **columns}, fold="The numbers"),
        "<h3>By dimension and operation</h3>",
        _chart("waits-dim", "wait and transfer by dimension and operation"),
        _table(
            by_dim.to_dicts(),
            {"dim": "dimension", "op": "operation", **columns},
            fold="The numbers",
        ),
    )


def _overlap(data: Mapping[str, Any], charts: dict[str, dict[str, Any]]) -> str:
    rows = data["overlap"]
    title = "Communication under compute, by rank"
    if rows.is_empty():
        none = "No rank communicates: there is nothing to overlap."
        if data["facts"]["participations"]:
            none = (
                "No source says when this job's collectives ran: what they overlapped is not known."
            )
        return _section(title, _note(none))
    shown, said = _most(rows, "rank", "comm_ns")
    charts["overlap"] = plots.overlap(shown)
    return _section(
        title,
        _note("Measured as the time in which both run at once, never from totals."),
        said,
        _chart("overlap", title),
        _table(
            rows.to_dicts(),
            {
                "rank": "rank",
                "comm_ns": "communication",
                "overlap_ns": "under compute",
                "exposed_ns": "exposed",
                "overlap_share": "overlap",
            },
            fold="The numbers",
        ),
    )


def _whatif(data: Mapping[str, Any]) -> str:
    found = data["whatif"]
    title = "What if"
    if not found["rows"]:
        none = "no rank is known to be late" if data["facts"]["steps"] else "the job has no steps"
        why = found["error"] or none
        return _section(title, _note(f"Nothing can be re-timed: {why}."))
    rows, saw = [], []
    for r in found["rows"]:
        if r["error"] is not None:
            rows.append({"what": r["words"], "policy": r["policy"], "step": r["error"]})
            continue
        got = r.get("recovered") or {}
        rows.append(
            {
                "what": r["words"],
                "policy": r["policy"],
                "step": estimate(r, len(found.get("steps") or ())),
                "gain": units.percent(r["gain_pct"] / 100),
                "wait": units.time(got.get("wait_ns")),
                "transfer": units.time(got.get("transfer_ns")),
                "exposed": units.time(got.get("exposed_ns")),
            }
        )
        saw.append(r)
    parts = []
    if saw:
        parts.append(
            _note(
                f"Measured {units.time(found['measured_ns'], 4)} a step, {trust.fidelity(found)}. "
                f"{trust.BY_CONSTRUCTION}"
            )
        )
        if trust.path(found):
            parts.append(_note(f"The {trust.path(found)}."))
    titles = {
        "what": "if",
        "step": "the step takes (interval)",
        "gain": "gain",
        "wait": "wait saved",
        "transfer": "transfer saved",
        "exposed": "exposed saved",
        "policy": "policy",
    }
    figures = [{k: r.get(k) for k in titles} for r in rows]
    right = ("gain", "wait", "transfer", "exposed")
    parts.append(_table(figures, titles, right=right))
    warned = dict.fromkeys(t for r in saw for t in r.get("warnings") or ())
    assumed = dict.fromkeys(t for r in saw for t in r.get("assumptions") or ())
    if warned:
        items = "".join(f"<li>{_text(t)}</li>" for t in warned)
        parts.append(f'<ul class="warn">{items}</ul>')
    if assumed:
        items = "".join(f"<li>{_text(t)}</li>" for t in assumed)
        parts.append(f"<details><summary>What this assumes</summary><ul>{items}</ul></details>")
    return _section(title, *parts)


def _caveats(data: Mapping[str, Any]) -> str:
    facts, rows = data["facts"], data["problems"]
    items = [f"Clocks: {clocks_sentence(facts)}."]
    if facts["collectives"] or facts["participations"]:
        items.append(
            f"Matching: {units.counted(facts['exact'], 'collective')} by sequence number, "
            f"{facts['order']:,} by order, {facts['partial']:,} seen on only some of their "
            "ranks (waits of theirs are lower bounds)."
        )
    if facts["unmatched"]:
        items.append(f"{facts['unmatched']:,} participations are matched with no other rank's.")
    world = facts.get("world_size")
    if world and facts["ranks_seen"] < world:
        items.append(
            f"Ranks: {facts['ranks_seen']} of {world} left a trace; waits for the others are not "
            "seen."
        )
    said = "".join(f"<li>{_text(t)}</li>" for t in items)
    parts = [f"<ul>{said}</ul>"]
    if rows:
        rows = [{**r, "sources": r["sources"] or None} for r in rows]
        parts.append("<h3>Problems in the input</h3>")
        parts.append(
            _table(
                rows[:MOST_PROBLEMS],
                {
                    "severity": "severity",
                    "code": "problem",
                    "sources": "files",
                    "times": "times",
                    "message": "what",
                },
            )
        )
        if len(rows) > MOST_PROBLEMS:
            left = len(rows) - MOST_PROBLEMS
            parts.append(_note(f"{left} more: retime problems {facts.get('job')}"))
    else:
        parts.append(_note("No problems were found in the input."))
    return _section("How far to trust this", *parts)


STYLE = """
:root { --bg: #ffffff; --fg: #1b1f24; --soft: #59636e; --line: #d7dce1; --panel: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --bg: #14171b; --fg: #e4e7eb; --soft: #9aa4af; --line: #333a42; --panel: #1c2127; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--fg);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
main, footer { max-width: 1040px; margin: 0 auto; padding: 0 24px; }
header { padding: 28px 0 8px; }
h1 { margin: 0; font-size: 26px; overflow-wrap: anywhere; }
h2 { margin: 40px 0 6px; font-size: 19px; }
h3 { margin: 22px 0 6px; font-size: 15px; }
p { margin: 6px 0; }
.about, .note, footer, .of { color: var(--soft); }
.big { font-size: 21px; margin-top: 18px; }
.of { font-size: 15px; }
.lead { font-size: 16px; max-width: 80ch; margin: 10px 0; }
.strip { display: flex; height: 20px; margin: 12px 0; border-radius: 4px; overflow: hidden; }
.strip i { display: block; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px;
  margin: 12px 0 18px; }
.tile { display: grid; grid-template-columns: 16px 1fr; padding: 10px 12px; border-radius: 6px;
  background: var(--panel); border: 1px solid var(--line); font-variant-numeric: tabular-nums; }
.tile > :nth-child(n+3) { grid-column: 2; }
.tile strong { font-size: 18px; }
.tile .what, .tile span:last-child { color: var(--soft); }
.dot { width: 10px; height: 10px; border-radius: 2px; margin-top: 6px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { padding: 4px 14px 4px 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
.num { text-align: right; white-space: nowrap; }
td { overflow-wrap: break-word; max-width: 60ch; }
td:first-child { max-width: none; }
td code, td.num { white-space: nowrap; }
details { margin: 8px 0; }
summary { cursor: pointer; color: var(--soft); }
ul { margin: 6px 0; padding-left: 20px; }
.warned { border-left: 4px solid #E69F00; padding-left: 10px; }
.warn li::marker { content: "! "; color: #D55E00; }
code { font-size: 90%; }
footer { margin-top: 48px; padding-bottom: 28px; font-size: 13px; }
.chart { width: 100%; min-height: 40px; margin: 8px 0; }
.chart svg { max-width: 100%; }
.chart svg text { fill: var(--fg); }
.chart .role-axis-grid line { stroke: var(--line); }
.chart .role-axis-domain line, .chart .role-axis-tick line { stroke: var(--soft); }
#vg-tooltip-element.vg-tooltip { background: var(--panel); color: var(--fg);
  border-color: var(--line); font: inherit; font-size: 13px; }
#vg-tooltip-element.vg-tooltip table tr td.key { color: var(--soft); }
#vg-tooltip-element.vg-tooltip table tr td { border: 0; padding: 1px 6px; }
@media print {
  :root { --bg: #fff; --fg: #000; --soft: #444; --line: #ccc; --panel: #fff; }
  body { font-size: 11px; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  section, .tile, .chart { break-inside: avoid; }
  details:not([open]) { display: none; }
}
"""

DRAW = """
const charts = JSON.parse(document.getElementById("charts").textContent);
for (const [name, spec] of Object.entries(charts)) {
  const place = document.getElementById("chart-" + name);
  vegaEmbed(place, spec, {actions: false, renderer: "svg", ast: true})
    .catch((error) => { place.textContent = "This chart cannot be drawn: " + error.message; });
}
"""
