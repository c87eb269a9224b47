"""Worker processes that take one task at a time and may die without taking the others along."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from . import compile_beside

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from retime.ingest.workers import serve; serve(int(sys.argv[2]))"
)


class WorkerDied(Exception):
    """A worker ended without an answer (killed, out of memory, crashed)."""


class _Worker:
    """One process and the pipe to it."""

    def __init__(self) -> None:
        here, there = Pipe()
        # Not multiprocessing's own start: that runs the caller's main module again, which a
        # script or notebook without a main guard does not survive.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, json.dumps(sys.path), str(there.fileno())],
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
        )
        there.close()
        self.pipe: Connection = here
        self.task: int | None = None

    def stop(self) -> None:
        self.pipe.close()
        try:
            self.process.wait(timeout=0.5 if self.task is None else 0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run(
    function: str,
    tasks: Sequence[tuple],
    n_workers: int,
    on_progress: Callable[[int, int], None],
) -> Generator[tuple[int, Any]]:
    """Calls `function` ("module:name") with each task's arguments, in order of the tasks.

    The function gets, after its arguments, a `progress(amount)` to call now and then, which
    becomes `on_progress(task index, amount)` here. Yields (task index, result or exception) as
    they finish; a worker that dies gives WorkerDied for its task, and another takes its place.
    """
    waiting = list(range(len(tasks)))[::-1]
    workers: list[_Worker] = []
    try:
        while waiting or any(w.task is not None for w in workers):
            busy = sum(w.task is not None for w in workers)
            while len(workers) < min(n_workers, busy + len(waiting)):
                workers.append(_Worker())
            for w in workers.copy():
                if w.task is None and waiting:
                    w.task = waiting.pop()
                    try:
                        w.pipe.send((function, tasks[w.task]))
                    except OSError:  # it died before it took anything
                        yield _lost(w, workers)
            for pipe in wait([w.pipe for w in workers if w.task is not None]):
                w = next(w for w in workers if w.pipe is pipe)
                try:
                    kind, value = w.pipe.recv()
                except (EOFError, OSError):
                    yield _lost(w, workers)
                    continue
                assert w.task is not None
                if kind == "progress":
                    on_progress(w.task, value)
                else:
                    task, w.task = w.task, None
                    yield task, value
    finally:
        for w in workers:
            w.stop()


def _lost(worker: _Worker, workers: list[_Worker]) -> tuple[int, WorkerDied]:
    workers.remove(worker)
    code = worker.process.wait()
    worker.pipe.close()
    if code == -signal.SIGKILL:
        why = "it was killed, perhaps because memory ran out: try fewer --workers"
    elif code < 0:
        why = f"it ended by signal {-code}"
    else:
        why = f"it ended with code {code}"
    assert worker.task is not None
    return worker.task, WorkerDied(why)


def serve(fd: int) -> None:
    """A worker's life: tasks from the pipe, answers to it, until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    compile_beside.none_from_here()
    pipe = Connection(fd)
    while True:
        try:
            function, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            module, _, name = function.partition(":")
            call = getattr(importlib.import_module(module), name)
            answer = call(*arguments, lambda amount: pipe.send(("progress", amount)))
        except Exception as e:
            answer = portable(e)
        try:
            pipe.send(("done", answer))
        except OSError:
            os._exit(1)  # nobody is left to tell


def portable(e: Exception) -> Exception:
    """The exception itself where it survives the pipe, else one with its text."""
    place = traceback.extract_tb(e.__traceback__)[-1:]
    e.add_note("".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in place))
    try:
        pickle.loads(pickle.dumps(e))
        return e
    except Exception:
        return RuntimeError(f"{type(e).__name__}: {e}")
