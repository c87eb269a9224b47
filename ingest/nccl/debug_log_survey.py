"""First pass over an NCCL debug log: its processes and the communicators each of them made."""

from __future__ import annotations

import gc
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ..schema import MAX_RANK
from ..texts import lines
from . import debug_log_state as of
from .debug_log_comms import NULL, Comms, Parent, Thread
from .debug_log_lines import MAX_LINE_BYTES, Message, messages

if TYPE_CHECKING:
    from ..collect import Collector
    from ..sources import Source

_INIT = re.compile(
    rb"comm (0x[0-9a-f]{1,16}) rank (\d{1,10}) nranks (\d{1,10}) cudaDev (\d{1,5}) "
    rb"(.{0,400}?)- ?Init (START|COMPLETE)"
)
_COMM_ID = re.compile(rb"commId 0x([0-9a-f]{1,16})\b")
_PARENT = re.compile(rb"parent (0x[0-9a-f]{1,16})(?: (?:split|child)Count (-?\d{1,10}))?")
_COLOR = re.compile(rb"color (-?\d{1,10})\b")
_WORLD = re.compile(
    rb"comm (0x[0-9a-f]{1,16}) rank (\d{1,10}) nRanks (\d{1,10}) nNodes \d{1,10} "
    rb"localRanks \d{1,10} localRank (\d{1,10})\b"
)
_END = re.compile(
    rb"comm (0x[0-9a-f]{1,16}) rank (\d{1,10}) nranks (\d{1,10}) cudaDev (\d{1,5}) "
    rb"busId [0-9a-f]{1,16} - (?:Destroy|Abort) COMPLETE"
)
_VERSION = re.compile(rb"(NCCL|RCCL) version ?:? ?(\d{1,5}(?:\.\d{1,5}){1,3})")
_DEVICE = re.compile(
    rb"# +Rank +\d{1,9} (?:Group +\d{1,9} )?Pid +(\d{1,10}) on +(\S{1,255}) +device +(\d{1,5}) "
    rb"\[[^\]]{0,64}\] ?(.{1,100})"
)

_LABEL = re.compile(
    rb" {0,8}(\d{1,7}): |\[\d{1,6},(\d{1,7})\]<std(?:out|err)>: ?|\[rank(\d{1,7})\]: ?"
)
"""What `srun -l`, `mpirun --tag-output` and PyTorch put before a task's lines: its number."""

MOST_COMMS = 400_000
_MOST_PROCESSES = 100_000
_MOST_DEVICES = 1 << 16
_TEXT_BYTES = 1200

Said = tuple[bytes, int, int, int]
"""Pointer, place, size and device."""


@dataclass(eq=False, slots=True)
class Comm:
    """One process's place in one communicator; offsets are of its lines in the log.

    `begun` is the first line that names it, `made` the one that says it is complete (None where
    that is missing) and `ended` the one that destroys it. `code` is the place of its `name`.
    """

    process: Process
    place: int
    size: int
    begun: int
    number: int
    """in the order in which the log names them"""
    made: int | None
    ended: int | None
    code: int
    name: str
    calls: dict[str, int] | None = None
    """lines of each operation so far; none where they are counted elsewhere"""
    member: int | None = None
    """its number among those whose members are asked for"""


@dataclass(eq=False, slots=True)
class Process:
    """One device of one process; `rank` is global and None where unknown.

    `label` is the task number that a launcher put before its lines.
    """

    host: str
    pid: int
    device: int
    number: int
    """in the order in which the log names them"""
    rank: int | None = None
    local_rank: int | None = None
    device_name: str | None = None
    label: int | None = None


