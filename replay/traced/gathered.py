"""Compiled passes over stored tasks: checks, predecessors, columns."""

from __future__ import annotations

import numpy as np

from ...ingest.compiled import compiled
from ...ingest.tasks import stored
from ...ingest.tasks.sorting import grown

TASKS = ("what", "rank", "step", "op", "start_ns", "dur_ns", "event_id", "bytes", "detail")
PARTS = ("op", "comm", "collective", "bytes", "group_size", "algo")
"""Columns that `columns` takes of tasks and of participations."""

ARRIVE, TRANSFER = stored.ARRIVE, stored.TRANSFER
FIRST, LAST = stored.FIRST_ACTIVITY, stored.LAST_ACTIVITY
CUT, RETURN, BEGINS, ENDS = stored.CUT, stored.RETURN, stored.BEGINS, stored.ENDS


def bounds(
    what: np.ndarray, op: np.ndarray, detail: np.ndarray, preds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest `what`, name, shape (of activities) and count of predecessors,
    int64 [4] each; of none what is always right."""
    least, most = np.zeros(4, np.int64), np.full(4, -1, np.int64)
    _bounds(what, op, detail, preds, least, most)
    return least, most


@compiled
def _bounds(what, op, detail, preds, least, most):  # pragma: no cover - compiled
    for i in range(len(what)):
        least[0], most[0] = min(least[0], what[i]), max(most[0], what[i])
        least[1], most[1] = min(least[1], op[i]), max(most[1], op[i])
        if FIRST <= what[i] <= LAST:
            least[2], most[2] = min(least[2], detail[i]), max(most[2], detail[i])
        least[3], most[3] = min(least[3], preds[i]), max(most[3], preds[i])


@compiled
def joins(ready, first, start, arrive, row, instance, also, also_instance):  # pragma: no cover
    """The last arrival at each join, and the participation with the least row."""
    ready[:] = np.iinfo(np.int64).min
    first[:] = -1
    for k in range(len(arrive) + len(also)):
        if k < len(arrive):
            p, j = k, instance[k]
        else:
            p, j = also[k - len(arrive)], also_instance[k - len(arrive)]
        ready[j] = max(ready[j], start[arrive[p]])
        if first[j] < 0 or row[p] < row[first[j]]:
            first[j] = p


@compiled
def links(preds, back, more_src, more_dst, ptr, src):  # pragma: no cover - compiled
    """Fills predecessors (CSR) of tasks and joins from stored edges and further ones.

    False where an edge comes from what is no task.
    """
    n = len(preds)
    for d in more_dst:
        ptr[d + 1] += 1
    for t in range(n):
        ptr[t + 1] += preds[t]
    for t in range(len(ptr) - 1):
        ptr[t + 1] += ptr[t]
    e = 0
    for t in range(n):
        at = ptr[t]
        for k in range(preds[t]):
            u = t - back[e]
            if u < 0 or u >= n:
                return False
            src[at + k] = u
            e += 1
    filled = np.zeros(len(ptr) - 1, np.int32)
    for k in range(len(more_dst)):
        d = more_dst[k]
        own = preds[d] if d < n else 0
        src[ptr[d] + own + filled[d]] = more_src[k]
        filled[d] += 1
    return True


def first_names(order: np.ndarray, what: np.ndarray, op: np.ndarray, n: int) -> np.ndarray:
    """int64: names of activities (-1 counts as n - 1) in the order in which they first come."""
    return _first_names(order, what, op, n)


@compiled
def _first_names(order, what, op, n):  # pragma: no cover - compiled
    seen = np.zeros(n, np.bool_)
    out = np.empty(n, np.int64)
    k = 0
    for t in order:
        if t < len(what) and FIRST <= what[t] <= LAST:
            code = op[t] if op[t] >= 0 else n - 1
            if not seen[code]:
                seen[code] = True
                out[k] = code
                k += 1
                if k == n:
                    break
    return grown(out, k)


@compiled
def columns(
    a, b, order, what, rank, step, op, start, dur, event, size, detail, part, part_op, part_comm,
    part_instance, part_bytes, part_group, part_algo, join_task, join_part, kinds, pins, names,
    shapes, null, join_kind, out_kind, out_rank, out_step, out_op, out_comm, out_collective,
    out_bytes, out_start, out_end, out_dur, out_release, out_event, out_group, out_algo,
    out_thread, out_shape, out_begins, out_ends, out_pin,
):  # fmt: skip  # pragma: no cover - compiled
    """Fills a graph's columns from place `a` to `b` in the order of its tasks."""
    n = len(what)
    for i in range(a, b):
        t = order[i]
        out_comm[i] = out_collective[i] = out_group[i] = out_algo[i] = -1
        out_thread[i] = out_shape[i] = -1
        out_begins[i] = out_ends[i] = null
        out_bytes[i] = out_dur[i] = 0
        if t >= n:
            j = t - n
            k = join_part[j]
            out_kind[i] = join_kind
            out_pin[i] = 0
            out_rank[i] = -1
            out_step[i] = step[join_task[j]]
            out_op[i] = part_op[k]
            out_comm[i] = part_comm[k]
            out_collective[i] = j
            out_start[i] = out_end[i] = null
            out_release[i] = 0
            out_event[i] = -1
            continue
        w = what[t]
        out_kind[i] = kinds[w]
        out_pin[i] = pins[w]
        out_rank[i] = rank[t]
        out_step[i] = step[t]
        out_start[i] = out_release[i] = start[t]
        out_end[i] = start[t] + dur[t]
        if w <= TRANSFER:
            k = part[t]
            out_op[i] = part_op[k]
            out_comm[i] = part_comm[k]
            out_collective[i] = part_instance[k]
            out_bytes[i] = part_bytes[k]
            out_event[i] = event[t]
            out_group[i] = part_group[k]
            out_algo[i] = part_algo[k]
            out_shape[i] = detail[t]
            continue
        out_op[i] = names[op[t]]
        if w <= LAST:
            out_bytes[i] = size[t]
            out_dur[i] = dur[t]
            out_event[i] = event[t]
            out_shape[i] = shapes[detail[t]]
            continue
        out_event[i] = -1
        if w <= RETURN:
            out_thread[i] = detail[t]
            out_release[i] = out_end[i]
        elif w == BEGINS:
            out_begins[i] = step[t]
            out_ends[i] = size[t]
        else:
            out_ends[i] = step[t]
