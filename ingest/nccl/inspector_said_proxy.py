"""What a proxy's record in a line of Inspector says, read into the state and a matrix of steps.

As everywhere in the scan: behind what is read, or -1 where it is not as Inspector prints it.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from . import inspector_state as of
from .bytes_at import byte, inlined, jit, word_at
from .inspector_said import time_ns
from .json_bytes import integer, other_member

NULL = of.NULL

_TYPE, _PARENT = word_at(b'"record_type":"'), word_at(b'"parent_type":"')
_PARENT_SN, _OP_SN = word_at(b'"parent_sn":'), word_at(b'"proxy_op_sn":')
_CHANNEL, _PEER = word_at(b'"channel_id":'), word_at(b'"peer":')
_DIRECTION, _DROPPED = word_at(b'"direction":"'), word_at(b'"n_steps_dropped":')
_STEPS = word_at(b'"steps":')
_BYTES, _TRACE = word_at(b'"trans_size_bytes":'), word_at(b'"event_trace_ts":')
_SEND, _RECV = word_at(b'send"'), word_at(b'recv"')
_COLL, _P2P = word_at(b'coll"'), word_at(b'p2p"')
_OP, _STEP = word_at(b'proxy_op"'), word_at(b'proxy_step"')
_OP_START, _SEGMENT = word_at(b'proxy_op_start"'), word_at(b'proxy_op_segment"')
_TS = word_at(b'_ts":')
_OP_WORD, _STEP_WORD = word_at(b'"proxy_op_'), word_at(b'"proxy_step_')
_BEGAN, _UNDER_WAY, _STOPPED = word_at(b"start"), word_at(b"in_progress"), word_at(b"stop")
_SEND_WAIT, _RECV_WAIT = word_at(b'"send_wait'), word_at(b'"recv_wait')
_FLUSH, _GPU_WAIT = word_at(b'"recv_flush_wait'), word_at(b'"recv_gpu_wait')


@jit
def _time_named(buf, p):
    """(which time the member at p is, bytes of its name before `_ts`); (-1, 0) for none of them."""
    if _OP_WORD(buf, p):
        if _BEGAN(buf, p + 10):
            return of.ST_OP_START, 15
        if _UNDER_WAY(buf, p + 10):
            return of.ST_OP_PROGRESS, 21
        if _STOPPED(buf, p + 10):
            return of.ST_OP_STOP, 14
    elif _STEP_WORD(buf, p):
        if _BEGAN(buf, p + 12):
            return of.ST_START, 17
        if _STOPPED(buf, p + 12):
            return of.ST_STOP, 16
    elif _SEND_WAIT(buf, p):
        return of.ST_SEND_WAIT, 10
    elif _RECV_WAIT(buf, p):
        return of.ST_RECV_WAIT, 10
    elif _FLUSH(buf, p):
        return of.ST_FLUSH, 16
    elif _GPU_WAIT(buf, p):
        return of.ST_GPU_WAIT, 14
    return -1, 0


@jit
def _times(buf, p, state, step):
    """Behind the times of a record or a step."""
    if byte(buf, p) != 0x7B:
        return -1
    p += 1
    if byte(buf, p) == 0x7D:
        return p + 1
    seen = 0
    while True:
        which, size = _time_named(buf, p)
        if which >= 0 and _TS(buf, p + size):
            if seen & (1 << which):
                return -1
            seen |= 1 << which
            p = integer(buf, p + size + 5, state, of.CODE)
            step[which] = time_ns(state[of.CODE])
        else:
            p = other_member(buf, p)
        if p < 0:
            return -1
        c = byte(buf, p)
        p += 1
        if c == 0x7D:
            return p
        if c != 0x2C:
            return -1


@jit
def _step(buf, p, state, step):
    """Behind one of the steps that stand within a record."""
    if byte(buf, p) != 0x7B:
        return -1
    p += 1
    step[:] = NULL
    if byte(buf, p) == 0x7D:
        return p + 1
    sized = timed = False
    while True:
        if _BYTES(buf, p):
            if sized:
                return -1
            sized = True
            p = integer(buf, p + 19, state, of.CODE)
            step[of.ST_BYTES] = state[of.CODE]
        elif _TRACE(buf, p):
            if timed:
                return -1
            timed = True
            p = _times(buf, p + 17, state, step)
        else:
            p = other_member(buf, p)
        if p < 0:
            return -1
        c = byte(buf, p)
        p += 1
        if c == 0x7D:
            return p
        if c != 0x2C:
            return -1


@jit
def _steps(buf, p, state, steps):
    """Behind the array of a record's steps; as many as there is room for."""
    if byte(buf, p) != 0x5B:
        return -1
    p += 1
    n = 0
    if byte(buf, p) == 0x5D:
        state[of.PX_STEPS] = 0
        return p + 1
    while True:
        n += 1
        if n == steps.shape[0]:
            return -1
        p = _step(buf, p, state, steps[n])
        if p < 0:
            return -1
        c = byte(buf, p)
        p += 1
        if c == 0x5D:
            state[of.PX_STEPS] = n
            return p
        if c != 0x2C:
            return -1