class Survey:
    """What the first pass learns of a log: who wrote it and which communicators there are."""

    def __init__(self) -> None:
        self.processes: dict[tuple[str, int, int], Process] = {}
        self.in_order: list[Process] = []
        self.comms = Comms()
        self.hosts_of_pid: dict[int, set[str]] = {}
        self.versions: Counter[str] = Counter()
        self.device_names: dict[tuple[str, int, int], str] = {}
        self.has_table = False
        self.has_message = False
        self._looked_at: dict[int, Comm] = {}
        self._of_pointer: dict[int, tuple[list[int], list[int]]] = {}

    def host_of(self, host: str, pid: int) -> str:
        """The host's own name where another text ran into it: same process, known ending."""
        known = self.hosts_of_pid.get(pid)
        if known is None or host in known:
            return host
        return next((host[i:] for i in range(1, len(host)) if host[i:] in known), host)

    def comm(self, number: int) -> Comm:
        """A place in a communicator, once these have names: the same object each time."""
        found = self._looked_at.get(number)
        if found is None:
            comms = self.comms
            row = comms.rows[number].tolist()
            made, ended = (None if row[k] == NULL else row[k] for k in (of.Q_MADE, of.Q_ENDED))
            code = int(comms.name[number])
            found = self._looked_at[number] = Comm(
                self.in_order[row[of.Q_PROCESS]], row[of.Q_PLACE], row[of.Q_SIZE], row[of.Q_BEGUN],
                number, made, ended, code, comms.names[code],
            )  # fmt: skip
        return found

    def at_pointer(self, host: str, pid: int, pointer: bytes, offset: int) -> int | None:
        """The number of what a pointer means at a place of the log: pointers are used again."""
        code = self.comms.pointers.get((host, pid, pointer))
        if code is None:
            return None
        found = self._of_pointer.get(code)
        if found is None:
            its = self.comms.of_pointer.of(code)
            found = its.tolist(), self.comms.column(of.Q_BEGUN)[its].tolist()
            self._of_pointer[code] = found
        numbers, begun = found
        return numbers[max(bisect_right(begun, offset) - 1, 0)] if numbers else None

    def comm_of_pointer(self, host: str, pid: int, pointer: bytes, offset: int) -> Comm | None:
        """The same as an object."""
        number = self.at_pointer(host, pid, pointer, offset)
        return None if number is None else self.comm(number)

    def admitted(
        self, thread: Thread, place: int, size: int, device: int, offset: int, c: Collector
    ) -> Process | None:
        """Whose a new place in a communicator is; None where it is left out."""
        if not 0 <= place < size <= MAX_RANK + 1:
            c.odd("impossible_rank", f"a communicator of {size} ranks with a rank {place}; left "
                  "out", "lost", offset=offset)  # fmt: skip
            return None
        host, pid, _ = thread
        process = self.processes.get((host, pid, device))
        too_many = process is None and len(self.processes) >= _MOST_PROCESSES
        if too_many or self.comms.n >= MOST_COMMS:
            c.odd("too_many_comms", f"more than {MOST_COMMS} communicators or {_MOST_PROCESSES} "
                  "processes; the rest is left out", "lost", offset=offset)  # fmt: skip
            return None
        if process is None:
            process = Process(host, pid, device, len(self.in_order))
            self.processes[host, pid, device] = process
            self.in_order.append(process)
            self.hosts_of_pid.setdefault(pid, set()).add(host)
        return process


Read = Callable[["Source", Survey, "Collector"], None]


def read_lines(source: Source, found: Survey, c: Collector) -> None:
    """Gives each line of a log to `take_line`."""

    def quiet(code: str, message: str, severity: str, *, offset: int) -> None:
        """The second pass tells what is odd about lines."""

    for offset, line, _ in lines(source, quiet, MAX_LINE_BYTES):
        take_line(found, offset, line, c)


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection: all that is learnt of a log is kept, and would be walked each time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():
                # As old as what was collected often: else the next three collections walk it.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def survey(source: Source, c: Collector, read: Read = read_lines) -> Survey:
    """Reads a log once for what names its processes and communicators.

    `read(source, found, c)` gives the lines to `take_line`; it may leave out those without any of
    the words that are looked for, and those with NCCL's mark once `found.has_message`. Memory
    grows with the communicators of the processes, not with the log.
    """
    found = Survey()
    read(source, found, c)
    for (host, pid, device), name in found.device_names.items():
        process = found.processes.get((host, pid, device))
        if process is not None:
            process.device_name = name
    return found


def take_line(found: Survey, offset: int, line: bytes, c: Collector) -> None:
    """What a line at this byte offset says of processes and communicators."""
    if take_rest(found, line):
        take_comms(found, offset, line, c)


@lru_cache(maxsize=256)  # each process prints the same line
def _versions(line: bytes) -> list[str]:
    """The libraries that a line names, with their versions."""
    return [f"{library.decode().lower()} {v.decode()}" for library, v in _VERSION.findall(line)]


def take_rest(found: Survey, line: bytes) -> bool:
    """What a line says of versions and devices; whether it may say something of communicators."""
    if b"CCL version" in line:
        for version in _versions(line[:8192]):
            found.versions[version] += 1
    if b" NCCL " not in line:
        _table(found, line)
        return False
    if not found.has_message and messages(line):
        found.has_message = True
    return b"comm 0x" in line and (b"Init " in line or b"nRanks " in line or b"COMPLETE" in line)


