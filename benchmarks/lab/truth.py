"""What a run wrote beside its traces: only checks may read it, never an estimate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def folder_of(root: Path, name: str, repeat: int) -> Path:
    """Where the traces of a run lie."""
    return root / name / str(repeat)


def of(root: Path, name: str, repeat: int) -> dict[str, Any] | None:
    """The truth of a run; None where it is not there."""
    path = folder_of(root, name, repeat) / "truth.json"
    return json.loads(path.read_text()) if path.exists() else None
