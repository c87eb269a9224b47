"""What an operation's or a dump's object in a line of Inspector says, read into the scan's state.

As everywhere in it: behind what is read, or -1 where it is not as Inspector prints it.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from . import inspector_state as of
from .bytes_at import byte, inlined, jit, word_at
from .json_bytes import integer, other_member, text

NULL = of.NULL

_COLL, _P2P = word_at(b'"coll'), word_at(b'"p2p')
_NAME_OF, _SN = word_at(b'":'), word_at(b'_sn":')
_BYTES, _MICROS = word_at(b'_msg_size_bytes":'), word_at(b'_exec_time_us":')
_TIMING, _START = word_at(b'_timing_source":'), word_at(b'_start_ts":')
_ALGO, _PROTO = word_at(b'"coll_algo":'), word_at(b'"coll_proto":')
_PEER, _TRACE = word_at(b'"p2p_peer":'), word_at(b'"event_trace_ts":')
_KERNELS = word_at(b'"kernel_events":')
_K_START, _K_STOP = word_at(b'"kernel_start_ts":'), word_at(b'"kernel_stop_ts":')
_COLL_RECORDS, _P2P_RECORDS = word_at(b'"coll_records":'), word_at(b'"p2p_records":')
_PROXY_RECORDS = word_at(b'"proxy_records":')
_STEPS_ENABLED = word_at(b'"proxy_steps_enabled":')
_COLL_GONE = word_at(b'"coll_dropped_since_last_dump":')
_P2P_GONE = word_at(b'"p2p_dropped_since_last_dump":')
_PROXY_GONE = word_at(b'"proxy_dropped_since_last_dump":')
_OPS_GONE = word_at(b'"proxy_ops_dropped_since_last_dump":')
_FORMAT = word_at(b'"inspector_output_format_version":')


@jit
def time_ns(value):
    """Nanoseconds of a time in microseconds; NULL where it was never taken."""
    return value * 1000 if 0 < value <= of.MOST_MICROS else NULL


@jit
def _kernel(buf, p, state):
    """Behind one of the kernels of an operation; widens START and STOP."""
    if byte(buf, p) != 0x7B:
        return -1
    p += 1
    seen = 0
    if byte(buf, p) == 0x7D:
        return p + 1
    while True:
        if _K_START(buf, p):
            p = integer(buf, p + 18, state, of.CODE)
            seen += 1
            at = time_ns(state[of.CODE])
            if p >= 0 and at != NULL and (state[of.START] == NULL or at < state[of.START]):
                state[of.START] = at
        elif _K_STOP(buf, p):
            p = integer(buf, p + 17, state, of.CODE)
            seen += 16
            at = time_ns(state[of.CODE])
            if p >= 0 and at != NULL and (state[of.STOP] == NULL or at > state[of.STOP]):
                state[of.STOP] = at
        else:
            p = other_member(buf, p)
        if p < 0 or (seen & 15) > 1 or seen > 17:
            return -1
        c = byte(buf, p)
        p += 1
        if c == 0x7D:
            return p
        if c != 0x2C:
            return -1


@inlined
def _times(buf, p, state):
    """Behind an operation's times."""
    if byte(buf, p) != 0x7B:
        return -1
    p += 1
    if byte(buf, p) == 0x7D:
        return p + 1
    started = kernels = False
    prefix = 5 if state[of.COLL] else 4
    while True:
        named = _COLL(buf, p) if state[of.COLL] else _P2P(buf, p)
        if named and _START(buf, p + prefix):
            if started:
                return -1
            started = True
            p = integer(buf, p + prefix + 11, state, of.ENQUEUED)
            if p >= 0:
                state[of.ENQUEUED] = time_ns(state[of.ENQUEUED])
        elif _KERNELS(buf, p):
            p += 16
            if kernels or byte(buf, p) != 0x5B:
                return -1
            kernels = True
            p += 1
            n = 0
            if byte(buf, p) == 0x5D:
                p += 1
            else:
                while True:
                    p = _kernel(buf, p, state)
                    if p < 0:
                        return -1
                    n += 1
                    c = byte(buf, p)
                    p += 1
                    if c == 0x5D:
                        break
                    if c != 0x2C:
                        return -1
                state[of.CHANNELS] = n
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