def take_comms(found: Survey, offset: int, line: bytes, c: Collector) -> None:
    """What a line at this byte offset says of communicators."""
    for message in messages(line):
        n_comms = found.comms.n
        _take(found, message, offset + message.start, c)
        if message.start and found.comms.n > n_comms:
            label(found, n_comms, line[: message.start])


def label(found: Survey, number: int, before: bytes) -> None:
    """Notes the task number that stands before the line that names a communicator first."""
    m = _LABEL.fullmatch(before)
    if m is not None:
        process = found.in_order[int(found.comms.rows[number, of.Q_PROCESS])]
        process.label = int(m[1] or m[2] or m[3])


def _table(found: Survey, line: bytes) -> None:
    if b"#" not in line:
        return
    if b"nThread" in line or b"busbw" in line:
        found.has_table = True
    elif b" Pid " in line and (m := _DEVICE.search(line[:600])):
        if len(found.device_names) >= _MOST_DEVICES:
            return
        key = (m[2].decode(errors="replace"), int(m[1]), int(m[3]))
        found.device_names[key] = m[4].decode(errors="replace").strip()


def _take(found: Survey, message: Message, offset: int, c: Collector) -> None:
    text, writer, comms = message.text[:_TEXT_BYTES], message.writer, found.comms
    host = found.host_of(writer.host, writer.pid)
    thread = host, writer.pid, writer.tid
    if b"Init " in text and (m := _INIT.search(text)):
        _init(found, thread, m, offset, c)
    elif b" nRanks " in text and (m := _WORLD.search(text)):
        last = comms.last(host, writer.pid, m[1])
        row = None if last < 0 else comms.rows[last]
        if row is not None and (row[of.Q_PLACE], row[of.Q_SIZE]) == (int(m[2]), int(m[3])):
            process = found.in_order[int(row[of.Q_PROCESS])]
            process.local_rank = int(m[4]) if int(m[4]) <= MAX_RANK else None
        elif writer.device is not None:
            # From 2.20 to 2.22 only this line comes before the rings and trees.
            _add(found, thread, (m[1], int(m[2]), int(m[3]), writer.device), offset, c)
    elif b"COMPLETE" in text and (m := _END.search(text)):
        last = comms.last(host, writer.pid, m[1])
        row = None if last < 0 else comms.rows[last]
        if row is not None and row[of.Q_BEGUN] <= offset and row[of.Q_PLACE] == int(m[2]):
            row[of.Q_ENDED] = offset


def _init(found: Survey, thread: Thread, m: re.Match[bytes], offset: int, c: Collector) -> None:
    said = m[1], int(m[2]), int(m[3]), int(m[4])
    number, more = begun_or_made(found, thread, said, m[6] == b"START", offset, c), m[5]
    if number is None:
        return
    if b"commId" in more and (i := _COMM_ID.search(more)) and int(i[1], 16):
        found.comms.rows[number, of.Q_HASH] = signed(int(i[1], 16))
    if b"parent" in more and (p := _PARENT.search(more)):
        color = _COLOR.search(more)
        found.comms.parents[number] = Parent(
            p[1], int(p[2]) if p[2] is not None else None, int(color[1]) if color else None
        )


def begun_or_made(
    found: Survey, thread: Thread, said: Said, begins: bool, offset: int, c: Collector
) -> int | None:
    """The number of what a line says to begin or to be complete; None where it is left out."""
    comms = found.comms
    number: int | None = comms.last(thread[0], thread[1], said[0])
    row = comms.rows[number]
    if (
        number < 0
        or row[of.Q_MADE] != NULL
        or row[of.Q_PLACE] != said[1]
        or row[of.Q_SIZE] != said[2]
        or (begins and row[of.Q_STARTED])
    ):
        number = _add(found, thread, said, offset, c)
        if number is None:
            return None
    if begins:
        comms.rows[number, of.Q_STARTED] = 1
    else:
        comms.rows[number, of.Q_MADE] = offset
    return number


def signed(value: int) -> int:
    """64 bits as a number that may be below 0."""
    return value - (1 << 64) if value >> 63 else value


def _add(found: Survey, thread: Thread, said: Said, offset: int, c: Collector) -> int | None:
    pointer, place, size, device = said
    process = found.admitted(thread, place, size, device, offset, c)
    if process is None:
        return None
    return found.comms.add(process.number, thread, pointer, place, size, offset)
