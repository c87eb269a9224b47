"""Where the compiled functions of routing logs are had from, and when they pay."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections import defaultdict

from .. import machine_code

WORTH_LOADING_BYTES = 1 << 18
"""From so many bytes (decompressed) on, loading machine code that is kept pays."""

WORTH_MAKING_BYTES = 8 << 20
"""From so many on, making it pays: another process does, and what is read goes on without it."""

ASKED_EVERY_BYTES = 4 << 20
"""How often it is asked for where it is not there yet: to look for it takes a millisecond."""

_lock = threading.Lock()
_read: defaultdict[machine_code.Code, int] = defaultdict(int)
_asked_at: defaultdict[machine_code.Code, int] = defaultdict(int)


def functions(code: machine_code.Code, n_bytes: int) -> machine_code.Functions | None:
    """The functions of `code` where they are there, or pay for what this process has read of their
    kind, with so many bytes more; else None, and they may be there some seconds later."""
    with _lock:  # a thread that comes while another loads them waits for that
        return _functions(code, n_bytes)


def _functions(code: machine_code.Code, n_bytes: int) -> machine_code.Functions | None:
    if machine_code.is_loaded(code):
        return machine_code.load(code)
    _read[code] = total = _read[code] + n_bytes
    if code.module in sys.modules or (machine_code.plain() and total >= WORTH_LOADING_BYTES):
        return _as_written(code)
    if total < max(WORTH_LOADING_BYTES, _asked_at[code]):
        return None
    _asked_at[code] = total + ASKED_EVERY_BYTES
    found = machine_code.load(code)
    if found is not None or total < WORTH_MAKING_BYTES or machine_code.start(code):
        return found
    return _made_here(code)


def _as_written(code: machine_code.Code) -> machine_code.Functions:
    module = importlib.import_module(code.module)
    return {f.name: getattr(module, f.name) for f in code.functions}


def _made_here(code: machine_code.Code) -> machine_code.Functions:
    """Where no process can be begun, or nothing be kept."""
    with contextlib.suppress(OSError, RuntimeError):
        machine_code.make(code)
        if (found := machine_code.load(code)) is not None:
            return found
    return _as_written(code)
