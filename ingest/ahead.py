"""Items made by a thread that runs ahead of whoever takes them."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

T = TypeVar("T")


def prefetch(items: Iterator[T], depth: int = 1) -> Generator[T]:
    """The same items, made by a thread that runs up to `depth` items ahead of the caller.

    No more than that are there at a time beside the one that the caller has: the next is only
    begun when there is room for it. An exception of the maker comes out at its place. Closing this
    iterator stops the thread.
    """
    ready: queue.Queue = queue.Queue()
    room = threading.Semaphore(depth)
    stop = threading.Event()

    def work() -> None:
        made = iter(items)
        try:
            while True:
                room.acquire()
                if stop.is_set():
                    return
                ready.put(("item", next(made)))
        except StopIteration:
            ready.put(("end", None))
        except BaseException as e:
            ready.put(("error", e))
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=work, name="retime-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            what, item = ready.get()
            if what == "end":
                return
            if what == "error":
                raise item  # type: ignore[misc]
            room.release()
            yield item  # type: ignore[misc]
    finally:
        stop.set()
        room.release()
        thread.join()


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
