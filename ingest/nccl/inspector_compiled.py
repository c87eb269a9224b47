"""Inspector's JSON lines through the compiled pass of `inspector_scan`, a block at a time.

What that pass does not know yet is learnt: what a header says, what an operation's name means on
it, what its texts mean. Lines that it will not take are read as ever, in their turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import collect, memory
from ..classify import op_of_collective_name
from ..schema import event_id
from . import inspector_state as of
from .comm_places import Places, buffers
from .inspector_proxy import CONSTANTS, MOST_KEPT, Proxies
from .inspector_records import (
    BATCH,
    CONTEXT_SINCE,
    MAX_LINE,
    SOURCE,
    Reader,
    place_of,
    said_places,
    timing_of,
    version_of,
    word_of,
)
from .line_blocks import Block, blocks, line_of
from .number_rows import NumberRows
from .tables_of_texts import Lately, Texts, Triples
from .values import algo_name, proto_name

if TYPE_CHECKING:
    import pyarrow as pa

    from ..collect import Collector
    from ..sources import Source

_SLOW_LINES = 4096
_MOST_STEPS = 1024
_KINDS = {"p2p": of.OF_P2P, "coll": of.OF_COLL, "steps": of.OF_STEPS}
_LEFT = (("coll_perf", of.LEFT_COLL), ("p2p_perf", of.LEFT_P2P), ("proxy_trace", of.LEFT_PROXY))
_MOST_HEADERS = 1 << 14
_MOST_TEXTS = 1 << 12
_MOST_CODES = 1 << 15


class Compiled:
    """Both passes over a file by these `functions` of `inspector_scan`.

    With `hashed` the first one hashes what it reads, so that nobody has to beside it.
    """

    def __init__(self, functions: dict[str, Callable[..., Any]], hashed: bool = False):
        self._functions, self._hashed = functions, hashed
        self._has_proxies = False

    def places(self, source: Source, places: Places) -> None:
        """Notes the communicators that a file names."""
        find = self._functions["header_lines"]
        texts = Texts(_MOST_HEADERS, 256)
        known = memory.untouched(_MOST_HEADERS)
        out = np.zeros((_SLOW_LINES, 3), np.int64)
        state = np.zeros(of.STATE_SIZE, np.int64)
        state[of.MOST] = MAX_LINE
        for block in blocks(source, lambda *a, **k: None, MAX_LINE, self._hashed):
            state[of.N], state[of.POS] = block.n, 0
            while state[of.POS] < block.n:
                # Few at first: each of them is new until it is read.
                n = find(block.data, state, known, out[: 64 if len(texts) < 64 else None],
                         texts.table)  # fmt: skip
                if n < 0:
                    texts.clear()
                    known[:] = 0
                    continue
                for start, end, code in out[:n].tolist():
                    line, _ = line_of(block, start, end, MAX_LINE)
                    (is_record,) = said_places([line], places)
                    if code >= 0 and is_record:
                        known[code] = 1
        self._has_proxies = bool(state[of.HAS_PROXIES])

    def reader(self, source: Source, places: Places, collector: Collector) -> _Reader:
        """What reads the lines by themselves, and has what both know of those before."""
        return _Reader(source, places, collector, self._functions)

    def rows(self, source: Source, reader: _Reader) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of all lines; what is left is in the reader and its collector."""
        yield from _Pass(self._functions["scan"], reader, self._has_proxies).rows(source)


class _LastNumbers:
    """`inspector_proxy.Kept` where compiled code has it too."""

    def __init__(self, functions: dict[str, Callable[..., Any]], rows: NumberRows):
        self._kept, self._keep, self._rows = functions["kept"], functions["keep"], rows
        self.held = Lately(MOST_KEPT)

    def get(self, comm: str, kind: str, sn: int) -> int | None:
        where = self._rows.code(comm), _KINDS[kind], sn, self.held.tables, self.held.values
        value = self._kept(*where)
        return None if value == of.ABSENT else value

    def set(self, comm: str, kind: str, sn: int, value: int | None) -> None:
        value = of.ABSENT if value is None else value
        self._keep(self._rows.code(comm), _KINDS[kind], sn, value, self.held.tables,
                   self.held.values)  # fmt: skip


