"""The first pass over an NCCL debug log by compiled code, and what that leaves line by line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import debug_log_state as of
from .debug_log_lines import MAX_LINE_BYTES, Writer, messages
from .debug_log_survey import begun_or_made, label_of, take_line
from .line_blocks import Block, blocks, line_of
from .tables_of_texts import Texts

if TYPE_CHECKING:
    from ..collect import Collector
    from ..sources import Source
    from .debug_log_survey import Survey, Thread

_LINES = 8192
_FEW = 64
_MOST_WRITERS = 1 << 16


class CompiledSurvey:
    """One first pass, by these `functions`: `said_lines` and `said_inits`."""

    def __init__(self, functions: dict[str, Callable[..., Any]], found: Survey, c: Collector):
        self._said_lines, self._said_inits = functions["said_lines"], functions["said_inits"]
        self._found, self._c = found, c
        self._writers = Texts(_MOST_WRITERS, 64)
        self._writer_of: list[Writer] = []
        self._threads: dict[int, Thread] = {}
        self._pointers: dict[int, bytes] = {}

    def read(self, source: Source) -> None:
        """Gives the survey all lines of a log that it has to see."""
        found = self._found
        bounds = np.zeros((_LINES, 2), np.int64)
        inits = np.zeros((_LINES, of.INIT_COLUMNS), np.int64)
        state = np.zeros(of.STATE_SIZE, np.int64)

        def quiet(*_: Any, **__: Any) -> None:
            """The second pass tells what is odd about lines."""

        for block in blocks(source, quiet, MAX_LINE_BYTES):
            state[of.N], state[of.POS] = block.n, 0
            while state[of.POS] < block.n:
                seek = not found.has_message
                n = self._said_lines(block.data, state, seek, bounds[:_FEW] if seek else bounds)
                self._said_inits(block.data, bounds[:n], block.whole, inits, self._writers.table)
                for (start, end), said in zip(bounds[:n].tolist(), inits[:n].tolist(), strict=True):
                    if said[0] == of.IS_OTHER:
                        line, _ = line_of(block, start, end, MAX_LINE_BYTES)
                        take_line(found, block.base + start, line, self._c)
                    else:
                        self._init(block, start, *said)

    def _init(self, block: Block, start: int, kind: int, at: int, code: int, address: int,
              place: int, size: int, device: int, hash_: int) -> None:  # fmt: skip
        """A line that a communicator begins or is complete; the numbers are those of `state`."""
        found = self._found
        found.has_message = True
        thread = self._threads.get(code) or self._thread(code)
        pointer = self._pointers.get(address)
        if pointer is None:
            pointer = self._pointers[address] = b"0x%x" % (address & ((1 << 64) - 1))
        n_comms = len(found.comms)
        comm = begun_or_made(found, thread, (pointer, place, size, device), kind == of.IS_BEGUN,
                             block.base + at, self._c)  # fmt: skip
        if comm is None:
            return
        if hash_:
            comm.hash_ = hash_ & ((1 << 64) - 1)
        if at > start and len(found.comms) > n_comms:
            comm.process.label = label_of(block.data[start:at].tobytes(), comm)

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
