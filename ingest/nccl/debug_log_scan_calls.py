"""Compiled reading of an NCCL debug log's calls and choices: what one says, and its row."""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from . import debug_log_state as of
from .bytes_at import byte, jit, word_at
from .debug_log_words import hex_number, number, word_end

NULL = of.NULL

# No word goes on beyond its line: none holds the end of one, and noughts follow the last.
_OP_COUNT, _BYTES_ALGO = word_at(b": opCount "), word_at(b" Bytes -> Algo ")
_SEND, _RECV, _ACC = word_at(b" sendbuff "), word_at(b" recvbuff "), word_at(b" acc ")
_OF_COUNT, _TYPE, _REDOP = word_at(b" count "), word_at(b" datatype "), word_at(b" op ")
_AT_ROOT, _OF_COMM, _NRANKS = word_at(b" root "), word_at(b" comm 0x"), word_at(b" [nranks=")


@jit
def _name_end(buf, t, end):
    """Where the name of 1 to 40 letters at t ends."""
    p = t
    while p < end and p - t <= 40:
        c = byte(buf, p)
        if not (0x61 <= c <= 0x7A or 0x41 <= c <= 0x5A or 0x30 <= c <= 0x39 or c == 0x5F):
            break
        p += 1
    return p if 1 <= p - t <= 40 else -1


@jit
def said_call(buf, t, end, state):
    """Reads the call whose text begins at t into the state: whether it was one, in full."""
    p = _name_end(buf, t, end)
    if p < 0 or not _OP_COUNT(buf, p):
        return False
    state[of.SAID_NAME_END] = p
    start = p + 10
    _, p = hex_number(buf, start, 16)
    if p == start or not _SEND(buf, p):
        return False
    p = word_end(buf, p + 10, 20)
    if p < 0 or not _RECV(buf, p):
        return False
    p = word_end(buf, p + 10, 20)
    if p < 0:
        return False
    if _ACC(buf, p):
        p = word_end(buf, p + 5, 20)
        if p < 0:
            return False
    if not _OF_COUNT(buf, p):
        return False
    start = p + 7
    state[of.SAID_COUNT], p = number(buf, start, 18)
    if p == start or not _TYPE(buf, p):
        return False
    start = p + 10
    state[of.SAID_TYPE], p = number(buf, start, 4)
    if p == start or not _REDOP(buf, p):
        return False
    start = p + 4
    _, p = number(buf, start, 18)
    if p == start or not _AT_ROOT(buf, p):
        return False
    start = p + 6
    negative = byte(buf, start) == 0x2D
    if negative:
        start += 1
    state[of.SAID_ROOT], p = number(buf, start, 10)
    if negative:
        if state[of.SAID_ROOT] == 0:
            return False
        state[of.SAID_ROOT] = NULL
    if p == start or not _OF_COMM(buf, p):
        return False
    start = p + 8
    state[of.SAID_COMM], p = hex_number(buf, start, 16)
    # A pointer with noughts before it is another text.
    if p == start or (byte(buf, start) == 0x30) or not _NRANKS(buf, p):
        return False
    start = p + 9
    state[of.SAID_RANKS], p = number(buf, start, 10)
    return p > start and p < end and byte(buf, p) == 0x5D


@jit
def has_call(buf, p, end):
    """Whether the word that marks a call stands from p on, before `end`."""
    while p + 10 <= end:
        if _OP_COUNT(buf, p):
            return True
        p += 1
    return False


@jit
def has_choice(buf, p, end):
    """The same of the word that marks a choice."""
    while p + 15 <= end:
        if _BYTES_ALGO(buf, p):
            return True
        p += 1
    return False


@jit
def call_row(calls, code, counters, state, rows, start):
    """Adds the row of the call that the state holds; whether the rows are full now."""
    row = state[of.ROWS]
    root = state[of.SAID_ROOT]
    count = state[of.SAID_COUNT]
    slot = calls[code, of.SLOT]
    rows[row, of.ROW_SEQ] = NULL
    if slot >= 0:
        rows[row, of.ROW_SEQ] = counters[slot]
        counters[slot] += 1
    side = of.IN_ROOT if root == calls[code, of.PLACE] else of.IN_OTHER
    factor = calls[code, side]
    rows[row, of.ROW_IN] = NULL if factor < 0 else factor * count
    factor = calls[code, side + 1]
    rows[row, of.ROW_OUT] = NULL if factor < 0 else factor * count
    rows[row, of.ROW_COMM] = calls[code, of.COMM]
    rows[row, of.ROW_RANK] = calls[code, of.RANK]
    rows[row, of.ROW_OP] = calls[code, of.OP]
    rows[row, of.ROW_DTYPE] = calls[code, of.DTYPE]
    rows[row, of.ROW_SIZE] = calls[code, of.SIZE]
    what = calls[code, of.ROOT_IS]
    rows[row, of.ROW_ROOT] = root if what == of.IS_ROOT else NULL
    rows[row, of.ROW_PEER] = root if what == of.IS_PEER else NULL
    rows[row, of.ROW_MEMBER] = calls[code, of.MEMBER]
    offset = (state[of.BASE] + start) & np.int64((1 << 34) - 1)
    rows[row, of.ROW_EVENT] = calls[code, of.EVENT] | offset
    state[of.ROWS] = row + 1
    return row + 1 == rows.shape[0]
