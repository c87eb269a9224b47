"""The first pass over an NCCL debug log by compiled code, and what that leaves line by line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import debug_log_state as of
from .debug_log_lines import MAX_LINE_BYTES, Writer, messages
from .debug_log_survey import MOST_COMMS, begun_or_made, label, take_comms, take_rest
from .line_blocks import Block, blocks, line_of
from .tables_of_texts import Texts, Triples

if TYPE_CHECKING:
    from ..collect import Collector
    from ..sources import Source
    from .debug_log_comms import Pointer, Thread
    from .debug_log_survey import Survey

_LINES = 8192
_FEW = 64
_MOST_WRITERS = 1 << 16
_MOST_DEVICES = 1 << 14
_MOST_POINTERS = 1 << 16


class CompiledSurvey:
    """One first pass, by these `functions`: `said_lines`, `said_inits` and `noted_inits`.

    Compiled code notes communicators until a line comes that says something else of one, or there
    are more pointers or devices than it has room for: from there on they are noted one by one.
    """

    def __init__(self, functions: dict[str, Callable[..., Any]], found: Survey, c: Collector):
        self._said_lines, self._said_inits = functions["said_lines"], functions["said_inits"]
        self._noted_inits = functions["noted_inits"]
        self._found, self._c = found, c
        self._state = np.zeros(of.STATE_SIZE, np.int64)
        self._writers = Texts(_MOST_WRITERS, 64)
        self._writer_of: list[Writer] = []
        self._threads: dict[int, Thread] = {}
        self._pointer_texts: dict[int, bytes] = {}
        # Process and thread by writer, processes by device: -1 where that is not known yet.
        self._owners = np.full((_MOST_WRITERS, 2), -1, np.int64)
        self._owner_of: dict[tuple[str, int], int] = {}
        self._of_device, self._of_pointer = Triples(_MOST_DEVICES), Triples(_MOST_POINTERS)
        self._processes = np.full(_MOST_DEVICES, -1, np.int64)
        found.comms.latest = np.full(_MOST_POINTERS, -1, np.int64)
        found.comms.pointers_from(self._pointers)
        self._one_by_one = False

    def read(self, source: Source, hashed: bool = False) -> None:
        """Gives the survey all lines of a log that it has to see."""
        found, state = self._found, self._state
        bounds = np.zeros((_LINES, 2), np.int64)
        inits = np.zeros((_LINES, of.INIT_COLUMNS), np.int64)

        def quiet(*_: Any, **__: Any) -> None:
            """The second pass tells what is odd about lines."""

        for block in blocks(source, quiet, MAX_LINE_BYTES, hashed):
            state[of.N], state[of.POS] = block.n, 0
            while state[of.POS] < block.n:
                seek = not found.has_message
                n = self._said_lines(block.data, state, seek, bounds[:_FEW] if seek else bounds)
                self._said_inits(block.data, bounds[:n], block.whole, inits, self._writers.table)
                self._take(block, bounds[:n], inits[:n])

    def _take(self, block: Block, bounds: np.ndarray, inits: np.ndarray) -> None:
        """Lines in order, and what `said_inits` has of them."""
        found, at = self._found, 0
        others = np.flatnonzero(inits[:, of.I_IS] == of.IS_OTHER)
        for k, (start, end) in zip(others.tolist(), bounds[others].tolist(), strict=True):
            line, _ = line_of(block, start, end, MAX_LINE_BYTES)
            if not take_rest(found, line):  # which depends on no communicator before it
                inits[k, of.I_IS] = of.IS_READ
        while at < len(inits):
            if not self._one_by_one:
                at, labelled = self._noted(block, bounds, inits, at)
                if at == len(inits):
                    break
                if labelled:
                    continue
            start, end = bounds[at].tolist()
            kind, *said = inits[at].tolist()
            if kind == of.IS_OTHER:
                line, _ = line_of(block, start, end, MAX_LINE_BYTES)
                self._one_by_one = True
                take_comms(found, block.base + start, line, self._c)
            elif kind != of.IS_READ:
                found.has_message = True
                if not self._one_by_one and self._settled(block.base, *said):
                    continue  # compiled code takes it now
                if self._one_by_one:
                    self._init(block, start, kind, *said)
            at += 1

    def _noted(
        self, block: Block, bounds: np.ndarray, inits: np.ndarray, at: int
    ) -> tuple[int, bool]:
        """Has lines noted from number `at` on; that of the line where it stopped, and whether
        because of a label that it then saw to."""
        comms, state = self._found.comms, self._state
        state[of.N_COMMS] = comms.n
        stopped = self._noted_inits(
            inits, bounds, block.base, at, self._owners, self._of_device.table, self._processes,
            self._of_pointer.table, comms.latest, comms.rows[:MOST_COMMS], state,
        )  # fmt: skip
        comms.n = int(state[of.N_COMMS])
        read = inits[at:stopped, of.I_IS] == of.IS_READ
        self._found.has_message = self._found.has_message or not read.all()
        if (number := int(state[of.CODE])) >= 0:
            start, begins = int(bounds[stopped - 1, 0]), int(inits[stopped - 1, of.I_AT])
            label(self._found, number, block.data[start:begins].tobytes())
        return stopped, number >= 0

    def _settled(self, base: int, at: int, code: int, address: int, place: int, size: int,
                 device: int, hash_: int) -> bool:  # fmt: skip
        """Sees to what compiled code lacked for a line; False where that will not take it."""
        found, known = self._found, self._owners[code, 0] >= 0
        thread = self._threads.get(code) or self._thread(code)
        host, pid, _ = thread
        if not known and host in found.hosts_of_pid.get(pid, ()):
            self._owned(code, thread)
            return True
        process = found.admitted(thread, place, size, device, base + at, self._c)
        if process is None:
            return False
        if not known:
            self._owned(code, self._thread(code))
            return True
        device_code = int(self._state[of.END])
        if device_code < 0:
            self._one_by_one = True
            return False
        self._processes[device_code] = process.number
        found.comms.make_room()
        return True

    def _owned(self, code: int, thread: Thread) -> None:
        """Notes whose a writer's lines are, for compiled code."""
        owner = self._owner_of.setdefault(thread[:2], len(self._owner_of))
        self._owners[code] = owner, self._found.comms.thread(thread)

    def _pointers(self) -> dict[Pointer, int]:
        """The codes of pointers that compiled code has."""
        owners = list(self._owner_of)
        return {
            (*owners[owner], b"0x%x" % (address & ((1 << 64) - 1))): code
            for code, (owner, address, _) in enumerate(self._of_pointer.all())
        }

    def _init(self, block: Block, start: int, kind: int, at: int, code: int, address: int,
              place: int, size: int, device: int, hash_: int) -> None:  # fmt: skip
        """A line that a communicator begins or is complete; the numbers are those of `state`."""
        found = self._found
        thread = self._threads.get(code) or self._thread(code)
        pointer = self._pointer_texts.get(address)
        if pointer is None:
            pointer = self._pointer_texts[address] = b"0x%x" % (address & ((1 << 64) - 1))
        n_comms = found.comms.n
        number = begun_or_made(found, thread, (pointer, place, size, device), kind == of.IS_BEGUN,
                               block.base + at, self._c)  # fmt: skip
        if number is None:
            return
        if hash_:
            found.comms.rows[number, of.Q_HASH] = hash_
        if at > start and found.comms.n > n_comms:
            label(found, number, block.data[start:at].tobytes())

    def _thread(self, code: int) -> Thread:
        """Whose a writer's lines are, under its host's own name."""
        while len(self._writer_of) <= code:
            text = self._writers.text(len(self._writer_of))
            self._writer_of.append(messages(text + b" NCCL INFO ")[0].writer)
        writer = self._writer_of[code]
        host = self._found.host_of(writer.host, writer.pid)
        thread = host, writer.pid, writer.tid
        if host in self._found.hosts_of_pid.get(writer.pid, ()):
            self._threads[code] = thread  # it is the host's own name, and stays so
        return thread
