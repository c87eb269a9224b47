"""Blocks of text read ahead: while one is summed, the next are, and the file is inflated."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
B = TypeVar("B")


def ahead(
    blocks: Iterator[tuple[int, B]], work: Callable[[B], T | None], threads: int
) -> Iterator[tuple[int, B, T | None]]:
    """(byte offset, block, what `work` makes of it) in order, on up to `threads` threads.

    What `blocks` raises comes out behind the blocks before it, what `work` raises in place of its.
    Memory: one block more than there are threads, and what `work` takes.
    """
    if threads < 2:
        for at, block in blocks:
            yield at, block, work(block)
        return
    begun: deque[tuple[int, B, Future[T | None]]] = deque()
    raised: list[Exception] = []
    with ThreadPoolExecutor(threads, "retime-blocks") as pool:
        for at, block in _until(blocks, raised):
            begun.append((at, block, pool.submit(work, block)))
            if len(begun) > threads:
                done, its, made = begun.popleft()
                yield done, its, made.result()
        while begun:
            done, its, made = begun.popleft()
            yield done, its, made.result()
    for e in raised:
        raise e


def _until(items: Iterator[B], raised: list[Exception]) -> Iterator[B]:
    """The items before an exception, which goes to `raised`."""
    try:
        yield from items
    except Exception as e:
        raised.append(e)
