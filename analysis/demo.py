"""The whole path on the bundled job: eight real ranks in, a page and a what-if out."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import doors, replay_screen, terminal, trust, units
from .report import gather, page, save

if TYPE_CHECKING:
    from rich.console import Console

JOB = "demo"


def run(
    folder: str | os.PathLike[str] = "retime-demo",
    *,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Ingests the bundled job into FOLDER/warehouse and writes FOLDER/report.html.

    Returns `facts` (see `Job.show`), `whatif` (see `whatif.estimates`), `warehouse`, `report`,
    `seconds` and `exit_code`. Run again, it finds everything there and only looks.
    Raises UsageError or WarehouseError where FOLDER cannot be written.
    """
    began = time.perf_counter()
    target = Path(folder)
    warehouse = doors.open(target / "warehouse")
    with as_file(files("retime.analysis") / "demo_job") as traces:
        paths = sorted(str(p) for p in Path(traces).glob("rank*.json.gz"))
        report = warehouse.ingest(paths, job=JOB, progress=progress)
    found = gather(warehouse.job(JOB))
    written = save(page(found), target / "report.html")
    return {
        "facts": found["facts"],
        "whatif": found["whatif"],
        "warehouse": warehouse.url,
        "report": str(written),
        "seconds": round(time.perf_counter() - began, 3),
        "exit_code": report.exit_code,
    }


def show(out: Console, result: dict[str, Any]) -> None:
    """The demo's screen: the job, where its step went, who is waited for, what if, what next."""
    facts = result["facts"]
    out.print(
        f"{facts['ranks_seen']} ranks of a real job (8x H100, one host), "
        f"{facts['steps']} steps, {facts['collectives']} collectives"
    )
    out.print()
    terminal.show_headline(out, facts)
    out.print()
    found = result["whatif"]
    if found["error"] is None and found["rows"]:
        out.print(
            f"What if? (measured {units.time(found['measured_ns'], 4)} a step, "
            f"{trust.fidelity(found)})",
            style="bold",
        )
        rows = [
            {
                "what": f"  if {r['words']}",
                "step": replay_screen.estimate(r, len(found["steps"])),
                "gain": units.percent(r["gain_pct"] / 100),
            }
            for r in found["rows"]
            if r["error"] is None
        ]
        table = terminal.cells(rows, {"what": "", "step": "step (interval)", "gain": "gain"})
        table.numeric = [False, True, True]
        for line in terminal.lines(table, out.width):
            out.print(line)
        out.print()
    where = terminal.clean(shlex.quote(result["warehouse"]))
    out.print(f"page       {terminal.clean(result['report'])}")
    out.print(f"warehouse  {terminal.clean(result['warehouse'])}")
    out.print(f'next       retime sql "FROM sync_tax" --warehouse {where}')
    out.print(f"           retime replay {JOB} --policy align-arrivals --warehouse {where}")
    out.print(f"({result['seconds']:.0f} s)", style="dim")
