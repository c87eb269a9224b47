"""Fixtures that every room's tests share: where the real traces and the bundled job are."""

from __future__ import annotations

import gc
import importlib.util
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

# A first call may compile, and other tests run beside it: how long an example takes says nothing.
settings.register_profile("retime", deadline=None, max_examples=40)
# `pytest --hypothesis-profile=long`: where a fault is looked for, not only kept from coming back.
settings.register_profile("long", deadline=None, max_examples=1000)
settings.load_profile("retime")

ROOT = Path(__file__).resolve().parent.parent

MOST_WORKERS = 4
"""Each imports and compiles for itself, and tests of ingest start processes of their own."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process a core; none beside pytest's own for a few files, which are done before."""
    few = all("::" in arg or Path(arg).is_file() for arg in config.args)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return 0 if few else min(cores or 1, MOST_WORKERS)


FIRST = ("test_on_ray.py", "test_table.py")
"""A cluster, and all real traces at once: a process that has one of their tests needs minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of FIRST come first, so that one process has all of each, and none at the end.

    Processes get equal shares of the list, in order, and are relieved of what is last in theirs.
    """
    items.sort(key=lambda item: item.path.name not in FIRST)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: Python's collector need not look at it again and again.

    It is most of the objects that there are, so that this halves what some tests take.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


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


@pytest.fixture(scope="session")
def s3_server() -> ModuleType:
    """tests/ingest/store/s3_server.py: servers of S3's protocol, a proxy, credentials, faults."""
    path = ROOT / "tests" / "ingest" / "store" / "s3_server.py"
    spec = importlib.util.spec_from_file_location("s3_server", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def s3_url(s3_server: ModuleType) -> Iterator[str]:
    """The URL of one such server, with an empty bucket, for all tests of a process."""
    pytest.importorskip("s3fs", reason="no client for S3: install the extra `s3`")
    pytest.importorskip("moto", reason="no server of S3's protocol: install `s3-server`")
    with s3_server.running() as url:
        yield url
