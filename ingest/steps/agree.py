"""Step k is the same step on every rank: numbers that matched collectives agree on."""

from __future__ import annotations

from collections import Counter

import numpy as np


def offsets(
    rank: np.ndarray, collective: np.ndarray, index: np.ndarray, n_steps: dict[int, int]
) -> dict[int, int] | str:
    """What to add to each rank's own count of steps; or, in words, why there is no such thing.

    `index` is the step of each participation in its rank's own count, -1 outside. The lowest
    number is 0. Ranks that share no collective count alike only where all have as many steps.
    """
    ranks = sorted(n_steps)
    use = (index >= 0) & (collective >= 0) & np.isin(rank, ranks)
    rank, collective, index = rank[use], collective[use], index[use]
    by: dict[int, int] = {ranks[0]: 0}
    order = np.argsort(collective, kind="stable")
    ids, first = np.unique(collective[order], return_index=True)
    members = np.split(order, first[1:]) if len(ids) else []
    todo = list(by)
    shared: dict[int, Counter[tuple[int, int]]] = {r: Counter() for r in ranks}
    for m in members:
        base = m[0]
        for other in m[1:]:
            a, b = int(rank[base]), int(rank[other])
            shared[a][b, int(index[base] - index[other])] += 1
            shared[b][a, int(index[other] - index[base])] += 1
    while todo:
        a = todo.pop()
        for (b, apart), _ in shared[a].most_common():
            if b not in by:
                by[b] = by[a] + apart
                todo.append(b)
    if any(by[a] + d != by[b] for a in by for b, d in shared[a]):
        return "ranks have the same collective in different steps"
    if len(by) < len(ranks):
        if len(set(n_steps.values())) > 1 or any(by.values()):
            return "no matched collective says which steps of different ranks are the same"
        by = dict.fromkeys(ranks, 0)
    least = min(by.values())
    return {r: n - least for r, n in by.items()}
