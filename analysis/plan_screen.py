"""`retime plan` on a terminal: the ranked table, and why the other splits cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import units
from .columns import cells, lines
from .manual_screen import show_terms
from .screen import clean

if TYPE_CHECKING:
    from rich.console import Console

DIMS = ("dp", "tp", "pp", "ep", "cp")


def show(out: Console, result: Mapping[str, Any], limit: int) -> None:
    """Prints what `plan.plan` returns, `limit` rows of each kind."""
    out.print(headline(result), style="bold")
    out.print()
    plans = result["plans"]
    if not plans:
        out.print("No split fits in memory; the nearest, and what it needs:")
    sent = [d for d in DIMS if any(p["volumes"][d] for p in plans[:limit])]
    table = cells([_row(p, sent) for p in plans[:limit]])
    table.numeric = [name not in ("split", "with") for name in table.names]
    for line in lines(table, out.width):
        out.print(line)
    if len(plans) > limit:
        out.print(f"… {units.counted(len(plans) - limit, 'more split')} (--limit)", style="dim")
    refused = result["infeasible"]
    if refused:
        out.print()
        out.print(f"Do not fit: {units.counted(len(refused), 'split')}", style="bold")
        show_terms(out, [(p["split"], p["why_not"]) for p in refused[:limit]], style="")
        if len(refused) > limit:
            out.print(f"  … {len(refused) - limit} more (--limit)", style="dim")
    out.print()
    out.print("GB are 10^9 bytes, as of GPUs' memory and links", style="dim")
    show_terms(
        out, [("assumes:", t) for t in result["assumptions"]], indent="", style="dim", rest="dim",
        gap=1,
    )  # fmt: skip


def headline(result: Mapping[str, Any]) -> str:
    """`gpt3-175b (174.6 billion parameters) on 512 GPUs (A100), 1,536 sequences a step`."""
    billions = f"{result['params'] / 1e9:.4g} billion parameters"
    if result["active_params"] != result["params"]:
        billions += f", a token meets {result['active_params'] / 1e9:.4g}"
    return (
        f"{clean(result['model'])} ({billions}) on "
        f"{units.counted(result['gpus'], 'GPU')} ({clean(result['machine'])}), "
        f"{units.counted(result['batch'], 'sequence')} a step"
    )


def _row(p: Mapping[str, Any], sent: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "split": p["split"],
        "with": _with(p),
        "step": units.time(p["step_ns"]),
        "9 of 10 in": f"{units.time(p['low_ns'])} to {units.time(p['high_ns'])}",
        "of peak": units.percent(p["mfu"], 2),
        "bubble": units.percent(p["bubble_share"], 2),
        "memory": units.decimal_size(p["memory_bytes"]),
    }
    # What a GPU sends in a step, by dimension.
    return row | {f"{d} sends": units.decimal_size(p["volumes"][d]) for d in sent}


def _with(p: Mapping[str, Any]) -> str:
    """What goes with the degrees, in a few words."""
    words = [f"mb{p['micro_batch']}"]
    if p["recompute"] != "none":
        words.append(f"recompute {p['recompute']}")
    if p["zero"]:
        words.append(f"zero{p['zero']}")
    if p["pp"] > 1 and p["schedule"] != "1f1b":
        words.append(p["schedule"])
    if len(set(p["stages"])) > 1:
        words.append("stages " + "+".join(_runs(p["stages"])))
    return ", ".join(words)


def _runs(stages: list[int]) -> list[str]:
    """`8 8 8 6` as `3x8`, `6`."""
    out: list[tuple[int, int]] = []
    for n in stages:
        if out and out[-1][1] == n:
            out[-1] = (out[-1][0] + 1, n)
        else:
            out.append((1, n))
    return [str(n) if k == 1 else f"{k}x{n}" for k, n in out]
