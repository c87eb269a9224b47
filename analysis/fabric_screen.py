"""`retime fabric` on a terminal: the presets, or one fabric's links and what they amount to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import units
from .columns import show_table
from .screen import clean

if TYPE_CHECKING:
    from rich.console import Console


def show_presets(out: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """The presets, one a row: bandwidths are nominal, of one GPU and one direction."""
    shown = [
        {
            **r,
            "scale_up": units.rate(_gb(r["scale_up_bytes_per_s"])),
            "nic": units.rate(_gb(r["nic_bytes_per_s"])),
        }
        for r in rows
    ]
    columns = {
        "preset": "preset",
        "device": "device",
        "gpus_per_host": "GPUs a host",
        "domain_gpus": "a domain",
        "scale_up": "inside, a GPU",
        "nic": "NIC, a GPU",
        "rails": "rails",
        "planes": "planes",
        "wiring": "leaves",
    }
    show_table(out, shown, columns)
    out.print(
        "one of them: retime fabric NAME --gpus N; a file of your own: FILE.toml", style="dim"
    )


def show(out: Console, facts: Mapping[str, Any]) -> None:
    """Prints what `fabric.facts` returns."""
    hosts = units.counted(facts["hosts"], "host")
    what = clean(f"{facts['fabric']}" + (f" ({facts['device']})" if facts["device"] else ""))
    out.print(f"{what}: {units.counted(facts['gpus'], 'GPU')}, {hosts}", style="bold")
    out.print(shape(facts))
    out.print()
    rows = [
        {
            "class": r["class"],
            "blocks": ", ".join(r["blocks"]),
            "links": units.count(r["links"]),
            "each": units.rate(_gb(r["least_bytes_per_s"])),
            "all": units.rate(_gb(r["total_bytes_per_s"])),
            "alpha": units.time(r["alpha_ns"]),
        }
        for r in facts["links"]
    ]
    columns = {
        "class": "class",
        "links": "links",
        "each": "each, usable",
        "all": "all, both ways",
        "alpha": "a crossing",
        "blocks": "which",
    }
    show_table(out, rows, columns)
    out.print()
    if facts["bisection_limit"] != "none":
        out.print(
            f"between halves: {units.rate(_gb(facts['bisection_bytes_per_s']))} each way "
            f"({facts['bisection_limit']})"
        )
    if facts["all_to_all_limit"] != "none":
        out.print(
            f"even all-to-all of all GPUs: at most "
            f"{units.rate(_gb(facts['all_to_all_bytes_per_s']))} a GPU "
            f"({facts['all_to_all_limit']} is the busiest)"
        )
    for text in facts["assumptions"]:
        out.print(f"assumes: {clean(text)}", style="dim")


def shape(facts: Mapping[str, Any]) -> str:
    """Domains, rails, planes and switches in one line."""
    parts = []
    if facts["package"] is not None:
        p = facts["package"]
        parts.append(f"a {p['shape']} of {p['rows']} x {p['columns']} dies a package")
    if facts["domain_gpus"] > 1:
        parts.append(f"scale-up domains of {facts['domain_gpus']}")
    if facts["rails"]:
        parts.append(units.counted(facts["rails"], "rail") + " a host")
    if facts["planes"] > 1:
        parts.append(f"{facts['planes']} planes")
    words = {"leaves": ("leaf", "leaves"), "spines": ("spine", "spines"),
             "optical": ("optical switch", "optical switches")}  # fmt: skip
    parts += [units.counted(n, *words[kind]) for kind, n in facts["switches"].items()]
    if facts["oversubscription"] is not None:
        parts.append(f"oversubscribed {facts['oversubscription']:.3g}:1 at the leaf")
    if facts["core_oversubscription"] is not None:
        parts.append(f"{facts['core_oversubscription']:.3g}:1 at the core")
    if facts["rails"] > 1 and facts["hosts"] > 1:
        parts.append(f"rails are crossed by {facts['rail']}")
    return ", ".join(parts) or "one GPU"


def _gb(bytes_per_s: float | None) -> float | None:
    return None if bytes_per_s is None else bytes_per_s / 1e9
