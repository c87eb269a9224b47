"""Rows of links, rings and trees by compiled code: whose they are, and whether they are new.

It answers as `debug_log_places.Places` does, from arrays that `debug_log_known` makes of it.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from . import debug_log_state as of
from .bytes_at import byte, inlined, jit, store8
from .debug_log_told import edge_key, link_key, moved_key

NULL = of.NULL
_MULTIPLIER = np.uint64(0xFF51AFD7ED558CCD)
_edge_key, _link_key, _moved_key = map(inlined, (edge_key, link_key, moved_key))


@inlined
def _fits(comm, offset, me, highest, comms):
    ended = comms[comm, of.C_ENDED]
    return (
        comms[comm, of.C_BEGUN] <= offset
        and (ended == NULL or ended > offset)
        and me == comms[comm, of.C_PLACE]
        and highest < comms[comm, of.C_SIZE]
    )


@inlined
def of_pointer(start, end, offset, comms, lists):
    """The last of the communicators of a pointer that had begun; the first of all, if none had."""
    low = start
    high = end
    while low < high:
        middle = (low + high) // 2
        if offset < comms[lists[middle], of.C_BEGUN]:
            high = middle
        else:
            low = middle + 1
    return lists[max(low - 1, start)]


@jit
def _sought(start, end, offset, comms, lists):
    """Where a binary search for the first that was made from `offset` on ends."""
    low = start
    high = end
    while low < high:
        middle = (low + high) // 2
        if comms[lists[middle], of.C_MADE] < offset:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def comm_of(who, offset, me, highest, comms, lists):
    """The communicator of a message without a pointer in which rank `me` wrote; -1 for none."""
    start = who[of.W_THREAD]
    end = who[of.W_THREAD_END]
    low = who[of.W_AT]
    if low < 0:
        low = _sought(start, end, offset, comms, lists)
    else:
        # Lines come in order: it is where it was for the line before, or little further on.
        if low > start and comms[lists[low - 1], of.C_MADE] >= offset:
            low = start
        while low < end and comms[lists[low], of.C_MADE] < offset:
            low += 1
        who[of.W_AT] = low
    for at in (low, low - 1):
        if start <= at < end:
            comm = lists[at]
            begun = comms[comm, of.C_BEGUN]
            if begun == comms[comm, of.C_MADE] and not comms[comm, of.C_UNMADE]:
                begun = 0
            if (begun <= offset and me == comms[comm, of.C_PLACE]
                    and highest < comms[comm, of.C_SIZE]):  # fmt: skip
                return comm
    found = np.int64(-1)
    for at in range(who[of.W_PROCESS], who[of.W_PROCESS_END]):
        if _fits(lists[at], offset, me, highest, comms):
            if found >= 0:
                return np.int64(-1)
            found = lists[at]
    return found


@inlined
def rank_at(comm, place, comms, names, members):
    """The global rank at a place of a communicator; NULL where unknown."""
    if comm < 0:
        return np.int64(NULL)
    name = comms[comm, of.C_NAME]
    low = names[name, of.M_START]
    end = names[name, of.M_END]
    high = end
    if place < end - low and members[low + place, 0] == place:  # each place is known, as a rule
        return members[low + place, 1]
    while low < high:
        middle = (low + high) // 2
        if members[middle, 0] < place:
            low = middle + 1
        else:
            high = middle
    if low < end and members[low, 0] == place:
        return members[low, 1]
    if names[name, of.M_WORLD] and place < names[name, of.M_SIZE]:
        return place
    return np.int64(NULL)


@inlined
def _host_of(rank, hosts):
    """The code of a rank's host; NULL where nobody says it."""
    low = 0
    high = hosts.shape[0]
    if rank < high and hosts[rank, 0] == rank:  # each rank's is known, as a rule
        return hosts[rank, 1]
    while low < high:
        middle = (low + high) // 2
        if hosts[middle, 0] < rank:
            low = middle + 1
        else:
            high = middle
    if low < hosts.shape[0] and hosts[low, 0] == rank:
        return hosts[low, 1]
    return np.int64(NULL)


@inlined
def is_new(a, b, c, seen, seen_slots, state):
    """Whether these three are told for the first time since what was told was last forgotten.

    Of `seen_slots` four parts in five are places in `seen`, the rest a byte for each of them: 0 for
    none, else some of the hash. Of what is new, nearly all, those bytes say so, which are a quarter
    of the memory to wait for.
    """
    h = np.uint64(state[of.SEED])
    for value in (a, b, c):
        h = (h ^ np.uint64(value)) * _MULTIPLIER
        h ^= h >> np.uint64(32)
    n = seen_slots.size // 5 * 4
    marks = 4 * n
    mask = n - 1
    mark = np.int64(h >> np.uint64(56)) | 1
    i = np.int64(h) & mask
    while True:
        known = byte(seen_slots, marks + i)
        if known == 0:
            break
        if known == mark:
            at = seen_slots[i]
            if seen[at, 0] == a and seen[at, 1] == b and seen[at, 2] == c:
                return False
        i = (i + 1) & mask
    if state[of.N_SEEN] + state[of.SEEN_ELSEWHERE] >= seen.shape[0]:
        for k in range(n, seen_slots.size):
            seen_slots[k] = 0
        state[of.N_SEEN] = 0
        state[of.SEEN_ELSEWHERE] = 0
        state[of.CLEARED] += 1
        i = np.int64(h) & mask
    at = state[of.N_SEEN]
    seen[at, 0] = a
    seen[at, 1] = b
    seen[at, 2] = c
    seen_slots[i] = at
    store8(seen_slots, marks + i, mark)
    state[of.N_SEEN] = at + 1
    return True


