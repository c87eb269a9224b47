"""The event loop of flows, compiled: they come, share links, and go.

Between events rates are constant. At an event only the flows that are joined to it, by links that
they share one after another, get new rates: the others keep theirs. Where that is again and again
most of the flows under way, all of them get theirs anew: looking for the few that are not joined
costs more than it saves, and rows of flows are read faster than lists.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...ingest.compiled import compiled
from .fill import NO_ROWS, enter, leave, rows, shares

DONE, STARVED = 0, 1
_WAITING, _DUE, _MOVING, _ENDED = 0, 1, 2, 3

MANY = 256
"""Flows from which it may pay to solve all at once."""

LOOK = 16
"""After so many solves of all, those that are joined are looked for again."""


class Work(NamedTuple):
    """What F flows are to do, in ns and bytes; arrays are [F] but the last two (CSR)."""

    size_bytes: np.ndarray
    release_ns: np.ndarray
    delay_ns: np.ndarray
    waits_for: np.ndarray
    """How many others each waits for."""
    next_ptr: np.ndarray
    nexts: np.ndarray
    """Those that wait for each."""


class Ports(NamedTuple):
    """Incast: a slot is a sender's place at a port, in use while a flow of it moves.

    A link with k slots in use has 1 / (1 + gamma * max(0, k - free)) of its capacity.
    """

    gamma: np.ndarray
    free: np.ndarray
    slot_ptr: np.ndarray
    slots: np.ndarray
    """Of each flow (CSR)."""
    slot_link: np.ndarray


@compiled
def _up(heap, pos, when, at):
    f = heap[at]
    while at > 0:
        above = (at - 1) >> 1
        if when[heap[above]] <= when[f]:
            break
        heap[at] = heap[above]
        pos[heap[at]] = at
        at = above
    heap[at] = f
    pos[f] = at


@compiled
def _down(heap, pos, when, at, size):
    f = heap[at]
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and when[heap[below + 1]] < when[heap[below]]:
            below += 1
        if when[heap[below]] >= when[f]:
            break
        heap[at] = heap[below]
        pos[heap[at]] = at
        at = below
    heap[at] = f
    pos[f] = at


@compiled
def _settle(flows, now, rate, remaining, since):
    """What flows still have to move, now that their rates change."""
    for f in flows:
        remaining[f] = max(0.0, remaining[f] - rate[f] * (now - since[f]))
        since[f] = now


@compiled
def _ends(f, now, rate, remaining):
    """When a flow ends at its new rate."""
    if rate[f] == np.inf:
        return now
    if rate[f] > 0:
        return now + remaining[f] / rate[f]
    return np.inf if remaining[f] > 0 else now


@compiled
def run(net, room, cap, work, ports, merge_ns, start_ns, end_ns, busy_ns):
    """Writes start, end [F] and busy time of links [L]; returns (status, a flow, solves).

    `cap` is in bytes/ns. A flow starts `delay_ns` after its release and the last of those that it
    waits for. Events within `merge_ns` of one another share a solve.
    """
    n, n_links = len(work.size_bytes), len(net.head)
    size_bytes, delay_ns = work.size_bytes, work.delay_ns
    next_ptr, nexts = work.next_ptr, work.nexts
    gamma, free, slot_ptr, slots, slot_link = ports
    when = np.empty(n)
    heap, pos = np.empty(n, np.int64), np.full(n, -1, np.int64)
    held = 0
    phase = np.zeros(n, np.int8)
    remaining, since, rate = size_bytes.copy(), np.zeros(n), np.zeros(n)
    ready = work.release_ns.copy()
    missing = work.waits_for.copy()
    for f in range(n):
        if missing[f] == 0:
            when[f] = ready[f] + delay_ns[f]
            phase[f] = _DUE
            heap[held] = f
            held += 1
            _up(heap, pos, when, held - 1)
    active, busy_since = np.zeros(n_links, np.int64), np.zeros(n_links)
    slot_used = np.zeros(len(slot_link), np.int64)
    senders = np.zeros(n_links, np.int64)
    now_cap = cap.copy()
    link_seen, flow_seen = np.zeros(n_links, np.int64), np.zeros(n, np.int64)
    changed, part_links = np.empty(n_links, np.int64), np.empty(n_links, np.int64)
    change_seen = np.zeros(n_links, np.int64)
    part_flows = np.empty(n, np.int64)
    ended, solves, batch = 0, 0, 0
    # All at once: `live` are the flows that move, in rows by link since `in_rows` of them did.
    together, alone = 0, 0
    moving, in_rows, entered = 0, 0, False
    live, n_live = np.empty(n if n >= MANY else 0, np.int64), 0
    no_ptr, no_of = NO_ROWS
    row_ptr = np.empty(n_links + 1 if n >= MANY else 0, np.int64)
    row_of = np.empty(0, np.int32)
    while held > 0:
        batch += 1
        n_changed = 0
        now = when[heap[0]]
        if now == np.inf:
            return STARVED, heap[0], solves
        until = now + merge_ns + 1e-12 * abs(now)
        while held > 0 and when[heap[0]] <= until:
            f = heap[0]
            t = when[f]
            now = max(now, t)
            held -= 1
            if held > 0:
                heap[0] = heap[held]
                _down(heap, pos, when, 0, held)
            pos[f] = -1
            first, last = net.path_ptr[net.path[f]], net.path_ptr[net.path[f] + 1]
            if phase[f] == _DUE:
                start_ns[f] = t
                if size_bytes[f] > 0 and (last > first or net.rate_cap[f] < np.inf):
                    phase[f] = _MOVING
                    since[f] = now
                    enter(net, f)
                    moving += last > first
                    entered = True
                    for j in range(first, last):
                        li = net.path_link[j]
                        if active[li] == 0:
                            busy_since[li] = t
                        active[li] += 1
                        if change_seen[li] != batch:
                            change_seen[li] = batch
                            changed[n_changed] = li
                            n_changed += 1
                    for j in range(slot_ptr[f], slot_ptr[f + 1]):
                        s = slots[j]
                        slot_used[s] += 1
                        senders[slot_link[s]] += slot_used[s] == 1
                    if last == first:
                        rate[f] = net.rate_cap[f]
                        when[f] = t + size_bytes[f] / rate[f]
                        heap[held] = f
                        held += 1
                        _up(heap, pos, when, held - 1)
                    continue
            else:
                leave(net, f)
                moving -= last > first
                for j in range(first, last):
                    li = net.path_link[j]
                    active[li] -= 1
                    if active[li] == 0:
                        busy_ns[li] += t - busy_since[li]
                    if change_seen[li] != batch:
                        change_seen[li] = batch
                        changed[n_changed] = li
                        n_changed += 1
                for j in range(slot_ptr[f], slot_ptr[f + 1]):
                    s = slots[j]
                    slot_used[s] -= 1
                    senders[slot_link[s]] -= slot_used[s] == 0
            phase[f] = _ENDED
            end_ns[f] = t
            ended += 1
            for j in range(next_ptr[f], next_ptr[f + 1]):
                g = nexts[j]
                ready[g] = max(ready[g], t)
                missing[g] -= 1
                if missing[g] == 0:
                    when[g] = ready[g] + delay_ns[g]
                    phase[g] = _DUE
                    heap[held] = g
                    held += 1
                    _up(heap, pos, when, held - 1)
        for c in range(n_changed):
            li = changed[c]
            if gamma[li] > 0:
                now_cap[li] = cap[li] / (1.0 + gamma[li] * max(0.0, senders[li] - free[li]))
        if n_changed > 0 and together >= 2 and alone < LOOK and moving >= MANY:
            if entered:
                n_live = 0
                for f in range(n):
                    if phase[f] == _MOVING and net.entry_ptr[f + 1] > net.entry_ptr[f]:
                        live[n_live] = f
                        n_live += 1
            else:
                kept = 0
                for i in range(n_live):
                    if phase[live[i]] == _MOVING:
                        live[kept] = live[i]
                        kept += 1
                n_live = kept
            mine = live[:n_live]
            if entered or 2 * n_live < in_rows:
                if len(row_of) == 0:
                    row_of = np.empty(len(net.nxt), np.int32)
                rows(mine, net, row_ptr, row_of)
                in_rows, entered = n_live, False
            n_part = 0
            for li in range(n_links):
                if active[li] > 0:
                    part_links[n_part] = li
                    n_part += 1
            _settle(mine, now, rate, remaining, since)
            shares(mine, part_links[:n_part], now_cap, net, room, rate, row_ptr, row_of)
            solves += 1
            alone += 1
            for f in mine:
                when[f] = _ends(f, now, rate, remaining)
                if pos[f] < 0:
                    heap[held] = f
                    pos[f] = held
                    held += 1
            for at in range((held - 2) >> 1, -1, -1):
                _down(heap, pos, when, at, held)
            continue
        most = 0
        for c in range(n_changed):
            if link_seen[changed[c]] == batch or net.head[changed[c]] < 0:
                continue
            # All that is joined to this link, by links that flows share.
            part_links[0] = changed[c]
            link_seen[changed[c]] = batch
            n_part, n_flows, looked = 1, 0, 0
            while looked < n_part:
                e = net.head[part_links[looked]]
                looked += 1
                while e >= 0:
                    f = net.entry_flow[e]
                    if flow_seen[f] != batch:
                        flow_seen[f] = batch
                        part_flows[n_flows] = f
                        n_flows += 1
                        for j in range(net.path_ptr[net.path[f]], net.path_ptr[net.path[f] + 1]):
                            li = net.path_link[j]
                            if link_seen[li] != batch:
                                link_seen[li] = batch
                                part_links[n_part] = li
                                n_part += 1
                    e = net.nxt[e]
            most = max(most, n_flows)
            mine = part_flows[:n_flows]
            _settle(mine, now, rate, remaining, since)
            shares(mine, part_links[:n_part], now_cap, net, room, rate, no_ptr, no_of)
            solves += 1
            for f in mine:
                when[f] = _ends(f, now, rate, remaining)
                if pos[f] < 0:
                    heap[held] = f
                    held += 1
                    _up(heap, pos, when, held - 1)
                else:
                    _up(heap, pos, when, pos[f])
                    _down(heap, pos, when, pos[f], held)
        alone = 0
        joined = 2 * most > moving and 4 * moving > n_links and moving >= MANY
        together = together + 1 if joined else 0
    if ended < n:
        for f in range(n):
            if phase[f] == _WAITING:
                return STARVED, f, solves
    return DONE, -1, solves
