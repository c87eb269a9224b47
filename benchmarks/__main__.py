"""The project's claims about speed, measured: retime, its peers and the machine's limits.

    python -m benchmarks [--quick] [--large] [--only ingest,replay] [--case WORDS] [--skip WORDS]
        [--runs 3] [--cpu] [--traces DIR] [--straggler-artifact DIR] [--folder DIR]
        [--json FILE] [--docs FILE] [--history]
    python -m benchmarks docs FILE... [--docs docs/performance.md]
    python -m benchmarks list

Every figure is a process of its own; ways of one case run by turns, and ratios are of one round.
Printed are a table of ratios with their spread, peak memory, the goals that are met and missed,
growth, and where the time of what misses is. All of it needs the extra `peers`, some 3 GB of disk
and 25 minutes on two cores; `--quick` some minutes; `--large` a job of 1,024 ranks and 100 million
events, too (half an hour more). `docs` writes the page from one or several kept results.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.scale.measured import ROOT

from .suite import docs, history, table
from .suite.case import OURS
from .suite.inputs import Inputs, NamesOnly
from .suite.run import STAGES_IN_ORDER, cases_of, run

PAGE = ROOT / "docs" / "performance.md"


def main(words: list[str] | None = None) -> int:
    """The command. 0; 1 where retime itself failed; 2 for a stage or file that is not there."""
    asked = _arguments().parse_args(words)
    if asked.what == "docs":
        return _docs(asked)
    only = asked.only.split(",") if asked.only else list(STAGES_IN_ORDER)
    if unknown := [s for s in only if s not in STAGES_IN_ORDER]:
        return _usage(f"no stage {unknown[0]!r}: {', '.join(STAGES_IN_ORDER)}")
    if asked.runs < 1:
        return _usage("--runs: give 1 or more")
    for folder in (asked.traces, asked.straggler_artifact):
        if folder is not None and not folder.is_dir():
            return _usage(f"{folder}: no such folder")
    if asked.folder is not None:
        asked.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=asked.folder, prefix="suite-") as scratch:
        listing = asked.what == "list"
        inputs = (NamesOnly if listing else Inputs)(
            Path(scratch) if listing else asked.folder or Path(scratch),
            quick=asked.quick, large=asked.large, tiny=asked.tiny,
            traces=asked.traces, artifact=asked.straggler_artifact,
            artifact_python=asked.artifact_python, words=asked.case,
        )  # fmt: skip
        if listing:
            for stage in only:
                for case in cases_of(stage, inputs):
                    print(f"{stage:8} {case.name}: {', '.join(w.name for w in case.ways)}")
            return 0
        found = run(only, inputs, asked.runs, Path(scratch), asked.json, asked.cpu, asked.skip)
    print(table.text(found))
    if asked.history:
        history.append(found)
    if asked.docs is not None:
        asked.docs.write_text(docs.page([found], history.rows()))
    broken = found["broken"] + [
        f"{c['name']}, {w['name']}: {w['missing']}"
        for c in found["cases"] for w in c["ways"]
        if w["role"] == OURS and w.get("missing", "").startswith("failed")
    ]  # fmt: skip
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


def _docs(asked: argparse.Namespace) -> int:
    if not asked.files:
        return _usage("docs: give the results that `--json FILE` kept")
    try:
        results = [json.loads(f.read_text()) for f in asked.files]
    except (OSError, ValueError) as e:
        return _usage(f"docs: a file is no result of the suite: {e}")
    (asked.docs or PAGE).write_text(docs.page(results, history.rows()))
    return 0


def _usage(words: str) -> int:
    print(words, file=sys.stderr)
    return 2


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "what", nargs="?", choices=("run", "docs", "list"), default="run",
        help="run (the default); docs: the page from kept results; list: the cases",
    )  # fmt: skip
    parser.add_argument("files", nargs="*", type=Path, help="of docs: what --json kept")
    parser.add_argument("--only", help=f"stages, with commas: {','.join(STAGES_IN_ORDER)}")
    parser.add_argument("--case", default="", help="only cases whose names have these words")
    parser.add_argument("--skip", default="", help="leave out ways whose names have these words")
    parser.add_argument("--runs", type=int, default=3, help="rounds of each case")
    parser.add_argument(
        "--cpu", action="store_true",
        help="seconds of CPU (all cores together) for wall time: where others use the machine",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="without the largest sizes")
    parser.add_argument("--large", action="store_true", help="1,024 ranks, 100 million events, too")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--traces", type=Path, help="a folder of real traces")
    parser.add_argument(
        "--straggler-artifact", type=Path,
        help="a clone of the straggler study's repository: it is in no registry",
    )  # fmt: skip
    parser.add_argument("--artifact-python", type=Path, help="what runs it (pandas below 3)")
    parser.add_argument("--folder", type=Path, help="where inputs are made, and kept")
    parser.add_argument("--json", type=Path, help="keep all figures here, case by case")
    parser.add_argument("--docs", type=Path, help="write the page of this run here")
    parser.add_argument("--history", action="store_true", help="append the key ratios to the kept")
    return parser


if __name__ == "__main__":
    sys.exit(main())
