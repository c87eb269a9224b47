"""An NCCL debug log through the compiled pass of `debug_log_scan`, a block of lines at a time.

What that pass does not know yet is read as ever and learnt: a kind of call, a choice, a kind of
line that gives no row. A pointer's communicator may be another one later on: what was learnt of a
process is forgotten where one of its communicators begins, is complete or ends.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import collect
from ..schema import event_id
from . import debug_log_state as of
from . import debug_log_text as say
from .debug_log_calls import P2P, SOURCE, Calls, lacks
from .debug_log_lines import MAX_LINE_BYTES, Message, Writer, messages
from .debug_log_links import ALONE
from .debug_log_links_compiled import CompiledLinks
from .debug_log_reader import Reader
from .debug_log_survey_compiled import CompiledSurvey
from .line_blocks import Block, blocks, line_of
from .number_rows import NULL, NumberRows
from .tables_of_texts import Texts, Triples

if TYPE_CHECKING:
    import pyarrow as pa

    from ..collect import Collector
    from ..sources import Source
    from .debug_log_places import Places
    from .debug_log_survey import Comm, Survey

_SLOW_LINES = 8192
_MOST_WRITERS = 1 << 16
_MOST_TEXTS = 1 << 16
_MOST_KINDS = 1 << 14
_MOST_CODES = 1 << 15
_MOST_COUNT = 10**18
_I32_MAX = (1 << 31) - 1
_I64_MAX = (1 << 63) - 1

Owner = tuple[str, int]
"""Host and process number."""


class Compiled:
    """Both passes over a log by these `functions` of `debug_log_scan`.

    With `hashed` the first one hashes what it reads, so that nobody has to beside it.
    """

    def __init__(self, functions: dict[str, Callable[..., Any]], hashed: bool = False):
        self._functions, self._hashed = functions, hashed

    def survey(self, source: Source, found: Survey, c: Collector) -> None:
        """The first pass, as `debug_log_survey.survey` asks for it."""
        CompiledSurvey(self._functions, found, c).read(source, self._hashed)

    def rows(
        self, source: Source, c: Collector, places: Places
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of all messages; problems and what is left are in the collector."""
        yield from _Pass(self._functions, c, places).rows(source)


class _NumberedCalls(Calls):
    """`Calls` whose numbers are where compiled code counts them on."""

    def __init__(self, c: Collector, places: Places, add: Callable[..., None]):
        super().__init__(c, places, add)
        self.counters = np.zeros(1024, np.int64)
        self._slots: dict[tuple[int, str], int] = {}

    def slot(self, comm: Comm, op: str) -> int:
        """Where an operation's next number on a communicator is kept."""
        slot = self._slots.setdefault((id(comm), op), len(self._slots))
        if slot == len(self.counters):
            self.counters = np.concatenate([self.counters, np.zeros_like(self.counters)])
        return slot

    def number(self, comm: Comm, op: str) -> int:
        slot = self.slot(comm, op)
        self.counters[slot] += 1
        return int(self.counters[slot]) - 1


