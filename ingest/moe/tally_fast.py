"""Compiled counts of choices by expert; what is odd among them is counted too.

Importing this module costs numba.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from .text_numbers import jit


@jit
def used_columns(ids):
    """Whether any row of `ids` [tokens, choices] has a choice in a column."""
    used = np.zeros(ids.shape[1], np.bool_)
    left = ids.shape[1]
    for i in range(ids.shape[0]):
        if left == 0:
            break
        for j in range(ids.shape[1]):
            if ids[i, j] != -1 and not used[j]:
                used[j] = True
                left -= 1
    return used


@jit
def count_into(ids, weights, used, tokens, sums, odd):
    """Adds `ids` [tokens, choices] to `tokens`, and `weights` of that shape (or [0, 0] for none) to
    `sums`, both by expert; to `odd` the numbers of tokens without a choice, choices dropped, ids
    beyond all experts and weights that are no finite number."""
    n, k = ids.shape
    weighed = weights.shape[0] > 0
    for i in range(n):
        none = 0
        for j in range(k):
            expert = np.int64(ids[i, j])
            if 0 <= expert < tokens.size:
                tokens[expert] += 1
                if weighed:
                    weight = np.float64(weights[i, j])
                    if weight - weight == 0.0:
                        sums[expert] += weight
                    else:
                        odd[3] += 1
            elif expert == -1:
                none += 1
            else:
                odd[2] += 1
        if none == k:
            odd[0] += 1
        elif none:
            for j in range(k):
                if ids[i, j] == -1 and used[j]:
                    odd[1] += 1
