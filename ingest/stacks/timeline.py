"""One rank's rows over time: those on devices wait for the host's calls and steps."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ..kineto import roles, steps
from ..kineto.events import nullable, small
from ..kineto.launches import Launches, launch_times, launches
from ..kineto.rawbatch import NULL
from ..schema import TABLES, event_id

if TYPE_CHECKING:
    from ..collect import Collector

HELD_ROWS = 1 << 20
"""Device rows held back at most (some 100 MB, twice that while they are given out)."""

MOST_CALLS = 1 << 22
"""Host calls (and pieces of work) whose time is kept for steps at most (some 100 MB each)."""

GIVEN_ROWS = 131_072

MAX_DUR_NS = 7 * 86_400 * 10**9
"""A longer duration is a defect of the writer."""

LATEST_NS = 4_611_686_018_427_387_904

_COLUMNS = (
    "n", "kind", "name", "category", "stream", "device", "start_ns", "dur_ns", "correlation",
    "grid_blocks", "block_threads", "bytes",
)  # fmt: skip


def whole_number(value: object) -> int:
    """A stranger's value as a 64-bit integer (also from its decimal text); NULL for any other."""
    if isinstance(value, str):
        value = value.strip()
        if not (value.isascii() and value.removeprefix("-").isdigit() and len(value) <= 20):
            return NULL
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63:
        return value
    return NULL


def known(value: int) -> int | None:
    """None for NULL."""
    return None if value == NULL else value


def _integers(values: array) -> np.ndarray:
    """The same integers for NumPy, without a copy."""
    return np.frombuffer(values, np.int64) if len(values) else np.empty(0, np.int64)


class Words:
    """Texts by code, each once."""

    def __init__(self) -> None:
        self._codes: dict[str | None, int] = {None: -1}
        self.texts: list[str] = []

    def code(self, text: str | None) -> int:
        """The code of a text; -1 for None."""
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self.texts)
            assert text is not None
            self.texts.append(text.encode("utf-8", "replace").decode())
        return code

    def column(self, codes: np.ndarray) -> pa.DictionaryArray:
        """Codes as a column of only the texts that are used."""
        used, new = np.unique(codes[codes >= 0], return_inverse=True)
        out = np.zeros(len(codes), np.int32)
        out[codes >= 0] = new
        texts = pa.array([self.texts[k] for k in used.tolist()], pa.string())
        return pa.DictionaryArray.from_arrays(nullable(out, codes >= 0), texts)


