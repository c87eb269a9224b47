"""What a gap waited for, by the launch of the work that ended it (view `_accounts`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .segmented import LEAST
from .walk import Gaps

UNKNOWN, STREAM, LAUNCH, HOST, LOADING = range(5)
CLASSES = ("idle_unknown", "idle_waiting_for_stream", "idle_launch_bound",
           "idle_waiting_for_host", "idle_data_loading")  # fmt: skip

BLOCKING = (
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize",
    "cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize",
    "cudaMemcpy", "cudaMemcpy2D", "cudaMemcpyFromSymbol", "cudaMemcpyToSymbol",
    "hipDeviceSynchronize", "hipStreamSynchronize", "hipEventSynchronize",
    "hipMemcpy", "hipMemcpyWithStream",
)  # fmt: skip
"""The names of the macro `_is_blocking_call`."""

LOADING_RANGE = (
    r"(^|[^a-z])(train_)?data[ _-]?load(er|ing)?(_next)?([^a-z]|$)"
    r"|(^|[^a-z])(get|next|fetch|load|read)[ _-](next[ _-])?(train[ _-])?(batch|data)([^a-z]|$)"
    r"|(^|[^a-z])batch[ _-]generator([^a-z]|$)"
    r"|(^|[^a-z])data[ _-](fetch|wait|time|iter)([^a-z]|$)"
)
"""The pattern of the macro `is_data_loading`, as those below."""
LOADING_BEGINS = "enumerate(DataLoader)"
LOADING_FRAME = r"data/dataloader\.py\([0-9]+\): (__next__|_next_data)$"


def loads_data(texts: pa.Array, kind: str) -> np.ndarray:
    """bool[texts]: an event of this kind (of `MARKED_KINDS`) and name waits for the next batch."""
    if kind == "python":
        found = pc.match_substring_regex(texts, LOADING_FRAME)  # pyright: ignore
    else:
        found = pc.starts_with(texts, LOADING_BEGINS)  # pyright: ignore
    if kind == "annotation":
        ranges = pc.match_substring_regex(texts, LOADING_RANGE, ignore_case=True)  # pyright: ignore
        found = pc.or_(found, ranges)  # pyright: ignore
    return pc.fill_null(found, False).to_numpy(zero_copy_only=False)  # pyright: ignore


GARBAGE = ("Python GC", "gc", "gc.collect", "<built-in function collect>")
GARBAGE_RANGE = (
    r"^(python|manual|forced?|run)?[ _:.-]*(gc|garbage[ _-]?collect(ion|or)?)"
    r"([ _:.#(-]*(collect|gen|step|[0-9]).*)?$"
)
"""The names and the pattern of the macro `is_garbage_collection`."""

MARKED_KINDS = ("annotation", "host_op", "python")


def collects_garbage(texts: pa.Array, kind: str) -> np.ndarray:
    """bool[texts]: an event of this kind (of `MARKED_KINDS`) and name collects garbage."""
    found = pc.is_in(texts, pa.array(GARBAGE))  # pyright: ignore
    if kind == "annotation":
        ranges = pc.match_substring_regex(texts, GARBAGE_RANGE, ignore_case=True)  # pyright: ignore
        found = pc.or_(found, ranges)  # pyright: ignore
    return pc.fill_null(found, False).to_numpy(zero_copy_only=False)  # pyright: ignore


class Host(NamedTuple):
    """What a rank's host did, on the job's clock. Threads are codes in order of name, -1 null."""

    call_start_ns: np.ndarray
    """of runtime calls"""
    call_end_ns: np.ndarray
    call_correlation: np.ndarray
    """`LEAST` null"""
    call_thread: np.ndarray
    call_blocks: np.ndarray
    """bool"""
    load_start_ns: np.ndarray
    """of waits for data"""
    load_end_ns: np.ndarray
    load_thread: np.ndarray


class Caused(NamedTuple):
    """Class of each gap, and the launch of the work that ended it (`LEAST` not known)."""

    kind: np.ndarray
    launch_ns: np.ndarray


def find(gaps: Gaps, correlation: np.ndarray, host: Host) -> Caused:
    """Why each gap is; `correlation` is that of the work that ended it, `LEAST` none."""
    launch, thread = _launches(correlation, host)
    kind = np.full(len(launch), UNKNOWN, np.int8)
    known = launch != LEAST
    kind[known] = STREAM
    late = np.flatnonzero(known & (launch >= gaps.free_ns))
    kind[late] = LAUNCH
    for t in np.unique(thread[late]).tolist():
        rows = late[thread[late] == t]
        if t < 0:
            continue
        asked, free = launch[rows], gaps.free_ns[rows]
        kind[rows[_blocked(host, t, asked, free)]] = HOST
        loading = _loaded(host, t, asked, free)
        kind[rows[(loading > 0) & (2 * loading >= asked - free)]] = LOADING
    return Caused(kind, launch)


def _launches(correlation: np.ndarray, host: Host) -> tuple[np.ndarray, np.ndarray]:
    """The first call of each correlation: its start, and the first thread by name, -1 none."""
    calls = np.flatnonzero(host.call_correlation != LEAST)
    none = np.full(len(correlation), LEAST), np.full(len(correlation), -1)
    if not len(calls) or not len(correlation):
        return none
    whole = len(calls) == len(host.call_correlation)
    of, start, thread = (
        c if whole else c[calls]
        for c in (host.call_correlation, host.call_start_ns, host.call_thread)
    )
    last = np.where(thread < 0, np.iinfo(thread.dtype).max, thread)
    order = np.lexsort((last, start, of))
    del last, calls
    of = of[order]
    at = np.minimum(np.searchsorted(of, correlation), len(of) - 1)
    same = (of[at] == correlation) & (correlation != LEAST)
    row = order[at]
    return np.where(same, start[row], LEAST), np.where(same, thread[row], -1)


def _blocked(host: Host, thread: int, asked: np.ndarray, free: np.ndarray) -> np.ndarray:
    """bool: the thread's last blocking call before the launch ended in the gap."""
    rows = np.flatnonzero(host.call_blocks & (host.call_thread == thread))
    if not len(rows):
        return np.zeros(len(asked), bool)
    order = np.lexsort((host.call_end_ns[rows], host.call_start_ns[rows]))
    start, end = host.call_start_ns[rows][order], host.call_end_ns[rows][order]
    at = np.searchsorted(start, asked) - 1
    return (at >= 0) & (end[np.maximum(at, 0)] > free)


def _loaded(host: Host, thread: int, asked: np.ndarray, free: np.ndarray) -> np.ndarray:
    """How long the thread loaded data from the gap's beginning until the launch."""
    rows = np.flatnonzero(host.load_thread == thread)
    if not len(rows):
        return np.zeros(len(asked), np.int64)
    order = np.lexsort((host.load_end_ns[rows], host.load_start_ns[rows]))
    begin, end = host.load_start_ns[rows][order], host.load_end_ns[rows][order]
    until = np.full(len(end), LEAST)
    np.maximum.accumulate(end[:-1], out=until[1:])
    begin = np.maximum(begin, until)
    begin, end = begin[end > begin], end[end > begin]
    so_far = np.concatenate([[0], np.cumsum(end - begin)])

    def upto(t: np.ndarray) -> np.ndarray:
        at = np.searchsorted(begin, t) - 1
        here = np.maximum(at, 0)
        return np.where(at < 0, 0, so_far[here] + np.minimum(end[here], t) - begin[here])

    return upto(asked) - upto(free) if len(begin) else np.zeros(len(asked), np.int64)
