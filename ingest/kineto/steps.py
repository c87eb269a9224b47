"""Steps of a rank: which step launched what, and each step's window on the device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..schema import TABLES
from .rawbatch import NULL


class HostSteps(NamedTuple):
    """Step annotations in order of start: number, start, end (each an array)."""

    number: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray


def host_steps(
    number: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray
) -> tuple[HostSteps, int]:
    """Annotations sorted by start, each number once (its first), and how many were left out."""
    order = np.lexsort((number, start_ns))
    number, start_ns, end_ns = number[order], start_ns[order], end_ns[order]
    _, first = np.unique(number, return_index=True)
    first.sort()
    return HostSteps(number[first], start_ns[first], end_ns[first]), len(number) - len(first)


def step_index_at(steps: HostSteps, time_ns: np.ndarray) -> np.ndarray:
    """Index of the step whose annotation holds each host time; -1 outside all, or for NULL."""
    if not len(steps.number):
        return np.full(len(time_ns), -1, np.int64)
    index = np.searchsorted(steps.start_ns, time_ns, side="right") - 1
    inside = (index >= 0) & (time_ns < steps.end_ns[index]) & (time_ns != NULL)
    return np.where(inside, index, -1)


def numbers_of(steps: HostSteps, index: np.ndarray) -> np.ndarray:
    """Step numbers by index; NULL for -1."""
    if not len(steps.number):
        return np.full(len(index), NULL)
    return np.where(index >= 0, steps.number[index], NULL)


def device_windows(
    steps: HostSteps, index: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of each step on the device, from the step index of each piece of device work.

    A step begins with the first work it launched; it ends where the next step (number + 1) begins,
    and the last one, or one before a hole in the numbers, where the last work it launched ends. A
    step without work begins with its annotation. Where no step has work, the annotations
    themselves are the windows. Windows never overlap and never run backwards.
    """
    n = len(steps.number)
    launched = index >= 0
    if not launched.any():
        return steps.start_ns.copy(), steps.end_ns.copy()
    first = np.full(n, np.iinfo(np.int64).max)
    last = np.full(n, np.iinfo(np.int64).min)
    np.minimum.at(first, index[launched], start_ns[launched])
    np.maximum.at(last, index[launched], end_ns[launched])
    idle = first == np.iinfo(np.int64).max
    begin = np.maximum.accumulate(np.where(idle, steps.start_ns, first))
    end = np.maximum(np.where(idle, steps.end_ns, last), begin)
    if n > 1:
        joined = steps.number[1:] == steps.number[:-1] + 1
        end[:-1] = np.where(joined, begin[1:], np.minimum(end[:-1], begin[1:]))
    return begin, end


def steps_batch(
    steps: HostSteps, start_ns: np.ndarray, end_ns: np.ndarray, rank: int
) -> pa.RecordBatch:
    """Rows of `steps`, found by annotation."""
    n = len(steps.number)
    return TABLES["steps"].batch(
        {
            "rank": pa.array(np.full(n, rank, np.int32)),
            "step": pa.array(steps.number),
            "start_ns": pa.array(start_ns),
            "end_ns": pa.array(end_ns),
            "host_start_ns": pa.array(steps.start_ns),
            "host_end_ns": pa.array(steps.end_ns),
            "found_by": ["annotation"] * n,
        }
    )
