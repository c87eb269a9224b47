"""The clock of a report: session start plus time, unless the export added it already."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .columns import KERNEL, MEMCPY, NVTX, RUNTIME
from .tables import Report

ABSOLUTE_NS = 10**17
"""Three years: no session lasts so long, and every Unix time since 1973 is beyond it."""
LATEST_NS = 4 * 10**18
MAX_DUR_NS = 7 * 86_400 * 10**9


class Clock(NamedTuple):
    """What is added to a report's times, and the `clock` that follows: host or process."""

    offset_ns: int
    word: str


def clock_of(report: Report) -> Clock:
    """The report's clock. Times that are absolute already are told by their magnitude."""
    shift = report.pairs("META_DATA_EXPORT").get("EXPORT_PARAM_TIME_SHIFT", "0")
    if shift.strip() not in ("", "0"):
        report.odd(
            "time_shift",
            f"the export shifted all times by {shift[:24]} ns (--ts-shift): they are taken as they "
            "are; export without it where ranks are to be compared",
        )
    typical = _typical_ns(report)
    if typical is not None and typical >= ABSOLUTE_NS:
        return Clock(0, "host")
    starts = report.table("TARGET_INFO_SESSION_START_TIME")["utcEpochNs"].drop_null().to_pylist()
    if starts and ABSOLUTE_NS <= starts[0] < LATEST_NS:
        return Clock(starts[0], "host")
    report.odd(
        "no_session_start",
        "no session start (TARGET_INFO_SESSION_START_TIME): times count from the report's own "
        "zero and cannot be compared with other reports'; export all tables",
    )
    return Clock(0, "process")


def _typical_ns(report: Report) -> int | None:
    """Median of the times in the first batch of the first table that has any."""
    for table, column in (
        (KERNEL, "start"), (MEMCPY, "start"), (RUNTIME, "start"), (NVTX, "start"),
        ("NCCL_GPU_OPERATIONS", "start"), ("GPU_METRICS", "timestamp"),
        ("NET_NIC_METRIC", "start"), ("NET_IB_SWITCH_METRIC", "start"),
        ("GENERIC_EVENTS", "timestamp"),
    ):  # fmt: skip
        for batch in report.batches(table, column):
            times = batch[column].drop_null().to_numpy()
            if len(times):
                return int(np.median(times))
            break
    return None


def spans(
    table: pa.Table, clock: Clock, report: Report, what: str, at: int | np.ndarray = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, start, end) in ns of the rows that have a time; the others are counted as lost.

    The rows are those of table `what` from its row `at` on, or those that `at` numbers one by one.
    An end that is missing, lies before the start or absurdly far behind it becomes the start.
    """
    start = table["start"].combine_chunks()
    t = start.fill_null(-1).to_numpy(zero_copy_only=False)
    good = start.is_valid().to_numpy(zero_copy_only=False) & (np.abs(t) < LATEST_NS // 2)
    if clock.offset_ns == 0 and clock.word == "host":
        good |= (t >= ABSOLUTE_NS) & (t < LATEST_NS)
    row = np.flatnonzero(good)
    if len(row) < len(good):
        numbers = at + np.arange(len(good)) if isinstance(at, int) else at
        report.odd(
            "row_without_time", f"rows of {what} without a usable start: left out", "lost",
            count=len(good) - len(row), offset=int(numbers[~good][0]),
        )  # fmt: skip
    t = t[row]
    stop = table["end"].combine_chunks()
    e = stop.fill_null(0).to_numpy(zero_copy_only=False)[row]
    there = stop.is_valid().to_numpy(zero_copy_only=False)[row]
    if not there.all():
        report.odd(
            "open_end",
            f"rows of {what} without an end: they get no length",
            count=int((~there).sum()),
        )
    with np.errstate(over="ignore"):
        wrong = there & ((e < t) | (e - t > MAX_DUR_NS) | (e - t < 0))
    if wrong.any():
        report.odd(
            "bad_end", f"rows of {what} that end before they start or days later: they get no "
            "length", count=int(wrong.sum()),
        )  # fmt: skip
    e = np.where(there & ~wrong, e, t)
    return row, t + clock.offset_ns, e + clock.offset_ns
