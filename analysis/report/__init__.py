"""The page of a job: one HTML file that needs no network, from frames to text."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ...ingest.errors import UsageError
from .assemble import page
from .contents import gather

if TYPE_CHECKING:
    from ..doors import Job

__all__ = ["gather", "page", "save", "write"]


def write(job: Job, path: str | os.PathLike[str] | None = None) -> Path:
    """Writes the page of `job` to `path` (default: JOB.html here) and returns where it is.

    The file appears whole or not at all. Raises UsageError where it cannot be written.
    """
    return save(page(gather(job)), path if path is not None else f"{job.id}.html")


def save(text: str, path: str | os.PathLike[str]) -> Path:
    """Writes a page whole or not at all. Raises UsageError where it cannot be written."""
    target = Path(path)
    if target.is_dir():
        raise UsageError(f"{target} is a folder: name a file for the page with -o")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:64]}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as f:
                f.write(text)
            os.chmod(name, 0o644)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as e:
        raise UsageError(f"{target}: the page cannot be written: {e.strerror or e}") from e
    return target
