"""Functions that numba compiles: kept between runs where any folder can be written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

_not_kept: list[str] = []


def compiled(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """The function, compiled when it is called first; the interpreter is let go meanwhile.

    What is compiled lies beside its module, else in the user's cache (`NUMBA_CACHE_DIR`, where that
    is set, in place of both). Where none can be written to each process compiles anew. `options`
    are those of `numba.njit`.
    """
    if function is None:
        return lambda of: compiled(of, **options)
    asked: dict[str, Any] = {"nogil": True, **options}
    made = numba.njit(**asked)(function)
    if hasattr(made, "enable_caching"):  # without the compiler it is the function itself
        try:
            made.enable_caching()
        except RuntimeError:  # no folder
            _not_kept.append(function.__name__)
    return made


def is_kept() -> bool:
    """Whether there was a folder to keep compiled code in, as far as it was asked for."""
    return not _not_kept