class _Pass:
    """The second pass over one log: what it has learnt so far, and what that counted."""

    def __init__(self, functions: dict[str, Callable[..., Any]], c: Collector, places: Places):
        self._scan = functions["scan"]
        self._c, self._places = c, places
        self._members: list[Comm] = []
        self._rows = NumberRows(
            c, "collectives", of.ROW_COLUMNS, ("root", "peer"), {"source": SOURCE},
            functions,
            lambda member, place: places.rank_at(self._members[member], place),
        )  # fmt: skip
        self._batch_of = self._rows.matrix
        self._rows_room = self._batch_of[: collect.BATCH_ROWS]
        self._numbered = _NumberedCalls(c, places, self._rows.add)
        self._state = np.zeros(of.STATE_SIZE, np.int64)
        self._links = CompiledLinks(c, places, Counter(), functions, self._state)
        self._reader = Reader(c, places, self._numbered, lambda *_: self._links)
        self._links.passed_over = self._reader.passed_over
        self._slow = np.zeros((_SLOW_LINES, 3), np.int64)
        self._scratch = np.zeros(128, np.uint8)
        self._writers, self._texts = Texts(_MOST_WRITERS, 64), Texts(_MOST_TEXTS, 64)
        self._lately = np.full(1 << of.LATELY_BITS, -1, np.int64)
        self._kind_texts = Texts(_MOST_KINDS, 64)
        self._call_codes, self._choice_codes = Triples(_MOST_CODES), Triples(_MOST_CODES)
        self._calls = np.zeros((_MOST_CODES, of.CALL_COLUMNS), np.int64)
        self._choices = np.zeros((_MOST_CODES, 2), np.int64)
        self._kinds = np.zeros((_MOST_KINDS, 2), np.int64)
        # By code: what its lines lack (code of the problem, rank), a choice's key, a kind.
        self._lacking: dict[int, tuple[list[str], int]] = {}
        self._keys: dict[int, tuple[Any, ...]] = {}
        self._kind_of: dict[int, str] = {}
        self._learnt: defaultdict[Owner, list[tuple[bool, int]]] = defaultdict(list)
        self._next: list[tuple[int, Owner]] = []

    def rows(self, source: Source) -> Iterator[tuple[str, pa.RecordBatch]]:
        """All rows of the log."""
        self._state[of.MOST] = MAX_LINE_BYTES
        for block in blocks(source, self._c.odd, MAX_LINE_BYTES):
            yield from self._block(block)
        self._settle()
        self._reader.finish()
        for rows in (self._rows, self._links.edges, self._links.moved):
            yield from rows.rest()

    @cached_property
    def _turns(self) -> dict[Owner, list[int]]:
        return _turns(self._places.found)

    @property
    def _batch(self) -> np.ndarray:
        """The room for rows of calls until they are taken."""
        if self._batch_of is not self._rows.matrix:
            self._batch_of = self._rows.matrix
            self._rows_room = self._batch_of[: collect.BATCH_ROWS]
        return self._rows_room

    def _block(self, block: Block) -> Iterator[tuple[str, pa.RecordBatch]]:
        state = self._state
        state[of.N], state[of.BASE], state[of.WHOLE] = block.n, block.base, block.whole
        state[of.POS] = 0
        while (pos := int(state[of.POS])) < block.n:
            state[of.LIMIT] = min(block.n, self._forget_until(block.base + pos) - block.base)
            self._to_scan()
            why = self._scan(
                block.data, state, self._slow, self._batch,
                self._numbered.counters, self._calls, self._choices, self._kinds, self._scratch,
                *self._links.arrays(),
                self._writers.table, self._texts.table, self._kind_texts.table,
                self._call_codes.table, self._choice_codes.table, self._lately,
            )  # fmt: skip
            now = state.tolist()
            edges, moved = self._links.edges, self._links.moved
            self._rows.n, edges.n, moved.n = now[of.ROWS], now[of.EDGES], now[of.MOVED]
            slow = now[of.SLOW]
            for start, end, kind in self._slow[:slow].tolist() if slow else ():
                self._one_line(block, start, end, kind)
                yield from self._full()
            at, end, code = now[of.POS], now[of.END], now[of.CODE]
            if why == of.BARRIER:
                self._one_line(block, at, end, -1)
                yield from self._full()
                state[of.POS] = end + 1
            elif why == of.LEARN_CALL:
                self._learn_call(code, *self._message(block, at, end))
            elif why == of.LEARN_CHOICE:
                self._learn_choice(code, *self._message(block, at, end))
            elif why == of.LEARN_WRITER:
                if not self._links.learn_writers(code, self._writers.table):
                    self._links.learn_writer(code, self._message(block, at, end)[1])
            elif why == of.LEARN_POINTER:
                self._links.learn_pointer(code, self._message(block, at, end)[1])
            elif why == of.LEARN_ROUTE:
                self._links.learn_route(code, *self._message(block, at, end)[:2])
            elif why == of.LEARN_NICS:
                self._learn_nics(block, at, end, code)
                yield from self._full()
                state[of.POS] = end + 1
            elif why == of.TABLES_FULL:
                self._clear()
            if max(self._rows.n, edges.n, moved.n) >= collect.BATCH_ROWS:
                yield from self._full()

    def _full(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        for rows in (self._rows, self._links.edges, self._links.moved):
            yield from rows.full()
        yield from self._c.full()

    def _to_scan(self) -> None:
        state, told = self._state, self._c.told
        state[of.ROWS], state[of.SLOW] = self._rows.n, 0
        state[of.EDGES], state[of.MOVED] = self._links.edges.n, self._links.moved.n
        state[of.TOLD_UNKNOWN] = told("link_of_unknown_comm")
        state[of.TOLD_CUT] = told("ring_cut")
        state[of.TOLD_ALONE] = ALONE in self._reader.passed_over

    def _one_line(self, block: Block, start: int, end: int, kind: int) -> None:
        line, long = line_of(block, start, end, MAX_LINE_BYTES)
        if long:
            self._c.odd("long_line", f"a line of more than {MAX_LINE_BYTES} bytes; the rest of it "
                        "is left out", "lost", offset=block.base + start)  # fmt: skip
        if b" NCCL " not in line:
            return
        self._reader.line(line, block.base + start)
        if kind >= 0:
            self._kind_of[kind] = self._reader.kind(messages(line)[0])

    def _message(self, block: Block, start: int, end: int) -> tuple[Message, Writer, int]:
        """The one message of a line that is to be learnt, its writer and its offset."""
        (message,) = messages(line_of(block, start, end, MAX_LINE_BYTES)[0])
        return message, self._reader.written_by(message), block.base + start + message.start

    def _learn_call(self, code: int, message: Message, writer: Writer, offset: int) -> None:
        call = say.call(message.text)
        row = self._calls[code]
        row[:] = 0
        row[of.HOW] = of.BY_HAND
        if call is None or call.size > _I32_MAX:
            return
        comm, rank = self._numbered.whose(call, writer, offset)
        self._remember((writer.host, writer.pid), True, code, offset)
        row[of.MOST_COUNT] = _MOST_COUNT
        if rank is None:
            row[of.HOW] = of.COUNTED
            return
        missing = lacks(call, comm)
        for problem in missing:
            self._numbered.note(problem, offset, rank, 0)
        if missing:
            self._lacking[code] = missing, rank
        place = None if comm is None else comm.place
        unit = call._replace(count=1)
        elsewhere = unit._replace(root=None).buffers(place)
        at_root = elsewhere if place is None else unit._replace(root=place).buffers(place)
        factors = [-1 if f is None else f for f in (*elsewhere, *at_root)]
        row[of.IN_OTHER : of.OUT_ROOT + 1] = factors
        row[of.MOST_COUNT] = min(_MOST_COUNT, _I64_MAX // max(1, *factors))
        row[of.PLACE] = -1 if place is None else place
        numbered = comm is not None and call.op not in P2P
        row[of.SLOT] = self._numbered.slot(comm, call.op) if numbered and comm is not None else -1
        row[of.MEMBER] = -1
        if comm is not None and (call.op in say.ROOTED or call.op in P2P):
            row[of.ROOT_IS] = of.IS_PEER if call.op in P2P else of.IS_ROOT
            row[of.MEMBER] = self._member(comm)
        row[of.COMM] = self._rows.code(None if comm is None else comm.name)
        row[of.OP], row[of.DTYPE] = self._rows.code(call.op), self._rows.code(call.dtype)
        row[of.RANK], row[of.SIZE] = rank, call.size
        row[of.EVENT] = event_id(rank, SOURCE, 0)
        row[of.HOW] = of.ROW

    def _member(self, comm: Comm) -> int:
        if comm.member is None:
            comm.member = len(self._members)
            self._members.append(comm)
        return comm.member

    def _learn_choice(self, code: int, message: Message, writer: Writer, offset: int) -> None:
        key = self._numbered.chosen_key(message.text, writer, offset)
        self._choices[code] = of.BY_HAND, 0
        if key is None or not self._numbered.has_room(key):
            return
        self._numbered.chosen[key] += 0
        self._keys[code] = key
        self._choices[code, 0] = of.ROW
        self._remember((writer.host, writer.pid), False, code, offset)

    def _learn_nics(self, block: Block, at: int, end: int, code: int) -> None:
        """A line that may name NICs; until others are named it then says nothing new."""
        message, writer, _ = self._message(block, at, end)
        if self._links.nics(message.text, writer):
            self._choices[code] = self._state[[of.NIC_TURN, of.CLEARED]]
        else:
            self._one_line(block, at, end, -1)

    # --- what is learnt, until something changes ---------------------------------------------

    def _remember(self, owner: Owner, is_call: bool, code: int, offset: int) -> None:
        learnt = self._learnt[owner]
        if not learnt:
            turns = self._turns.get(owner, ())
            i = bisect_right(turns, offset)
            if i < len(turns):
                heapq.heappush(self._next, (turns[i], owner))
        learnt.append((is_call, code))

    def _forget_until(self, offset: int) -> int:
        """Forgets what turned before this place of the log; where the next turn is."""
        while self._next and self._next[0][0] <= offset:
            _, owner = heapq.heappop(self._next)
            for is_call, code in self._learnt.pop(owner, ()):
                self._settle_call(code) if is_call else self._settle_choice(code)
                (self._calls if is_call else self._choices)[code] = 0
        return self._next[0][0] if self._next else 1 << 62

    def _settle_call(self, code: int) -> None:
        n = int(self._calls[code, of.LINES])
        self._calls[code, of.LINES] = 0
        if self._calls[code, of.HOW] == of.COUNTED:
            self._numbered.no_rank += n
        missing, rank = self._lacking.pop(code, ((), 0))
        for problem in missing if n else ():
            self._numbered.note(problem, None, rank, n)

    def _settle_choice(self, code: int) -> None:
        key = self._keys.pop(code, None)
        if key is not None:
            self._numbered.chosen[key] += int(self._choices[code, 1])
        self._choices[code, 1] = 0

    def _settle(self) -> None:
        """Adds what was counted to what tells it; forgets what was learnt."""
        for learnt in self._learnt.values():
            for is_call, code in learnt:
                self._settle_call(code) if is_call else self._settle_choice(code)
        self._learnt.clear()
        self._next.clear()
        for code, kind in self._kind_of.items():
            self._reader.passed_over[kind] += int(self._kinds[code, 1])
        self._kind_of.clear()
        state = self._state
        if n := int(state[of.N_UNKNOWN]):
            self._c.odd("link_of_unknown_comm", "", count=n)
        if n := int(state[of.N_CUT]):
            self._c.odd("ring_cut", "", count=n)
        if n := int(state[of.N_ALONE]):
            self._reader.passed_over[ALONE] += n
        state[[of.N_UNKNOWN, of.N_CUT, of.N_ALONE]] = 0

    def _clear(self) -> None:
        """Makes room: what is seen again is learnt again."""
        self._settle()
        for table in (self._writers, self._texts, self._kind_texts, self._call_codes,
                      self._choice_codes):  # fmt: skip
            table.clear()
        self._lately[:] = -1
        for known in (self._calls, self._choices, self._kinds):
            known[:] = 0
        self._links.clear()


def _turns(found: Survey) -> dict[Owner, list[int]]:
    """Where in the log it may change which communicator a process's message is of, in order."""
    turns: defaultdict[Owner, list[int]] = defaultdict(list)
    for process in found.in_order:
        its = found.comms.rows[found.comms.of_process.of(process.number)]
        said = its[:, [of.Q_BEGUN, of.Q_MADE, of.Q_ENDED]]
        turns[process.host, process.pid] += said[said != NULL].tolist()
    for places in turns.values():
        places.sort()
    return dict(turns)