class _Reader(Reader):
    """`Reader` whose rows and numbers are where compiled code writes them."""

    def __init__(
        self,
        source: Source,
        places: Places,
        collector: Collector,
        functions: dict[str, Callable[..., Any]],
    ):
        self.headers: list[tuple[str, int, int | None]] = []

        def rank_at(header: int, peer: int) -> int | None:
            return places.peer_of(*self.headers[header][:2], peer)

        self.rows = NumberRows(
            collector, "collectives", of.ROW_COLUMNS, ("peer",),
            {"state": "completed", "source": SOURCE}, functions, rank_at,
        )  # fmt: skip
        self.rows.code(of.HOST)  # is 0
        self.moved = NumberRows(
            collector, "transfers", of.MOVED_COLUMNS, ("peer_rank",), CONSTANTS,
            functions, rank_at,
        )  # fmt: skip
        for text in (of.HOST, "send", "recv"):  # as HOST_CODE, SENT and RECEIVED say
            self.moved.code(text)
        self.numbers = _LastNumbers(functions, self.rows)
        proxies = Proxies(places, collector, self.moved.add, self.numbers)
        super().__init__(source, places, collector, self.rows.add, proxies)
        self.lasts = np.zeros((256, 2), np.int64)
        self._gaps: dict[tuple[str, int, str], int] = {}

    def gap(self, comm: str, place: int, op: str) -> int:
        """Where the last number of a rank's operations of a kind is kept."""
        slot = self._gaps.setdefault((comm, place, op), len(self._gaps))
        if slot == len(self.lasts):
            self.lasts = np.concatenate([self.lasts, np.zeros_like(self.lasts)])
        return slot

    def last_number(self, comm: str, place: int, op: str) -> int | None:
        known, number = self.lasts[self.gap(comm, place, op)].tolist()
        return number if known else None

    def set_last_number(self, comm: str, place: int, op: str, sn: int) -> None:
        self.lasts[self.gap(comm, place, op)] = 1, sn


