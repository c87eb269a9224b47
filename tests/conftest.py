"""Fixtures that every room's tests share: where the real traces and the bundled job are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A first call may compile, and other tests run beside it: how long an example takes says nothing.
settings.register_profile("retime", deadline=None)
settings.load_profile("retime")

ROOT = Path(__file__).resolve().parent.parent

MOST_WORKERS = 4
"""Each imports and compiles for itself, and tests of ingest start processes of their own."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process a core; none beside pytest's own for a few files, which are done before."""
    few = all("::" in arg or Path(arg).is_file() for arg in config.args)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return 0 if few else min(cores or 1, MOST_WORKERS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a cluster come first, so that one process has all of them and starts one.

    Processes get equal shares of the list, in order, and are relieved of what is last in theirs.
    """
    items.sort(key=lambda item: item.path.name != "test_on_ray.py")


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
