"""Whose a message of an NCCL debug log is: process, communicator and global ranks."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .debug_log_comms import Thread
    from .debug_log_identity import Members
    from .debug_log_lines import Writer
    from .debug_log_survey import Comm, Process, Survey

RECENT = 64


class Places:
    """Answers for lines that name neither their communicator nor a global rank.

    `rank` is the one the user gave, for processes that no communicator gives one.
    """

    def __init__(self, found: Survey, members: Members, rank: int | None):
        self.found, self.members, self.rank = found, members, rank
        self.host_of_rank = {p.rank: p.host for p in found.in_order if p.rank is not None}
        self._of_thread: dict[Thread, tuple[list[int], list[int]]] = {}
        self._recent: dict[int, list[Comm]] = {}

    def process(self, writer: Writer) -> Process | None:
        """The process (with its device) that wrote a message; None where none is known."""
        if writer.device is None:
            return None
        return self.found.processes.get((writer.host, writer.pid, writer.device))

    def comm(
        self, writer: Writer, offset: int, pointer: bytes | None, me: int | None, highest: int
    ) -> Comm | None:
        """The communicator of a message in which rank `me` wrote of ranks up to `highest`.

        By its pointer; else the one that its thread is making; else the only one alive in its
        process that fits the ranks.
        """
        if pointer is not None:
            return self.found.comm_of_pointer(writer.host, writer.pid, pointer, offset)
        comms, made = self._thread(writer)
        at = bisect_left(made, offset)
        for number in comms[at : at + 1] + comms[max(at - 1, 0) : at]:
            comm = self.found.comm(number)
            begins = comm.begun if comm.begun != comm.made else 0
            if begins <= offset and me in (None, comm.place) and highest < comm.size:
                return comm
        process = self.process(writer)
        fits = [
            comm
            for comm in (self._latest(process) if process is not None else ())
            if comm.begun <= offset and (comm.ended is None or comm.ended > offset)
            and me in (None, comm.place) and highest < comm.size
        ]  # fmt: skip
        return fits[0] if len(fits) == 1 else None

    def rank_at(self, comm: Comm | None, place: int) -> int | None:
        """Global rank at a place of a communicator; None where unknown."""
        return None if comm is None else self.members.rank_of(comm.code, place)

    def _thread(self, writer: Writer) -> tuple[list[int], list[int]]:
        """Numbers of the communicators that a thread made, and where they were complete."""
        thread = writer.host, writer.pid, writer.tid
        found = self._of_thread.get(thread)
        if found is None:
            comms = self.found.comms
            its = comms.of_thread.of(comms.threads.get(thread, -1))
            found = self._of_thread[thread] = its.tolist(), comms.made[its].tolist()
        return found

    def _latest(self, process: Process) -> list[Comm]:
        """The last communicators of a process."""
        found = self._recent.get(process.number)
        if found is None:
            its = self.found.comms.of_process.of(process.number)[-RECENT:]
            found = self._recent[process.number] = [self.found.comm(k) for k in its.tolist()]
        return found
