"""The Kineto parser behind a gate, for tests that kill what reads: run by workers of a cluster.

Each try of a source leaves a file `$RETIME_TEST_GATE/<rank>.<process>.<node>` and waits for `open`
beside it.
"""

import importlib
import os
import time
from pathlib import Path

from retime.ingest import kineto

MOST_S = 120.0


def __getattr__(name):
    return getattr(kineto, name)


def parse(source, *, rank=None, threads=1):
    gate = Path(os.environ["RETIME_TEST_GATE"])
    node = importlib.import_module("ray").get_runtime_context().get_node_id()
    (gate / f"{kineto.peek_rank(source)}.{os.getpid()}.{node}").touch()
    until = time.monotonic() + MOST_S
    while not (gate / "open").exists() and time.monotonic() < until:
        time.sleep(0.05)
    yield from kineto.parse(source, rank=rank, threads=threads)


def die(folder, number, progress):
    """A task that leaves a file and ends its worker."""
    (Path(folder) / f"{number}.{os.getpid()}").touch()
    os.kill(os.getpid(), 9)


def fail(folder, number, progress):
    """A task that leaves a file and raises."""
    (Path(folder) / f"{number}.{os.getpid()}.{time.monotonic_ns()}").touch()
    raise KeyError(number)
