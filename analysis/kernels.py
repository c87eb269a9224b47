"""The kernels of a job by class, those that no pattern knows, and what the user says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ingest import kernel_rules, locks, rooms, settings, store
from ..ingest.errors import UsageError, WarehouseError
from ..ingest.settings import KernelRule
from ..ingest.store import Place
from .query import frame

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from rich.console import Console


def facts(con: DuckDBPyConnection, rules: Sequence[KernelRule]) -> dict[str, Any]:
    """`classes` over all ranks, `unknown` names, both the longest first, and the job's `rules`.

    Classes have `kernels` [events], `total_ns`, `share` of all and how many `ranks` ran them;
    unknown names are rows of `unknown_kernels`.
    """
    classes = frame(
        con.sql("""
        SELECT class, sum(kernels)::BIGINT AS kernels, sum(total_ns)::BIGINT AS total_ns,
            sum(total_ns) / nullif(sum(sum(total_ns)) OVER (), 0) AS share, count(*) AS ranks
        FROM kernel_classes GROUP BY class ORDER BY total_ns DESC, class
        """)
    )
    unknown = frame(
        con.sql("SELECT * EXCLUDE job FROM unknown_kernels ORDER BY total_ns DESC, name")
    )
    return {
        "classes": classes.to_dicts(),
        "unknown": unknown.to_dicts(),
        "rules": [{"pattern": r.pattern, "category": r.category} for r in rules],
    }


def say(job_folder: Place, rules: Sequence[KernelRule] = (), clear: bool = False) -> None:
    """Keeps rules for a job's kernels, before those kept so far; `clear` forgets these first.

    Raises as `with_rules` does, and WarehouseError where they cannot be written.
    """
    with rooms.writing(store.folder(job_folder).parent), locks.locked(job_folder):
        settings.write(job_folder, with_rules(job_folder, rules, clear))


def with_rules(
    job_folder: Place, rules: Sequence[KernelRule], clear: bool = False
) -> settings.Settings:
    """The job's settings as `say` would keep them; nothing is written.

    Raises UsageError where there would be more than `kernel_rules.MOST_RULES`, WarehouseError
    where the settings are damaged, but not with `clear`.
    """
    try:
        old = settings.read(job_folder)
    except WarehouseError:
        if not clear:
            raise
        old = settings.Settings()
    new = {r.pattern for r in rules}
    kept = [] if clear else [r for r in old.kernels if r.pattern not in new]
    if (n := len(kept) + len(rules)) > kernel_rules.MOST_RULES:
        raise UsageError(f"{n} rules for kernels; {kernel_rules.MOST_RULES} are the most")
    return settings.replaced(old, kernels=[*rules, *kept])


def given(patterns: str | Path | None, texts: Sequence[str] = ()) -> list[KernelRule]:
    """The rules of `texts` (PATTERN=CLASS) and then of a file. Raises UsageError for wrong ones."""
    return [*kernel_rules.parse(texts), *(kernel_rules.read(patterns) if patterns else ())]


def show(out: Console, found: Mapping[str, Any], limit: int | None = None) -> None:
    """`retime kernels`: classes with their time, then the names that no pattern knows."""
    from .columns import show_table

    titles = {"class": "class", "kernels": "kernels", "total_ns": "time", "share": "share"}
    show_table(out, found["classes"], titles, empty="no kernels")
    if found["rules"]:
        n = len(found["rules"])
        out.print(
            f"({n:,} rule{'s' if n > 1 else ''} of yours first; --clear forgets them)", style="dim"
        )
    if found["unknown"]:
        out.print("\nNo pattern knows", style="bold")
        titles = {"name": "name", "count": "kernels", "total_ns": "time", "share": "share"}
        show_table(out, found["unknown"], titles, limit=limit)
    elif found["classes"]:
        out.print("Every name is known.", style="dim")
