"""`ip` and `tc`, run so that what they refuse becomes one sentence."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from .errors import LabError


def run(*words: str, text: str | None = None) -> str:
    """Runs one command; returns what it printed. Raises LabError with its own complaint."""
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise LabError(f"`{' '.join(words)}` failed: {said[0] if said else done.returncode}")
    return done.stdout


def batch(tool: str, lines: Sequence[str], namespace: str = "") -> None:
    """Runs many lines of `ip` or `tc` in one process, within a namespace where one is named."""
    if lines:
        inside = ["-n", namespace] if namespace else []
        run(tool, *inside, "-batch", "-", text="\n".join(lines) + "\n")
