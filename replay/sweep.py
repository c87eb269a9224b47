"""Many what-ifs of one graph on all cores: numba, polars and numpy let go of the interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

BYTES_A_TASK = 200
"""What one estimate holds at its worst: a changed graph's arrays, its times, and sorts of them."""

MOST_BYTES = 4 << 30
"""Of all estimates at once."""

T = TypeVar("T")
R = TypeVar("R")


def over(
    of: Callable[[T], R],
    points: Sequence[T],
    *,
    tasks: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[R]:
    """`of` of each point, in their order, on as many cores as there are and memory allows.

    `tasks` of the graph that a point changes. `progress` is told how many points are done, of how
    many. The first error that a point raises is raised.
    """
    workers = min(cores(), len(points), max(1, MOST_BYTES // (BYTES_A_TASK * max(tasks, 1))))
    if workers < 2:
        return list(_counted(map(of, points), len(points), progress))
    with ThreadPoolExecutor(workers) as pool:
        return list(_counted(pool.map(of, points), len(points), progress))


def beside(*calls: Callable[[], Any]) -> list[Any]:
    """What some calls return, in their order, made on all cores; each holds little memory."""
    return over(lambda call: call(), calls, tasks=0)


def _counted(
    results: Iterable[R], points: int, progress: Callable[[int, int], None] | None
) -> Iterator[R]:
    for done, result in enumerate(results, 1):
        if progress is not None:
            progress(done, points)
        yield result


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
