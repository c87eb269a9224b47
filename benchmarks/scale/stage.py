"""One stage of the benchmark, in a process of its own: `python -m benchmarks.scale.stage NAME ...`.

ingest WAREHOUSE FOLDER     a node's share, derived tables left to the one who comes last
derive WAREHOUSE            clocks, matching, derived tables
held WAREHOUSE TRUTH        what is found of the truth, as JSON
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

JOB = "cluster"


def ingest(warehouse: str, folder: str) -> None:
    """As a node does at the end of a job: its own ranks, with a core."""
    from retime.ingest.run import ingest as take

    report = take(warehouse, [folder], job=JOB, workers=1, derive_now=False)
    if report.n_lost:
        raise SystemExit(f"{folder}: {report.n_lost} rows of input lost")
    print(sum(s.rows.get("events", 0) for s in report.sources))


def derive(warehouse: str) -> None:
    """What the first reader would do."""
    from retime.ingest.derive import derive as make
    from retime.ingest.warehouse import Warehouse

    make(Warehouse(warehouse).job_folder(JOB))


def held(warehouse: str, truth: str) -> None:
    """Prints a row a thing that is known."""
    import retime

    from .truth import held as hold

    with retime.open(warehouse).connect(JOB) as con:
        found = hold(con, json.loads(Path(truth).read_text()))
    print(json.dumps([f._asdict() for f in found]))


if __name__ == "__main__":
    {"ingest": ingest, "derive": derive, "held": held}[sys.argv[1]](*sys.argv[2:])
