"""The command line inside this process, for its profile: the imports of the package count."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Any

from benchmarks.suite.clock import timed


def retime(*words: str) -> dict[str, Any]:
    """`retime WORDS`, what it prints put aside. Raises SystemExit where it fails."""
    sys.argv = ["retime", *words]

    def call() -> None:
        from retime.cli import main

        try:
            main()
        except SystemExit as e:
            if e.code:
                raise

    with contextlib.redirect_stdout(io.StringIO()):
        timed(call)
    return {}
