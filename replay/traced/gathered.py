"""Compiled passes over stored tasks: checks, predecessors, columns."""

from __future__ import annotations

import numpy as np

from ...ingest.compiled import compiled
from ...ingest.tasks import stored
from ...ingest.tasks.rows import slot
from ...ingest.tasks.sorting import grown, grown_rows, sort

TASKS = ("what", "rank", "step", "op", "start_ns", "dur_ns", "event_id", "bytes", "detail")
PARTS = ("op", "comm", "collective", "bytes", "group_size", "algo")
"""Columns that `columns` takes of tasks and of participations."""
COLUMNS = ("kind", "rank", "step", "op", "comm", "collective", "bytes", "start_ns", "end_ns",
           "release_ns", "event_id", "group_size", "algo", "thread", "shape", "begins",
           "ends")  # fmt: skip
"""Columns that it makes."""

ARRIVE, TRANSFER = stored.ARRIVE, stored.TRANSFER
FIRST, LAST = stored.FIRST_ACTIVITY, stored.LAST_ACTIVITY
SHORT = 64
"""So many predecessors are sorted by insertion."""

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


@compiled
def predecessors(
    order, place, ptr, src, what, start, dur, pins, null, ends, pred_ptr, pred, gap, out_dur, late
):  # pragma: no cover - compiled
    """`order.in_order` and `residual.fill` in one pass; gives how many predecessors there are.

    `place` is as `order.placed` leaves it; `ends` becomes when tasks end in the replay.
    """
    kept = 0
    pred_ptr[0] = 0
    for i in range(len(order)):
        t = order[i]
        since = kept
        for e in range(ptr[t], ptr[t + 1]):
            value = np.int64(~place[src[e]])
            if ptr[t + 1] - ptr[t] > SHORT:
                pred[kept] = value
                kept += 1
                continue
            j = kept
            while j > since and pred[j - 1] > value:
                j -= 1
            if j > since and pred[j - 1] == value:
                continue
            for m in range(kept, j, -1):
                pred[m] = pred[m - 1]
            pred[j] = value
            kept += 1
        if ptr[t + 1] - ptr[t] > SHORT:
            sort(pred, since, kept)
            last = since
            for m in range(since + 1, kept):
                if pred[m] != pred[last]:
                    last += 1
                    pred[last] = pred[m]
            kept = last + 1
        pred_ptr[i + 1] = kept
        ready = null
        for m in range(since, kept):
            ready = max(ready, ends[pred[m]])
        gap[i] = late[i] = out_dur[i] = 0
        if t >= len(what):
            ends[i] = ready if kept > since else 0
            continue
        w = what[t]
        begin = start[t]
        end = begin + dur[t]
        if kept == since:
            ready = end if w in (CUT, RETURN) else begin
        if pins[w] == 1:
            out_dur[i] = max(0, end - ready)
        else:
            gap[i] = max(0, begin - ready)
            if FIRST <= w <= LAST:
                out_dur[i] = dur[t]
        ends[i] = ready + gap[i] + out_dur[i]
        late[i] = max(0, ends[i] - end)
    return kept


@compiled
def alike(
    kind_of, join_kind, none, what, step, op, detail, part, part_op, join_task, join_part
):  # pragma: no cover - compiled
    """Tasks and joins that agree in step, kind, name or operation, and thread share a code (int32);
    and these four of each code (int64 [k, 4]). A name of -1 is `none`."""
    n = len(what)
    size = 1024
    slots = np.full(size, -1, np.int64)
    found = np.empty((size, 4), np.int64)
    code = np.empty(n + len(join_task), np.int32)
    m = 0
    for i in range(len(code)):
        kind, thread = np.int64(join_kind), np.int64(-1)
        if i >= n:
            s, o = step[join_task[i - n]], np.int64(part_op[join_part[i - n]])
        else:
            w = what[i]
            kind = np.int64(kind_of[w])
            s, o = step[i], np.int64(part_op[part[i]]) if w <= TRANSFER else np.int64(op[i])
            if w in (CUT, RETURN):
                thread = np.int64(detail[i])
        if o < 0:
            o = np.int64(none)
        at = slot(s * 64 + kind, thread * 1_000_003 + o, size)
        while slots[at] >= 0:
            u = slots[at]
            if found[u, 2] == o and found[u, 0] == s and found[u, 1] == kind and (
                found[u, 3] == thread
            ):  # fmt: skip
                break
            at = (at + 1) & (size - 1)
        if slots[at] < 0:
            slots[at] = m
            found[m, 0], found[m, 1], found[m, 2], found[m, 3] = s, kind, o, thread
            m += 1
        code[i] = slots[at]
        if 2 * m > size:
            # Twice the slots, and every kind put into them.
            size *= 2
            slots = np.full(size, -1, np.int64)
            found = grown_rows(found, size)
            for k in range(m):
                s, kind, o, thread = found[k, 0], found[k, 1], found[k, 2], found[k, 3]
                at = slot(s * 64 + kind, thread * 1_000_003 + o, size)
                while slots[at] >= 0:
                    at = (at + 1) & (size - 1)
                slots[at] = k
    return code, found[:m].copy()


@compiled
def empty(n):  # pragma: no cover - compiled
    """`n` bytes that are there to be used.

    Not numpy's, which asks for large pages: a machine that is itself a virtual one takes several
    times as long to give those as small ones, unless somebody had them before.
    """
    out = np.empty(n, np.uint8)
    for i in range(0, n, 4096):
        out[i] = 0
    return out


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
    part_instance, part_bytes, part_group, part_algo, join_task, join_part, kinds, names,
    shapes, null, join_kind, out_kind, out_rank, out_step, out_op, out_comm, out_collective,
    out_bytes, out_start, out_end, out_release, out_event, out_group, out_algo, out_thread,
    out_shape, out_begins, out_ends,
):  # fmt: skip  # pragma: no cover - compiled
    """Fills a graph's columns from place `a` to `b` in the order of its tasks."""
    n = len(what)
    for i in range(a, b):
        t = order[i]
        out_comm[i] = out_collective[i] = out_group[i] = out_algo[i] = -1
        out_thread[i] = out_shape[i] = -1
        out_begins[i] = out_ends[i] = null
        out_bytes[i] = 0
        if t >= n:
            j = t - n
            k = join_part[j]
            out_kind[i] = join_kind
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
