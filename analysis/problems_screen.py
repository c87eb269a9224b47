"""`retime problems` on a terminal: what was odd in the input, a line a kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .screen import clean

if TYPE_CHECKING:
    from rich.console import Console


def show_problems(out: Console, rows: Sequence[Mapping[str, Any]], limit: int | None) -> None:
    """`retime problems`: one line a kind, the message below it; the same of many sources once."""
    from rich.text import Text

    if not rows:
        out.print("no problems")
        return
    alike: dict[tuple, list[Mapping[str, Any]]] = {}
    for r in rows:
        alike.setdefault((r["severity"], r["code"], r["message"]), []).append(r)
    kinds = list(alike.values())
    shown = kinds if limit is None else kinds[:limit]
    styles = {"lost": "bold red", "warning": "yellow", "info": "dim"}
    for same in shown:
        r = same[0]
        n = sum(1 if s["count"] is None else s["count"] for s in same)
        head = Text(f"{r['severity']:<8}", style=styles.get(r["severity"], ""))
        head.append(f"{clean(str(r['code']))}{'' if n == 1 else f' x {n:,}'}", style="bold")
        rank = "" if r["rank"] is None else f"rank {r['rank']}"
        at = "" if r["offset"] is None else f" at byte or row {r['offset']:,}"
        where = clean(str(r["source"] or "")) + at
        place = ", ".join(x for x in (rank, where) if x)
        more = "" if len(same) == 1 else f" (and {len(same) - 1:,} more)"
        head.append(f"  {place}{more}".rstrip(), style="")
        out.print(head)
        out.print(Text("        " + clean(str(r["message"] or ""))))
    if len(shown) < len(kinds):
        out.print(f"({len(shown)} of {len(kinds):,}; --limit N or --json for more)", style="dim")