@inlined
def operation(buf, p, state):
    """Behind an operation's object; what it says goes to the state."""
    for place in (of.SN, of.BYTES, of.MICROS, of.PEER, of.START, of.STOP, of.ENQUEUED,
                  of.CHANNELS):  # fmt: skip
        state[place] = NULL
    for place in (of.NAME, of.TIMING, of.ALGO, of.PROTO):
        state[place] = state[place + 1] = 0
    if byte(buf, p) != 0x7B:
        return -1
    p += 1
    if byte(buf, p) == 0x7D:
        return p + 1
    prefix = 5 if state[of.COLL] else 4
    seen = 0
    while True:
        member = -1
        named = _COLL(buf, p) if state[of.COLL] else _P2P(buf, p)
        q = p + prefix
        if named and _NAME_OF(buf, q):
            member = 0
            p = text(buf, q + 2, state, of.NAME)
        elif named and _SN(buf, q):
            member = 1
            p = integer(buf, q + 5, state, of.SN)
        elif named and _BYTES(buf, q):
            member = 2
            p = integer(buf, q + 17, state, of.BYTES)
        elif named and _MICROS(buf, q):
            member = 3
            p = integer(buf, q + 15, state, of.MICROS)
        elif named and _TIMING(buf, q):
            member = 4
            p = text(buf, q + 16, state, of.TIMING)
        elif _ALGO(buf, p):
            member = 5
            p = text(buf, p + 12, state, of.ALGO)
        elif _PROTO(buf, p):
            member = 6
            p = text(buf, p + 13, state, of.PROTO)
        elif _PEER(buf, p):
            member = 7
            p = integer(buf, p + 11, state, of.PEER)
        elif _TRACE(buf, p):
            member = 8
            p = _times(buf, p + 17, state)
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


@jit
def dump(buf, p, state):
    """Behind what a dump's first line says of it; -1 also where it says that something is gone."""
    for place in (of.D_COLL, of.D_P2P, of.D_PROXY, of.D_STEPS):
        state[place] = 0
    if byte(buf, p) != 0x7B:
        return -1
    p += 1
    if byte(buf, p) == 0x7D:
        return p + 1
    seen = 0
    while True:
        member = -1
        state[of.CODE] = 0
        if _COLL_RECORDS(buf, p):
            member = 0
            p = integer(buf, p + 15, state, of.D_COLL)
        elif _P2P_RECORDS(buf, p):
            member = 1
            p = integer(buf, p + 14, state, of.D_P2P)
        elif _PROXY_RECORDS(buf, p):
            member = 2
            p = integer(buf, p + 16, state, of.D_PROXY)
        elif _STEPS_ENABLED(buf, p):
            member = 3
            p = integer(buf, p + 22, state, of.D_STEPS)
        elif _COLL_GONE(buf, p):
            member = 4
            p = integer(buf, p + 31, state, of.CODE)
        elif _P2P_GONE(buf, p):
            member = 5
            p = integer(buf, p + 30, state, of.CODE)
        elif _PROXY_GONE(buf, p):
            member = 6
            p = integer(buf, p + 32, state, of.CODE)
        elif _OPS_GONE(buf, p):
            member = 7
            p = integer(buf, p + 36, state, of.CODE)
        else:
            p = other_member(buf, p)
        if p < 0 or state[of.CODE] > 0 or (member >= 0 and seen & (1 << member)):
            return -1
        if member >= 0:
            seen |= 1 << member
        c = byte(buf, p)
        p += 1
        if c == 0x7D:
            return p
        if c != 0x2C:
            return -1


@jit
def version(buf, p, state):
    """Whether metadata at p, an object, names one version; its bounds go to NAME of the state."""
    state[of.NAME] = 0
    p += 1
    if byte(buf, p) == 0x7D:
        return False
    while True:
        if _FORMAT(buf, p):
            if state[of.NAME]:
                return False
            p = text(buf, p + 34, state, of.NAME)
        else:
            p = other_member(buf, p)
        if p < 0:
            return False
        c = byte(buf, p)
        p += 1
        if c == 0x7D:
            return state[of.NAME] > 0
        if c != 0x2C:
            return False