@jit
def _record_type(buf, p):
    """(kind of record, bytes of its name); (-1, 0) for one that is not known."""
    if _OP(buf, p):
        return of.PROXY_OP, 9
    if _STEP(buf, p):
        return of.PROXY_STEP, 11
    if _OP_START(buf, p):
        return of.PROXY_PART, 15
    if _SEGMENT(buf, p):
        return of.PROXY_PART, 17
    return -1, 0


@inlined
def proxy(buf, p, state, steps):
    """Behind a proxy's record: itself in `steps[0]`, the steps in it behind that."""
    for place in (of.PX_PARENT_SN, of.PX_OP_SN, of.PX_CHANNEL, of.PX_PEER, of.PX_DROPPED):
        state[place] = NULL
    for place in (of.PX_KIND, of.PX_PARENT, of.PX_DIRECTION, of.PX_STEPS):
        state[place] = -1
    steps[0, :] = NULL
    if byte(buf, p) != 0x7B:
        return -1
    p += 1
    seen = 0
    while True:
        member = np.int64(-1)
        if _TYPE(buf, p):
            member = 0
            kind, size = _record_type(buf, p + 15)
            state[of.PX_KIND] = kind
            p = p + 15 + size if kind >= 0 else -1
        elif _PARENT(buf, p):
            member = 1
            if _COLL(buf, p + 15):
                state[of.PX_PARENT] = of.OF_COLL
                p += 20
            elif _P2P(buf, p + 15):
                state[of.PX_PARENT] = of.OF_P2P
                p += 19
            else:
                p = -1
        elif _PARENT_SN(buf, p):
            member = 2
            p = integer(buf, p + 12, state, of.PX_PARENT_SN)
        elif _OP_SN(buf, p):
            member = 3
            p = integer(buf, p + 14, state, of.PX_OP_SN)
        elif _CHANNEL(buf, p):
            member = 4
            p = integer(buf, p + 13, state, of.PX_CHANNEL)
        elif _PEER(buf, p):
            member = 5
            p = integer(buf, p + 7, state, of.PX_PEER)
        elif _DIRECTION(buf, p):
            member = 6
            state[of.PX_DIRECTION] = of.RECEIVED if _RECV(buf, p + 13) else of.SENT
            p = p + 18 if _RECV(buf, p + 13) or _SEND(buf, p + 13) else -1
        elif _DROPPED(buf, p):
            member = 7
            p = integer(buf, p + 18, state, of.PX_DROPPED)
        elif _BYTES(buf, p):
            member = 8
            p = integer(buf, p + 19, state, of.CODE)
            steps[0, of.ST_BYTES] = state[of.CODE]
        elif _TRACE(buf, p):
            member = 9
            p = _times(buf, p + 17, state, steps[0])
        elif _STEPS(buf, p):
            member = 10
            p = _steps(buf, p + 8, state, steps)
        else:
            p = other_member(buf, p)
        if p < 0 or (member >= 0 and seen & (1 << member)):
            return -1
        if member >= 0:
            seen |= 1 << member
        c = byte(buf, p)
        p += 1
        if c == 0x7D:
            return p
        if c != 0x2C:
            return -1
