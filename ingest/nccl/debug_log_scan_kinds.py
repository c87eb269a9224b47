"""Compiled telling apart of an NCCL debug log's messages: what reads one, what it counts as."""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from .bytes_at import LANES, any_of, byte, check_vector, jit, lowest_bit, vector_scan, word_at

_READ_BEFORE = vector_scan(any_of(b"COMPLETE", b"Init START", b" nRanks ", b"CCL version"))
_SPECIAL = vector_scan(any_of(b": op", b"-> A", b"COMP", b"t ST", b"nRan", b"CL v"))

# No word goes on beyond its line: none holds the end of one, and noughts follow the last.
_CHANNEL, _RING, _TREES, _TREE, _NET = map(
    word_at, (b"Channel ", b"Ring ", b"Trees ", b"Tree ", b"NET/")
)
_VERSION, _START = word_at(b"CCL version"), word_at(b"Init START")
_USING, _MADE = word_at(b" : Using "), word_at(b" : Made virtual ")


@jit
def is_special(buf, p, end):
    while p < end:
        check_vector(buf, p, 8)
        bits = _SPECIAL(buf, p)
        if bits:
            return p + lowest_bit(bits) < end
        p += LANES
    return False


@jit
def is_link(buf, t):
    return _CHANNEL(buf, t) or _RING(buf, t) or _TREES(buf, t) or _TREE(buf, t)


@jit
def kind_of(buf, t, end, scratch):
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
def was_said(buf, p, end):
    """Whether a word stands there, before `end`, of lines that the first pass has read."""
    while p < end:
        check_vector(buf, p, 16)
        bits = _READ_BEFORE(buf, p)
        if bits:
            at = p + lowest_bit(bits)
            return at + (11 if _VERSION(buf, at) else 10 if _START(buf, at) else 8) <= end
        p += LANES
    return False


@jit
def may_name_nics(buf, t, end):
    """Whether the text at t is one of a network that may name its devices."""
    if not _NET(buf, t):
        return False
    p = t + 4
    while p < end and p - t <= 64:
        if byte(buf, p) == 0x20 and (_USING(buf, p) or _MADE(buf, p)):
            return True
        p += 1
    return False
