"""`retime stragglers` on a terminal: the slowdown, whose it is, the ideals beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import units
from .columns import cells, lines
from .manual_screen import show_terms
from .names import apart
from .replay_screen import joined
from .screen import clean

if TYPE_CHECKING:
    from rich.console import Console


def show_stragglers(out: Console, result: Mapping[str, Any]) -> None:
    """`retime stragglers`: the slowdown, then who and what it comes from."""
    out.print(f"slowdown S = {result['slowdown']:.3f}", style="bold")
    # Only recorded operations are replayed without them, and only those have stages.
    delays = " without launch delays" if result.get("by_stage") else ""
    out.print(
        f"a step takes {units.time(result['replayed_ns'])}{delays}, and would take "
        f"{units.time(result['ideal_ns'])} with every operation at its ideal"
    )
    if result["slowdown"] <= 1:
        out.print("that is no slowdown: there is nothing for a rank or an operation to explain")
    slowest = joined(result.get("slowest_ranks") or [])
    shares = []
    if result.get("m_w") is not None:
        shares.append((f"M_W = {result['m_w']:.3f}", f"of that goes with rank {slowest} ideal"))
    if result.get("m_s") is not None:
        shares.append((f"M_S = {result['m_s']:.3f}", "of that goes with the last stage ideal"))
    for name, words in shares:
        out.print(f"{name}  share {words}")
    if result.get("said"):
        out.print(f"\n{result['said']}")
    _show_ideals(out, result.get("ideals") or [])
    for key in ("by_op", "by_stage", "by_rank"):
        rows = sorted(result.get(key) or [], key=lambda r: -r["slowdown"])
        if not rows:
            continue
        columns = [k for k in rows[0] if any(r[k] is not None for r in rows)]
        out.print()
        out.print(f"{key.replace('_', ' ')}: slowdown with all else ideal", style="bold")
        texts = [
            {k: f"{r[k]:.3f}" if isinstance(r[k], float) else clean(str(r[k])) for k in columns}
            for r in rows[:12]
        ]
        if "op" in columns:
            for text, op in zip(texts, apart([t["op"] for t in texts]), strict=True):
                text["op"] = op
        table = cells(texts)
        table.numeric = [k != "op" for k in columns]
        for line in lines(table, out.width):
            out.print(line)
        if len(rows) > 12:
            out.print(f"({len(rows) - 12} more; --json has all)", style="dim")


def _show_ideals(out: Console, found: Sequence[Mapping[str, Any]]) -> None:
    """The ideals beside each other: the step that each gives, the gain, what it assumes."""
    from . import ideals

    if len(found) < 2:
        return
    out.print("\nthe ideals beside each other", style="bold")
    rows = ideals.texts(found)
    table = cells(rows, {"ideal": "", "step": "step", "gain": "gain"})
    table.numeric = [False, True, True]
    heads, *firsts = lines(table, out.width)
    out.print(heads)
    # Lines below the rows say what had no room.
    for first, row in zip(firsts, rows, strict=False):
        out.print(first)
        show_terms(out, [("  ", row["assumes"])], indent="", style="")
    out.print(ideals.WHY_APART, style="dim")
