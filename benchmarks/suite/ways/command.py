"""The command line inside this process, for its profile: the imports of the package count."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from benchmarks.suite.clock import timed


def retime(*words: str) -> dict[str, Any]:
    """`retime WORDS`, what it prints put aside. Raises SystemExit where it fails."""

    def call() -> int:
        from retime.cli import run

        return run(list(words))

    with contextlib.redirect_stdout(io.StringIO()):
        code = timed(call)
    if code:
        raise SystemExit(code)
    return {}
