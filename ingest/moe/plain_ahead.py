"""Blocks of text read ahead: while one is summed, the next are, and the file is inflated."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(
    blocks: Iterator[tuple[int, bytes]], work: Callable[[bytes], T | None], threads: int
) -> Iterator[tuple[int, bytes, T | None]]:
    """(byte offset, block, what `work` makes of it) in order, on up to `threads` threads.

    The first block is left to the caller (None) where the compiled code that `work` needs is not
    loaded yet: a file of one block is not worth that. Memory: one block more than there are
    threads, and what `work` takes.
    """
    if f"{__package__}.plain_fast" not in sys.modules:
        first = next(blocks, None)
        if first is None:
            return
        yield (*first, None)
    if threads < 2:
        for at, block in blocks:
            yield at, block, work(block)
        return
    begun: deque[tuple[int, bytes, Future[T | None]]] = deque()
    with ThreadPoolExecutor(threads, "retime-blocks") as pool:
        for at, block in blocks:
            begun.append((at, block, pool.submit(work, block)))
            if len(begun) > threads:
                done, its, made = begun.popleft()
                yield done, its, made.result()
        while begun:
            done, its, made = begun.popleft()
            yield done, its, made.result()
