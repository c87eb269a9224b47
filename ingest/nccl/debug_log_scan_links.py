"""Compiled reading of an NCCL debug log's lines of links, rings and trees, as NCCL prints them.

What they say goes to the state and, for rings and trees, to an array of numbers. Anything else in
them, and what RCCL or old versions print otherwise, is not taken.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from . import debug_log_state as of
from .bytes_at import byte, inlined, jit, word_at
from .debug_log_words import hex_number, number

_CHANNEL, _RING, _TREES = word_at(b"Channel "), word_at(b"Ring "), word_at(b"Trees ")
_TO, _VIA, _THEN = word_at(b" -> "), word_at(b"via "), word_at(b" : ")
_SEND, _RECEIVE = word_at(b"[send] "), word_at(b"[receive] ")
_OF_COMM, _ARROW = word_at(b" comm 0x"), word_at(b"->")
_MOST_VIA = 160
_MOST_TEXT = 400


@jit
def _is_word(c):
    return 0x61 <= c <= 0x7A or 0x30 <= c <= 0x39 or 0x41 <= c <= 0x5A or c == 0x5F


@inlined
def _pointer(buf, p, state):
    """Reads the pointer of a communicator behind ` comm 0x` at p: whether it is one in full."""
    start = p + 8
    state[of.L_POINTER], q = hex_number(buf, start, 16)
    # A pointer with noughts before it is another text.
    return q > start and byte(buf, start) != 0x30 and not _is_word(byte(buf, q))


@inlined
def _device(buf, p):
    """Behind `[device]` at p, if it stands there; -1 where it is no such word."""
    if byte(buf, p) != 0x5B:
        return p
    p += 1
    if byte(buf, p) == 0x2D:
        p += 1
    start = p
    while _is_word(byte(buf, p)) and p - start <= 16:
        p += 1
    return p + 1 if 1 <= p - start <= 16 and byte(buf, p) == 0x5D else np.int64(-1)


@inlined
def _channel(buf, t, state):
    """Behind `Channel 00/02 : ` at t, whose number goes to the state; -1 where it is not there."""
    start = t + 8 if _CHANNEL(buf, t) else t + 5
    state[of.L_CHANNEL], p = number(buf, start, 5)
    if p == start:
        return np.int64(-1)
    if byte(buf, p) == 0x2F:
        start = p + 1
        _, p = number(buf, start, 5)
        if p == start:
            return np.int64(-1)
    return p + 3 if _THEN(buf, p) else np.int64(-1)


@inlined
def _link(buf, p, end, state):
    """Reads `3[3] -> 4[0] [send] via NET/IB/0`, the first number at p: whether it is one."""
    low, q = number(buf, p, 8)
    if q == p:
        return False
    q = _device(buf, q)
    if q < 0 or not _TO(buf, q):
        return False
    p = q + 4
    high, q = number(buf, p, 8)
    if q == p:
        return False
    q = _device(buf, q)
    if q < 0 or byte(buf, q) != 0x20:
        return False
    p = q + 1
    received = _RECEIVE(buf, p)
    if received:
        p += 10
    elif _SEND(buf, p):
        p += 7
    if not _VIA(buf, p):
        return False
    p += 4
    state[of.L_ME] = high if received else low
    state[of.L_PEER] = low if received else high
    state[of.L_RECEIVED] = received
    state[of.L_VIA] = p
    state[of.L_POINTER] = 0
    if p >= end or end - p > _MOST_VIA:
        return False
    while p < end:
        c = byte(buf, p)
        if c < 0x20 or c > 0x7E:
            return False
        if c == 0x20 and _OF_COMM(buf, p):
            break
        p += 1
    state[of.L_VIA_END] = p
    return p > state[of.L_VIA] and (p == end or _pointer(buf, p, state))


@inlined
def _ring(buf, p, end, state, said):
    """Reads the ranks of a ring, in order, to `said`: whether there is nothing else."""
    n = 0
    state[of.L_POINTER] = 0
    blanks = 0
    while p < end and byte(buf, p) == 0x20:
        p += 1
        blanks += 1
    if blanks > 7:
        return False
    while p < end:
        rank, q = number(buf, p, 8)
        if q == p or n == said.size:
            return False
        said[n] = rank
        n += 1
        p = q
        if p < end and byte(buf, p) != 0x20:
            return False
        if _OF_COMM(buf, p):
            if not _pointer(buf, p, state):
                return False
            while p + 1 < end:
                if _ARROW(buf, p) or _OF_COMM(buf, p + 1):
                    return False
                p += 1
            break
        while p < end and byte(buf, p) == 0x20:
            p += 1
    state[of.L_N] = n
    return n > 0


@jit
def _signed(buf, p):
    """(number of up to 8 digits at p, which may be below 0; where it ends or p)."""
    negative = byte(buf, p) == 0x2D
    start = p + 1 if negative else p
    value, q = number(buf, start, 8)
    if q == start or (negative and value == 0):
        return value, p
    return (-value if negative else value), q


@jit
def _tree(buf, p, said, n):
    """Behind `[1] 4/-1/-1->0->2` at p, whose numbers go to `said`; -1 where it is none."""
    none = np.int64(-1)
    if byte(buf, p) != 0x5B:
        return none
    said[n], q = number(buf, p + 1, 5)
    if q == p + 1 or byte(buf, q) != 0x5D or byte(buf, q + 1) != 0x20:
        return none
    p = q + 2
    for k in range(1, 6):
        said[n + k], q = _signed(buf, p)
        if q == p:
            return none
        p = q
        if k < 3:
            if byte(buf, p) != 0x2F:
                return none
            p += 1
        elif k < 5:
            if not _ARROW(buf, p):
                return none
            p += 2
    return p


@inlined
def _trees(buf, p, end, state, said):
    """Reads a tree of each channel, six numbers each, to `said`: whether there is nothing else."""
    n = 0
    state[of.L_POINTER] = 0
    while True:
        if n + 6 > said.size:
            return False
        p = _tree(buf, p, said, n)
        if p < 0 or p > end:
            return False
        n += 6
        if byte(buf, p) == 0x7C:
            # Versions before 2.8 say each tree twice.
            p += 1
            while p < end and (0x2D <= byte(buf, p) <= 0x39 or byte(buf, p) == 0x3E):
                p += 1
        if p == end:
            break
        if byte(buf, p) != 0x20:
            return False
        if _OF_COMM(buf, p):
            if not _pointer(buf, p, state):
                return False
            while p + 1 < end:
                p += 1
                if byte(buf, p) == 0x5B or _OF_COMM(buf, p):
                    return False
            break
        p += 1
        if p == end:
            break
    state[of.L_N] = n // 6
    return True


@inlined
def said_of_links(buf, t, end, state, said):
    """What the text from t to `end` says of links: IS_LINK, IS_RING, IS_TREES, or IS_NEITHER."""
    if _TREES(buf, t):
        taken = end - t <= 8192 and _trees(buf, t + 6, end, state, said)
        if state[of.L_POINTER] and end - t > _MOST_TEXT:
            taken = False
        return of.IS_TREES if taken else of.IS_NEITHER
    p = _channel(buf, t, state)
    if p < 0 or end - t > _MOST_TEXT:
        return of.IS_NEITHER
    if _link(buf, p, end, state):
        return of.IS_LINK
    return of.IS_RING if _ring(buf, p, end, state, said) else of.IS_NEITHER
