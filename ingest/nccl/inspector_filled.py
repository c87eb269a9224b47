"""Rows that the compiled pass over Inspector's lines fills: operations and what proxies moved."""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from . import inspector_state as of
from .bytes_at import inlined, jit
from .tables_at import ABSENT, keep, kept

NULL = of.NULL
_I32_MAX = (1 << 31) - 1


@inlined
def row_of(state, row, place, header, shape, label, rank, lasts):
    """Fills a row; False where the line has to be read by itself, and nothing was changed."""
    micros = state[of.MICROS]
    if not 0 <= micros <= of.MOST_MICROS:
        return False
    start = state[of.START]
    stop = state[of.STOP]
    if start == NULL or stop == NULL or stop < start:
        start = stop = NULL
    if start != NULL and not rank[of.R_TIMED]:
        return False
    sn = state[of.SN]
    gap = shape[of.S_GAP]
    if gap >= 0 and sn != NULL:
        last = lasts[gap, 1]
        if lasts[gap, 0] and sn > last + 1:
            if not rank[of.R_SAMPLED] or last < 0 or sn - last > of.MOST_GAP:
                return False
            rank[of.R_SAMPLED_COUNT] += sn - last - 1
        if not lasts[gap, 0] or sn > last:
            lasts[gap, 0] = 1
            lasts[gap, 1] = sn
    if start != NULL:
        rank[of.R_TIMED_COUNT] += 1
        if rank[of.R_START] == NULL or start < rank[of.R_START]:
            rank[of.R_START] = start
        if rank[of.R_END] == NULL or stop > rank[of.R_END]:
            rank[of.R_END] = stop
    n_bytes = state[of.BYTES]
    known = 0 <= n_bytes <= of.MOST_BYTES
    row[of.ROW_COMM] = place[of.P_COMM]
    row[of.ROW_SEQ] = sn if gap >= 0 else NULL
    row[of.ROW_RANK] = place[of.P_RANK]
    row[of.ROW_OP] = shape[of.S_OP]
    row[of.ROW_IN] = n_bytes * shape[of.S_IN] if known and shape[of.S_IN] >= 0 else NULL
    row[of.ROW_OUT] = n_bytes * shape[of.S_OUT] if known and shape[of.S_OUT] >= 0 else NULL
    row[of.ROW_SIZE] = place[of.P_SIZE]
    peer = state[of.PEER]
    row[of.ROW_PEER] = peer if 0 <= peer < (1 << 32) else NULL
    row[of.ROW_ALGO] = label[of.L_ALGO]
    row[of.ROW_PROTO] = label[of.L_PROTO]
    row[of.ROW_CHANNELS] = state[of.CHANNELS]
    row[of.ROW_START] = start
    row[of.ROW_END] = stop
    row[of.ROW_EXEC] = micros * 1000
    row[of.ROW_ENQUEUED] = state[of.ENQUEUED]
    # The code of `host` is 0: the caller sees to that.
    row[of.ROW_TIMING] = 0 if start != NULL else label[of.L_TIMING]
    row[of.ROW_CLOCK] = 0 if start != NULL else NULL
    number = (state[of.N_ROWS] + 1) & ((1 << of.EVENT_BITS) - 1)
    row[of.ROW_EVENT] = place[of.P_EVENT] | (state[of.TAG] << of.EVENT_BITS) | number
    row[of.ROW_MEMBER] = header
    return True


@jit
def _first(a, b, c):
    """The first of three that is there."""
    if a != NULL:
        return a
    return b if b != NULL else c


@inlined
def _moved(state, row, step, start, end, place, header, event, rank):
    """Fills a row of transfers, and widens what its rank's times span."""
    if start == NULL or end == NULL or end < start:
        start = end = NULL
    if start != NULL:
        if rank[of.R_START] == NULL or start < rank[of.R_START]:
            rank[of.R_START] = start
        if rank[of.R_END] == NULL or end > rank[of.R_END]:
            rank[of.R_END] = end
    peer = state[of.PX_PEER]
    row[of.MOVED_RANK] = place[of.P_RANK]
    row[of.MOVED_CHANNEL] = state[of.PX_CHANNEL]
    row[of.MOVED_PEER] = peer if 0 <= peer < (1 << 32) else NULL
    row[of.MOVED_BYTES] = step[of.ST_BYTES] if step[of.ST_BYTES] >= 0 else NULL
    row[of.MOVED_START] = start
    row[of.MOVED_END] = end
    row[of.MOVED_EVENT] = event
    row[of.MOVED_DIRECTION] = state[of.PX_DIRECTION]
    row[of.MOVED_CLOCK] = of.HOST_CODE if start != NULL else NULL
    row[of.MOVED_MEMBER] = header


@inlined
def _moved_step(state, row, step, place, header, event, rank):
    if state[of.PX_DIRECTION] == of.RECEIVED:
        start = _first(step[of.ST_RECV_WAIT], step[of.ST_START], NULL)
        end = _first(step[of.ST_FLUSH], step[of.ST_GPU_WAIT], step[of.ST_STOP])
    else:
        start = _first(step[of.ST_SEND_WAIT], step[of.ST_START], NULL)
        end = step[of.ST_STOP]
    _moved(state, row, step, start, end, place, header, event, rank)


@inlined
def moved_rows(state, moved, steps, place, header, rank, tables, values):
    """Adds the rows of a proxy's record; False where it has to be read by itself, and nothing was
    changed."""
    channel = state[of.PX_CHANNEL]
    if (
        state[of.PX_KIND] < 0
        or state[of.PX_DIRECTION] < 0
        or not (channel == NULL or -_I32_MAX <= channel <= _I32_MAX)
        or not (state[of.PX_DROPPED] == NULL or state[of.PX_DROPPED] == 0)
    ):
        return False
    comm = place[of.P_COMM]
    event = NULL
    if state[of.PX_PARENT] >= 0 and state[of.PX_PARENT_SN] != NULL:
        event = kept(comm, state[of.PX_PARENT], state[of.PX_PARENT_SN], tables, values)
        if event == ABSENT:
            event = NULL
    op_sn = state[of.PX_OP_SN] if state[of.PX_OP_SN] != NULL else -1
    n = state[of.MOVED]
    if state[of.PX_KIND] == of.PROXY_STEP:
        _moved_step(state, moved[n], steps[0], place, header, event, rank)
        keep(comm, of.OF_STEPS, op_sn, 1, tables, values)
        state[of.MOVED] = n + 1
        return True
    for i in range(1, state[of.PX_STEPS] + 1):
        _moved_step(state, moved[n], steps[i], place, header, event, rank)
        n += 1
    if state[of.PX_KIND] == of.PROXY_OP:
        stepped = kept(comm, of.OF_STEPS, op_sn, tables, values) != ABSENT
        if stepped:
            keep(comm, of.OF_STEPS, op_sn, ABSENT, tables, values)
        if state[of.PX_STEPS] < 0 and not stepped and not state[of.STEPS_WRITTEN]:
            op = steps[0]
            start = _first(op[of.ST_OP_PROGRESS], op[of.ST_OP_START], NULL)
            _moved(state, moved[n], op, start, op[of.ST_OP_STOP], place, header, event, rank)
            n += 1
    state[of.MOVED] = n
    return True
