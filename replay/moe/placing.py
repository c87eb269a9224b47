"""Which host should hold which expert, so that fewer copies of tokens cross hosts.

A token is sent once to each other host that holds one of its experts. Experts that tokens choose
together belong together, and near the ranks whose tokens choose them. Greedy merging and pairwise
swaps on what both are worth; the measure itself decides what is taken, and what there was before is
always a candidate: copies never grow on the tokens that were looked at.
"""

from __future__ import annotations

import numpy as np

from ..policy import BadParam


def copies(
    choices: np.ndarray, host_of: np.ndarray, source: np.ndarray | None = None
) -> np.ndarray:
    """Copies that each token sends to other hosts, int64 [t].

    `choices` int [t, k] are experts (-1: none), `host_of` int [e] their hosts, `source` int [t]
    the token's own host; without it all hosts that a token touches count.
    """
    host = np.where(choices < 0, -1, np.asarray(host_of)[np.maximum(choices, 0)])
    host = np.sort(host, axis=1)
    counts = host >= 0
    counts[:, 1:] &= host[:, 1:] != host[:, :-1]
    if source is not None:
        counts &= host != np.asarray(source)[:, None]
    return counts.sum(axis=1)


def together(choices: np.ndarray, experts: int) -> np.ndarray:
    """Tokens that chose each two experts, float64 [e, e], 0 on the diagonal."""
    choices = np.asarray(choices)
    out = np.zeros((experts, experts))
    for i in range(choices.shape[1]):
        for j in range(i + 1, choices.shape[1]):
            both = (choices[:, i] >= 0) & (choices[:, j] >= 0)
            np.add.at(out, (choices[both, i], choices[both, j]), 1.0)
    out += out.T
    np.fill_diagonal(out, 0.0)
    return out


def wanted(choices: np.ndarray, source: np.ndarray, experts: int, hosts: int) -> np.ndarray:
    """Tokens of each host that chose each expert, float64 [e, h]."""
    out = np.zeros((experts, hosts))
    for column in np.asarray(choices).T:
        there = column >= 0
        np.add.at(out, (column[there], np.asarray(source)[there]), 1.0)
    return out


def place(
    now: np.ndarray, hosts: int, affinity: np.ndarray, home: np.ndarray | None = None
) -> list[np.ndarray]:
    """Candidates for the host of each expert, int64 [e] each; the first is what there is `now`.

    Each host keeps as many experts as it has. `affinity` float64 [e, e] is what two experts on one
    host are worth, `home` float64 [e, h] what an expert on a host is worth.
    """
    now = np.asarray(now, np.int64)
    home = np.zeros((len(now), hosts)) if home is None else home
    merged = _merged(np.bincount(now, minlength=hosts), affinity, home)
    return [now, _swapped(now, hosts, affinity, home), _swapped(merged, hosts, affinity, home)]


def from_tokens(
    choices: np.ndarray, now: np.ndarray, hosts: int, source: np.ndarray | None = None
) -> np.ndarray:
    """The candidate of `place` with the fewest copies of these tokens; `now` where none has fewer.

    BadParam where a choice is no expert of `now`.
    """
    choices = np.asarray(choices, np.int64)
    if choices.max(initial=-1) >= len(now):
        raise BadParam(f"a token chose expert {choices.max()}, there are {len(now)}")
    home = None if source is None else wanted(choices, source, len(now), hosts)
    found = place(now, hosts, together(choices, len(now)), home)
    return min(found, key=lambda to: int(copies(choices, to, source).sum()))


def _merged(room: np.ndarray, affinity: np.ndarray, home: np.ndarray) -> np.ndarray:
    """Clusters merged by what they are worth together, then given to hosts, the largest first."""
    experts, most = len(affinity), int(room.max())
    cluster = np.arange(experts)
    size = np.ones(experts, np.int64)
    worth = affinity.copy()
    np.fill_diagonal(worth, -np.inf)
    while True:
        allowed = np.where(size[:, None] + size[None, :] <= most, worth, -np.inf)
        a, b = np.unravel_index(int(np.argmax(allowed)), allowed.shape)
        if not allowed[a, b] > 0:
            break
        cluster[cluster == b] = a
        size[a] += size[b]
        worth[a] += worth[b]
        worth[:, a] += worth[:, b]
        worth[b], worth[:, b], worth[a, a] = -np.inf, -np.inf, -np.inf
        size[b] = most + 1
    to = np.full(experts, -1, np.int64)
    left = room.copy()
    members = [np.flatnonzero(cluster == c) for c in np.unique(cluster)]
    for group in sorted(members, key=lambda m: (-len(m), m[0])):
        for part in [group] if (left >= len(group)).any() else group[:, None]:
            pull = np.array(
                [
                    affinity[np.ix_(part, to == h)].sum() + home[part, h].sum()
                    for h in range(len(left))
                ]
            )
            pull[left < len(part)] = -np.inf
            to[part] = int(np.argmax(pull))
            left[to[part[0]]] -= len(part)
    return to


def _swapped(to: np.ndarray, hosts: int, affinity: np.ndarray, home: np.ndarray) -> np.ndarray:
    """Pairs of experts change hosts, the most valuable pair first, while that is worth anything."""
    to = to.copy()
    experts = np.arange(len(to))
    for _ in range(8 * len(to)):
        on = np.zeros((len(to), hosts))
        on[experts, to] = 1.0
        value = affinity @ on + home
        there = value[:, to]  # [a, b]: what a is worth on the host of b
        stays = value[experts, to]
        gain = there + there.T - stays[:, None] - stays[None, :] - 2 * affinity
        gain[to[:, None] == to[None, :]] = 0.0
        a, b = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if gain[a, b] <= 1e-9 * max(1.0, float(np.abs(value).max(initial=0.0))):
            break
        to[a], to[b] = to[b], to[a]
    return to
