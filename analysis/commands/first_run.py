"""Says why the first run on a machine takes so long: code is compiled, which is kept."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

AFTER_S = 1.0
"""Compiling that is over by then is not worth a line."""

TEXT = "first run of this on this machine: compiling, 10 to 35 s (later runs have it)"

NOT_KEPT = (
    "compiling, 10 to 35 s in every run: no folder can be written to that would keep it; "
    "set NUMBA_CACHE_DIR to one"
)


class FirstRun:
    """Waits, among the finders of modules, for numba, and then for functions that it compiles.

    What is found in its cache is not compiled. The line goes to stderr, once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._began: float | None = None
        self._said = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Finds nothing; importlib asks for it."""
        if name != "numba.core.dispatcher":
            return
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        try:
            from numba.core import event
        except ImportError:  # another numba: then nothing is said
            return
        first = self

        class Compiling(event.Listener):
            def on_start(self, event: Any) -> None:
                first.compiles()

            def on_end(self, event: Any) -> None:
                first.compiles()

        event.register("numba:compile", Compiling())

    def compiles(self) -> None:
        """Is told when a function begins or ends to be compiled."""
        now = self._clock()
        self._began = now if self._began is None else self._began
        if not self._said and now - self._began >= AFTER_S:
            self._said = True
            code = sys.modules.get("retime.ingest.compiled")
            kept = code is None or code.is_kept()
            print(TEXT if kept else NOT_KEPT, file=sys.stderr, flush=True)