@inlined
def _edge(kind, comm, channel, low, high, who, comms, names, members, hosts, seen, seen_slots,
          state, rows):  # fmt: skip
    whose = ~who[of.W_THREAD_ID] if comm < 0 else comms[comm, of.C_NAME]
    if not is_new(*_edge_key(kind, whose, channel, low, high), seen, seen_slots, state):
        return
    rank = rank_at(comm, low, comms, names, members)
    row = rows[state[of.EDGES]]
    row[of.E_HOST] = NULL if rank == NULL else _host_of(rank, hosts)
    row[of.E_DEVICE] = NULL
    row[of.E_KIND] = kind
    row[of.E_PEER] = NULL
    row[of.E_RANK] = rank
    row[of.E_PEER_RANK] = rank_at(comm, high, comms, names, members)
    row[of.E_COMM] = NULL if comm < 0 else comms[comm, of.C_CODE]
    row[of.E_CHANNEL] = channel
    row[of.E_VIA] = NULL
    row[of.E_MEMBER] = -1
    state[of.EDGES] += 1


@inlined
def link_rows(comm, who, via, nic, comms, names, members, hosts, seen, seen_slots, state, rows,
              moved):  # fmt: skip
    """The rows of the link that the state holds; `nic` is NULL off the network."""
    channel = state[of.L_CHANNEL]
    me = state[of.L_ME]
    place = state[of.L_PEER]
    rank = who[of.W_RANK] if comm < 0 else comms[comm, of.C_RANK]
    peer = rank_at(comm, place, comms, names, members)
    name = np.int64(-1) if comm < 0 else comms[comm, of.C_NAME]
    its = np.int64(-1) if nic == NULL else nic
    if is_new(*_link_key(who[of.W_OWNER], name, channel, me, place, via, its), seen, seen_slots,
              state):  # fmt: skip
        row = rows[state[of.EDGES]]
        row[of.E_HOST] = who[of.W_HOST]
        row[of.E_DEVICE] = nic
        row[of.E_KIND] = of.K_LINK
        row[of.E_PEER] = NULL if peer == NULL else _host_of(peer, hosts)
        row[of.E_RANK] = rank
        row[of.E_PEER_RANK] = peer
        row[of.E_COMM] = NULL if comm < 0 else comms[comm, of.C_CODE]
        row[of.E_CHANNEL] = channel
        row[of.E_VIA] = via
        row[of.E_MEMBER] = -1
        state[of.EDGES] += 1
    if nic != NULL and rank != NULL:
        way = of.K_RECV if state[of.L_RECEIVED] else of.K_SEND
        if is_new(*_moved_key(way, rank, nic, channel, peer, via), seen, seen_slots, state):
            row = moved[state[of.MOVED]]
            row[of.V_RANK] = rank
            row[of.V_HOST] = who[of.W_HOST]
            row[of.V_NIC] = nic
            row[of.V_CHANNEL] = channel
            row[of.V_PEER] = peer
            row[of.V_DIRECTION] = way
            row[of.V_VIA] = via
            row[of.V_MEMBER] = -1
            state[of.MOVED] += 1


@inlined
def ring_rows(comm, n, said, who, comms, names, members, hosts, seen, seen_slots, state, rows):
    """The edges of a ring of `n` ranks in order, which is closed where they are all."""
    size = np.int64(n) if comm < 0 else comms[comm, of.C_SIZE]
    ends = n if n >= size else n - 1
    for k in range(ends):
        high = said[k + 1] if k + 1 < n else said[0]
        _edge(of.K_RING, comm, state[of.L_CHANNEL], said[k], high, who, comms, names, members,
              hosts, seen, seen_slots, state, rows)  # fmt: skip


@inlined
def tree_rows(k, comm, said, who, comms, names, members, hosts, seen, seen_slots, state, rows):
    """The edges of one of the trees in `said`, to the parent and from the children."""
    channel = said[k]
    me = said[k + 4]
    parent = said[k + 5]
    if parent >= 0:
        _edge(of.K_TREE, comm, channel, me, parent, who, comms, names, members, hosts, seen,
              seen_slots, state, rows)  # fmt: skip
    for i in range(1, 4):
        if said[k + i] >= 0:
            _edge(of.K_TREE, comm, channel, said[k + i], me, who, comms, names, members, hosts,
                  seen, seen_slots, state, rows)  # fmt: skip


@jit
def told(a, b, c, seen, seen_slots, state):
    """As `is_new`, for the caller: 1 or 0."""
    return np.int64(1) if is_new(a, b, c, seen, seen_slots, state) else np.int64(0)
