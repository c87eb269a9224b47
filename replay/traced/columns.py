"""The columns of a graph from those of stored tasks. Compiled."""

from __future__ import annotations

import numpy as np

from ...ingest.compiled import compiled
from ...ingest.tasks import stored
from .gathered import BLOCK

TASKS = ("what", "rank", "step", "op", "start_ns", "dur_ns", "event_id", "bytes", "detail")
PARTS = ("op", "comm", "collective", "bytes", "group_size", "algo")
"""Columns that `columns` takes of tasks and of participations."""
COLUMNS = ("kind", "rank", "step", "op", "comm", "collective", "bytes", "start_ns", "end_ns",
           "release_ns", "event_id", "group_size", "algo", "thread", "shape", "begins",
           "ends")  # fmt: skip
"""Columns that it makes."""

TRANSFER, FIRST, LAST = stored.TRANSFER, stored.FIRST_ACTIVITY, stored.LAST_ACTIVITY
CUT, RETURN, BEGINS, ENDS = stored.CUT, stored.RETURN, stored.BEGINS, stored.ENDS


@compiled
def fill(
    a, b, order, what, rank, step, op, start, dur, event, size, detail, part_op, part_comm,
    part_instance, part_bytes, part_group, part_algo, join_task, join_part, kinds, names,
    shapes, null, join_kind, out_kind, out_rank, out_step, out_op, out_comm, out_collective,
    out_bytes, out_start, out_end, out_release, out_event, out_group, out_algo, out_thread,
    out_shape, out_begins, out_ends,
):  # fmt: skip  # pragma: no cover - compiled
    """Fills a graph's columns from place `a` to `b` in the order of its tasks."""
    n = len(what)
    whats = np.empty(BLOCK, np.int8)
    for since in range(a, b, BLOCK):
        until = min(since + BLOCK, b)
        for i in range(since, until):
            t = order[i]
            if t < n:
                whats[i - since] = what[t]
                out_rank[i] = rank[t]
                out_step[i] = step[t]
            else:
                whats[i - since] = len(kinds)
                out_rank[i] = -1
                out_step[i] = step[join_task[t - n]]
            out_comm[i] = out_collective[i] = out_group[i] = out_algo[i] = -1
        for i in range(since, until):
            t = order[i]
            if t < n:
                out_start[i] = out_release[i] = start[t]
                out_end[i] = start[t] + dur[t]
                out_event[i] = event[t] if whats[i - since] <= LAST else -1
            else:
                out_start[i] = out_end[i] = null
                out_release[i] = 0
                out_event[i] = -1
            out_begins[i] = out_ends[i] = null
            out_bytes[i] = 0
        for i in range(since, until):
            w, t = whats[i - since], order[i]
            if w > TRANSFER and t < n:
                out_kind[i] = kinds[w]
                out_op[i] = names[op[t]]
                continue
            k = op[t] if t < n else join_part[t - n]
            out_kind[i] = kinds[w] if t < n else join_kind
            out_op[i] = part_op[k]
            out_comm[i] = part_comm[k]
            if t >= n:
                out_collective[i] = t - n
                continue
            out_collective[i] = part_instance[k]
            out_bytes[i] = part_bytes[k]
            out_group[i] = part_group[k]
            out_algo[i] = part_algo[k]
        for i in range(since, until):
            w, its = whats[i - since], detail[order[i]] if order[i] < n else 0
            is_work, is_host = FIRST <= w <= LAST, CUT <= w <= RETURN
            # Without a jump, which nobody could foretell: what is looked up is there in any case.
            shape = shapes[its * is_work]
            out_shape[i] = shape if is_work else its if w <= TRANSFER else -1
            out_thread[i] = its if is_host else -1
            out_release[i] = out_end[i] if is_host else out_release[i]
        for i in range(since, until):
            w, t = whats[i - since], order[i]
            if FIRST <= w <= LAST:
                out_bytes[i] = size[t]
            elif w == BEGINS:
                out_begins[i] = out_step[i]
                out_ends[i] = size[t]
            elif w == ENDS:
                out_ends[i] = out_step[i]
