"""NCCL's own trace (`--trace=nccl`): operations on the device, numbered the same on all ranks."""

from __future__ import annotations

import numpy as np

from .callranges import OPS
from .calls import Call, Carried, Operation, seq_of
from .columns import EVENT_SPACE
from .commkernels import CommKernels
from .payload import dtype_named
from .rank import Rank
from .tables import Report
from .times import Clock, spans
from .who import TID_MASK

TABLE = "NCCL_GPU_OPERATIONS"
COLLECTIVE = "NCCL_GPU_OPERATIONS_COLLECTIVE"

assert TABLE in EVENT_SPACE


def read(report: Report, clock: Clock, ranks: dict[int, Rank]) -> dict[int, list[Operation]]:
    """Operations by rank, in order of start; of processes that are none of the job's none.

    The table of collectives adds the sequence number where only it has one.
    """
    t = report.table(TABLE)
    numbers: dict[tuple, int] = {}
    extra = report.table(COLLECTIVE)
    if not t.num_rows and extra.num_rows:
        t = extra
    else:
        for r in extra.to_pylist():
            if r["seqNumber"] is not None:
                numbers[(r["start"], r["commHash"], r["commRank"], r["localId"])] = r["seqNumber"]
    if not t.num_rows:
        return {}
    row, start, end = spans(t, clock, report, TABLE)
    by_pid = {r.process.pid: r for r in ranks.values()}
    out: dict[int, list[Operation]] = {}
    orphans = unknown = 0
    rows = t.to_pylist()
    for i, s, e in zip(row.tolist(), start.tolist(), end.tolist(), strict=True):
        r = rows[i]
        owner = _owner(r, ranks, by_pid)
        op = _op(r["text"], r.get("operationClass"))
        if owner is None or op is None:
            orphans += owner is None
            unknown += owner is not None
            continue
        kind = dtype_named(r["dataType"])
        size = None
        if kind is not None and r["count"] is not None and 0 <= r["count"] < 1 << 56:
            size = r["count"] * kind.itemsize
        number = r["seqNumber"]
        if number is None:
            number = numbers.get((r["start"], r["commHash"], r["commRank"], r["localId"]))
        call = Call(
            op, s, i, r["commHash"], size, r.get("root"), r.get("peer"),
            seq_of(r.get("operationId"), number), kind.name if kind else None,
        )  # fmt: skip
        out.setdefault(owner.rank, []).append(Operation(s, e, call))
        owner.see(np.array([s]), np.array([e]))
    if orphans:
        report.odd(
            "operation_without_process",
            f"rows of {TABLE} whose process is not known: left out",
            "lost",
            count=orphans,
        )
    if unknown:
        report.odd("unknown_operation", f"rows of {TABLE} that name no operation: left out",
                   "lost", count=unknown)  # fmt: skip
    for its in out.values():
        its.sort(key=lambda o: (o.start_ns, o.call.row))
    return out


def _owner(r: dict, ranks: dict[int, Rank], by_pid: dict[int, Rank]) -> Rank | None:
    for field in ("globalPid", "globalTid"):
        if r.get(field) is not None:
            return ranks.get(r[field] & ~TID_MASK)
    if r.get("pid") is not None:
        return by_pid.get(r["pid"])
    return next(iter(ranks.values())) if len(ranks) == 1 else None


def _op(text: str | None, sort: str | None) -> str | None:
    bare = "".join(c for c in (text or "").lower() if c.isalnum()).removeprefix("nccl")
    return OPS.get(bare)


def dealt(
    told: list[Operation], kernels: CommKernels
) -> tuple[dict[int, Carried], list[Operation]]:
    """What each kernel carries, by its index, and the operations that no kernel holds.

    An operation belongs to the kernel that runs in its middle; of two (kernels overlap on
    different streams) to the one that shares most of its time.
    """
    found: dict[int, list[Call]] = {}
    rest: list[Operation] = []
    starts = kernels.start
    longest = int((kernels.end - kernels.start).max()) if len(starts) else 0
    for o in told:
        middle = (o.start_ns + o.end_ns) // 2
        low = int(np.searchsorted(starts, middle - longest, "left"))
        high = int(np.searchsorted(starts, middle, "right"))
        at = np.arange(low, high)
        shared = np.minimum(kernels.end[at], o.end_ns) - np.maximum(starts[at], o.start_ns)
        at, shared = at[kernels.end[at] >= middle], shared[kernels.end[at] >= middle]
        if not len(at):
            rest.append(o)
            continue
        found.setdefault(int(at[np.argmax(shared)]), []).append(o.call)
    loads = {k: Carried(tuple(calls), len(calls) > 1, len(calls)) for k, calls in found.items()}
    return loads, rest
