"""Writes down which compiled functions a first run calls, for the process that compiles beside it.

    python benchmarks/compiled_first.py [FILE]

Runs the demo and prints, or writes to FILE (`ingest/compiled_first.tsv`), a line for each version:
module, function and the types of its arguments. Run it when such a function comes, goes or takes
other arguments; a test says when.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from retime.analysis import demo
from retime.ingest import compile_beside


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        demo.run(folder)
    rows = dict.fromkeys(compile_beside.called())
    lines = ["\t".join((m.removeprefix("retime."), *rest)) + "\n" for m, *rest in rows]
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text("".join(lines))
    else:
        sys.stdout.writelines(lines)


if __name__ == "__main__":
    main()
