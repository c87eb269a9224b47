"""What tasks are, what they keep of their measurement, and what stands for nothing."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

NULL = np.int64(-(2**63))
"""`start_ns` of a task that was never measured (joins, tasks a policy added)."""

PIN_START, PIN_END = 0, 1
"""What a task keeps of its measurement: duration and start, or its end (the span is what is
left between the last predecessor and that end: a host segment, a transfer)."""


class Kind(IntEnum):
    """What a task is. A participation is arrive -> join (one an instance) -> transfer."""

    COMPUTE = 0
    COPY = 1
    HOST = 2
    ARRIVE = 3
    JOIN = 4
    TRANSFER = 5
    OTHER = 6
