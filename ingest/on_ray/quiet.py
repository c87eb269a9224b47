"""Ray's own remarks kept off stdout, which belongs to results: of lost nodes it prints pages."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

_THREADS = re.compile(r"ray_|Thread-\d+ \(_log_main\)")
"""How the names of those of Ray's threads in a driver begin that print."""


class _WithoutRay:
    """A stream that takes what threads write but for Ray's, which RETIME_DEBUG sends to stderr."""

    def __init__(self, out: TextIO):
        self._out = out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)

    def write(self, text: str) -> int:
        if not _THREADS.match(threading.current_thread().name):
            return self._out.write(text)
        if os.environ.get("RETIME_DEBUG", "") not in ("", "0"):
            sys.stderr.write(text)
        return len(text)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing that Ray prints in this process reaches stdout while the context lasts."""
    before: Any = sys.stdout
    mine: Any = _WithoutRay(before)
    sys.stdout = mine
    try:
        yield
    finally:
        if sys.stdout is mine:  # somebody else may have put a stream in its place
            sys.stdout = before
