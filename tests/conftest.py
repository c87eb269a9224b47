"""Fixtures that every room's tests share: where the real traces and the bundled job are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def retime_traces() -> Path:
    """The folder of real traces: $RETIME_TRACES, else `shared/traces` beside the checkout."""
    for candidate in (os.environ.get("RETIME_TRACES"), ROOT.parent / "shared" / "traces"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    pytest.skip("no folder of real traces: set RETIME_TRACES to one")


@pytest.fixture(scope="session")
def demo_job() -> Path:
    """The eight bundled Kineto traces of one H100 host."""
    return ROOT / "analysis" / "demo_job"
