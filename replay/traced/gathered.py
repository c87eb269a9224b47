"""Compiled passes over stored tasks: checks, predecessors, what is alike."""

from __future__ import annotations

import numpy as np

from ...ingest.compiled import compiled
from ...ingest.tasks import stored
from ...ingest.tasks.rows import slot
from ...ingest.tasks.sorting import grown, grown_rows, sort

ARRIVE, TRANSFER = stored.ARRIVE, stored.TRANSFER
FIRST, LAST = stored.FIRST_ACTIVITY, stored.LAST_ACTIVITY
BLOCK = 2048
"""Tasks of which one column after another is taken: of many ranks each has its own place in a
column, and those of all columns are more than caches hold."""

SHORT = 64
"""So many predecessors are sorted by insertion."""

CUT, RETURN = stored.CUT, stored.RETURN
NEVER = int(np.iinfo(np.int64).min)


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
        # As int64 all: `min` and `max` are compiled for each pair of types.
        w, o, p = np.int64(what[i]), np.int64(op[i]), np.int64(preds[i])
        least[0], most[0] = min(least[0], w), max(most[0], w)
        least[1], most[1] = min(least[1], o), max(most[1], o)
        if FIRST <= w <= LAST:
            d = np.int64(detail[i])
            least[2], most[2] = min(least[2], d), max(most[2], d)
        least[3], most[3] = min(least[3], p), max(most[3], p)


@compiled
def joins(ready, first, start, arrive, row, instance, also, also_instance):  # pragma: no cover
    """The last arrival at each join, and the participation with the least row."""
    ready[:] = NEVER
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

    `place` is as `order.placed` leaves it; `ends` becomes when tasks end in the replay; `src` is
    lost. Predecessors are first looked up as they lie, where those of a task are near it.
    """
    _placed(place, ptr, src)
    kept = 0
    pred_ptr[0] = 0
    whats = np.empty(BLOCK, np.int8)
    begins, spans = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    for since in range(0, len(order), BLOCK):
        until = min(since + BLOCK, len(order))
        for i in range(since, until):
            t = order[i]
            for e in range(ptr[t], ptr[t + 1]):
                if src[e] < 0:
                    break
                pred[kept] = src[e]
                kept += 1
            pred_ptr[i + 1] = kept
        for i in range(since, until):
            t = order[i]
            whats[i - since] = what[t] if t < len(what) else -1
        for i in range(since, until):
            t = order[i]
            begins[i - since] = start[t] if t < len(what) else 0
        for i in range(since, until):
            t = order[i]
            spans[i - since] = dur[t] if t < len(what) else 0
        for i in range(since, until):
            a, b = pred_ptr[i], pred_ptr[i + 1]
            ready = null
            for m in range(a, b):
                ready = max(ready, ends[pred[m]])
            gap[i] = late[i] = out_dur[i] = 0
            w = whats[i - since]
            if w < 0:  # a join
                ends[i] = ready if b > a else 0
                continue
            begin = begins[i - since]
            end = begin + spans[i - since]
            if a == b:
                ready = end if w in (CUT, RETURN) else begin
            if pins[w] == 1:
                out_dur[i] = max(0, end - ready)
            else:
                gap[i] = max(0, begin - ready)
                if FIRST <= w <= LAST:
                    out_dur[i] = spans[i - since]
            ends[i] = ready + gap[i] + out_dur[i]
            late[i] = max(0, ends[i] - end)
    return kept


@compiled
def _placed(place, ptr, src):  # pragma: no cover - compiled
    """Predecessors become their places: of each task sorted, each once, -1 for what is left."""
    for t in range(len(ptr) - 1):
        a, b = ptr[t], ptr[t + 1]
        twice = b - a > SHORT
        for e in range(a, b):
            value = ~place[src[e]]
            j = e
            while not b - a > SHORT and j > a and src[j - 1] >= value:
                twice |= src[j - 1] == value
                src[j] = src[j - 1]
                j -= 1
            src[j] = value
        if not twice:
            continue
        if b - a > SHORT:
            sort(src, a, b)
        last = a
        for e in range(a + 1, b):
            if src[e] != src[last]:
                last += 1
                src[last] = src[e]
        src[last + 1 : b] = -1


@compiled
def alike(
    kind_of, join_kind, none, what, step, op, detail, part_op, join_task, join_part, code
):  # pragma: no cover - compiled
    """Tasks and joins that agree in step, kind, name or operation, and thread share a code (int32,
    into `code`); gives these four of each code (int64 [k, 4]). A name of -1 is `none`."""
    n = len(what)
    size = 1024
    slots = np.full(size, -1, np.int64)
    found = np.empty((size, 4), np.int64)
    m = 0
    for i in range(len(code)):
        kind, thread = np.int64(join_kind), np.int64(-1)
        if i >= n:
            s, o = step[join_task[i - n]], np.int64(part_op[join_part[i - n]])
        else:
            w = what[i]
            kind = np.int64(kind_of[w])
            s, o = step[i], np.int64(part_op[op[i]]) if w <= TRANSFER else np.int64(op[i])
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
    return found[:m].copy()


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
