"""Instances by sequence number, also of rows whose place implies one."""

from __future__ import annotations

import numpy as np

from .instances import EXACT, ORDER, Instances, tear_signatures
from .participations import Rows, code, occurrence


def by_number(rows: Rows, state: Instances) -> None:
    """Instances by (lane, seq); rows that disagree on op, dtype or size are set apart.

    The lane is the communicator and who counts on it, and the operation where each is counted for
    itself.
    """
    index = np.flatnonzero(rows.counted)
    if len(index) == 0:
        return
    lane, seq, rank = rows.lane[index], rows.seq[index], rows.rank[index]
    nth = occurrence(lane, seq, rank)
    key = code(lane, seq, nth)
    state.join(index, key, EXACT)
    tear_signatures(rows, state, index)
    _fill_numbers(rows, state)


def _fill_numbers(rows: Rows, state: Instances) -> None:
    """Rows without a number, on a comm that has numbers: the number their place implies.

    Backwards from the next numbered row of the rank, else forwards from the one before; where both
    exist they must agree. Joined to the instance of that number; time is checked later.
    """
    lane = rows.lane
    can = (rows.comm >= 0) & ~rows.p2p & ~rows.loose & rows.timed
    can &= rows.counted | (rows.seq < 0)
    numbered = np.unique(lane[(rows.seq >= 0) & can])
    index = np.flatnonzero(can & np.isin(lane, numbered))
    lack = rows.seq[index] < 0
    if not lack.any():
        return
    order = np.argsort(code(lane[index], rows.rank[index]), kind="stable")
    at = index[order]
    line = code(lane[at], rows.rank[at])
    place = np.arange(len(at))
    seq = rows.seq[at]
    have = seq >= 0
    before = np.maximum.accumulate(np.where(have, place, -1))
    after = np.minimum.accumulate(np.where(have, place, len(at))[::-1])[::-1]
    back = np.clip(after, 0, len(at) - 1)
    fore = np.clip(before, 0, len(at) - 1)
    can_back = (after < len(at)) & (line[back] == line)
    can_fore = (before >= 0) & (line[fore] == line)
    from_after = seq[back] - (back - place)
    from_before = seq[fore] + (place - fore)
    sure = ~have & np.where(can_back & can_fore, from_after == from_before, can_back | can_fore)
    implied = np.where(can_back, from_after, from_before)
    sure &= implied >= 0
    new_at, new_seq = at[sure], implied[sure]
    if len(new_at) == 0:
        return
    old_at = at[have]
    lane = np.concatenate([lane[old_at], lane[new_at]])
    number = np.concatenate([seq[have], new_seq])
    both = np.concatenate([old_at, new_at])
    key = code(lane, number)
    first = occurrence(key, rows.rank[both]) == 0
    keep = np.concatenate([state.group[old_at] >= 0, np.ones(len(new_at), bool)]) & first
    exact = np.concatenate([np.ones(len(old_at), bool), np.zeros(len(new_at), bool)])
    both, key, exact = both[keep], key[keep], exact[keep]
    mixed = np.isin(key, key[~exact])
    both, key, exact = both[mixed], key[mixed], exact[mixed]
    state.join(both, key, ORDER)
    state.how[both[exact]] = EXACT
    tear_signatures(rows, state, both)
