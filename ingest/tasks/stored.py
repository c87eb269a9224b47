"""How tasks of a job lie in tables: what their numbers mean, for who writes them and who reads."""

from __future__ import annotations

from typing import NamedTuple

from .kinds import PIN_END, PIN_START, Kind

TASKS, EDGES, PARTS, WORDS = (
    "_made_tasks", "_made_task_edges", "_made_task_parts", "_made_task_words",
)  # fmt: skip


class What(NamedTuple):
    """What a task is: its block, its kind, what it keeps of its measurement, and its place among
    tasks that start together (a join's is `JOIN`)."""

    block: str
    kind: Kind
    pin: int
    place: int


WHAT = (
    What("arrive", Kind.ARRIVE, PIN_START, 0),
    What("transfer", Kind.TRANSFER, PIN_END, 1),
    What("activity", Kind.COMPUTE, PIN_START, 2),
    What("activity", Kind.COPY, PIN_START, 2),
    What("activity", Kind.OTHER, PIN_START, 2),
    What("cut", Kind.HOST, PIN_END, 3),
    What("cut", Kind.HOST, PIN_START, 3),
    What("begins", Kind.OTHER, PIN_START, 5),
    What("ends", Kind.OTHER, PIN_START, 6),
)
"""A row's `what` is a place in this."""

JOIN = 4

ARRIVE, TRANSFER, CUT, RETURN, BEGINS, ENDS = 0, 1, 5, 6, 7, 8
FIRST_ACTIVITY, LAST_ACTIVITY = 2, 4

NAME, FIRST, OP, COMM, SHAPE, WARNING, ASSUMPTION = (
    "name", "first", "op", "comm", "shape", "warning", "assumption",
)  # fmt: skip
"""What a row of `_made_task_words` is: a name of activities, host segments and marks (its number is
how many there were before); of these names one of host segments or marks, in the order in which
ranks have them; an operation or algorithm; a communicator; sizes of a kernel's grid and blocks;
what is to be said of the job; what had to be assumed of it."""
