"""What numba need not do anew each time it compiles: the code that it makes is the same.

Two thirds of what compiling takes is numba's own Python. It tries all templates of `+` for each
`+` that it meets, and asks two dozen properties to compare flags; it optimises functions that are
only declared; and the collector of garbage walks through all that numba holds, again and again.
"""

from __future__ import annotations

import contextlib
import gc
import operator
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType
from typing import Any

NUMBAS = ("0.68.",)
"""Versions whose own parts these stand for; what is inside one is no promise of the next."""

_OF_NUMBERS = frozenset(
    (
        operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.mod,
        operator.iadd, operator.isub, operator.imul, operator.ifloordiv, operator.itruediv,
        operator.imod, operator.and_, operator.or_, operator.xor, operator.iand, operator.ior,
        operator.ixor, operator.lshift, operator.rshift, operator.ilshift, operator.irshift,
        operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
        operator.neg, operator.pos, operator.invert, operator.not_, operator.truth,
    )
)  # fmt: skip
_OF_ITEMS = frozenset((operator.getitem, operator.setitem))

_resolved: dict[int, tuple[Any, dict[Any, Any]]] = {}
"""By the id of a type of function: it (so that the id stays its own), signatures by arguments."""


@contextlib.contextmanager
def taken() -> Iterator[None]:
    """Has numba take the shortcuts meanwhile; its lock of compilers has to be held.

    Another numba than NUMBAS goes the long way.
    """
    longer = []
    collects = gc.isenabled()
    gc.disable()
    try:
        for owner, name, shortened in _shortcuts():
            was = vars(owner).get(name)
            if was is not None:
                longer.append((owner, name, was))
                setattr(owner, name, shortened(was))
        yield
    finally:
        for owner, name, was in longer:
            setattr(owner, name, was)
        if collects:
            gc.enable()


def _shortcuts() -> list[tuple[type, str, Callable[[Any], Any]]]:
    """(class, its method, what makes of it the one that stands for it)."""
    import numba

    if not numba.__version__.startswith(NUMBAS):
        return []
    try:
        from numba.core.codegen import CPUCodeLibrary
        from numba.core.targetconfig import TargetConfig
        from numba.core.types.functions import BaseFunction
    except ImportError:
        return []
    return [
        (BaseFunction, "get_call_type", _told_once),
        (TargetConfig, "values", _looked_up),
        (CPUCodeLibrary, "_optimize_functions", _of_defined),
    ]


def _told_once(resolve: Any) -> Any:
    """What an operator makes of numbers, or of items of arrays of them: their types tell it all."""
    from numba.core import types

    numbers = types.Number, types.Boolean

    def plain(kind: Any, function: Any) -> bool:
        if isinstance(kind, numbers):
            return True
        if function not in _OF_ITEMS:
            return False
        if isinstance(kind, types.UniTuple):
            kind = kind.dtype
            return isinstance(kind, numbers)
        return isinstance(kind, types.Array) and isinstance(kind.dtype, numbers)

    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        function = self.typing_key
        known_operator = isinstance(function, BuiltinFunctionType) and (
            function in _OF_NUMBERS or function in _OF_ITEMS
        )
        if kws or not known_operator:
            return resolve(self, context, args, kws)
        _, known = _resolved.setdefault(id(self), (self, {}))
        found = known.get((context, args))
        if found is None:
            found = resolve(self, context, args, kws)
            if found is not None and all(plain(kind, function) for kind in args):
                known[context, args] = found
        return found

    return get_call_type


def _looked_up(values: Any) -> Any:
    """All flags by name, without a property for each."""

    def looked_up(self: Any) -> dict[str, Any]:
        own = self._values
        return {name: own.get(name, option.default) for name, option in self.options.items()}

    return looked_up


class _Defined:
    """A module of LLVM that has only the functions that have a body."""

    def __init__(self, module: Any):
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)

    @property
    def functions(self) -> list[Any]:
        return [f for f in self._module.functions if not f.is_declaration]


def _of_defined(optimize: Any) -> Any:
    """Passes that need a body are set up for functions that have one."""
    return lambda self, module: optimize(self, _Defined(module))
