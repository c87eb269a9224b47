"""A comparison of two jobs on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import units
from .columns import show_table
from .diff import LEAST_NS
from .frames import words_of
from .names import LONGEST
from .screen import clean

if TYPE_CHECKING:
    from rich.console import Console

NUMBERS = ("a", "b", "change", "share")
"""Columns of texts that are numbers."""

WORDS = {
    "compute": "compute",
    "wait": "exposed wait",
    "transfer": "exposed transfer",
    "unsplit": "communication, wait not known",
    "memcpy": "memcpy alone",
    "idle": "idle",
}


def show(out: Console, found: Mapping[str, Any], limit: int) -> None:
    """Both steps, the change by group of time, and the parts that changed most."""
    for name in ("a", "b"):
        out.print(_job(name.upper(), found[name]), highlight=False, markup=False)
    out.print(_headline(found), highlight=False, markup=False, style="bold")
    for remark in found["remarks"]:
        out.print(f"! {remark}", highlight=False, markup=False)
    clear = _is_clear(found)
    titles = {"a": "A", "b": "B", "change": "change", "share": "of it", "sure": "sure"}
    if not clear:
        del titles["share"]
    if all(r["significant"] is None for r in [*found["groups"], *found["parts"]]):
        del titles["sure"]  # a remark says why
    out.print()
    groups = [_texts(WORDS[r["group"]], r, clear) for r in found["groups"]]
    show_table(out, groups, {"where": "", **titles}, numbers=NUMBERS)
    rows = [r for r in found["parts"] if abs(r["change_ns"]) >= LEAST_NS]
    shown, rest = rows[:limit], rows[limit:]
    if shown:
        out.print(
            "\nWhat changed most (time of a step, mean over ranks and steps)",
            highlight=False,
            markup=False,
        )
        made = [
            {"what": _what(r), "in": r["group"]} | _texts("", r, clear) | {"why": _why(r)}
            for r in shown
        ]
        if rest:
            made.append({"what": f"{len(rest)} more parts", "in": ""} | _together(rest, found))
        columns = {"what": "what", "in": "in", **titles, "why": "why"}
        show_table(
            out, made, columns, numbers=NUMBERS, first_to_go=("why", "share", "a"),
            longest_name=LONGEST,
        )  # fmt: skip
    said = ["sure: more than chance (--json has the intervals)"] if "sure" in titles else []
    if any(r["group"] == "unsplit" for r in shown):
        said.append("unsplit: communication, wait not known")
    if said:
        out.print("; ".join(said), style="dim")


def _job(name: str, job: Mapping[str, Any]) -> str:
    steps = len(job["steps"])
    what = f"{units.counted(steps, 'step')}, mean" if steps else "no steps: whole trace,"
    median = f", median {units.time(job['median_step_ns'])}" if steps > 1 else ""
    ranks = units.counted(job["ranks"], "rank")
    return f"{name}  {clean(job['job'])}: {ranks}, {what} {units.time(job['step_ns'])}{median}"


def _headline(found: Mapping[str, Any]) -> str:
    change = found["change_ns"]
    share = found["change_share"]
    if abs(change) < LEAST_NS:
        text = "No change: B's step is as long as A's"
    else:
        word = "longer" if change > 0 else "shorter"
        text = f"B's step is {units.time(abs(change))} {word} than A's"
        if share is not None:
            text += f" ({_percent(share)})"
    if found["low_ns"] is not None:
        text += f"; 95 % interval {_signed(found['low_ns'])} to {_signed(found['high_ns'])}"
    return text


def _is_clear(found: Mapping[str, Any]) -> bool:
    """Is the whole change more than its interval? Shares of one that may be 0 mean nothing."""
    if abs(found["change_ns"]) < LEAST_NS:
        return False
    return found["low_ns"] is None or not found["low_ns"] <= 0 <= found["high_ns"]


def _texts(where: str, row: Mapping[str, Any], clear: bool) -> dict[str, str]:
    return {
        "where": where,
        "a": units.time(row["a_ns"]),
        "b": units.time(row["b_ns"]),
        "change": _signed(row["change_ns"]),
        "share": "-" if row["share"] is None or not clear else f"{100 * row['share']:.1f} %",
        "sure": {True: "yes", False: "no", None: "not known"}[row["significant"]],
    }


def _together(rest: Sequence[Mapping[str, Any]], found: Mapping[str, Any]) -> dict[str, str]:
    change = sum(r["change_ns"] for r in rest)
    return {
        "a": units.time(sum(r["a_ns"] for r in rest)),
        "b": units.time(sum(r["b_ns"] for r in rest)),
        "change": _signed(change),
        "share": f"{100 * change / found['change_ns']:.1f} %" if _is_clear(found) else "-",
        "sure": "",
        "why": "",
    }


def _what(row: Mapping[str, Any]) -> str:
    return words_of(row["what"]) if row["group"] == "idle" else clean(row["what"])


def _why(row: Mapping[str, Any]) -> str:
    """Whether a part came or went, occurs more often, takes longer each time or is more exposed."""
    if row["only_in"] is not None:
        return f"only in {row['only_in'].upper()}"
    if row["group"] == "idle":
        return ""
    if row["more_ns"] is None:
        return "more exposed" if row["change_ns"] > 0 else "less exposed"
    often, a, b = row["more_ns"], row["pieces_a"], row["pieces_b"]
    if abs(often) > abs(row["slower_ns"]):
        return f"{'more' if b > a else 'less'} often: {a:.4g} to {b:.4g} a step"
    return "longer each" if row["slower_ns"] > 0 else "shorter each"


def _percent(share: float) -> str:
    """With its sign, and no sign before what rounds to 0."""
    text = f"{100 * share:+.1f} %"
    return "under 0.1 %" if text[1:] == "0.0 %" else text


def _signed(ns: float) -> str:
    if abs(ns) < LEAST_NS:
        return units.time(0)
    return f"{'-' if ns < 0 else '+'}{units.time(abs(ns))}"
