"""Whose a message of an NCCL debug log is: process, communicator and global ranks."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .debug_log_identity import Members
    from .debug_log_lines import Writer
    from .debug_log_survey import Comm, Process, Survey

RECENT = 64


class Places:
    """Answers for lines that name neither their communicator nor a global rank.

    `rank` is the one the user gave, for processes that no communicator gives one.
    """

    def __init__(self, found: Survey, members: dict[str, Members], rank: int | None):
        self.found, self.members, self.rank = found, members, rank
        self._made = {
            thread: [k.begun if k.made is None else k.made for k in comms]
            for thread, comms in found.by_thread.items()
        }
        self.host_of_rank = {p.rank: p.host for p in found.processes.values() if p.rank is not None}

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
        thread = (writer.host, writer.pid, writer.tid)
        comms = self.found.by_thread.get(thread)
        if comms:
            at = bisect_left(self._made[thread], offset)
            for comm in comms[at : at + 1] + comms[max(at - 1, 0) : at]:
                begins = comm.begun if comm.begun != comm.made else 0
                if begins <= offset and me in (None, comm.place) and highest < comm.size:
                    return comm
        process = self.process(writer)
        fits = [
            comm
            for comm in (process.comms[-RECENT:] if process is not None else ())
            if comm.begun <= offset and (comm.ended is None or comm.ended > offset)
            and me in (None, comm.place) and highest < comm.size
        ]  # fmt: skip
        return fits[0] if len(fits) == 1 else None

    def rank_at(self, comm: Comm | None, place: int) -> int | None:
        """Global rank at a place of a communicator; None where unknown."""
        return None if comm is None else self.members[comm.name].rank_of(place)
