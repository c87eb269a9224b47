"""A reader of strangers' pickles: its own small machine, in which nothing of the file can run.

The opcodes are carried out here and not by Python's unpickler: there is no import, no attribute
is looked up or set, and what is called are only the makers of `safe_globals`. The result is made
of None, bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset and NumPy arrays
of numbers, and its size, counted as often as each part is reached, and its depth are bounded: a
consumer may walk it as it stands.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import Damaged, UnusableInput
from .machine import Machine, Tensors
from .opcodes import HANDLERS
from .safe_globals import Maker, Refused

MAX_PICKLE_BYTES = 256 << 20
MAX_NODES = 50_000_000
"""Values that a walk over the result may reach, shared ones as often as they are reached."""

MAX_DEPTH = 100


def loads(data: bytes, *, name: str, tensors: Tensors | None = None) -> Any:
    """The plain value that a pickle (protocol 0 to 5) describes; bytes behind it are ignored.

    OrderedDict, Counter and defaultdict become dict, deque becomes list, bytearray bytes, NumPy
    scalars Python numbers, NumPy arrays of numbers read-only arrays. Text that is not UTF-8 is
    read with replacement characters. Raises UnusableInput (path=name, offset of the opcode) where
    it asks for another global, which is named, or is out of bounds; Damaged where it is cut.
    """
    return loads_at(data, 0, name=name, tensors=tensors)[0]


def loads_at(
    data: bytes, start: int, *, name: str, tensors: Tensors | None = None
) -> tuple[Any, int]:
    """The same of a pickle that begins at a byte; and the byte behind its end."""
    if len(data) - start > MAX_PICKLE_BYTES:
        raise UnusableInput(
            f"a pickle of more than {MAX_PICKLE_BYTES >> 20} MiB is not read", path=name
        )
    machine = Machine(data, start, name, tensors)
    with _without_collection():
        value = machine.run(HANDLERS)
        check_size(value, name=name)
    return value, machine.pos


def salvage(data: bytes, *, name: str) -> tuple[Any, int]:
    """What a pickle that was cut holds up to there, and the byte of the cut.

    Its outermost value is a list or dictionary; the last one inside it may lack items. Raises
    UnusableInput as `loads` does, and where the pickle is not cut or has nothing yet.
    """
    machine = Machine(data, 0, name, None)
    with _without_collection():
        try:
            machine.run(HANDLERS)
        except Damaged as cut:
            try:
                value = machine.close_open()
            except Refused as e:
                raise Damaged(f"a pickle that {e}", path=name, offset=cut.offset) from None
            check_size(value, name=name)
            return value, cut.offset or 0
    raise UnusableInput("a pickle that is whole", path=name)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """No garbage collection meanwhile: millions of new containers would be walked again and again.

    Nothing here makes cycles but a pickle with a container inside itself, which is refused.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def check_size(value: Any, *, name: str, most: int = MAX_NODES) -> int:
    """How many values a walk over `value` reaches, shared ones as often as they are reached.

    Each distinct one is looked at once. Raises UnusableInput above `most`, for nesting above
    MAX_DEPTH, for a container inside itself, and for anything that is no plain value.
    """
    sizes: dict[int, tuple[int, int]] = {}
    open_now: set[int] = set()
    todo: list[tuple[Any, bool]] = [(value, False)]
    while todo:
        at, seen = todo.pop()
        kind, key = type(at), id(at)
        if kind in _LEAVES:
            continue
        if kind not in _CONTAINERS:
            what = at.name if isinstance(at, Maker) else "a value that is not complete"
            raise UnusableInput(f"refused: a pickle that holds {what}", path=name)
        inside = _inside(at)
        if not seen:
            if key in sizes:
                continue
            if key in open_now:
                raise UnusableInput("refused: a pickle with a container inside itself", path=name)
            open_now.add(key)
            todo.append((at, True))
            todo.extend((v, False) for v in inside if type(v) not in _LEAVES)
            continue
        open_now.discard(key)
        n, depth = 1, 0
        for v in inside:
            if type(v) in _LEAVES:
                n += 1
            else:
                below = sizes[id(v)]
                n += below[0]
                depth = max(depth, below[1])
        if n > most or depth >= MAX_DEPTH:
            raise UnusableInput(
                f"refused: a pickle that unfolds to more than {most} values"
                if n > most
                else f"refused: a pickle nested more than {MAX_DEPTH} deep",
                path=name,
            )
        sizes[key] = (n, depth + 1)
    return sizes[id(value)][0] if type(value) in _CONTAINERS else 1


_LEAVES = frozenset({type(None), bool, int, float, complex, str, bytes, np.ndarray})
_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})


def _inside(at: Any) -> list:
    if type(at) is dict:
        return [*at.keys(), *at.values()]
    return list(at)
