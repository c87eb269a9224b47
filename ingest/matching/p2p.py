"""Point-to-point operations paired with their peer's: by number if both agree, else in order."""

from __future__ import annotations

import numpy as np

from . import clocks as clock
from . import sequences
from .instances import EXACT, ORDER, Instances
from .participations import Rows, code, occurrence, runs


def point_to_point(rows: Rows, state: Instances, clocks: clock.Clocks) -> None:
    """Pair each send with its recv: same comm, source and destination, in order.

    What a kernel exchanges with one peer in both directions pairs with what that peer exchanges
    with it in both, never with a send or a recv alone: other readings stay open, and alone. A
    kernel that holds operations with several peers has a row for each, and pairs with each.

    Where both sides carry numbers and these agree on the whole common range, `exact`; numbers of
    the two sides may differ (each rank counts its own), then, as without numbers, by order. Rows
    without times have no order: they pair by number or not at all.
    """
    index = np.flatnonzero(rows.p2p & (rows.rank != rows.peer) & (rows.timed | (rows.seq >= 0)))
    if len(index) == 0:
        return
    mutual = _mutual(rows, index)
    # of an exchange the lower rank counts as the source
    send = np.where(
        mutual, rows.rank[index] < rows.peer[index], rows.mask[index] == sequences.op_mask("send")
    )
    source = np.where(send, rows.rank[index], rows.peer[index])
    target = np.where(send, rows.peer[index], rows.rank[index])
    pair = code(rows.comm[index], source, target, mutual)
    done = _pairs_by_number(rows, state, clocks, index, pair, send)
    ambiguous = 0
    order, first = runs(pair)
    for part in np.split(order, first[1:]):
        if done[pair[part[0]]]:
            continue
        part = part[rows.timed[index[part]]]
        a, b = index[part[send[part]]], index[part[~send[part]]]
        if len(a) and len(b):
            ambiguous += _pair_by_order(rows, state, clocks, a, b)
    state.say(
        "ambiguous_match",
        "sends and receives fit equally well at more than one place in their order; "
        "they stand alone",
        ambiguous,
    )


def _mutual(rows: Rows, index: np.ndarray) -> np.ndarray:
    """Which rows send to their peer and receive from it: neither side can end before both began."""
    return rows.mask[index] == sequences.op_mask("send_recv")


def _pairs_by_number(
    rows: Rows,
    state: Instances,
    clocks: clock.Clocks,
    index: np.ndarray,
    pair: np.ndarray,
    send: np.ndarray,
) -> np.ndarray:
    """Join (source, destination) pairs whose numbers agree; returns which pairs are done."""
    n = int(pair.max()) + 1
    done = np.zeros(n, dtype=bool)
    numbered = rows.seq[index] >= 0
    whole = np.bincount(pair[~numbered], minlength=n) == 0
    counters = np.unique(np.stack([pair, rows.counter[index]], 1), axis=0)[:, 0]
    whole &= np.bincount(counters, minlength=n) < 2
    use = np.flatnonzero(numbered & whole[pair])
    if len(use) == 0:
        return done
    p, s, out = pair[use], rows.seq[index[use]], send[use]
    big = np.iinfo(np.int64).max
    low, high = np.full((2, n), big), np.full((2, n), -1)
    for side in (0, 1):
        mine = out == bool(side)
        np.minimum.at(low[side], p[mine], s[mine])
        np.maximum.at(high[side], p[mine], s[mine])
    common_low, common_high = low.max(0), high.min(0)
    inside = (s >= common_low[p]) & (s <= common_high[p])
    nth = occurrence(p, s, out.astype(np.int64))
    key = code(p, s, nth)
    sides = np.bincount(key, minlength=int(key.max()) + 1)
    met = (sides[key] == 2) & inside
    # every number of the common range must be on both sides
    good = (np.bincount(p[inside], minlength=n) > 0) & (
        np.bincount(p[inside & ~met], minlength=n) == 0
    )
    joined = met & good[p]
    at, key = index[use[joined]], key[joined]
    if len(at):
        order, _ = runs(key, (~out[joined]).astype(np.int64))
        a, b = at[order][0::2], at[order][1::2]
        wrong = (rows.size[a] != rows.size[b]) & (rows.size[a] >= 0) & (rows.size[b] >= 0)
        wrong |= (rows.dtype[a] != rows.dtype[b]) & (rows.dtype[a] >= 0) & (rows.dtype[b] >= 0)
        tied = clocks.component[rows.domain[a]] == clocks.component[rows.domain[b]]
        tied &= rows.timed[a] & rows.timed[b]
        sent = clock.align(clocks, rows.start[a], rows.domain[a])
        got = clock.align(clocks, rows.end[b], rows.domain[b])
        doubt = clocks.error_ns[rows.domain[a]] + clocks.error_ns[rows.domain[b]] + 50_000
        wrong |= tied & ~rows.recorded[a] & (sent > got + doubt)
        began = clock.align(clocks, rows.start[b], rows.domain[b])
        ended = clock.align(clocks, rows.end[a], rows.domain[a])
        wrong |= tied & ~rows.recorded[a] & _mutual(rows, a) & (began > ended + doubt)
        p_of = p[joined][order][0::2]
        good &= np.bincount(p_of[wrong], minlength=n) == 0
        ok = good[p[joined]]
        state.join(at[ok], key[ok], EXACT)
    return good


def _pair_by_order(
    rows: Rows, state: Instances, clocks: clock.Clocks, sends: np.ndarray, recvs: np.ndarray
) -> int:
    """Join one direction of one pair of ranks; returns how many rows stayed for ambiguity."""
    a, b = rows.sequence(sends, clocks), rows.sequence(recvs, clocks)
    # ops differ by design, and a small send may end before its receive begins
    a = a._replace(mask=np.full(len(sends), -1), barrier=np.zeros(len(sends), bool))
    b = b._replace(mask=np.full(len(recvs), -1), barrier=np.zeros(len(recvs), bool))
    da, db = int(rows.domain[sends[0]]), int(rows.domain[recvs[0]])
    error = 0.0 if da == db else float(clocks.error_ns[da] + clocks.error_ns[db])
    if clocks.component[da] != clocks.component[db]:
        return len(sends) + len(recvs)
    pairs = sequences.align(a, b, error)
    if pairs.ambiguous:
        return len(sends) + len(recvs)
    got = pairs.index >= 0
    left, right = sends[pairs.index[got]], recvs[got]
    # nothing is received before it is sent
    late = sequences.SLACK_NS + error
    sane = a.start[pairs.index[got]] <= b.end[got] + late
    sane &= ~_mutual(rows, right) | (b.start[got] <= a.end[pairs.index[got]] + late)
    left, right = left[sane], right[sane]
    label = np.arange(len(left))
    state.join(np.concatenate([left, right]), np.concatenate([label, label]), ORDER)
    return 0