class Timeline:
    """What one rank's trace gives over time: device rows, launches and steps.

    `extent` is the first start and last end of all rows so far (None before the first).
    """

    def __init__(self, rank: int, space: str, c: Collector):
        self.rank, self.space, self.c = rank, space, c
        self.extent: tuple[int, int] | None = None
        self.words = Words()
        self._held = {name: array("q") for name in _COLUMNS}
        self._calls = (array("q"), array("q"), array("q"))
        self._steps = (array("q"), array("q"), array("q"))
        self._work = (array("q"), array("q"), array("q"))
        self._device_rows: dict[int, int] = {}

    def span(self, start: int, end: int, offset: int | None = None) -> tuple[int, int] | None:
        """Start and duration of a row, checked; None (and a problem) where it has no place."""
        if start == NULL or not 0 <= start <= LATEST_NS:
            self.c.odd("no_time", "a row without a usable time; left out", "lost", offset=offset)
            return None
        if end == NULL or not 0 <= end - start <= MAX_DUR_NS:
            code = "negative_duration" if NULL != end < start else "absurd_duration"
            self.c.odd(code, "a row whose end cannot be; duration 0 is kept", offset=offset)
            end = start
        old = self.extent or (start, end)
        self.extent = (min(old[0], start), max(old[1], end))
        return start, end - start

    def host(
        self, n: int, kind: str, name: str, span: tuple[int, int], *, thread: int, correlation: int
    ) -> None:
        """Adds a row of `events` on the host; `n` is its number in the source."""
        self.c.add(
            "events",
            rank=self.rank,
            event_id=event_id(self.rank, self.space, n),
            kind=kind,
            name=name,
            thread=None if thread == NULL else str(thread),
            start_ns=span[0],
            dur_ns=span[1],
            correlation=known(correlation),
        )

    def call(self, correlation: int, start_ns: int, thread: int) -> None:
        """Notes a host call that may have launched something."""
        if correlation in (NULL, 0):
            return
        if len(self._calls[0]) >= MOST_CALLS:
            self.c.odd("calls_not_kept", "more host calls than are kept: later work has no step")
            return
        for column, value in zip(self._calls, (correlation, start_ns, thread), strict=True):
            column.append(value)

    def annotation(self, name: str, start_ns: int, dur_ns: int) -> None:
        """Notes a range of the host that may be a step."""
        number = roles.step_number(name)
        if number != roles.NO_NUMBER:
            for column, value in zip(
                self._steps, (number, start_ns, start_ns + dur_ns), strict=True
            ):
                column.append(value)

    def device(
        self,
        n: int,
        kind: str,
        name: str,
        category: str | None,
        start_ns: int,
        dur_ns: int,
        *,
        stream: int = NULL,
        device: int = NULL,
        correlation: int = NULL,
        grid_blocks: int = NULL,
        block_threads: int = NULL,
        n_bytes: int = NULL,
    ) -> None:
        """Holds a row of `events` on a device; `n` is its number in the source."""
        code = self.words.code
        values = (
            n, code(kind), code(name), code(category), stream, device, start_ns, dur_ns,
            correlation, grid_blocks, block_threads, n_bytes,
        )  # fmt: skip
        for column, value in zip(_COLUMNS, values, strict=True):
            self._held[column].append(value)
        if kind != "sync":
            self._device_rows[device] = self._device_rows.get(device, 0) + 1
        if kind != "sync" and len(self._work[0]) < MOST_CALLS:
            for kept, value in zip(
                self._work, (correlation, start_ns, start_ns + dur_ns), strict=True
            ):
                kept.append(value)

    @property
    def main_device(self) -> int | None:
        """The device with the most work; None where none is known."""
        some = {d: n for d, n in self._device_rows.items() if d != NULL}
        return max(some, key=lambda d: some[d]) if some else None

    def calls(self) -> Launches:
        """The host calls noted so far."""
        return launches(*(_integers(a) for a in self._calls))

    def host_steps(self) -> steps.HostSteps:
        """The steps noted so far."""
        found, twice = steps.host_steps(*(_integers(a) for a in self._steps))
        if twice:
            self.c.odd("step_twice", "a step's annotation stands twice; the first is kept",
                       count=twice)  # fmt: skip
        return found

    def step_at(self, host: steps.HostSteps, time_ns: np.ndarray) -> np.ndarray:
        """Step numbers for host times; NULL outside."""
        return steps.numbers_of(host, steps.step_index_at(host, time_ns))

    def full(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Device rows, where more are held than should be; those have no step."""
        if len(self._held["n"]) >= HELD_ROWS:
            self.c.odd(
                "steps_late",
                "device rows given out before their launches were read; their step is null",
                "info",
                count=len(self._held["n"]),
            )
            yield from self._give(None, None)

    def rest(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The device rows that are left, and the steps."""
        host, calls = self.host_steps(), self.calls()
        yield from self._give(host, calls)
        if not len(host.number):
            self.c.odd("no_steps", "no ProfilerStep annotations", "info")
            return
        correlation, start, end = (_integers(a) for a in self._work)
        index = steps.step_index_at(host, launch_times(calls, correlation))
        yield (
            "steps",
            steps.steps_batch(host, *steps.device_windows(host, index, start, end), self.rank),
        )

    def _give(
        self, host: steps.HostSteps | None, calls: Launches | None
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        held = {k: _integers(v) for k, v in self._held.items()}
        self._held = {name: array("q") for name in _COLUMNS}
        step = np.full(len(held["n"]), NULL)
        if host is not None and calls is not None:
            step = self.step_at(host, launch_times(calls, held["correlation"]))
        order = np.argsort(held["start_ns"], kind="stable")
        first_id = event_id(self.rank, self.space, 0)
        for a in range(0, len(order), GIVEN_ROWS):
            part = order[a : a + GIVEN_ROWS]
            rows = {k: v[part] for k, v in held.items()}
            yield (
                "events",
                TABLES["events"].batch(
                    {
                        "rank": np.full(len(part), self.rank, np.int32),
                        "event_id": first_id + (rows["n"] & ((1 << 34) - 1)),
                        "kind": self.words.column(rows["kind"]),
                        "name": self.words.column(rows["name"]),
                        "category": self.words.column(rows["category"]),
                        "stream": nullable(rows["stream"]),
                        "device": small(rows["device"]),
                        "start_ns": rows["start_ns"],
                        "dur_ns": rows["dur_ns"],
                        "correlation": nullable(rows["correlation"]),
                        "grid_blocks": nullable(rows["grid_blocks"]),
                        "block_threads": small(rows["block_threads"]),
                        "bytes": nullable(rows["bytes"]),
                        "step": nullable(step[part]),
                    }
                ),
            )
