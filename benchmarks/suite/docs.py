"""The page `docs/performance.md`, from kept results: goals, figures, growth, profiles, history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import growth, words
from .judge import MISSED, goals

HEAD = """# How fast retime is, beside its peers and the machine

This page is written by `python -m benchmarks docs FILE...` from results that
`python -m benchmarks --json FILE` keeps; nothing in it is typed by hand. Install the extra `peers`
first. `--quick` takes some minutes, all of it 25 minutes on two cores and 3 GB of disk, `--large`
(1,024 ranks, 100 million events) half an hour more.

Every figure is a process of its own: seconds are the median of some rounds with the lowest and the
highest in brackets, memory is the most that its largest process held. Ways of one case run by turns
(A B C, A B C), and a ratio is of two figures of the same round: other's time over ours, so that 2
is twice as fast. What takes a minute or more runs in one round, and stands beside every round.
Where a goal is met or missed by less than a tenth, all that decide it run in two rounds more, and
all rounds count. "Possible" is what a ratio would be were all the same but what the two have to do
differently by nature. A round in which ours compiled, and kept that for all later runs, is run
again; the first run on a machine is a line of its own. Absolute times depend on the machine: read
the ratios.

"Warm" is after start-up: imports, cached machine code and a small file are behind it. Files are in
the system's cache but where a line says that they are on disk alone, and before every figure, a
peer's and a limit's too, 600 MB of memory are got and let go by processes beside: a virtual machine
may give memory that nobody used for some seconds back to its host, and getting it again can take
ten times as long ("machine, memory" has both). Other lines of the command
count everything from the start of the process to its end. `ours` includes finished Parquet, its
commit to the warehouse and the matching of ranks; a peer's time is what it says.
"""

AGAINST = ("times", "of the speed of")
"""A peer, a limit."""
CPU = """
**Its seconds are of CPU, of all cores together**: others used the machine. Lines on two cores are
faster than that in wall time, and their ratios to what runs on one core better.
"""
SLOWEST = 10
"""Parts that are named."""
HISTORY = 12
"""Runs that the page shows."""


def page(results: Sequence[dict[str, Any]], history: Sequence[dict[str, Any]]) -> str:
    """All of it, as Markdown. A case that several results have is taken from the last of them."""
    cases = _together(results)
    parts = [HEAD, _machines(results), _goals(cases), _stages(cases), _growth(cases)]
    parts += [_profiles(cases), _missing(cases), _history(history)]
    return "\n".join(p for p in parts if p).rstrip() + "\n"


def _together(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    by_name = {}
    for result in results:
        for case in result["cases"]:
            by_name[case["name"]] = case
    return list(by_name.values())


def _machines(results: Sequence[dict[str, Any]]) -> str:
    """A paragraph each machine and its versions, of whatever was measured there."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for r in results:
        m = r["machine"]
        have = ", ".join(f"{k} {v}" for k, v in m["versions"].items())
        on = (
            f"{m['cores']} cores of {m['processor']}, {m['memory_bytes'] / 1e9:.0f} GB, "
            f"{m['system']}"
        )
        alike.setdefault((on, have, r["size"], r.get("clock", "")), []).append(r)
    out = []
    for (on, have, size, clock), of in alike.items():
        stages = ", ".join(dict.fromkeys(s for r in of for s in r["stages"]))
        out.append(
            f"Measured {_span([r['date'] for r in of])} UTC ({stages}; {size}) on {on}, load "
            f"{_span([r['machine']['load'] for r in of])} before the run, "
            f"{_span([r['runs'] for r in of])} rounds; {have}.\n" + (CPU if clock == "cpu" else "")
        )
    return "\n".join(out)


def _span(values: Sequence[Any]) -> str:
    """The least and the largest, or the one that there is."""
    first, last = (f"{v:g}" if isinstance(v, float) else str(v) for v in (min(values), max(values)))
    return first if first == last else f"{first} to {last}"


def _goals(cases: list[dict[str, Any]]) -> str:
    lines = [words.goal(c, g) for c in cases for g in goals(c)]
    if not lines:
        return ""
    count = {v: sum(line[-1].lower().startswith(v) for line in lines)
             for v in ("met", "missed", "not run")}  # fmt: skip
    said = ", ".join(f"{n} {v}" for v, n in count.items() if n)
    order = sorted(lines, key=lambda line: not line[-1].startswith(MISSED.upper()))
    heads = ["case", "way", "goal", "target", "measured", ""]
    return f"## Goals\n\n{said}; the missed ones first.\n\n" + table(heads, order)


def _stages(cases: list[dict[str, Any]]) -> str:
    out = []
    for stage in dict.fromkeys(c["stage"] for c in cases):
        out.append(f"## {stage.capitalize()}\n")
        out += [_case(c) for c in cases if c["stage"] == stage]
    return "\n".join(out)


def _case(case: dict[str, Any]) -> str:
    lines = []
    limits = {w["name"] for w in case["ways"] if w["role"] == "limit"}
    for w in case["ways"]:
        if "missing" in w:
            continue
        ratios = [
            f"{words.ratio(r)} {AGAINST[r['other'] in limits]} {r['other']}"
            for r in case["ratios"]
            if r["ours"] == w["name"] and "values" in r
        ]
        lines.append(
            [w["name"], w["role"], words.time_of(w), f"{words.number(w['rate'])} {case['unit']}/s",
             words.memory(w["peak_bytes"]), "; ".join(ratios)]
        )  # fmt: skip
    heads = ["way", "", "time", "speed", "peak", "beside others"]
    note = f"{case['note']}\n\n" if "note" in case else ""
    wrong = "".join(f"\n**Answers differ**: {w}\n" for w in case["disagree"])
    size = f"{words.number(case['n'])} {case['unit']}"
    text = f"### {case['name']} ({size})\n\n{note}" + table(heads, lines) + wrong
    text += "".join(_parts(w) for w in case["ways"] if "rounds" in w)
    return text + "".join(_met(b) for b in case.get("bounds", ()) if b.get("parts"))


