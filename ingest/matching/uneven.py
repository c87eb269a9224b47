"""What uneven exchanges leave in doubt of clocks: who has most to move may end last every time.

An all-to-all in which one rank has three times the bytes of the others may end on that rank last,
by a like time whenever it runs. Its ends then lie apart by no accident: an average keeps what they
differ by, and takes it for the clock's. Nothing else in such a trace tells the two apart.
"""

from __future__ import annotations

import numpy as np

EVEN = 0.25
"""Shares of the most that any rank moves, closer together than this, say nothing of who is last."""


ENOUGH = 3
"""Other collectives that tie a domain to others, for the uneven exchanges to be left out."""


def uneven(instance: np.ndarray, exchanged: np.ndarray) -> np.ndarray:
    """bool: rows of exchanges in which some rank has more to move than another by EVEN."""
    _, at = np.unique(instance, return_inverse=True)
    many = int(at.max(initial=-1)) + 1
    most, least = np.zeros(many), np.full(many, np.inf)
    np.maximum.at(most, at, exchanged)
    np.minimum.at(least, at, np.maximum(exchanged, 0))
    return ((most > 0) & (least < (1 - EVEN) * most))[at]


def took_ns(instance: np.ndarray, took: np.ndarray, exchanged: np.ndarray) -> np.ndarray:
    """float64 [rows]: what each collective took: the shortest participation of who has most to do.

    That is the last rank to come, whatever clocks say; who has little to exchange is done earlier.
    """
    if not len(instance):
        return np.zeros(0)
    _, at = np.unique(instance, return_inverse=True)
    many = int(at.max()) + 1
    most, found = np.full(many, -np.inf), np.full(many, np.inf)
    np.maximum.at(most, at, exchanged)
    busy = exchanged >= np.where(most > 0, (1 - EVEN) * most, most)[at]
    np.minimum.at(found, at[busy], took[busy])
    return found[at]


def doubt_ns(
    instance: np.ndarray,
    domain: np.ndarray,
    took_ns: np.ndarray,
    exchanged: np.ndarray,
    component: np.ndarray,
) -> np.ndarray:
    """float64 [n]: how far each domain's correction may be off for it, against its component's.

    Arrays of a row a participation; `exchanged` is the most bytes that a rank moved either way in
    an all-to-all, -1 for other operations. In the median of a domain's collectives (those with the
    reference, its component's first domain, where there are such): the time that the rank with the
    most bytes takes (nobody ends before that rank has begun), by what the domain's share of these
    bytes differs from the reference's (where that takes no part, from 1). So it is nothing where
    half of these are no uneven exchanges.
    """
    n = len(component)
    if not len(instance) or not (exchanged > 0).any():
        return np.zeros(n)
    _, at = np.unique(instance, return_inverse=True)
    many = int(at.max()) + 1
    most, took = np.zeros(many), np.full(many, np.inf)
    np.maximum.at(most, at, exchanged)
    busiest = exchanged >= most[at]
    np.minimum.at(took, at[busiest], took_ns[busiest])
    share = np.where(most[at] > 0, np.maximum(exchanged, 0) / np.maximum(most[at], 1), 1.0)
    usual = np.ones(many)
    first = component[domain] == domain
    usual[at[first]] = share[first]
    apart = np.abs(share - usual[at])
    doubt = np.where(apart > EVEN, apart, 0.0) * np.where(np.isfinite(took[at]), took[at], 0.0)
    out = np.zeros(n)
    tied = np.zeros(many, bool)
    tied[at[first]] = True
    for d in np.flatnonzero(np.bincount(domain[exchanged > 0], minlength=n)).tolist():
        mine = domain == d
        # What only ties it to others says nothing of the reference.
        direct = mine & tied[at]
        out[d] = np.median(doubt[direct if direct.any() else mine])
    out[component == np.arange(n)] = 0.0
    return out
