"""Turns of processes that compile one function: one at a time makes it and keeps it.

numba numbers the versions of a function as they are kept: two processes that keep two versions in
the same instant may leave the code of one under the argument types of the other. And who wants what
another process is at compiling is served sooner by waiting.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import hashlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import compile_shortcuts, compile_sources

LOCK = "compiling.lock"
"""In each folder of kept code: a byte of it is the turn for one function."""

WAIT_S = 60.0
"""No function takes so long: who has the turn is stopped, and this process compiles for itself."""

LOOK_S = 0.01

keeping = threading.Lock()
"""Held while files are written: a process that ends of itself waits for it."""

asked: list[tuple[Any, Any]] = []
"""Functions that Python called for the first time here, with signatures as numba takes them."""

_depth = 0
_files: dict[str, int] = {}


class Turn:
    """The turn of this process for one function; it goes with the process, however that ends."""

    def __init__(self, folder: str, name: str):
        self._folder = folder
        self._byte = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
        self._held = False

    def take(self, wait_s: float = WAIT_S) -> bool:
        """Waits for it as long as that; whether what this process makes may be kept.

        It may where there are no locks, too: nothing was excluded there before.
        """
        try:
            file = _opened(self._folder)
        except OSError:
            return True
        end = time.monotonic() + wait_s
        while True:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._byte)
            except OSError as e:
                if e.errno not in (errno.EACCES, errno.EAGAIN):
                    return True
                if time.monotonic() >= end:
                    return False
                time.sleep(LOOK_S)
            else:
                self._held = True
                return True

    def leave(self) -> None:
        """Lets the next one have it; nothing where it is not held."""
        if self._held:
            self._held = False
            with contextlib.suppress(OSError):
                fcntl.lockf(_opened(self._folder), fcntl.LOCK_UN, 1, self._byte)


def turn_for(made: Any) -> Turn:
    """The turn of this process for a caching dispatcher of numba."""
    function = made.py_func
    return Turn(made._cache.cache_path, f"{function.__module__}.{function.__qualname__}")


def _opened(folder: str) -> int:
    """The file of turns, open while this process lives: to close it gives up all its turns."""
    if folder not in _files:
        path = os.path.join(folder, LOCK)
        _files[folder] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    return _files[folder]


def take_turns(made: Any, missed: Callable[[Any], None]) -> None:
    """Has a caching dispatcher of numba compile in turns with other processes.

    `missed` is called with it before it is compiled, when no kept version fits. Code that cannot be
    written (no space) or read (damaged) is compiled again in the next process.
    """
    from numba.core.compiler_lock import global_compiler_lock

    cache, compiles = made._cache, made.compile
    load, save = cache.load_overload, cache.save_overload
    turn = turn_for(made)
    inside, may_keep, stamped = 0, True, False

    def read(signature: Any, target: Any) -> Any:
        with contextlib.suppress(Exception):  # pickle raises anything
            return load(signature, target)

    def loaded(signature: Any, target: Any) -> Any:
        nonlocal may_keep, stamped
        if not stamped:  # only now all that its module imports and defines is there
            compile_sources.stamp(made)
            stamped = True
        found = read(signature, target)
        if found is None:
            missed(made)
            may_keep = turn.take()
            found = read(signature, target)
        return found

    def kept(signature: Any, result: Any) -> None:
        if may_keep:
            with keeping, contextlib.suppress(OSError):
                _clear(cache)
                save(signature, result)

    def compiled(signature: Any) -> Any:
        global _depth
        nonlocal inside
        # The turn is given back before another thread can ask for it: locks are of processes.
        with global_compiler_lock:
            if not _depth:
                asked.append((made, signature))
            _depth += 1
            inside += 1
            shorter = compile_shortcuts.taken() if _depth == 1 else contextlib.nullcontext()
            try:
                with shorter:
                    return compiles(signature)
            finally:
                _depth -= 1
                inside -= 1
                if not inside:
                    turn.leave()

    cache.load_overload, cache.save_overload, made.compile = loaded, kept, compiled


def _clear(cache: Any) -> None:
    """Removes what numba's index of a function does not name, and an index that is damaged.

    numba writes code after it has named it in the index: who reads in between must find no code of
    an older version under that name. Raises OSError.
    """
    file: Any = getattr(cache, "_cache_file", None)
    if not hasattr(file, "_load_index"):  # another numba
        return
    index = Path(file._index_path)
    try:
        named = set(file._load_index().values())
    except OSError:
        raise
    except Exception:
        named = set()
        index.unlink(missing_ok=True)
    for code in index.parent.glob(f"{glob.escape(index.stem)}.*.nbc"):
        if code.name not in named:
            code.unlink(missing_ok=True)
