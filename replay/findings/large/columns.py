"""Columns of shares of a job's tasks, in files: what is not looked at takes no memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

_NARROW = (np.int8, np.int16, np.int32)


class Columns:
    """Integer columns by share and name, in a folder of their own."""

    def __init__(self, folder: Path):
        self._folder = folder

    def put(self, share: int, **columns: np.ndarray) -> None:
        """Keeps columns, each in the place of one of its name. Raises OSError."""
        for name, values in columns.items():
            try:
                np.save(self._file(share, name), _narrow(values))
            except OSError as e:
                raise OSError(
                    e.errno,
                    f"{self._folder}: {e.strerror}: the replay of a large job keeps its tasks in "
                    "temporary files; TMPDIR names another folder for them",
                ) from e

    def get(self, share: int, name: str) -> np.ndarray:
        """int64: a column."""
        return np.load(self._file(share, name)).astype(np.int64, copy=False)

    def some(self, share: int, *names: str) -> list[np.ndarray]:
        """int64: several columns."""
        return [self.get(share, name) for name in names]

    def _file(self, share: int, name: str) -> Path:
        return self._folder / f"{share}-{name}.npy"


def _narrow(values: np.ndarray) -> np.ndarray:
    """The values as the smallest type that holds them: what is written is read some times."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    for dtype in _NARROW:
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return values.astype(dtype, copy=False)
    return values
