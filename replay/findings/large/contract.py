"""What a share's tasks ask of each other, contracted to the moments that other ranks depend on.

The end of each task is the latest of some earlier moments, each plus a time that is fixed: sums
and maxima of integers can be taken in any order. So a task is known by up to `MOST` such terms, and
only where it would take more does it become a moment of its own. Moments are the ends of joins, of
those tasks, and of marks; and the beginning of time, which what nothing leads to counts from. Times
have versions: a term has one for each, and no version ends later for what is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....ingest.compiled import compiled
from ....ingest.tasks.codes import distinct
from ....ingest.tasks.sorting import grown, grown_rows
from ...graph import NULL, Kind, TaskGraph

MOST = 4
"""Terms of a task that is no moment of its own."""

ZERO = -1
"""The beginning of time as a source."""


class Contracted(NamedTuple):
    """Moments of a share and their terms. Sources: `ZERO`, joins (numbers of the share), then
    moments of its own."""

    task: np.ndarray
    """int64 [k]: the tasks that are moments, in order."""
    ptr: np.ndarray
    """int64 [k + 1]: where the terms of each lie, behind those of the joins."""
    source: np.ndarray
    """int64 [t]: first the terms of joins, by arrival."""
    more_ns: np.ndarray
    """int64 [t, versions]"""
    join: np.ndarray
    """int64 [j]: which join each of the first j terms is of."""
    arrive: np.ndarray
    """int64 [j]: the task by which it is."""


def contract(
    graph: TaskGraph,
    joins: np.ndarray,
    kept: np.ndarray,
    more_ns: np.ndarray,
    least_ns: np.ndarray,
) -> Contracted:
    """The moments of a share whose tasks end `more_ns` (int64 [n, versions]) after what they wait
    for, which counts as `least_ns` (int64 [n], `NULL`: no matter) where it is earlier.

    `joins` int64 [n] numbers the tasks that are joins from 0 (-1: none), whose ends other shares
    decide, too; `kept` bool [n] are tasks that must be moments.
    """
    n_joins = int(joins.max(initial=-1)) + 1
    into = _fed(joins, graph.pred_ptr, graph.pred, graph.kind == Kind.ARRIVE)
    ranks, who = distinct(graph.rank)
    fed_by = np.full((n_joins, len(ranks)), -1, np.int32)
    found = _contract(
        joins, into, who, fed_by, graph.pred_ptr, graph.pred, graph.release_ns, least_ns, more_ns,
        kept, int(NULL), MOST,
    )  # fmt: skip
    task, ptr, source, more, join, arrive, join_source, join_more = found
    return Contracted(
        task, ptr + len(join), np.concatenate([join_source, source]),
        np.concatenate([join_more, more]), join, arrive,
    )  # fmt: skip


@compiled
def _fed(joins, pred_ptr, pred, arrives):  # pragma: no cover - compiled
    """The join that each arrival feeds (-1: none, or it is no arrival), the last of several."""
    into = np.full(len(joins), -1, np.int64)
    for i in range(len(joins)):
        if joins[i] >= 0:
            for e in range(pred_ptr[i], pred_ptr[i + 1]):
                if arrives[pred[e]]:
                    into[pred[e]] = joins[i]
    return into


@compiled
def _contract(
    joins, into, who, fed_by, pred_ptr, pred, release, least, more, kept, null, most
):  # pragma: no cover - compiled
    n, versions = more.shape
    n_joins = len(fed_by)
    count = np.zeros(n, np.int64)
    source = np.empty((n, most), np.int64)
    after = np.empty((n, most, versions), np.int64)
    # What is being put together.
    us = np.empty(64, np.int64)
    ua = np.empty((64, versions), np.int64)
    # Moments and their terms; of joins the terms by arrival.
    task = np.empty(1024, np.int64)
    ptr = np.zeros(1025, np.int64)
    ts = np.empty(4096, np.int64)
    ta = np.empty((4096, versions), np.int64)
    k = t = 0
    js, ja = np.empty(4096, np.int64), np.empty((4096, versions), np.int64)
    jj, jt = np.empty(4096, np.int64), np.empty(4096, np.int64)
    j = 0
    for i in range(n):
        a, b = pred_ptr[i], pred_ptr[i + 1]
        if joins[i] >= 0:
            for e in range(a, b):
                p = pred[e]
                fed_by[joins[i], who[p]] = p
                for x in range(count[p]):
                    if j == len(js):
                        js, jj, jt = grown(js, 2 * j), grown(jj, 2 * j), grown(jt, 2 * j)
                        ja = grown_rows(ja, 2 * j)
                    js[j], jj[j], jt[j] = source[p, x], joins[i], p
                    for v in range(versions):
                        ja[j, v] = after[p, x, v]
                    j += 1
            count[i] = 1
            source[i, 0] = joins[i]
            after[i, 0] = 0
            continue
        u = 0
        if a == b:
            us[0] = -1
            ua[0] = release[i]
            u = 1
        for e in range(a, b):
            p = pred[e]
            if into[p] >= 0:
                # The join that it feeds ends no earlier: where that is waited for, too.
                waits = False
                for f in range(a, b):
                    waits |= joins[pred[f]] == into[p]
                if waits:
                    continue
            for x in range(count[p]):
                s = source[p, x]
                at = 0
                while at < u and us[at] != s:
                    at += 1
                if at == u:
                    if u + 1 >= len(us):
                        us = grown(us, 2 * len(us))
                        ua = grown_rows(ua, len(us))
                    us[u] = s
                    for v in range(versions):
                        ua[u, v] = after[p, x, v]
                    u += 1
                    continue
                for v in range(versions):
                    ua[at, v] = max(ua[at, v], after[p, x, v])
        if least[i] != null:
            at = 0
            while at < u and us[at] != -1:
                at += 1
            if at == u:
                us[u] = -1
                ua[u] = least[i]
                u += 1
            for v in range(versions):
                ua[at, v] = max(ua[at, v], least[i])
        if u > 1 and (u > most or into[i] >= 0 or kept[i]):
            # A term goes where another's source ends late enough after its own.
            x = 0
            while x < u:
                needless = False
                for y in range(u):
                    if y == x or us[y] < 0:
                        continue
                    if us[y] >= n_joins:
                        m = us[y] - n_joins
                        for z in range(ptr[m], ptr[m + 1]):
                            if ts[z] != us[x]:
                                continue
                            covers = True
                            for v in range(versions):
                                covers &= ta[z, v] + ua[y, v] >= ua[x, v]
                            needless |= covers
                    else:
                        p = np.int64(fed_by[us[y], who[i]])
                        if p < 0:
                            continue
                        for z in range(count[p]):
                            if source[p, z] != us[x]:
                                continue
                            covers = True
                            for v in range(versions):
                                covers &= after[p, z, v] + ua[y, v] >= ua[x, v]
                            needless |= covers
                    if needless:
                        break
                if needless:
                    u -= 1
                    us[x] = us[u]
                    for v in range(versions):
                        ua[x, v] = ua[u, v]
                else:
                    x += 1
        if u <= most and not kept[i]:
            count[i] = u
            for x in range(u):
                source[i, x] = us[x]
                for v in range(versions):
                    after[i, x, v] = ua[x, v] + more[i, v]
            continue
        if k == len(task):
            task, ptr = grown(task, 2 * k), grown(ptr, 2 * k + 1)
        while t + u > len(ts):
            ts, ta = grown(ts, 2 * len(ts)), grown_rows(ta, 2 * len(ts))
        for x in range(u):
            ts[t] = us[x]
            for v in range(versions):
                ta[t, v] = ua[x, v] + more[i, v]
            t += 1
        task[k] = i
        k += 1
        ptr[k] = t
        count[i] = 1
        source[i, 0] = n_joins + k - 1
        after[i, 0] = 0
    return (
        grown(task, k), grown(ptr, k + 1), grown(ts, t), ta[:t].copy(),
        grown(jj, j), grown(jt, j), grown(js, j), ja[:j].copy(),
    )  # fmt: skip