class _Pass:
    """The second pass over one file: what it has learnt so far, and what that counted."""

    def __init__(self, scan: Callable[..., int], reader: _Reader, has_proxies: bool):
        self._scan, self._reader = scan, reader
        self._collector, self._rows, self._moved = reader.collector, reader.rows, reader.moved
        self._state = np.zeros(of.STATE_SIZE, np.int64)
        self._state[of.MOST], self._state[of.TAG] = MAX_LINE, reader.tag
        self._state[of.EVERY], self._state[of.MOST_MOVED] = BATCH, collect.BATCH_ROWS
        self._state[of.HAS_PROXIES] = has_proxies
        self._slow = np.zeros((_SLOW_LINES, 2), np.int64)
        self._bounds = np.zeros(4, np.int64)
        self._header_texts, self._texts = Texts(_MOST_HEADERS, 256), Texts(_MOST_TEXTS, 64)
        self._shape_codes, self._label_codes = Triples(_MOST_CODES), Triples(_MOST_CODES)
        self._headers = memory.untouched(_MOST_HEADERS, of.HEADER_COLUMNS)
        self._shapes = memory.untouched(_MOST_CODES, of.SHAPE_COLUMNS)
        self._labels = memory.untouched(_MOST_CODES, of.LABEL_COLUMNS)
        self._versions = np.zeros(_MOST_TEXTS, np.int64)
        self._places = np.zeros((64, of.PLACE_COLUMNS), np.int64)
        self._ranks = np.zeros((64, of.RANK_COLUMNS), np.int64)
        self._numbers: dict[tuple[str, int, int | None], int] = {}
        self._slots: dict[int, int] = {}
        self._steps = np.zeros((_MOST_STEPS, of.STEP_COLUMNS), np.int64)
        self._untold: set[int] = set()
        self._nameless: set[int] = set()
        self._take_over()

    def rows(self, source: Source) -> Iterator[tuple[str, pa.RecordBatch]]:
        """All rows of the file."""
        for block in blocks(source, self._collector.odd, MAX_LINE):
            yield from self._block(block)
        self._give_back()
        for rank, slot in self._slots.items():
            found = dict(zip(range(of.RANK_COLUMNS), self._ranks[slot].tolist(), strict=True))
            if found[of.R_SAMPLED_COUNT]:
                self._collector.odd("sampled", "", rank=rank, count=found[of.R_SAMPLED_COUNT])
            if found[of.R_TIMED_COUNT]:
                self._collector.odd("times_of_callbacks", "", rank=rank,
                                    count=found[of.R_TIMED_COUNT])  # fmt: skip
            if found[of.R_START] != of.NULL:
                self._reader.widen(rank, found[of.R_START], found[of.R_END])
        yield from self._rows.rest()
        yield from self._moved.rest()

    def _block(self, block: Block) -> Iterator[tuple[str, pa.RecordBatch]]:
        state, reader = self._state, self._reader
        state[of.N], state[of.WHOLE], state[of.POS] = block.n, block.whole, 0
        while state[of.POS] < block.n:
            state[of.ROWS], state[of.MOVED], state[of.SLOW] = self._rows.n, self._moved.n, 0
            state[of.N_ROWS], state[of.N_RECORDS] = reader.n_rows, reader.n_records
            self._rows.make_room()
            held = reader.numbers.held
            why = self._scan(
                block.data, state, self._slow, self._rows.matrix, self._moved.matrix, self._steps,
                self._headers, self._places, self._shapes, self._labels, self._versions,
                self._ranks, reader.lasts, self._bounds, self._header_texts.table,
                self._texts.table, self._shape_codes.table, self._label_codes.table, held.tables,
                held.values,
            )  # fmt: skip
            self._rows.n = int(state[of.ROWS])
            reader.proxies.n += int(state[of.MOVED]) - self._moved.n
            self._moved.n = int(state[of.MOVED])
            reader.n_rows, reader.n_records = int(state[of.N_ROWS]), int(state[of.N_RECORDS])
            if why == of.PAUSE:
                yield from self._looked_after()
            elif why == of.LEARN_HEADER:
                self._learn_header(int(state[of.CODE]))
            elif why == of.LEARN_SHAPE:
                self._learn_shape(int(state[of.CODE]))
            elif why == of.LEARN_LABEL:
                self._learn_label(int(state[of.CODE]))
            elif why == of.LEARN_VERSION:
                self._learn_version(int(state[of.CODE]))
            elif why == of.TABLES_FULL:
                self._clear()
            elif why == of.SLOW_LINES:
                yield from self._slow_lines(block)

    def _looked_after(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        yield from self._rows.full()
        yield from self._moved.full()
        yield from self._collector.full()

    def _slow_lines(self, block: Block) -> Iterator[tuple[str, pa.RecordBatch]]:
        state, reader = self._state, self._reader
        self._give_back()
        for start, end in self._slow[: int(state[of.SLOW])].tolist():
            line, long = line_of(block, start, end, MAX_LINE)
            if long:
                self._collector.odd("long_line", f"a line of more than {MAX_LINE} bytes; the rest "
                                    "of it is left out", "lost",
                                    offset=block.base + start)  # fmt: skip
            if line.strip():
                reader.take(line, block.base + start, block.whole)
                a_batch = reader.n_rows and reader.n_rows % BATCH == 0
                if a_batch or self._moved.n >= collect.BATCH_ROWS:
                    yield from self._looked_after()
        self._take_over()

    def _give_back(self) -> None:
        """The dump that it is in, and how many records of it are to come, for the reader."""
        state, reader = self._state, self._reader
        code, state[of.CONTEXT_CODE] = int(state[of.CONTEXT_CODE]), of.UNCHANGED
        if code != of.UNCHANGED:
            # Of the metadata nothing more is to be had: else the line was read by itself.
            inside = code != of.NO_CONTEXT
            reader.context = (json.loads(self._header_texts.text(code)), {}) if inside else None
            reader.left = {kind: 0 for kind, _ in _LEFT} if inside else {}
            reader.proxies.steps_written = int(state[of.STEPS_WRITTEN])
        for kind, left in _LEFT:
            if kind in reader.left:
                reader.left[kind] = int(state[left])

    def _take_over(self) -> None:
        """What the reader knows by now, for the compiled code."""
        state, reader = self._state, self._reader
        for kind, left in _LEFT:
            state[left] = min(reader.left.get(kind, 0), 1 << 62)
        state[of.STEPS_WRITTEN] = reader.proxies.steps_written == 1
        state[of.CONTEXT], state[of.CONTEXT_CODE] = -1, of.UNCHANGED
        if reader.context is not None:
            state[of.CONTEXT] = self._number(place_of(reader.context[0], None))
        for rank in [r for r in self._untold if self._tell(r)]:
            self._untold.discard(rank)
        for number in [n for n in self._nameless if self._name(n)]:
            self._nameless.discard(number)

    def _tell(self, rank: int) -> bool:
        """What the collector was told of a rank; whether there is nothing more of it to come."""
        place = self._ranks[self._slots[rank]]
        for at, code in ((of.R_SAMPLED, "sampled"), (of.R_TIMED, "times_of_callbacks")):
            place[at] = self._collector.told(code, rank)
        return bool(place[of.R_SAMPLED] and place[of.R_TIMED])

    def _name(self, number: int) -> bool:
        """The same of the metadata of a header's rank."""
        place = self._places[number]
        place[of.P_METADATA] = int(place[of.P_RANK]) in self._reader.of_process
        return bool(place[of.P_METADATA])

    # --- what is learnt ------------------------------------------------------------------------

    def _number(self, said: tuple[str, int, int | None] | None) -> int:
        """The number of what a header says; -1 where its lines are read by themselves."""
        if said is None or said[2] is None:
            return -1
        number = self._numbers.get(said)
        if number is None:
            whose = self._reader.places.rank_of(*said[:2])
            number = -1 if whose is None else self._new_number(said, whose)
            self._numbers[said] = number
        return number

    def _new_number(self, said: tuple[str, int, int | None], whose: int) -> int:
        number = len(self._reader.headers)
        self._reader.headers.append(said)
        if number == len(self._places):
            self._places = np.concatenate([self._places, np.zeros_like(self._places)])
        slot = self._slots.get(whose)
        if slot is None:
            slot = self._slots[whose] = len(self._slots)
            if slot == len(self._ranks):
                self._ranks = np.concatenate([self._ranks, np.zeros_like(self._ranks)])
            self._ranks[slot, of.R_START] = self._ranks[slot, of.R_END] = of.NULL
            self._untold.add(whose)
            self._tell(whose)
        comm, _, size = said
        event = event_id(whose, SOURCE, 0)
        self._places[number] = [self._rows.code(comm), whose, size or 0, event, slot, 0]
        self._nameless.add(number)
        self._name(number)
        return number

    def _learn_header(self, code: int) -> None:
        header = json.loads(self._header_texts.text(code))
        number = self._number(place_of(header, None))
        self._headers[code] = of.BY_HAND if number < 0 else of.KNOWN, number

    def _learn_shape(self, code: int) -> None:
        number, text, is_coll = self._shape_codes.numbers(code)
        comm, place, size = self._reader.headers[number]
        op = None if text < 0 else op_of_collective_name(self._word(text)[:64])
        op = op or "unknown"
        factors = [-1 if f is None else f for f in buffers(op, 1, size)]
        gap = self._reader.gap(comm, place, op) if is_coll else -1
        self._shapes[code] = of.KNOWN, self._rows.code(op), *factors, gap

    def _learn_label(self, code: int) -> None:
        timing, algo, proto = self._label_codes.numbers(code)
        said = timing_of(None if timing < 0 else self._word(timing), 0)
        named = algo_name(word_of(self._word(algo))), proto_name(word_of(self._word(proto)))
        self._labels[code] = of.KNOWN, self._rows.code(said), *map(self._rows.code, named)

    def _learn_version(self, code: int) -> None:
        inside = version_of(self._word(code)) >= CONTEXT_SINCE
        self._versions[code] = of.KNOWN if inside else of.BY_HAND

    def _word(self, code: int) -> str:
        return self._texts.text(code).decode()

    def _clear(self) -> None:
        """Makes room: what is seen again is learnt again."""
        self._give_back()
        for table in (self._header_texts, self._texts, self._shape_codes, self._label_codes):
            table.clear()
        for known in (self._headers, self._shapes, self._labels, self._versions):
            known[:] = 0
        self._take_over()
