"""What the kept code of a compiled function rests on beyond the text of its own module.

numba looks at that module and at the function's own bytecode. But functions that it calls are
linked into it, and values that it names are frozen, wherever they were imported from: code kept by
an older version of the package would go on with the helpers of then.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_FROZEN = (int, float, complex, str, bytes, type(None), np.generic)
"""Whose text is the value."""


def stamp(made: Any) -> None:
    """Has a caching dispatcher of numba take kept code only from the same sources of all of it.

    Once, before it first looks for any. Nothing happens where numba's cache has another build.
    """
    file: Any = getattr(getattr(made, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        file._source_stamp = file._source_stamp, digest(made)


def digest(made: Any) -> bytes:
    """SHA-256 of the functions that it calls (the text of their modules), of theirs, and so on.

    Of its own package, that is; and of the values that all of them name.
    """
    package = made.__module__.partition(".")[0]
    found, seen = hashlib.sha256(), set()
    todo: list[Any] = [made]
    while todo:
        value = todo.pop()
        if isinstance(value, tuple):
            todo += value
        elif isinstance(value, np.ndarray):
            found.update(repr((value.dtype, value.shape)).encode() + value.tobytes())
        elif isinstance(value, _FROZEN):
            found.update(repr(value).encode() + b"\0")
        elif id(value) not in seen and _is_of(package, value):
            seen.add(id(value))
            options = getattr(value, "targetoptions", {})
            found.update(repr(sorted(options.items())).encode())
            function = getattr(value, "py_func", getattr(value, "_defn", value))
            if isinstance(function, FunctionType):
                found.update(_content(function.__code__.co_filename))
                todo += _named(function, package)
    return found.digest()


def _is_of(package: str, value: Any) -> bool:
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(home, str) and home.partition(".")[0] == package


def _named(function: FunctionType, package: str) -> list[Any]:
    """The values that a function's code can name: of its module, of others, of closures."""
    names = _names(function.__code__)
    found = [function.__globals__[n] for n in names if n in function.__globals__]
    seen = set()
    for value in found:  # it grows: modules have modules
        if isinstance(value, ModuleType | type) and _is_of(package, value) and value not in seen:
            seen.add(value)
            found += [getattr(value, n) for n in names if hasattr(value, n)]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # nothing in it yet
            found.append(cell.cell_contents)
    return [*found, *(function.__defaults__ or ())]


def _names(code: CodeType) -> list[str]:
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return sorted({*code.co_names, *(n for c in inner for n in _names(c))})


@functools.cache
def _content(path: str) -> bytes:
    """SHA-256 of a module's text; of nothing where there is no file."""
    try:
        text = Path(path).read_bytes()
    except OSError:
        text = b""
    return hashlib.sha256(text).digest()
