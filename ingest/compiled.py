"""Functions that numba compiles: kept between runs where any folder can be written to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numba

from . import compile_beside, compile_turns

_not_kept: list[str] = []


def compiled(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """The function, compiled when it is called first; the interpreter is let go meanwhile.

    What is compiled lies beside its module, else in the user's cache (`NUMBA_CACHE_DIR`, where that
    is set, in place of both). Where none can be written to each process compiles anew. `options`
    are those of `numba.njit`. Numbers that calls from compiled functions spell out count as any of
    their type: else each of them, and each way to be called, is compiled once more.
    """
    if function is None:
        return lambda of: compiled(of, **options)
    asked: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True, **options}
    made: Any = numba.njit(**asked)(function)
    if hasattr(made, "enable_caching"):  # without the compiler it is the function itself
        try:
            made.enable_caching()
            compile_turns.take_turns(made, compile_beside.begin)
        except RuntimeError:  # no folder
            _not_kept.append(function.__name__)
    if hasattr(made, "_compiler"):
        _take_no_literals(made._compiler)
    return made


def _take_no_literals(compiler: Any) -> None:
    """Has arguments of calls by compiled functions lose their values, which are of their type."""
    folded = getattr(compiler, "fold_argument_types", None)
    if folded is None:  # another numba: more is compiled
        return

    def plain(args: Any, kws: Any) -> Any:
        signature, types = folded(args, kws)
        return signature, tuple(map(numba.types.unliteral, types))

    with contextlib.suppress(AttributeError):
        compiler.fold_argument_types = plain


def is_kept() -> bool:
    """Whether there was a folder to keep compiled code in, as far as it was asked for."""
    return not _not_kept