def _met(bound: dict[str, Any]) -> str:
    """Which parts meet a goal that is about each of them, and which do not."""
    over = [(s, name) for name, s in bound["parts"].items() if s > bound["bound"]]
    named = ", ".join(f"`{name}` {words.seconds(s)}" for s, name in sorted(over, reverse=True))
    within = ", ".join(f"`{n}`" for n, s in sorted(bound["parts"].items()) if s <= bound["bound"])
    missed = f" Over it: {named}." if over else ""
    return f"\nGoal, {bound['goal']}: met by {within or 'none'}.{missed}\n"


def _parts(way: dict[str, Any]) -> str:
    """The slowest parts of a way that has some, and what all others are under."""
    parts = next((r["parts"] for r in way["rounds"] if r is not None and "parts" in r), {})
    slow = sorted(parts.items(), key=lambda p: -p[1])
    if not slow:
        return ""
    named = ", ".join(f"`{name}` {words.seconds(s)}" for name, s in slow[:SLOWEST])
    rest = slow[SLOWEST:]
    more = f"; {len(rest)} others at most {words.seconds(rest[0][1])}" if rest else ""
    return f"\nSlowest: {named}{more}.\n"


def _growth(cases: list[dict[str, Any]]) -> str:
    lines, steep = [], []
    for g in growth.lines(cases):
        cpu, peak = ((g["power"][k], g["last_power"][k]) for k in ("cpu_s", "peak_bytes"))
        lines.append(
            [g["name"], ", ".join(words.number(n) for n in g["n"]) + f" {g['unit']}",
             ", ".join(map(words.seconds, g["seconds"])), _both(cpu),
             ", ".join(map(words.memory, g["peak_bytes"])), _both(peak), words.verdict(g)]
        )  # fmt: skip
        steep += [f"- {name}: {why}" for name, why in g.get("reasons", {}).items()]
        steep += [f"- {name}: no reason is known" for name in g.get("steep", ())]
        steep += [
            f"- {g['name']}, {p['name']}: {words.power(p['power'])} ({words.power(p['last_power'])}"
            f" between the two largest), {words.seconds(p['seconds'][-1])} at the largest size"
            for p in g["parts"]
            if max(p["power"] or 0, p["last_power"] or 0) > growth.MOST
        ]
    if not lines:
        return ""
    heads = ["what", "size", "time", "CPU grows as", "peak", "memory grows as", "at most n^1.1"]
    text = (
        "## Cost of growth\n\nn^1.00 is growth as fast as the input: the slope through the "
        "logarithms of sizes and CPU seconds (or peaks), over all sizes and, in brackets, between "
        "the two largest. What is the same for any size (starting Python, loading machine code) "
        "makes it less.\n\n"
    )
    more = "\nSteeper than n^1.1:\n\n" + "\n".join(dict.fromkeys(steep)) + "\n" if steep else ""
    return text + table(heads, lines) + more


def _both(powers: tuple[float | None, float | None]) -> str:
    return f"{words.power(powers[0])} ({words.power(powers[1])})"


def _profiles(cases: list[dict[str, Any]]) -> str:
    out = []
    for case in cases:
        for name, profile in case.get("profiles", {}).items():
            lines = [
                *([m, "", f"{s} s"] for m, s in profile["modules"]),
                *(["", f"`{f}`", f"{s} s"] for f, s in profile["functions"]),
            ]
            out.append(f"### {case['name']}: {name}\n\nOf {profile['total_s']} s.\n")
            out.append(table(["part", "function", "own time"], lines))
    if not out:
        return ""
    return (
        "## Where the time of what misses is\n\nOne run under a profiler, which makes it slower: "
        "seconds of their own, waiting for other threads left out.\n\n" + "\n".join(out)
    )


def _missing(cases: list[dict[str, Any]]) -> str:
    said = {
        f"- {w['name']}: {w['missing']}"
        + (f" ({case['name']})" if w["missing"].startswith("failed") else "")
        for case in cases for w in case["ways"] if "missing" in w
    }  # fmt: skip
    return "## Not run\n\n" + "\n".join(sorted(said)) + "\n" if said else ""


def _history(rows: Sequence[dict[str, Any]]) -> str:
    """A column a run, a row a goal that the last run has."""
    rows = [r for r in rows if r["goals"]][-HISTORY:]
    if not rows:
        return ""
    keys = dict.fromkeys(k for r in reversed(rows) for k in r["goals"])
    heads = ["goal", *(f"{r['date'][:10]} {r['size']}" for r in rows)]
    lines = [
        [k, *(_was(r["goals"].get(k)) for r in rows)] for k in keys
    ]  # fmt: skip
    return (
        "## How the figures moved\n\nA column a run that was kept (`--history`); a missed goal in "
        "bold. Ratios are times faster; bounds are seconds, bytes or units a second.\n\n"
        + table(heads, lines)
    )


def _was(figure: Sequence[Any] | None) -> str:
    if figure is None:
        return ""
    value = words.number(figure[0])
    return f"**{value}**" if figure[1] == MISSED else value


def table(heads: list[str], lines: list[list[str]]) -> str:
    """A Markdown table; a bar in a cell is not one of the table."""
    rows = [heads, ["---"] * len(heads), *lines]
    return "".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in row) + " |\n" for row in rows
    )  # fmt: skip
