"""The text of calls, kept while it is scanned: a stream cannot be read twice.

Few events need it, and few bytes: to keep all that went by took more time than to inflate it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from .lookup import Lookup, Texts
from .roles import may_be_read_again

if TYPE_CHECKING:
    from .blocks import Scan, Window
    from .rawbatch import BatchBuilder

KEPT_BYTES = 32 << 20
"""How much of the newest of it stays at hand in a batch; two batches are, where one is made while
the other is looked at."""

MAX_EVENT_BYTES = 1 << 20
"""An event's arguments are looked for in so much of its text."""


class CallTexts:
    """Texts of events, by their row in one batch."""

    def __init__(self) -> None:
        self._by_row: OrderedDict[int, bytes] = OrderedDict()
        self._n_bytes = 0

    def keep(self, row: int, view: memoryview, start: int, end: int) -> None:
        """Keeps a row's text, at the price of the oldest where there is too much."""
        text = self._by_row[row] = bytes(view[start : min(end, start + MAX_EVENT_BYTES)])
        self._n_bytes += len(text)
        while self._n_bytes > KEPT_BYTES:
            self._n_bytes -= len(self._by_row.popitem(last=False)[1])

    def at(self, row: int) -> bytes:
        """The text of a row; empty where it was not kept."""
        return self._by_row.get(row, b"")


def keeping(scan: Scan, builder: BatchBuilder, names: Texts, name_row: int) -> Scan:
    """A scan that keeps the text of calls, too, if its builder wants any.

    `names` has the texts by the reader's own codes, which row `name_row` of `builder.syms` holds.
    """
    if builder.texts is None:
        return scan
    is_call = Lookup(names, may_be_read_again, False)

    def scan_and_keep(window: Window, pos: int) -> tuple[int, int]:
        first = builder.n
        pos, why = scan(window, pos)
        calls = np.flatnonzero(is_call(builder.syms[name_row, first : builder.n]))
        if len(calls) and (texts := builder.texts) is not None:
            starts = builder.ints[-1, first : builder.n] - window.base
            # What ends an event is where the next begins, for an event without a fault.
            ends = np.append(starts[1:], pos)[calls].tolist()
            rows = (first + calls).tolist()
            for row, start, end in zip(rows, starts[calls].tolist(), ends, strict=True):
                texts.keep(row, window.view, start, end)
        return pos, why

    return scan_and_keep
