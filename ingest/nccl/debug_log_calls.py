"""Collectives and tuning choices of an NCCL debug log as rows of `collectives` and `tuning`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ..errors import RankUnknown
from ..schema import event_id
from . import debug_log_text as say

if TYPE_CHECKING:
    from ..collect import Collector
    from .debug_log_lines import Writer
    from .debug_log_places import Places

_SOURCE = "nccl-log"
_MOST_CHOICES = 200_000


class Calls:
    """Adds a row for each collective, and counts equal choices until `finish`.

    Its methods are given a message's text and say whether it could be read.
    """

    def __init__(self, c: Collector, places: Places):
        self.c, self.places = c, places
        self._chosen: Counter[tuple[Any, ...]] = Counter()
        self._no_rank = 0

    def collective(self, text: bytes, writer: Writer, offset: int) -> bool:
        call = say.collective(text)
        if call is None:
            return False
        comm = self.places.found.comm_of_pointer(writer.host, writer.pid, call.comm, offset)
        if comm is not None and call.op in ("reduce", "gather", "scatter"):
            call = say.collective(text, comm.place) or call
        process = comm.process if comm is not None else self.places.process(writer)
        rank = process.rank if process is not None else None
        rank = self.places.rank if rank is None else rank
        if rank is None:
            self._no_rank += 1
            return True
        seq = None
        p2p = call.op in ("send", "recv")
        if comm is None:
            self.c.odd("comm_unknown", "collectives on communicators that no line names (log the "
                       "subsystem INIT too)", "warning", offset=offset, rank=rank)  # fmt: skip
        elif not p2p:
            seq = comm.calls.get(call.op, 0)
            comm.calls[call.op] = seq + 1
        if call.dtype is None:
            self.c.odd("dtype_unknown", "element types of unknown number; sizes are null",
                       "warning", offset=offset)  # fmt: skip
        root = None if call.root is None else self.places.rank_at(comm, call.root)
        peer = None if call.peer is None else self.places.rank_at(comm, call.peer)
        self.c.add("collectives", comm=comm.name if comm is not None else None, seq=seq,
                   rank=rank, op=call.op, dtype=call.dtype, in_bytes=call.in_bytes,
                   out_bytes=call.out_bytes, group_size=call.size, root=root, peer=peer,
                   event_id=event_id(rank, _SOURCE, offset), source=_SOURCE)  # fmt: skip
        return True

    def choice(self, text: bytes, writer: Writer, offset: int) -> bool:
        choice = say.choice(text)
        if choice is None:
            return False
        # Only a communicator's first rank prints its choices.
        comm = self.places.comm(writer, offset, choice.comm, 0, 0)
        process = comm.process if comm is not None else self.places.process(writer)
        key = (process.rank if process is not None else self.places.rank,
               comm.name if comm is not None else None, choice.op, choice.bytes, choice.algo,
               choice.proto, choice.channels, comm.size if comm is not None else None,
               choice.predicted_ns)  # fmt: skip
        if key not in self._chosen and len(self._chosen) >= _MOST_CHOICES:
            self.c.odd("too_many_choices", "more different choices than are kept", "lost",
                       offset=offset)  # fmt: skip
            return True
        self._chosen[key] += 1
        return True

    def finish(self) -> None:
        """Adds the choices. Raises RankUnknown where there were collectives and no rank at all."""
        for key, count in self._chosen.items():
            rank, comm, op, size, algo, proto, channels, n, predicted = key
            self.c.add("tuning", rank=rank, comm=comm, op=op, bytes=size, algo=algo, proto=proto,
                       channels=channels, n_ranks=n, predicted_ns=predicted, count=count,
                       source=_SOURCE)  # fmt: skip
        if not self._no_rank:
            return
        if not self.places.host_of_rank:
            raise RankUnknown(
                f"{self._no_rank} collectives of processes whose rank nothing says: give it with "
                "--rank for a log of one process (or log the subsystem INIT too)",
                path=self.c.source.name,
            )
        self.c.odd("rank_unknown_rows", "collectives of processes of unknown rank; left out",
                   "lost", count=self._no_rank)  # fmt: skip
