"""Where this user's caches are: nothing in them is missed."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def folder() -> Path:
    """The folder, which need not be there. Raises RuntimeError for a user without a home."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "retime"


def own(place: Path | int) -> bool:
    """Whether a file or folder (or open file) is this user's and nobody else may write to it.

    Always where there are no owners.
    """
    if not hasattr(os, "geteuid"):
        return True
    found = os.stat(place)
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022
