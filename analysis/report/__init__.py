"""The page of a job: one HTML file that needs no network, from frames to text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .. import outfile
from .assemble import page
from .contents import gather

if TYPE_CHECKING:
    from ..doors import Job

__all__ = ["gather", "page", "save", "write"]


def write(job: Job, path: str | os.PathLike[str] | None = None) -> Path:
    """Writes the page of `job` to `path` (default: JOB.html here) and returns where it is.

    The file appears whole or not at all. Raises UsageError where it cannot be written.
    """
    target = path if path is not None else f"{job.id}.html"
    outfile.checked(target)
    return save(page(gather(job)), target)


def save(text: str, path: str | os.PathLike[str]) -> Path:
    """Writes a page whole or not at all. Raises UsageError where it cannot be written."""
    with outfile.writing(path) as out:
        out.write(text.encode())
    return Path(path)
