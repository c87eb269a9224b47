"""The table of every file in the folder of real traces: `python tests/traces/table.py` writes it.

Each file is ingested alone into a job of its own (with `--rank 0` where nothing says its rank);
rows by table, problems and an independent count go to docs/traces.md. The test of the same name
holds the counts, and that the table is what the present code gives.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import counts
import counts_formats  # noqa: F401
import retime
import retime.ingest.schema
from retime.ingest.errors import RankUnknown, RetimeError
from retime.ingest.run import ingest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "traces.md"
HEAD = """# Every real file that the tests read

Each file of the folder of real traces (see the tests; `$RETIME_TRACES`), ingested alone, with
`--rank 0` where neither content nor name tells the rank: the rows by table, the problems by code,
and numbers counted on the source without retime, which a test (`tests/traces/`) holds against the
warehouse. Made by `python tests/traces/table.py`.

| file | format | rows by table | problems | counted on the source |
| --- | --- | --- | --- | --- |
"""


class Result(NamedTuple):
    """What became of one file. `rows` are those of its own and of the derived tables."""

    relative: str
    formats: list[str]
    rows: dict[str, int]
    problems: dict[str, int]
    counts: list[tuple[counts.Count, int | None]]
    """each with what the warehouse says"""
    refused: str | None
    rank: int | None = None
    """the rank that had to be given, as nothing tells it"""

    def line(self) -> str:
        """The file's line of the page."""
        rows = ", ".join(f"{t} {n:,}" for t, n in self.rows.items())
        odd = ", ".join(f"{c} {n:,}" if n > 1 else c for c, n in sorted(self.problems.items()))
        counted = ", ".join(f"{c.what} {c.n:,}" for c, _ in self.counts)
        formats = ", ".join(self.formats)
        if self.refused is not None:
            rows = "refused"
        if self.rank is not None:
            formats += f" (`--rank {self.rank}`)"
        return f"| `{self.relative}` | {formats} | {rows} | {odd} | {counted} |\n"


def files(traces: Path) -> list[Path]:
    """Every file of the folder."""
    return sorted(p for p in traces.rglob("*") if p.is_file())


def read(traces: Path, path: Path, warehouse: Path) -> Result:
    """Ingests one file alone and asks the warehouse for what was counted on the source."""
    relative = path.relative_to(traces).as_posix()
    job = f"job{abs(hash(relative))}"
    rank = None
    try:
        try:
            report = ingest(warehouse, str(path), job=job)
        except RankUnknown:
            rank = 0
            report = ingest(warehouse, str(path), job=job, rank=rank)
    except RetimeError as e:
        return Result(relative, [], {}, {}, [], str(e))
    odd: Counter[str] = Counter()
    for p in [p for s in report.sources for p in s.problems] + [p for _, p in report.problems]:
        odd[p.code] += p.count
    con = retime.open(warehouse).connect(job)
    rows = {}
    for table in retime.ingest.schema.PARTS:
        if table not in ("jobs", "problems"):
            n = con.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            if n:
                rows[table] = n
    asked = [(c, con.execute(c.sql).fetchone()[0]) for c in counts.counts_of(path, relative)]
    con.close()
    return Result(
        relative,
        sorted({s.format for s in report.sources if s.format}),
        rows,
        dict(odd),
        asked,
        None,
        rank,
    )


def page(results: list[Result]) -> str:
    """The page: a table of the traces, and a list of what lies beside them."""
    beside = [r for r in results if r.refused and counts.not_a_trace(r.relative)]
    lines = [r.line() for r in results if r not in beside]
    rest = [f"- `{r.relative}`: {counts.not_a_trace(r.relative)}\n" for r in beside]
    return HEAD + "".join(lines) + "\n## Files beside them that are no traces\n\n" + "".join(rest)


def main() -> None:
    """Writes the page."""
    traces = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared" / "traces"
    with tempfile.TemporaryDirectory() as folder:
        results = [read(traces, p, Path(folder) / "w") for p in files(traces)]
    PAGE.write_text(page(results))
    for r in results:
        wrong = [f"{c.what}: {c.n} counted, {got} found" for c, got in r.counts if c.n != got]
        if (
            wrong
            or (r.refused and counts.not_a_trace(r.relative) is None)
            or (not r.counts and not r.refused)
        ):
            print(r.relative, r.formats, wrong or r.refused or "no independent count", r.rows)


if __name__ == "__main__":
    main()
