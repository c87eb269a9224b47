"""How fast this machine moves memory, and passes over arrays that nothing depends on."""

from __future__ import annotations

from typing import Any

from benchmarks.suite.clock import fastest

BYTES = 512 << 20


def copy() -> dict[str, Any]:
    """Half a gigabyte copied: bytes read and written are twice that."""
    import numpy as np

    source = np.ones(BYTES // 8, np.int64)
    target = np.zeros_like(source)
    fastest(lambda: np.copyto(target, source), 5)
    return {"rows": len(source)}


def add_up() -> dict[str, Any]:
    """Half a gigabyte of integers added up: read once."""
    import numpy as np

    source = np.ones(BYTES // 8, np.int64)
    return {"rows": int(fastest(source.sum, 5))}
