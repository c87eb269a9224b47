"""What the points of a sweep have in common, made once for a graph however many ask at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from .graph import TaskGraph

KEPT = 2
"""Things that are held for a graph: what a sweep asks for next is what it asked for last."""

T = TypeVar("T")
_lock = threading.Lock()


class _Made:
    """A thing, and who may make it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.done = False
        self.value: Any = None


def once(graph: TaskGraph, key: tuple[Any, ...], make: Callable[[], T]) -> T:
    """What `make` gives for a graph and a key that names all else that it depends on.

    Held as long as the graph is, but for the last `KEPT` keys only. Others wait while one makes it;
    after an error the next one tries.
    """
    with _lock:
        held: OrderedDict[tuple[Any, ...], _Made] = graph.__dict__.setdefault(
            "_once", OrderedDict()
        )
        made = held.setdefault(key, _Made())
        held.move_to_end(key)
        while len(held) > KEPT:
            held.popitem(last=False)
    with made.lock:
        if not made.done:
            made.value = make()
            made.done = True
        return made.value
