"""Codes of operation names, in the order in which a graph first has them."""

from __future__ import annotations

import numpy as np
import polars as pl


class OpNames:
    """The names of operations so far; null is `?`."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def code(self, name: str | None) -> int:
        """The code of one name."""
        return self.known.setdefault("?" if name is None else name, len(self.known))

    def codes(self, names: pl.Series) -> np.ndarray:
        """int64: the codes of a column."""
        text = names.cast(pl.String).fill_null("?")
        kinds = text.unique(maintain_order=True)
        if not len(kinds):
            return np.empty(0, np.int64)
        table = np.asarray([self.code(k) for k in kinds], np.int64)
        return table[text.cast(pl.Enum(kinds)).to_physical().to_numpy()]
