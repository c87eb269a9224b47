"""The head of a profile: where the seconds of a part are, by module and by function."""

from __future__ import annotations

import cProfile
import os
import pstats
import re
import threading
from collections.abc import Callable
from typing import Any

from benchmarks.scale.measured import ROOT

HEAD = 6
WAITING = ("'acquire' of '_thread", "lock.acquire", "time.sleep", "select.", "SimpleQueue",
           "posix.waitpid", "posix.wait4")  # fmt: skip
"""Functions in which a thread waits for another: no work is in them."""
_PLACE = re.compile(
    rf"^(?:{re.escape(str(ROOT))}|.*?(?:site-packages|dist-packages|lib/python3\.\d+))/"
)


def profiled(part: Callable[[], Any]) -> tuple[Any, pstats.Stats]:
    """The part's result and its profile, with that of the threads which it starts."""
    profiles: list[cProfile.Profile] = []
    run = threading.Thread.run

    def also(self: threading.Thread) -> None:
        mine = cProfile.Profile()
        profiles.append(mine)
        mine.runcall(run, self)

    threading.Thread.run = also  # type: ignore[method-assign]
    whole = cProfile.Profile()
    try:
        result = whole.runcall(part)
    finally:
        threading.Thread.run = run  # type: ignore[method-assign]
    stats = pstats.Stats(whole)
    for other in profiles:
        stats.add(other)
    return result, stats


def head(stats: pstats.Stats) -> dict[str, Any]:
    """Seconds of the modules and functions that took most of their own, waiting left out."""
    own: dict[str, float] = {}
    functions: list[tuple[float, str]] = []
    total = 0.0
    for (file, line, name), (_, _, seconds, _, _) in stats.stats.items():  # type: ignore[attr-defined]
        if _waits(name):
            continue
        module = _module(file, name)
        own[module] = own.get(module, 0.0) + seconds
        shown = _shown(name) if file == "~" else f"{module}:{line} {name}"
        functions.append((seconds, shown))
        total += seconds
    modules = sorted(own.items(), key=lambda m: -m[1])[:HEAD]
    return {
        "total_s": round(total, 3),
        "modules": [[name, round(s, 3)] for name, s in modules if s >= 0.001],
        "functions": [
            [name, round(s, 3)] for s, name in sorted(functions, reverse=True)[:HEAD] if s >= 0.001
        ],
    }


def _waits(name: str) -> bool:
    return any(word in name for word in WAITING)


def _module(file: str, name: str) -> str:
    if file == "~":
        return "compiled: " + (_shown(name).split(".")[0] or "built in")
    return _PLACE.sub("", os.path.normpath(file))


def _shown(name: str) -> str:
    """`<method 'read' of '_io.BufferedReader' objects>` as `_io.BufferedReader.read`."""
    if of := re.fullmatch(r"<method '(.+)' of '(.+)' objects>", name):
        return f"{of[2]}.{of[1]}"
    return re.sub(r"<built-in method (.+)>", r"\1", name)
