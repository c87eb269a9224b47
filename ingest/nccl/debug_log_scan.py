"""The compiled pass over lines of an NCCL debug log: calls to rows, repeated lines to counts.

Lines that it does not know yet, or will not take, are given back in their order. Importing this
module costs numba; `debug_log_compiled` is what to import.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from . import debug_log_state as of
from .bytes_at import (
    LANES,
    any_of,
    byte,
    check_vector,
    jit,
    line_end,
    line_start,
    lowest_bit,
    vector_scan,
    word_at,
)
from .tables_at import FULL, intern, intern_numbers, recode

NULL = of.NULL

__all__ = ["recode", "said_lines", "scan"]

_SAID = vector_scan(any_of(b"Init ", b"nRanks ", b"COMPL", b"CCL v", b"nThre", b"busbw", b" Pid "))
_MARKED = vector_scan(any_of(b" NCCL "))
_SPECIAL = vector_scan(any_of(b": op", b"-> A", b"COMP", b"t ST", b"nRan", b"CL v"))

# No word goes on beyond its line: none holds the end of one, and noughts follow the last.
_INFO = word_at(b"INFO ")
_CHANNEL, _RING, _TREES, _TREE, _NET = map(
    word_at, (b"Channel ", b"Ring ", b"Trees ", b"Tree ", b"NET/")
)
_OP_COUNT, _BYTES_ALGO = word_at(b": opCount "), word_at(b" Bytes -> Algo ")
_SEND, _RECV, _ACC = word_at(b" sendbuff "), word_at(b" recvbuff "), word_at(b" acc ")
_OF_COUNT, _TYPE, _REDOP = word_at(b" count "), word_at(b" datatype "), word_at(b" op ")
_AT_ROOT, _OF_COMM, _NRANKS = word_at(b" root "), word_at(b" comm 0x"), word_at(b" [nranks=")


@jit
def said_lines(buf, state, every_mark, out):
    """Bounds of lines from `state[POS]` on that may name a process or a communicator, into `out`.

    With `every_mark` those with NCCL's mark too. Returns how many, and sets `state[POS]`.
    """
    found = 0
    n = state[of.N]
    p = state[of.POS]
    while p < n:
        check_vector(buf, p, 8)
        bits = _SAID(buf, p)
        if every_mark:
            bits |= _MARKED(buf, p)
        if bits == 0:
            p += LANES
            continue
        at = p + lowest_bit(bits)
        if at >= n:
            break
        if found == out.shape[0]:
            state[of.POS] = line_start(buf, at)
            return found
        end = line_end(buf, at, n)
        out[found, 0] = line_start(buf, at)
        out[found, 1] = end
        found += 1
        p = end + 1
    state[of.POS] = n
    return found


@jit
def _mark(buf, p, end):
    """Where the mark stands between p and `end`; -1 where it does not."""
    while p < end:
        check_vector(buf, p, 8)
        bits = _MARKED(buf, p)
        if bits:
            at = p + lowest_bit(bits)
            return at if at + 6 <= end else -1
        p += LANES
    return -1


@jit
def _is_special(buf, p, end):
    while p < end:
        check_vector(buf, p, 8)
        bits = _SPECIAL(buf, p)
        if bits:
            return p + lowest_bit(bits) < end
        p += LANES
    return False


@jit
def _digits_back(buf, p, low):
    """Where the digits begin that end before p (not before `low`)."""
    while p > low and 0x30 <= byte(buf, p - 1) <= 0x39:
        p -= 1
    return p


@jit
def _is_host(c):
    return (
        0x61 <= c <= 0x7A
        or 0x30 <= c <= 0x39
        or 0x41 <= c <= 0x5A
        or c == 0x2D
        or c == 0x2E
        or c == 0x5F
    )


@jit
def _header(buf, low, at):
    """Where `host:pid:tid [device]` begins that ends before `at`; -1 where it is not plain."""
    p = at - 1
    if p <= low or byte(buf, p) != 0x5D:
        return -1
    q = _digits_back(buf, p, low)
    if not 1 <= p - q <= 5 or q - 2 <= low:
        return -1
    if byte(buf, q - 1) != 0x5B or byte(buf, q - 2) != 0x20:
        return -1
    for _ in range(2):
        p = q - 2 if _ == 0 else q - 1
        q = _digits_back(buf, p, low)
        if not 1 <= p - q <= 10 or q - 1 <= low or byte(buf, q - 1) != 0x3A:
            return -1
    end = q - 1
    p = end
    letters = False
    while p > low and _is_host(byte(buf, p - 1)):
        p -= 1
        if end - p > 200:
            return -1
    while p < end and (byte(buf, p) == 0x2D or byte(buf, p) == 0x2E):
        p += 1
    for k in range(p, end):
        if not 0x30 <= byte(buf, k) <= 0x39:
            letters = True
    # A host of digits alone may stand within the numbers behind it, too.
    return p if letters else -1


@jit
def _number(buf, p, most):
    """(value of up to `most` digits at p, where they end); the end is p where there are none."""
    value = np.int64(0)
    start = p
    while True:
        d = byte(buf, p) - 0x30
        if d < 0 or d > 9:
            return value, p
        if p - start == most:
            return value, start
        value = value * 10 + d
        p += 1


@jit
def _word_end(buf, p, most):
    """Where the blank stands that ends a word of 1 to `most` bytes at p; -1 where none does."""
    for k in range(most + 1):
        c = byte(buf, p + k)
        if c == 0x20:
            return p + k if k else -1
        if 0x09 <= c <= 0x0D:
            return -1
    return -1


@jit
def _hex(buf, p, most):
    """(value of up to `most` digits of lower hex at p, where they end or p)."""
    value = np.uint64(0)
    start = p
    while True:
        c = byte(buf, p)
        if 0x30 <= c <= 0x39:
            d = c - 0x30
        elif 0x61 <= c <= 0x66:
            d = c - 0x57
        else:
            return np.int64(value), p
        if p - start == most:
            return np.int64(value), start
        value = (value << np.uint64(4)) | np.uint64(d)
        p += 1


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
def _call(buf, t, end, state):
    """Reads the call whose text begins at t into the state: whether it was one, in full."""
    p = _name_end(buf, t, end)
    if p < 0 or not _OP_COUNT(buf, p):
        return False
    state[of.SAID_NAME_END] = p
    start = p + 10
    _, p = _hex(buf, start, 16)
    if p == start or not _SEND(buf, p):
        return False
    p = _word_end(buf, p + 10, 20)
    if p < 0 or not _RECV(buf, p):
        return False
    p = _word_end(buf, p + 10, 20)
    if p < 0:
        return False
    if _ACC(buf, p):
        p = _word_end(buf, p + 5, 20)
        if p < 0:
            return False
    if not _OF_COUNT(buf, p):
        return False
    start = p + 7
    state[of.SAID_COUNT], p = _number(buf, start, 18)
    if p == start or not _TYPE(buf, p):
        return False
    start = p + 10
    state[of.SAID_TYPE], p = _number(buf, start, 4)
    if p == start or not _REDOP(buf, p):
        return False
    start = p + 4
    _, p = _number(buf, start, 18)
    if p == start or not _AT_ROOT(buf, p):
        return False
    start = p + 6
    negative = byte(buf, start) == 0x2D
    if negative:
        start += 1
    state[of.SAID_ROOT], p = _number(buf, start, 10)
    if negative:
        if state[of.SAID_ROOT] == 0:
            return False
        state[of.SAID_ROOT] = NULL
    if p == start or not _OF_COMM(buf, p):
        return False
    start = p + 8
    state[of.SAID_COMM], p = _hex(buf, start, 16)
    # A pointer with noughts before it is another text.
    if p == start or (byte(buf, start) == 0x30) or not _NRANKS(buf, p):
        return False
    start = p + 9
    state[of.SAID_RANKS], p = _number(buf, start, 10)
    return p > start and p < end and byte(buf, p) == 0x5D


@jit
def _has_call(buf, p, end):
    """Whether the word that marks a call stands from p on, before `end`."""
    while p + 10 <= end:
        if _OP_COUNT(buf, p):
            return True
        p += 1
    return False


@jit
def _has_choice(buf, p, end):
    """The same of the word that marks a choice."""
    while p + 15 <= end:
        if _BYTES_ALGO(buf, p):
            return True
        p += 1
    return False


@jit
def _is_link(buf, t):
    return _CHANNEL(buf, t) or _RING(buf, t) or _TREES(buf, t) or _TREE(buf, t)


@jit
def _kind(buf, t, end, scratch):
    """Writes what tells a message's kind into `scratch`; its length, -1 where it is not ASCII.

    The first five words of its first 80 bytes, with N for each number.
    """
    end = min(end, t + 80)
    for k in range(t, end):
        if byte(buf, k) >= 0x80:
            return -1
    n = 0
    words = 0
    inside = False
    p = t
    while p < end:
        c = byte(buf, p)
        blank = c == 0x20 or 0x09 <= c <= 0x0D or 0x1C <= c <= 0x1F
        if blank:
            inside = False
        elif not inside:
            inside = True
            words += 1
            if words > 5:
                break
        if 0x30 <= c <= 0x39:
            q = p + 1
            if c == 0x30 and q < end and byte(buf, q) == 0x78:
                q += 1
                while q < end and (
                    0x30 <= byte(buf, q) <= 0x39 or 0x61 <= (byte(buf, q) | 0x20) <= 0x66
                ):
                    q += 1
                if q == p + 2:
                    q = p + 1
            if q == p + 1:
                while q < end and 0x30 <= byte(buf, q) <= 0x39:
                    q += 1
            c = 0x4E
            p = q
        else:
            p += 1
        scratch[n] = c
        n += 1
    return n


@jit
def _row(calls, code, counters, state, rows, start):
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


@jit
def scan(buf, state, slow, rows, counters, calls, choices, kinds, scratch, writers, texts,
         kind_texts, call_codes, choice_codes):  # fmt: skip
    """Reads lines from `state[POS]` on that begin before `state[LIMIT]`; why it stopped.

    `calls[code]` is what is known of a kind of call; `choices` and `kinds` are (known, lines) by
    code. `slow` gets (start, end, code of its kind or -1) of lines to be read by themselves. The
    last five are tables: of texts, and of calls and choices by their numbers.
    """
    n = state[of.N]
    limit = state[of.LIMIT]
    whole = state[of.WHOLE] != 0
    p = state[of.POS]
    while p < limit:
        state[of.POS] = p
        end = line_end(buf, p, n)
        state[of.END] = end
        stop = end - 1 if whole and end > p and byte(buf, end - 1) == 0x0D else end
        code = np.int64(-1)
        at = _mark(buf, p, stop) if end - p <= state[of.MOST] else np.int64(-2)
        if at == -1:
            p = end + 1
            continue
        if at == -2 or _mark(buf, at + 6, stop) >= 0:
            return of.BARRIER
        if _INFO(buf, at + 6):
            t = at + 11
            start = _header(buf, max(p, at - 500), at)
            if start >= 0:
                if _call(buf, t, stop, state):
                    writer = intern(buf, start, at, writers)
                    name = intern(buf, t, state[of.SAID_NAME_END], texts)
                    if writer == FULL or name == FULL:
                        return of.TABLES_FULL
                    kind = (state[of.SAID_RANKS] << 16) | state[of.SAID_TYPE]
                    who = (writer << 32) | name
                    code = intern_numbers(who, state[of.SAID_COMM], kind, call_codes)
                    if code == FULL:
                        return of.TABLES_FULL
                    how = calls[code, of.HOW]
                    if how == of.UNKNOWN:
                        state[of.CODE] = code
                        return of.LEARN_CALL
                    if how == of.BY_HAND or state[of.SAID_COUNT] > calls[code, of.MOST_COUNT]:
                        return of.BARRIER
                    calls[code, of.LINES] += 1
                    p = end + 1
                    if how == of.ROW and _row(calls, code, counters, state, rows, start):
                        state[of.POS] = p
                        return of.ROWS_FULL
                    continue
                if _is_special(buf, t, min(stop, t + 1024)):
                    if _has_call(buf, t, min(stop, t + 64)):
                        return of.BARRIER
                    if _has_choice(buf, t, min(stop, t + 96)):
                        if stop - t > 400 or _is_link(buf, t):
                            return of.BARRIER
                        writer = intern(buf, start, at, writers)
                        line = intern(buf, t, stop, texts)
                        if writer == FULL or line == FULL:
                            return of.TABLES_FULL
                        code = intern_numbers(writer, line, 0, choice_codes)
                        if code == FULL:
                            return of.TABLES_FULL
                        if choices[code, 0] == of.UNKNOWN:
                            state[of.CODE] = code
                            return of.LEARN_CHOICE
                        if choices[code, 0] == of.BY_HAND:
                            return of.BARRIER
                        choices[code, 1] += 1
                        p = end + 1
                        continue
                elif not (_is_link(buf, t) or _NET(buf, t)):
                    size = _kind(buf, t, stop, scratch)
                    if size >= 0:
                        code = intern(scratch, 0, size, kind_texts)
                        if code == FULL:
                            return of.TABLES_FULL
                        if kinds[code, 0] != of.UNKNOWN:
                            kinds[code, 1] += 1
                            p = end + 1
                            continue
            elif _has_call(buf, t, min(stop, t + 64)) or _has_choice(buf, t, min(stop, t + 96)):
                return of.BARRIER
        k = state[of.SLOW]
        if k == slow.shape[0]:
            return of.SLOW_FULL
        if code >= 0:
            kinds[code, 0] = of.ROW
        slow[k, 0] = p
        slow[k, 1] = end
        slow[k, 2] = code
        state[of.SLOW] = k + 1
        p = end + 1
    state[of.POS] = p
    return of.DONE
