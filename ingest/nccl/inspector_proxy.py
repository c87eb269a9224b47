"""Inspector's proxy records (format 4.3): bytes that a proxy thread sent or got, with times."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..values import integer

if TYPE_CHECKING:
    from ..collect import Collector
    from .comm_places import Places

MOST_KEPT = 1 << 17
_I64_MAX = (1 << 63) - 1
_STEPS = "steps"
CONSTANTS = {"traffic_class": "collective", "measured": True, "via": "NET", "source": "inspector"}
"""What all rows of transfers have."""


class Kept(Protocol):
    """What is kept of numbers, by communicator, kind and number; the oldest are forgotten."""

    def get(self, comm: str, kind: str, sn: int) -> int | None:
        """What was set last, None for nothing."""
        ...

    def set(self, comm: str, kind: str, sn: int, value: int | None) -> None:
        """Keeps a value; None takes it away."""
        ...


SHARED = -(1 << 63)
"""The row of a number that two operations have."""


class LastNumbers:
    """`Kept` of the last `MOST_KEPT` numbers, and up to as many before them."""

    def __init__(self) -> None:
        self._newer: dict[tuple[str, str, int], int | None] = {}
        self._older: dict[tuple[str, str, int], int | None] = {}

    def get(self, comm: str, kind: str, sn: int) -> int | None:
        key = (comm, kind, sn)
        return self._newer[key] if key in self._newer else self._older.get(key)

    def set(self, comm: str, kind: str, sn: int, value: int | None) -> None:
        key = (comm, kind, sn)
        if key not in self._newer and len(self._newer) >= MOST_KEPT:
            self._newer, self._older = {}, self._newer
        self._newer[key] = value


class Proxies:
    """Turns the records of one file into `transfers`.

    The bytes of a proxy operation are those of its steps: where the steps are written, they make
    the rows; else the operation does. `span` is the time that the last record covered.
    """

    def __init__(self, places: Places, collector: Collector, add: Callable[..., None], kept: Kept):
        self._places, self._collector, self._add_row, self._kept = places, collector, add, kept
        self.steps_written: Any = None
        self.span: tuple[int | None, int | None] = (None, None)
        self.n = 0
        """rows so far"""

    def note(self, comm: str, kind: str, sn: int | None, row: int) -> None:
        """Remembers the event id of an operation; a number that two functions share is none's."""
        if sn is not None:
            known = self._kept.get(comm, kind, sn)
            self._kept.set(comm, kind, sn, row if known is None else SHARED)

    def take(self, trace: dict[str, Any], comm: str, place: int, rank: int, offset: int) -> None:
        """One `proxy_trace` record."""
        self.span = (None, None)
        kind, op_sn = trace.get("record_type"), integer(trace.get("proxy_op_sn"))
        key = (comm, _STEPS, op_sn if op_sn is not None else -1)
        steps = trace.get("steps")
        if kind == "proxy_step":
            self._step(trace, trace, comm, place, rank, offset)
            self._kept.set(*key, 1)
            return
        for step in steps if isinstance(steps, list) else []:
            if isinstance(step, dict):
                self._step(step, trace, comm, place, rank, offset)
        if kind != "proxy_op":
            if kind not in ("proxy_op_start", "proxy_op_segment"):
                self._collector.odd(
                    "unknown_record", "a proxy record of a kind not known here", offset=offset
                )
            return
        dropped = integer(trace.get("n_steps_dropped"))
        if dropped:
            self._collector.odd(
                "dropped_by_writer",
                "Inspector had no room for steps of proxy operations (a larger "
                "NCCL_INSPECTOR_PROXY_STEP_POOL_SIZE keeps them); count says how many",
                offset=offset,
                count=dropped,
            )
        known = self._kept.get(*key) is not None
        if known:
            self._kept.set(*key, None)
        if isinstance(steps, list) or known or self.steps_written == 1:
            return
        times = trace.get("event_trace_ts")
        start = _micros(times, "proxy_op_in_progress_ts", "proxy_op_start_ts")
        self._add(trace, trace, comm, place, rank, start, _micros(times, "proxy_op_stop_ts"))

    def _step(
        self,
        step: dict[str, Any],
        trace: dict[str, Any],
        comm: str,
        place: int,
        rank: int,
        offset: int,
    ) -> None:
        times = step.get("event_trace_ts")
        if trace.get("direction") == "recv":
            start = _micros(times, "recv_wait_ts", "proxy_step_start_ts")
            end = _micros(times, "recv_flush_wait_ts", "recv_gpu_wait_ts", "proxy_step_stop_ts")
        else:
            start = _micros(times, "send_wait_ts", "proxy_step_start_ts")
            end = _micros(times, "proxy_step_stop_ts")
        self._add(step, trace, comm, place, rank, start, end)

    def _add(
        self,
        of: dict[str, Any],
        trace: dict[str, Any],
        comm: str,
        place: int,
        rank: int,
        start: int | None,
        end: int | None,
    ) -> None:
        if start is None or end is None or end < start:
            start = end = None
        low, high = self.span
        if start is not None and end is not None:
            self.span = (min(start, low) if low is not None else start,
                         max(end, high) if high is not None else end)  # fmt: skip
        direction = trace.get("direction")
        parent, sn = trace.get("parent_type"), integer(trace.get("parent_sn"))
        row = None
        if parent in ("coll", "p2p") and sn is not None:
            row = self._kept.get(comm, parent, sn)
        n_bytes = integer(of.get("trans_size_bytes"))
        self.n += 1
        self._add_row(
            rank=rank,
            channel=integer(trace.get("channel_id")),
            peer_rank=self._places.peer_of(comm, place, integer(trace.get("peer"))),
            bytes=n_bytes if n_bytes is None or n_bytes >= 0 else None,
            start_ns=start,
            end_ns=end,
            event_id=None if row == SHARED else row,
            direction=direction if direction in ("send", "recv") else None,
            clock="host" if start is not None else None,
            **CONSTANTS,
        )

    def finish(self) -> None:
        """Says what the transfers lack."""
        if self.n:
            self._collector.odd(
                "no_nic",
                "Inspector's proxy records name no network interface: nic and rail are null",
                "info",
                count=self.n,
            )


def _micros(times: Any, *keys: str) -> int | None:
    """The first of these times that was taken, microseconds of the epoch to ns."""
    for key in keys if isinstance(times, dict) else ():
        number = integer(times.get(key))
        if number is not None and 0 < number <= _I64_MAX // 1000:
            return number * 1000
    return None
