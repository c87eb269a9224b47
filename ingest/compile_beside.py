"""Processes that compile what a first run is about to need on other cores, while it works.

What an ingest of several ranks, its derived tables, their replay and the report call is listed in
`compiled_first.tsv`, in that order, each function with the types of its arguments (written by
`benchmarks/compiled_first.py`). A process that finds the first of them not compiled yet goes on as
it would, from the front; the others compile from the end, until they meet. They end with the
process that started them.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from . import ahead, caches, compile_turns, machine_code

LIST = "compiled_first.tsv"
MOST = 3
"""Processes beside: each imports and compiles anew what all functions rest on."""

WAIT_S = 2.0
"""For them to see that the first one ends; then they are ended."""

POLL_S = 1.0
"""How often it is looked whether they have ended: who lives on keeps no dead processes."""

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from retime.ingest.compile_beside import work; work()"
)

_begun = False


def begin(made: Any) -> None:
    """Starts them when `made`, about to be compiled, is on the list; once.

    None that would have no core of its own, none for processes that are themselves one of several,
    and none where nothing can be started.
    """
    if _begun:
        return
    name = made.py_func.__module__, made.py_func.__qualname__
    if name in {(module, function) for module, function, _ in listed()}:
        _begin()


def none_from_here() -> None:
    """Says that this process is one of several that work at once: it starts none."""
    global _begun
    _begun = True


def begin_ahead() -> None:
    """Starts them before anything is compiled, unless some went through the list before.

    For who is about to need it. What was lost of it since, `begin` sees.
    """
    with contextlib.suppress(OSError, RuntimeError, ImportError):
        mark = _mark()
        if not mark.exists() and os.access(mark.parent, os.W_OK):
            _begin()


def _mark() -> Path:
    """An empty file that says that the list was gone through, for this list, numba and package.

    Its folder is made. Raises OSError where it cannot be, RuntimeError for who has no home,
    ImportError where there is no numba.
    """
    found = hashlib.sha256()
    for part in (
        listed(), machine_code.numba_version(), sys.version, os.path.abspath(__file__),
        os.environ.get("NUMBA_CACHE_DIR"),
    ):  # fmt: skip
        found.update(repr(part).encode() + b"\0")
    folder = caches.folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"compiled-{found.hexdigest()[:24]}"


def _begin() -> None:
    global _begun
    if _begun:
        return
    _begun = True
    several = multiprocessing.parent_process() is not None
    if several or machine_code.plain():
        return
    paths = json.dumps([p for p in sys.path if isinstance(p, str)])
    with contextlib.suppress(OSError, TypeError, RuntimeError):  # no interpreter, no thread
        for _ in range(min(ahead.cores() - 1, MOST)):
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, paths],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            atexit.register(_end, process)
            threading.Thread(target=_reap, args=(process,), daemon=True).start()


def _reap(process: subprocess.Popen) -> None:
    while process.poll() is None:
        time.sleep(POLL_S)


def _end(process: subprocess.Popen) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def work() -> None:
    """What each of them does: compiles and keeps what is on the list, the last one first.

    What another one is at is left to it, and what fails to the process that needs it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with who started it, never amid a file
    none_from_here()
    threading.Thread(target=_end_with_starter, daemon=True).start()
    for module, function, arguments in reversed(listed()):
        with contextlib.suppress(Exception):
            made = getattr(importlib.import_module(module), function)
            turn = compile_turns.turn_for(made)
            if turn.take(0.0):
                try:
                    made.compile(tuple(map(type_of, arguments.split())))
                finally:
                    turn.leave()
    with contextlib.suppress(OSError, RuntimeError, ImportError):
        _mark().touch(0o600)


def _end_with_starter() -> None:
    """Ends this process when nobody holds the other end of its input: but not amid a file."""
    while os.read(0, 1):
        pass
    compile_turns.keeping.acquire()
    os._exit(0)


def listed() -> list[tuple[str, str, str]]:
    """(module, function, types of its arguments) of each version, in the order of first calls."""
    text = files("retime.ingest").joinpath(LIST).read_text("utf-8")
    rows = (line.split("\t") for line in text.splitlines())
    return [(f"retime.{module}", function, arguments) for module, function, arguments in rows]


def called() -> Iterator[tuple[str, str, str]]:
    """The same of the functions that Python called in this process, as far as types have a text."""
    from numba.core.sigutils import normalize_signature

    for made, signature in compile_turns.asked:
        with contextlib.suppress(ValueError):
            name = made.py_func.__module__, made.py_func.__qualname__
            yield *name, " ".join(map(text_of, normalize_signature(signature)[0]))


def type_of(text: str) -> Any:
    """numba's type: numpy's name of a number, with `:` and dimensions that of an array.

    Arrays are contiguous; an `r` says that they are read only.
    """
    import numpy as np
    from numba import from_dtype, types

    name, _, rest = text.partition(":")
    scalar = from_dtype(np.dtype(name))
    if not rest:
        return scalar
    return types.Array(scalar, int(rest.removesuffix("r")), "C", readonly=rest.endswith("r"))


def text_of(kind: Any) -> str:
    """The text that `type_of` reads. Raises ValueError for a type that has none."""
    from numba import types
    from numba.np.numpy_support import as_dtype

    array = isinstance(kind, types.Array)
    scalar = kind.dtype if array else kind
    if not isinstance(scalar, types.Number | types.Boolean) or (array and kind.layout != "C"):
        raise ValueError(f"{kind}: no text")
    text = as_dtype(scalar).str[1:]
    return f"{text}:{kind.ndim}{'' if kind.mutable else 'r'}" if array else text
