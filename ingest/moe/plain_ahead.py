"""Blocks of text read ahead: while one is summed, the next are, and the file is inflated."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

T = TypeVar("T")
B = TypeVar("B")


def ahead(
    blocks: Iterator[tuple[int, B]], work: Callable[[B], T | None], threads: int
) -> Iterator[tuple[int, B, T | None]]:
    """(byte offset, block, what `work` makes of it) in order, on up to `threads` threads.

    A file of one block is left to the caller (None) where the compiled code that `work` needs is
    not loaded yet: it is not worth that. Memory: one block more than there are threads, and what
    `work` takes.
    """
    if f"{__package__}.plain_fast" not in sys.modules:
        begun_with = list(islice(blocks, 2))
        if len(begun_with) == 1:
            yield (*begun_with[0], None)
        blocks = chain(begun_with if len(begun_with) == 2 else (), blocks)
    if threads < 2:
        for at, block in blocks:
            yield at, block, work(block)
        return
    begun: deque[tuple[int, B, Future[T | None]]] = deque()
    with ThreadPoolExecutor(threads, "retime-blocks") as pool:
        for at, block in blocks:
            begun.append((at, block, pool.submit(work, block)))
            if len(begun) > threads:
                done, its, made = begun.popleft()
                yield done, its, made.result()
        while begun:
            done, its, made = begun.popleft()
            yield done, its, made.result()
