"""Replays and the catalogue of policies on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import calibration_screen, trust, units
from .columns import cells, lines
from .manual_screen import show_terms
from .notes_screen import show_notes
from .screen import clean

if TYPE_CHECKING:
    from rich.console import Console

FIGURES = {
    "step": "step",
    "gain": "gain",
    "wait": "wait",
    "transfer": "transfer",
    "exposed": "exposed",
}
FLOORS = {"free": "free comm", "link": "busiest link"}


def show_replay(out: Console, result: Mapping[str, Any]) -> None:
    """`retime replay`: the baseline and its fidelity, then a row a policy, then the small print.

    A replay that is too far off says so before anything else.
    """
    from ..replay.run import DOUBTFUL

    steps = result.get("steps") or []
    n = len(steps) if isinstance(steps, list) else steps
    said = [*(result.get("warnings") or ())]
    said += [s for p in result["policies"] for s in p.get("warnings") or ()]
    doubts = list(dict.fromkeys(s for s in said if s.startswith(DOUBTFUL)))
    for text in doubts:
        out.print(f"WARNING: {clean(text)}", style="bold red")
    out.print(
        f"measured {units.time(result['measured_ns'], 4)} a step (mean of {n}), "
        f"{trust.fidelity(result)}"
    )
    if trust.path(result):
        out.print(trust.path(result), style="dim")
    if result["policies"]:
        out.print()
        _show_estimates(out, result["policies"], n)
    elif result.get("floors"):
        out.print(_floors_words(result["floors"]), style="dim")
    tried = [
        {**p, "warnings": [s for s in p.get("warnings") or () if s not in doubts]}
        for p in result["policies"]
    ]
    show_notes(out, tried, "assumptions", "assumes", "dim")
    of_all = [s for s in result.get("warnings") or () if s not in doubts]
    show_notes(out, tried, "warnings", "warning", "yellow", of_all)
    if "calibration" in result:
        out.print()
        calibration_screen.show(out, result)
    if "explained" in result:
        out.print()
        _show_explained(out, result["explained"])


def _show_explained(out: Console, made: Mapping[str, Any]) -> None:
    """Where the picture is, of which step, and where every task of it is."""
    out.print(
        f"step {made['step']} ({made['why']}) before and after {clean(made['policy'])}: re-timed "
        f"{units.time(made['before_ns'], 4)} and {units.time(made['after_ns'], 4)}"
    )
    out.print(f"page      {clean(made['page'])}")
    out.print(f"timeline  {clean(made['timeline'])} (open it at https://ui.perfetto.dev)")


def _show_estimates(out: Console, policies: Sequence[Mapping[str, Any]], n: int) -> None:
    """A line a policy where all fits; else its name, its figures and its floors, a line each."""
    rows = [{"policy": policy_words(p), **_figures(p, n)} for p in policies]
    titles = {"policy": "policy", **FIGURES, **FLOORS}
    if n != 1:
        titles["step"] = "step (interval)"
    if not any(p.get("floors") for p in policies):
        titles = {k: v for k, v in titles.items() if k not in FLOORS}
    table = cells(rows, titles)
    table.numeric = [False] + [True] * (len(titles) - 1)
    if sum(table.widths()) + 2 * (len(titles) - 1) <= out.width:
        for line in lines(table, out.width):
            out.print(line)
    else:
        figures = cells(rows, {k: v for k, v in titles.items() if k in FIGURES})
        figures.numeric = [True] * len(figures.names)
        head, *each = lines(figures, out.width - 2)[: len(rows) + 1]
        out.print(head)
        for row, line, p in zip(rows, each, policies, strict=True):
            out.print(row["policy"], style="bold", highlight=False, markup=False)
            out.print(line)
            if p.get("floors"):
                out.print(f"  floors: {row['free']} free comm, {row['link']} busiest link",
                          style="dim")  # fmt: skip
    out.print("wait, transfer, exposed: time of communication that is saved", style="dim")
    if "free" in titles:
        out.print("free comm, busiest link: floors, no step can be shorter", style="dim")
    links = dict.fromkeys(p["floors"]["link"] for p in policies if p.get("floors"))
    for text in (t for t in links if t):
        out.print(f"busiest link: {clean(text)}", style="dim")


def _figures(policy: Mapping[str, Any], n: int) -> dict[str, str]:
    got, floors = policy.get("recovered") or {}, policy.get("floors") or {}
    return {
        "step": estimate(policy, n),
        "gain": _pct(policy.get("gain_pct")),
        "wait": units.time(got.get("wait_ns")),
        "transfer": units.time(got.get("transfer_ns")),
        "exposed": units.time(got.get("exposed_ns")),
        "free": units.time(floors.get("free_communication_ns")),
        "link": units.time(floors.get("busiest_link_ns")),
    }


def _floors_words(floors: Mapping[str, Any]) -> str:
    link = f" ({clean(floors['link'])})" if floors.get("link") else ""
    return (
        f"floors: no step under {units.time(floors['free_communication_ns'])} with communication "
        f"free, or {units.time(floors['busiest_link_ns'])} at the busiest link{link}"
    )


def estimate(row: Mapping[str, Any], steps: int) -> str:
    """A re-timed step with its interval; of one step that stays as it was there is none."""
    bounds = row.get("low_ns"), row.get("high_ns")
    if steps == 1 and bounds[0] == bounds[1]:
        bounds = None, None
    return units.interval(row["step_ns"], *bounds)


def policy_words(policy: Mapping[str, Any]) -> str:
    """A policy with the parameters that are not its defaults, as they would be typed.

    `align-arrivals:ranks=3`; several policies at once are `together: a + b`.
    """
    from ..replay.policies import REGISTRY

    names = str(policy["name"]).split(" + ")
    given = policy.get("params") or {}
    out = []
    for i, name in enumerate(names):
        n = names[:i].count(name)
        prefix = "" if len(names) == 1 else f"{name}#{n + 1}." if n else f"{name}."
        known = REGISTRY.get(name)
        default = {p.name: joined(p.default) for p in known.params} if known else {}
        own = {k.removeprefix(prefix): v for k, v in given.items() if k.startswith(prefix)}
        texts = [
            f"{k}={joined(v)}"
            for k, v in own.items()
            if v not in (None, (), [], "") and joined(v) != default.get(k)
        ]
        out.append(f"{name}:{','.join(texts)}" if texts else name)
    return clean(("together: " if len(out) > 1 else "") + " + ".join(out))


def show_policies(out: Console, rows: Sequence[Mapping[str, Any]], detail: bool) -> None:
    """`retime policies`: a line each in the order in which they apply, or everything about one."""
    if not detail:
        rows = sorted(rows, key=lambda p: (p["order"], p["name"]))
        show_terms(out, [(p["name"], p["stage"], p["summary"]) for p in rows], indent="")
        out.print("retime policies NAME has the parameters; several policies at once apply in the "
                  "order of their stages", style="dim")  # fmt: skip
        return
    for p in rows:
        out.print(clean(p["name"]), style="bold")
        out.print(clean(p["summary"]))
        out.print(f"Source: {clean(p['source'])}")
        out.print(f"Stage: {p['stage']} ({p['order']} of {p['stages']} in which policies apply)")
        for title, key in (("Holds", "valid"), ("Checked against", "checked")):
            if p[key]:
                out.print(f"{title}: {clean(p[key])}")
        if p["params"]:
            out.print()
            out.print("Parameters", style="bold")
            show_terms(out, [_term(q) for q in p["params"]])
        for title, key in (("Needs of the trace", "needs"), ("Assumes", "assumptions")):
            if p[key]:
                out.print()
                out.print(title, style="bold")
                for text in p[key]:
                    show_terms(out, [("-", text)], style="")


def _term(param: Mapping[str, Any]) -> tuple[str, str, str, str]:
    takes = f" One of {', '.join(map(str, param['choices']))}." if param["choices"] else ""
    none = param["default"] in (None, (), [], "")
    default = "" if none else f" Default {joined(param['default'])}."
    text = f"{param['meaning'].rstrip('.')}.{takes}{default}"
    return param["name"], param["type"], param["unit"], text


def joined(value: Any) -> str:
    """A parameter's value as it would be typed: several of them joined by +."""
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _pct(value: float | None) -> str:
    return units.NOTHING if value is None else units.percent(value / 100)
