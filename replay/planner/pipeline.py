"""An exact run of a pipeline schedule: stages of any durations, sends that take their time.

Each stage runs its operations in its schedule's order, each as soon as what it needs has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...ingest.compiled import compiled

FORWARD, BACKWARD, WEIGHT = 0, 1, 2
SIMULATED = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2")
"""Schedules whose order is known here; the others are known for equal stages (`bubble`)."""


MOST_OPERATIONS = 1 << 18
"""Of a run: of more, what follows the first ones is extrapolated."""

FILL = 3
"""Microbatches a stage until a pipeline is surely full: ZB-H2 has two of each begun before."""

Order = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Kind, microbatch and virtual stage of each stage's operations, int64 [p, operations] each."""


class Run(NamedTuple):
    """What a simulated step took, in the unit of the durations."""

    makespan: float
    """From the first start to the last end."""
    period: float
    """What a step adds to a run of many: the makespan; for ZB-H2, whose stages do not wait for each
    other at a step's end (its optimizer step is checked afterwards), the longest span of a stage.
    """
    busy: np.ndarray
    """float64 [p]: time that each stage worked."""

    @property
    def idle(self) -> np.ndarray:
        """float64 [p]: time of a period in which each stage stood."""
        return self.period - self.busy


def simulate(
    schedule: str,
    forward: Sequence[float],
    backward: Sequence[float],
    microbatches: int,
    *,
    weight: Sequence[float] | None = None,
    send: float = 0.0,
    chunks: int = 1,
) -> Run:
    """Runs one step of `microbatches` through p stages.

    `forward` and `backward` [p x chunks] are durations of one microbatch on each (virtual) stage
    in the model's order, virtual stage k on GPU k mod p; `weight`, for zero-bubble schedules, is
    the part of the backward pass that nobody waits for (default half). `send` is what an
    activation takes from one stage to the next, during which nobody works on it. Beyond
    MOST_OPERATIONS the run is that of its first microbatches, and more rounds like the last. Raises
    ValueError for a schedule that is not in SIMULATED.
    """
    p = len(forward) // chunks
    # Once the pipeline is full it repeats itself: what one more round takes is told by two runs.
    few = p * max(FILL, MOST_OPERATIONS // (2 * len(forward) * p))
    if microbatches > few + p:
        given = {"weight": weight, "send": send, "chunks": chunks}
        short, longer = (simulate(schedule, forward, backward, m, **given) for m in (few, few + p))
        rounds = (microbatches - few) / p
        each = longer.busy - short.busy
        # At the pace of the slowest stage, where waiting still hides it.
        slowest = float(each.max())
        return Run(
            short.makespan + rounds * max(longer.makespan - short.makespan, slowest),
            short.period + rounds * max(longer.period - short.period, slowest),
            short.busy + rounds * each,
        )
    f = np.asarray(forward, np.float64)
    d = np.asarray(backward, np.float64)
    w = np.zeros(len(f))
    zero = schedule in ("zb-h1", "zb-h2")
    if zero:
        w = d / 2 if weight is None else np.asarray(weight, np.float64)
        d = d - w
    if schedule not in SIMULATED:
        raise ValueError(f"no order of {schedule!r} is known: {', '.join(SIMULATED)} are")
    if schedule == "interleaved":
        order = _interleaved(p, microbatches, chunks)
    elif zero:
        order = _zero_bubble(p, microbatches, 2 if schedule == "zb-h2" else 1)
    else:
        order = _plain(schedule == "gpipe", p, microbatches)
    kind, micro, virtual = order
    first, last = _in_order(kind, micro, virtual, f, d, w, float(send))
    makespan = float(last.max())
    period = float((last - first).max()) if schedule == "zb-h2" else makespan
    return Run(makespan, period, microbatches * (f + d + w).reshape(chunks, p).sum(0))


@lru_cache(256)
def _plain(gpipe: bool, p: int, m: int) -> Order:
    """Order of GPipe (all forward, then all backward) or 1F1B: kind, microbatch, virtual stage."""
    kind = np.empty((p, 2 * m), np.int64)
    micro = np.empty((p, 2 * m), np.int64)
    every = np.arange(m)
    for stage in range(p):
        warm = m if gpipe else min(m, p - 1 - stage)
        n = m - warm
        steady = np.tile([FORWARD, BACKWARD], n)
        kind[stage] = np.r_[np.full(warm, FORWARD), steady, np.full(warm, BACKWARD)]
        pairs = np.column_stack([every[warm:], every[:n]]).ravel()
        micro[stage] = np.r_[every[:warm], pairs, every[n:]]
    return kind, micro, _own_stage(kind)


@lru_cache(256)
def _zero_bubble(p: int, m: int, times: int) -> Order:
    """Order of ZB-H1 (`times` 1) or ZB-H2 (2): stage i runs times (p-1-i) forward passes first, and
    each weight pass times i backward passes late (arXiv 2401.10241's two handmade schedules)."""
    kind = np.empty((p, 3 * m), np.int64)
    micro = np.empty_like(kind)
    for stage in range(p):
        warm, late = min(m, times * (p - 1 - stage)), times * stage
        order = [(FORWARD, j) for j in range(warm)]
        for j in range(m):
            if j + warm < m:
                order.append((FORWARD, j + warm))
            order.append((BACKWARD, j))
            if j >= late:
                order.append((WEIGHT, j - late))
        order += [(WEIGHT, j) for j in range(max(0, m - late), m)]
        kind[stage], micro[stage] = np.array(order).T
    return kind, micro, _own_stage(kind)


def _own_stage(kind: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.arange(len(kind))[:, None], kind.shape).copy()


@lru_cache(256)
def _interleaved(p: int, m: int, v: int) -> Order:
    """Interleaved 1F1B: p microbatches at a time go chunk by chunk (arXiv 2104.04473)."""
    total = m * v
    k = np.arange(total)
    chunk = k % (p * v) // p
    of = k // (p * v) * p + k % p
    kind = np.empty((p, 2 * total), np.int64)
    micro = np.empty_like(kind)
    virtual = np.empty_like(kind)
    for stage in range(p):
        warm = min(total, (p - stage - 1) * 2 + (v - 1) * p)
        steady = np.tile([FORWARD, BACKWARD], total - warm)
        kind[stage] = np.r_[np.full(warm, FORWARD), steady, np.full(warm, BACKWARD)]
        for what, order in ((FORWARD, chunk), (BACKWARD, v - 1 - chunk)):
            at = kind[stage] == what
            micro[stage, at] = of
            virtual[stage, at] = order * p + stage
    return kind, micro, virtual


@compiled
def _in_order(kind, micro, virtual, f, d, w, send):  # pragma: no cover - compiled
    """First start and last end of each stage; every operation as soon as it can, in order."""
    n_virtual = len(f)
    p = kind.shape[0]
    m = micro.max() + 1
    end_f = np.full((n_virtual, m), -1.0)
    end_d = np.full((n_virtual, m), -1.0)
    at = np.zeros(p, np.int64)
    free = np.zeros(p)
    first = np.full(p, -1.0)
    left = kind.size
    while left > 0:
        before = left
        for s in range(p):
            while at[s] < kind.shape[1]:
                j = at[s]
                v, b = virtual[s, j], micro[s, j]
                ready = free[s]
                if kind[s, j] == 0:
                    if v > 0:
                        if end_f[v - 1, b] < 0:
                            break
                        ready = max(ready, end_f[v - 1, b] + send)
                    free[s] = ready + f[v]
                    end_f[v, b] = free[s]
                elif kind[s, j] == 1:
                    if end_f[v, b] < 0:
                        break
                    if v < n_virtual - 1:
                        if end_d[v + 1, b] < 0:
                            break
                        ready = max(ready, end_d[v + 1, b] + send)
                    free[s] = ready + d[v]
                    end_d[v, b] = free[s]
                else:
                    if end_d[v, b] < 0:
                        break
                    free[s] = ready + w[v]
                if first[s] < 0:
                    first[s] = ready
                at[s] += 1
                left -= 1
        if left == before:
            raise ValueError("the schedule waits for itself")
    return first, free
