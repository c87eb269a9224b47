"""The communication kernels of a rank, which its participations come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from ..kineto.rawbatch import NULL


@dataclass
class CommKernels:
    """Communication kernels of a rank, in order of start."""

    event_id: np.ndarray
    name: list[str]
    start: np.ndarray
    end: np.ndarray
    stream: np.ndarray
    launch_ns: np.ndarray
    thread: np.ndarray
    step: np.ndarray
    blocks: np.ndarray

    def at(self, rows: np.ndarray) -> CommKernels:
        """Some of them."""
        names = [self.name[i] for i in rows.tolist()]
        return CommKernels(name=names, **{c: getattr(self, c)[rows] for c in _ARRAYS})


_ARRAYS = [f.name for f in fields(CommKernels) if f.name != "name"]


def joined(parts: Sequence[CommKernels]) -> CommKernels:
    """All of them, one part behind the other."""
    names = [name for p in parts for name in p.name]
    return CommKernels(
        name=names, **{c: np.concatenate([getattr(p, c) for p in parts]) for c in _ARRAYS}
    )


def comm_kernels(
    names: pa.DictionaryArray, category: dict[str, str], ids: np.ndarray, start: np.ndarray,
    end: np.ndarray, stream: pa.Array, launched: np.ndarray, thread: np.ndarray, step: np.ndarray,
    blocks: np.ndarray,
) -> CommKernels | None:  # fmt: skip
    """Those of these kernels that are communication, by the `category` of their names."""
    words = names.dictionary.to_pylist()
    is_comm = np.array([category[w] == "comm" for w in words] or [False])
    codes = names.indices.to_numpy()
    mine = np.flatnonzero(is_comm[codes]) if len(codes) else np.empty(0, np.int64)
    if not len(mine):
        return None
    return CommKernels(
        ids[mine], [words[c] for c in codes[mine].tolist()], start[mine], end[mine],
        stream.fill_null(NULL).to_numpy()[mine], launched[mine], thread[mine], step[mine],
        blocks[mine],
    )  # fmt: skip
