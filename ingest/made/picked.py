"""What deriving a job first looks at of events, picked while these are written."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from ..ahead import cores
from ..keeping import slices
from ..manifest import Manifest
from . import events
from .aligned import Odd
from .events import Kept, Rows, Texts, Words

MOST_ROWS = 700_000
"""Rows that are held of all sources together (some 30 MB); a source that has more is read again."""

MOST_CHARACTERS = 16_000_000
"""The same of their texts."""


class Room:
    """How many more rows, and characters of their texts, may be held."""

    def __init__(self) -> None:
        self.rows = MOST_ROWS
        self.characters = MOST_CHARACTERS


class Picked:
    """Of one source's events the rows that `events.by_rank` picks, row group by row group.

    They are picked as those of a rank with a device, which of its hosts tells little; where it
    turns out to be another one, or several, nothing is held.
    """

    def __init__(self, room: Room):
        self._room = room
        self._words = _no_words()
        self._pieces: list[list[np.ndarray]] = []
        self._rank: int | None = None
        self._held = self._seen = self._characters = 0
        self._on_device = False
        self._given_up = False
        self._beside: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None

    def take(self, table: str, rows: pa.Table) -> None:
        """Takes the rows of a row group; of a large one beside the caller, one at a time."""
        if table != "events" or not len(rows) or self._given_up:
            return
        self._settle()
        if len(rows) < events.AHEAD_ROWS or cores() < 2:
            self._pick(rows)
            return
        self._beside = self._beside or ThreadPoolExecutor(1, "retime-pick")
        self._last = self._beside.submit(self._pick, rows)

    def _settle(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def _pick(self, rows: pa.Table) -> None:
        if self._given_up:
            return
        try:
            self._add(rows)
        except (Odd, MemoryError, pa.ArrowException):  # what may be wrong is told by who reads it
            self._let_go()

    def _add(self, rows: pa.Table) -> None:
        first = rows["rank"][0].as_py()
        if self._rank is None:
            self._rank = first
        if first is None or first != self._rank or self._room.rows <= 0:
            raise Odd
        piece = slices.renumbered(rows.select(list(events.COLUMNS)))
        of = np.array([-1, first], np.int64)
        known = [len(texts.all) for texts in self._words]
        _, columns = events.needed(piece, [first], of, self._words)
        kind, n = columns[0], len(columns[0])
        new = sum(
            len(text)
            for texts, at in zip(self._words, known, strict=True) for text in texts.all[at:]
        )  # fmt: skip
        if n > self._room.rows or new > self._room.characters:
            raise Odd
        self._room.rows -= n
        self._room.characters -= new
        self._held += n
        self._characters += new
        self._seen += len(rows)
        self._on_device |= bool(np.any(kind == events.KERNEL))
        self._pieces.append(columns)

    def finish(self) -> None:
        """Waits for the last row group, once all were taken."""
        self._settle()
        if self._beside is not None:
            self._beside.shutdown()
            self._beside = None

    def give_up(self) -> None:
        """Lets go of the rows: others may have their room."""
        if self._beside is not None:
            self._beside.shutdown()
            self._beside = self._last = None
        self._let_go()

    def _let_go(self) -> None:
        self._given_up = True
        self._room.rows += self._held
        self._room.characters += self._characters
        self._held = self._characters = 0
        self._pieces, self._words = [], _no_words()

    def rows(self, source: Manifest, words: Words) -> Rows | None:
        """Those of the rank, once, with their texts among `words`; None where files must be read.

        They are what `events.by_rank` reads of the source alone.
        """
        self.finish()
        its = sum(p.rows for p in source.tables.get("events", []))
        if not self._on_device or source.ranks != [self._rank] or its != self._seen:
            self.give_up()
        if self._given_up:
            return None
        kept = Kept(events.TYPES, self._held)
        of = [mine.codes(own.all).astype(np.int32)
              for mine, own in zip(words, self._words, strict=True)]  # fmt: skip
        for kind, name, thread, category, *numbers in self._pieces:
            coded = (c[codes] for c, codes in zip(of, (name, thread, category), strict=True))
            kept.add(np.full(len(kind), source.ranks[0]), [kind, *coded, *numbers])
        self.give_up()
        return Rows(source.ranks[0], True, kept)


def _no_words() -> Words:
    return Words(Texts(), Texts(), Texts())
