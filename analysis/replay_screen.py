"""`retime replay` and `retime policies` on a terminal: estimates, and the catalogue behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import trust, units
from .columns import cells, lines
from .manual_screen import show_terms
from .screen import clean

if TYPE_CHECKING:
    from rich.console import Console


def show_replay(out: Console, result: Mapping[str, Any]) -> None:
    """`retime replay`: the baseline and its fidelity, then a row a policy, then the small print."""
    steps = result.get("steps") or []
    n = len(steps) if isinstance(steps, list) else steps
    out.print(
        f"measured {units.time(result['measured_ns'], 4)} a step (mean of {n}), "
        f"{trust.fidelity(result)}"
    )
    if trust.path(result):
        out.print(trust.path(result), style="dim")
    rows = []
    for p in result["policies"]:
        got = p.get("recovered") or {}
        rows.append(
            {
                "policy": policy_words(p),
                "step": estimate(p, n),
                "gain": _pct(p.get("gain_pct")),
                "wait": units.time(got.get("wait_ns")),
                "transfer": units.time(got.get("transfer_ns")),
                "exposed": units.time(got.get("exposed_ns")),
            }
        )
    if not rows:
        for text in result.get("warnings") or ():
            out.print(f"warning: {clean(text)}", style="yellow")
        return
    out.print()
    titles = {
        "policy": "policy",
        "step": "step" if n == 1 else "step (interval)",
        "gain": "gain",
        "wait": "wait",
        "transfer": "transfer",
        "exposed": "exposed",
    }
    table = cells(rows, titles)
    table.numeric = [False, True, True, True, True, True]
    for line in lines(table, out.width):
        out.print(line)
    out.print("wait, transfer, exposed: time of communication that is saved", style="dim")
    for title, key in (("assumes", "assumptions"), ("warning", "warnings")):
        said = dict.fromkeys(s for p in result["policies"] for s in p.get(key) or ())
        style = "yellow" if key == "warnings" else "dim"
        for text in said:
            out.print(f"{title}: {clean(text)}", style=style)


def estimate(row: Mapping[str, Any], steps: int) -> str:
    """A re-timed step with its interval; of one step there is none."""
    bounds = (None, None) if steps == 1 else (row.get("low_ns"), row.get("high_ns"))
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


def _pct(value: float | None) -> str:
    return units.NOTHING if value is None else units.percent(value / 100)


def show_policies(out: Console, rows: Sequence[Mapping[str, Any]], detail: bool) -> None:
    """`retime policies`: a line each, or everything about one."""
    if not detail:
        show_terms(out, [(p["name"], p["summary"]) for p in rows], indent="")
        out.print("retime policies NAME has the parameters", style="dim")
        return
    for p in rows:
        out.print(clean(p["name"]), style="bold")
        out.print(clean(p["summary"]))
        out.print(f"Source: {clean(p['source'])}")
        if p["params"]:
            out.print()
            out.print("Parameters", style="bold")
            terms = []
            for q in p["params"]:
                takes = f" One of {', '.join(map(str, q['choices']))}." if q["choices"] else ""
                none = q["default"] in (None, (), [], "")
                default = "" if none else f" Default {joined(q['default'])}."
                text = f"{q['meaning'].rstrip('.')}.{takes}{default}"
                terms.append((q["name"], q["type"], q["unit"], text))
            show_terms(out, terms)
        if p["assumptions"]:
            out.print()
            out.print("Assumes", style="bold")
            for text in p["assumptions"]:
                show_terms(out, [("-", text)], style="")


def joined(value: Any) -> str:
    """A parameter's value as it would be typed: several of them joined by +."""
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
