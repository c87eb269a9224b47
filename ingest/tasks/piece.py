"""The tasks of some ranks of a traced job while they are put together, and the edges among them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .codes import alike
from .events import Words
from .kinds import NULL, Kind

COLUMNS: dict[str, tuple[Any, int]] = {
    "kind": (np.int8, int(Kind.OTHER)),
    "rank": (np.int32, -1),
    "step": (np.int64, -1),
    "op": (np.int32, -1),
    "comm": (np.int32, -1),
    "collective": (np.int64, -1),
    "bytes": (np.int64, 0),
    "start_ns": (np.int64, int(NULL)),
    "end_ns": (np.int64, int(NULL)),
    "dur_ns": (np.int64, 0),
    "release_ns": (np.int64, int(NULL)),
}
"""Columns of the graph, their types, and what they are where a block does not say."""

EXTRA: dict[str, tuple[Any, int]] = {
    "event_id": (np.int64, -1),
    "group_size": (np.int32, -1),
    "algo": (np.int32, -1),
    "thread": (np.int32, -1),
    "shape": (np.int32, -1),
    "begins": (np.int64, int(NULL)),
    "ends": (np.int64, int(NULL)),
    "pin": (np.int8, 0),
}
"""Columns of `TaskGraph.extra`: the row of `events`; of participations the size of the group and
the algorithm (a code of `op_names`); of host segments the rank's n-th thread; of kernels a code of
grid and block size (a collective's is 0); of marks the step that begins and the one that ends.
`pin` says what a task keeps of its measurement (`residual`)."""

BLOCKS = ("arrive", "transfer", "activity", "cut", "begins", "ends")
"""What tasks are, in the order in which a piece numbers them."""


class Block(NamedTuple):
    """Tasks of one kind of a piece: where their numbers begin, how many, and their columns."""

    base: int
    n: int
    columns: dict[str, Any]
    """Each an array [n] of its type, or one value for all."""


class Piece:
    """Some ranks: their tasks are numbered from 0, the join of instance j is `~j`."""

    def __init__(self, ranks: np.ndarray, words: Words):
        self._words = words
        self.ranks = ranks
        """int64, sorted: those of its events, participations and steps."""
        self.n = 0
        self.blocks: dict[str, Block] = {}
        self.inferred = False
        """Whether waits between streams were inferred."""
        self.handed_over = False
        """Whether a silent host thread was taken to wait for another."""
        self.unmatched = 0
        """Communication kernels that nothing is known of."""
        self.begin = self.finish = np.empty(0, np.int64)
        """int64 [a]: the task that starts and the task that ends each activity."""
        self.rows = np.empty(0, np.int64)
        """int64 [p]: which of the job's participations are its own."""
        self.shapes = np.empty((2, 0), np.int64)
        """Blocks a grid and threads a block of each code of its column `shape`."""
        self.shape_codes = np.empty(0, np.int64)
        """int64: what each of these is among those of all pieces."""
        self._edges: list[tuple[np.ndarray, np.ndarray]] = []
        self._into: list[tuple[np.ndarray, np.ndarray]] = []

    def place(self, ranks: np.ndarray) -> np.ndarray:
        """int64: where each rank, one of the piece's, is among these."""
        if len(self.ranks) and self.ranks[-1] - self.ranks[0] == len(self.ranks) - 1:
            return (ranks - self.ranks[0]).astype(np.int64, copy=False)
        return np.searchsorted(self.ranks, ranks)

    def word(self, text: str) -> int:
        """The code of a text in the job's `Words`, which `op` of its own tasks are."""
        return self._words.code(text)

    def shaped(self, grid_blocks: np.ndarray, block_threads: np.ndarray) -> np.ndarray:
        """Codes (int64) of kernels' grids and blocks, in the piece's own `shapes`."""
        one, code = alike(grid_blocks, block_threads)
        self.shapes = np.stack([grid_blocks[one], block_threads[one]])
        return code

    def add(self, name: str, n: int, **columns: Any) -> np.ndarray:
        """Numbers (int64 [n]) of the tasks of a new block, each column an array [n] or a value."""
        types = COLUMNS | EXTRA
        unknown = set(columns) - set(types)
        if unknown or name not in BLOCKS:
            raise KeyError(f"a task has no column {sorted(unknown)}, or {name} is no block")
        typed = {
            k: v.astype(types[k][0], copy=False) if isinstance(v, np.ndarray) else v
            for k, v in columns.items()
        }
        self.blocks[name] = Block(self.n, n, typed)
        self.n += n
        return np.arange(self.n - n, self.n)

    def edge(self, src: np.ndarray, dst: np.ndarray) -> None:
        """Edges src[i] -> dst[i] between tasks."""
        if len(src):
            self._edges.append((src, dst))

    def into_activity(self, src: np.ndarray, activity: np.ndarray) -> None:
        """Edges from tasks to what begins activities."""
        if len(src):
            self._into.append((src, activity))

    def put_before(self, task: np.ndarray, activity: np.ndarray) -> None:
        """Puts task[i] in front of an activity: it takes over the edges into that one."""
        if not len(task):
            return
        front = np.full(len(self.begin), -1, np.int64)
        front[activity] = task
        into, self._into = self._into, []
        for src, row in into:
            behind = front[row] >= 0
            self.edge(src[behind], front[row[behind]])
            self.into_activity(src[~behind], row[~behind])
        self.into_activity(task, activity)

    def taken_edges(self) -> tuple[np.ndarray, np.ndarray]:
        """All edges: from what (numbers of tasks, or `~j`), to which task; int64 each. Once."""
        none = np.empty(0, np.int64)
        pairs = [*self._edges, *((src, self.begin[row]) for src, row in self._into)]
        self._edges, self._into = [], []
        return (
            np.concatenate([none, *(src for src, _ in pairs)]),
            np.concatenate([none, *(dst for _, dst in pairs)]),
        )
