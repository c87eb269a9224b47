"""Compiled reading of an NCCL debug log's lines that a communicator begins or is complete.

As NCCL prints them since 2.7; any other line of them, and those of splits, are not taken.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from ..values import MAX_RANK
from . import debug_log_state as of
from .bytes_at import byte, inlined, jit, word_at
from .debug_log_words import header, hex_number, mark, number
from .tables_at import FULL, intern, intern_numbers

NULL = of.NULL

_INFO, _COMM, _VERSION = word_at(b"INFO "), word_at(b"comm 0x"), word_at(b"CCL version")
_RANK, _NRANKS, _DEVICE = word_at(b" rank "), word_at(b" nranks "), word_at(b" cudaDev ")
_NVML, _BUS, _ID = word_at(b"nvmlDev "), word_at(b"busId "), word_at(b"commId 0x")
_START, _COMPLETE = word_at(b"- Init START"), word_at(b"- Init COMPLETE")
_MOST_BYTES = 300
"""Of a line from its mark on."""
_MOST_LABEL = 24
_MOST_SIZE = MAX_RANK + 1


@inlined
def _after_name(buf, t):
    """Where `comm 0x` stands behind the name of a function, if there is one; else -1."""
    p = t
    while not _COMM(buf, p):
        c = byte(buf, p)
        letter = 0x61 <= (c | 0x20) <= 0x7A
        if not letter and not (c == 0x20 and p > t and _COMM(buf, p + 1)):
            return np.int64(-1)
        if p - t > 40:
            return np.int64(-1)
        p += 1
    return p


@inlined
def _told(buf, p, stop, out):
    """Reads behind `comm 0x` up to the end of the text: whether it is all there."""
    out[of.I_POINTER], q = hex_number(buf, p, 16)
    # A pointer with noughts before it is another text.
    if q == p or byte(buf, p) == 0x30 or not _RANK(buf, q):
        return False
    p = q + 6
    out[of.I_PLACE], q = number(buf, p, 10)
    if q == p or not _NRANKS(buf, q):
        return False
    p = q + 8
    out[of.I_SIZE], q = number(buf, p, 10)
    if q == p or not _DEVICE(buf, q):
        return False
    p = q + 9
    out[of.I_DEVICE], q = number(buf, p, 5)
    if q == p:
        return False
    out[of.I_HASH] = 0
    named = False
    while byte(buf, q) == 0x20:
        p = q + 1
        if _START(buf, p) or _COMPLETE(buf, p):
            out[of.I_IS] = of.IS_BEGUN if _START(buf, p) else of.IS_MADE
            return p + (12 if _START(buf, p) else 15) == stop
        if _NVML(buf, p):
            p += 8
            _, q = number(buf, p, 10)
        elif _BUS(buf, p):
            p += 6
            _, q = hex_number(buf, p, 16)
        elif _ID(buf, p) and not named:
            named = True
            p += 9
            out[of.I_HASH], q = hex_number(buf, p, 16)
        else:
            return False
        if q == p:
            return False
    return False


@jit
def said_inits(buf, bounds, whole, out, writers):
    """What lines within `bounds` say of communicators, into `out`; IS_OTHER where not taken.

    `whole` is as in a block. The writers' texts get codes in the table of that name.
    """
    for k in range(bounds.shape[0]):
        row = out[k]
        row[of.I_IS] = of.IS_OTHER
        start = bounds[k, 0]
        stop = bounds[k, 1]
        if whole and stop > start and byte(buf, stop - 1) == 0x0D:
            stop -= 1
        at = mark(buf, start, stop)
        if (
            at < 0
            or stop - at > _MOST_BYTES
            or not _INFO(buf, at + 6)
            or mark(buf, at + 6, stop) >= 0
        ):
            continue
        first = header(buf, max(start, at - 500), at)
        if first < 0 or first - start > _MOST_LABEL:
            continue
        p = start
        while p < first and not _VERSION(buf, p):
            p += 1
        if p < first:
            continue
        p = _after_name(buf, at + 11)
        if p < 0 or not _told(buf, p + 7, stop, row):
            row[of.I_IS] = of.IS_OTHER
            continue
        row[of.I_WRITER] = intern(buf, first, at, writers)
        row[of.I_AT] = first
        if row[of.I_WRITER] == FULL:
            row[of.I_IS] = of.IS_OTHER


@jit
def noted_inits(inits, bounds, base, at, owners, of_device, processes, of_pointer, latest, comms,
                state):  # fmt: skip
    """Notes what lines from number `at` on say in `comms`, as `begun_or_made` does; where it stops.

    That is at what the caller has to see to: a line not taken; of a writer without owner (process
    and thread, by code of the writer's text); of a device without a process (by code of owner and
    device: `state[END]`, FULL where there is no room for it or the pointer); one that is left out;
    or where no row has room. Behind a line that begins a row and has something before its header
    `state[CODE]` is the number of that row, else -1.
    """
    state[of.CODE] = -1
    state[of.END] = -1
    for k in range(at, inits.shape[0]):
        said = inits[k]
        if said[of.I_IS] == of.IS_READ:
            continue
        if said[of.I_IS] == of.IS_OTHER or owners[said[of.I_WRITER], 0] < 0:
            return np.int64(k)
        owner = owners[said[of.I_WRITER], 0]
        pointer = intern_numbers(owner, said[of.I_POINTER], 0, of_pointer)
        if pointer == FULL:
            state[of.END] = FULL
            return np.int64(k)
        place = said[of.I_PLACE]
        size = said[of.I_SIZE]
        begins = said[of.I_IS] == of.IS_BEGUN
        number = latest[pointer]
        new = (
            number < 0
            or comms[number, of.Q_MADE] != NULL
            or comms[number, of.Q_PLACE] != place
            or comms[number, of.Q_SIZE] != size
            or (begins and comms[number, of.Q_STARTED] != 0)
        )
        if new:
            device = intern_numbers(owner, said[of.I_DEVICE], 0, of_device)
            state[of.END] = device
            number = state[of.N_COMMS]
            if (
                device == FULL
                or processes[device] < 0
                or not place < size <= _MOST_SIZE
                or number == comms.shape[0]
            ):
                return np.int64(k)
            comms[number, of.Q_PROCESS] = processes[device]
            comms[number, of.Q_THREAD] = owners[said[of.I_WRITER], 1]
            comms[number, of.Q_POINTER] = pointer
            comms[number, of.Q_PLACE] = place
            comms[number, of.Q_SIZE] = size
            comms[number, of.Q_BEGUN] = base + said[of.I_AT]
            comms[number, of.Q_MADE] = NULL
            comms[number, of.Q_ENDED] = NULL
            comms[number, of.Q_STARTED] = 0
            comms[number, of.Q_HASH] = 0
            latest[pointer] = number
            state[of.N_COMMS] = number + 1
        if begins:
            comms[number, of.Q_STARTED] = 1
        else:
            comms[number, of.Q_MADE] = base + said[of.I_AT]
        if said[of.I_HASH] != 0:
            comms[number, of.Q_HASH] = said[of.I_HASH]
        if new and said[of.I_AT] > bounds[k, 0]:
            state[of.CODE] = number
            return np.int64(k + 1)
    return np.int64(inits.shape[0])
