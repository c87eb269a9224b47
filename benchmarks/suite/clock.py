"""The part of a way that counts: its seconds and CPU, and, if it is asked for, its profile."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

from . import memory_at_hand

PROFILED = False
BEFORE: list[Callable[[], None]] = []
"""What is done just before the part that counts begins."""
KEPT: dict[str, Any] = {}
"""What is printed of the part: `seconds`, `cpu_s`, `profile`; and what preparing for it took, which
is no part of the process either: `before_s`, `before_cpu_s`."""


def timed(part: Callable[[], Any]) -> Any:
    """Runs the part that counts, gives its result; called several times, the last one counts."""
    began, cpu = time.perf_counter(), cpu_s()
    for prepare in BEFORE:
        prepare()
    memory_at_hand.at_hand()
    KEPT["before_s"] = KEPT.get("before_s", 0.0) + time.perf_counter() - began
    KEPT["before_cpu_s"] = KEPT.get("before_cpu_s", 0.0) + cpu_s() - cpu
    return counted(part)


def counted(part: Callable[[], Any]) -> Any:
    """As `timed`, without anything done before it."""
    if PROFILED:
        from .profiling import head, profiled

        result, profile = profiled(part)
        KEPT["profile"] = head(profile)
        return result
    began, cpu = time.perf_counter(), cpu_s()
    result = part()
    KEPT["seconds"] = time.perf_counter() - began
    KEPT["cpu_s"] = cpu_s() - cpu
    return result


def fastest(part: Callable[[], Any], runs: int) -> Any:
    """As `timed`, of several runs after one that does not count the fastest.

    For parts of milliseconds, where a process of its own each time would be mostly start-up.
    """
    part()
    if PROFILED:
        return counted(part)
    best: dict[str, Any] = {}
    result = None
    for _ in range(runs):
        result = counted(part)
        if not best or KEPT["seconds"] < best["seconds"]:
            best = dict(KEPT)
    KEPT.update(best)
    return result


def cpu_s() -> float:
    """Of this process and the ones that it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
