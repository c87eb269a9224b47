"""Keys of one integer that sort by group, then time: what searches in many timelines at once."""

from __future__ import annotations

import numpy as np

Timeline = tuple[np.ndarray, np.ndarray]
"""Groups (small integers, >= 0 where they are to be found) and times in ns, int64 [n] each."""


def paired(one: Timeline, other: Timeline) -> tuple[np.ndarray, np.ndarray]:
    """Keys (int64) of both that compare as (group, time) does, whatever the length of time.

    Where groups times the time spanned do not fit 63 bits, times become their ordinals first.
    """
    group, time = (np.concatenate(both).astype(np.int64) for both in zip(one, other, strict=True))
    if not len(time):
        return group, time
    origin, last = int(time.min()), int(time.max())
    span = last - origin + 1
    if (int(np.abs(group).max()) + 1) * span < 2**62:
        key = group * span + (time - origin)
    else:
        instants, ordinal = np.unique(time, return_inverse=True)
        key = group * len(instants) + ordinal.reshape(-1)
    return key[: len(one[0])], key[len(one[0]) :]
