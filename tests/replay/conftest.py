"""Hand-made traced jobs: a few rows become the tables that a graph is built from."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import polars as pl
import pytest
from retime.ingest.schema import TABLES

US = 1_000


class Tables:
    """Rows of a small job, by the methods' names; times in us, stored as ns."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.offsets: dict[int, int] = {}
        self.events = 0

    def _event(self, rank: int, kind: str, name: str, start: float, end: float, **more) -> int:
        self.events += 1
        event_id = (rank << 40) | self.events
        self.rows["events"].append(
            {
                "rank": rank,
                "event_id": event_id,
                "kind": kind,
                "name": name,
                "start_ns": round(start * US),
                "dur_ns": round((end - start) * US),
                **more,
            }
        )
        return event_id

    def kernel(self, rank, name, start, end, *, stream=7, step=None, correlation=None, **more):
        """A kernel on a stream (`kind="memcpy"` makes it a copy)."""
        more = {"kind": "kernel", "category": "other", **more}
        return self._event(
            rank, more.pop("kind"), name, start, end,
            stream=stream, device=rank, step=step, correlation=correlation, **more,
        )  # fmt: skip

    def call(self, rank, name, start, end, *, thread="main", correlation=None, step=None):
        """A runtime call on a host thread."""
        return self._event(
            rank, "runtime", name, start, end, thread=thread, correlation=correlation, step=step
        )

    def host(self, rank, name, start, end, *, thread="main", kind="host_op", step=None):
        """An operator or annotation on a host thread."""
        return self._event(rank, kind, name, start, end, thread=thread, step=step)

    def part(self, rank, op, start, end, *, instance, event=None, stream=20, **more):
        """A participation; without `event` a kernel is made for it (stream None: host event)."""
        step = more.get("step")
        if event is None and stream is not None:
            event = self.kernel(
                rank, f"nccl {op}", start, end, stream=stream, category="comm", step=step,
                correlation=more.pop("correlation", None),
            )  # fmt: skip
        row = {"comm": "0", "group_size": 2, "in_bytes": 1000, "out_bytes": 1000, **more}
        self.rows["collectives"].append(
            {
                "rank": rank,
                "op": op,
                "start_ns": round(start * US),
                "end_ns": round(end * US),
                "collective_id": instance,
                "event_id": event,
                "stream": stream,
                "source": "kineto",
                **row,
            }
        )

    def step(self, rank, step, start, end):
        """A step's window on a rank."""
        window = {"start_ns": round(start * US), "end_ns": round(end * US)}
        hosted = {f"host_{k}": v for k, v in window.items()}
        self.rows["steps"].append({"rank": rank, "step": step, **window, **hosted})

    def frames(self) -> dict[str, pl.DataFrame]:
        """The tables, typed."""
        every = {r["rank"] for rows in self.rows.values() for r in rows if "rank" in r}
        ranks = [{"rank": r, "clock_offset_ns": self.offsets.get(r, 0)} for r in sorted(every)]
        out = {}
        for name in ("ranks", "steps", "comms", "collectives", "events"):
            rows = ranks if name == "ranks" else self.rows[name]
            table = TABLES[name]
            columns = {c.name: [row.get(c.name) for row in rows] for c in table.columns}
            frame = pl.from_arrow(table.batch(columns))
            assert isinstance(frame, pl.DataFrame)
            out[name] = frame
        return out


@pytest.fixture
def tables() -> Tables:
    """An empty small job."""
    return Tables()
