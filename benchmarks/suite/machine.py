"""What the figures were measured on: cores, memory, the processor's kind, versions; no name."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from typing import Any

PACKAGES = ("retime", "duckdb", "polars", "pyarrow", "numpy", "numba", "isal", "pandas",
            "HolisticTraceAnalysis", "pysimdjson")  # fmt: skip


def machine() -> dict[str, Any]:
    """Cores that this process may use, bytes of memory, the processor's kind, load, versions."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "load": round(os.getloadavg()[0], 2),
        "versions": {"python": platform.python_version(), **versions()},
    }


def versions() -> dict[str, str]:
    """Of the packages that are there."""
    out = {}
    for name in PACKAGES:
        version = version_of(name)
        if version:
            out[name] = version
    return out


def version_of(package: str) -> str:
    """Its version, or "" if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return _own() if package == "retime" else ""


def _own() -> str:
    """Of the checkout, which need not be installed; found without importing it."""
    from benchmarks.scale.measured import ROOT

    found = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.M)
    return found[1] if found else ""


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            text = f.read()
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    return re.sub(r"\((?:R|TM)\)", "", found[1]).strip() if found else platform.processor()
