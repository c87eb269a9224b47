"""Collectives and tuning choices of an NCCL debug log as rows of `collectives` and `tuning`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import RankUnknown
from ..schema import event_id
from . import debug_log_text as say

if TYPE_CHECKING:
    from ..collect import Collector
    from .debug_log_lines import Writer
    from .debug_log_places import Places
    from .debug_log_survey import Comm

SOURCE = "nccl-log"
P2P = ("send", "recv")
_MOST_CHOICES = 200_000


def lacks(call: say.Call, comm: Comm | None) -> list[str]:
    """Codes of what a call's row lacks."""
    unknown = ["comm_unknown"] if comm is None else []
    return [*unknown, "dtype_unknown"] if call.dtype is None else unknown


class Calls:
    """Adds a row for each collective, and counts equal choices until `finish`.

    `add` takes a row's values by column. `collective` and `choice` are given a message's text and
    say whether it could be read.
    """

    def __init__(self, c: Collector, places: Places, add: Callable[..., None]):
        self.c, self.places, self.add = c, places, add
        self.chosen: Counter[tuple[Any, ...]] = Counter()
        self.no_rank = 0
        """lines of collectives of processes of unknown rank"""

    def whose(self, call: say.Call, writer: Writer, offset: int) -> tuple[Comm | None, int | None]:
        """(communicator, global rank) of a call; None where nothing says it."""
        comm = self.places.found.comm_of_pointer(writer.host, writer.pid, call.comm, offset)
        process = comm.process if comm is not None else self.places.process(writer)
        rank = process.rank if process is not None else None
        return comm, self.places.rank if rank is None else rank

    def number(self, comm: Comm, op: str) -> int:
        """The number of the next operation of its kind on a communicator."""
        if comm.calls is None:
            comm.calls = {}
        n = comm.calls.get(op, 0)
        comm.calls[op] = n + 1
        return n

    def note(self, code: str, offset: int | None, rank: int, count: int = 1) -> None:
        """Tells of calls that lack something: `comm_unknown` or `dtype_unknown`."""
        if code == "comm_unknown":
            self.c.odd(code, "collectives on communicators that no line names (log the "
                       "subsystem INIT too)", "warning", offset=offset, rank=rank,
                       count=count)  # fmt: skip
        else:
            self.c.odd(code, "element types of unknown number; sizes are null",
                       "warning", offset=offset, count=count)  # fmt: skip

    def collective(self, text: bytes, writer: Writer, offset: int) -> bool:
        call = say.call(text)
        if call is None:
            return False
        comm, rank = self.whose(call, writer, offset)
        if rank is None:
            self.no_rank += 1
            return True
        seq = self.number(comm, call.op) if comm is not None and call.op not in P2P else None
        for code in lacks(call, comm):
            self.note(code, offset, rank)
        sent, got = call.buffers(None if comm is None else comm.place)
        at_root = None if call.root is None else self.places.rank_at(comm, call.root)
        self.add(comm=comm.name if comm is not None else None, seq=seq, rank=rank, op=call.op,
                 dtype=call.dtype, in_bytes=sent, out_bytes=got, group_size=call.size,
                 root=at_root if call.op in say.ROOTED else None,
                 peer=at_root if call.op in P2P else None,
                 event_id=event_id(rank, SOURCE, offset), source=SOURCE)  # fmt: skip
        return True

    def chosen_key(self, text: bytes, writer: Writer, offset: int) -> tuple[Any, ...] | None:
        """What tells a choice from others; None where the text is none."""
        choice = say.choice(text)
        if choice is None:
            return None
        # Only a communicator's first rank prints its choices.
        comm = self.places.comm(writer, offset, choice.comm, 0, 0)
        process = comm.process if comm is not None else self.places.process(writer)
        return (process.rank if process is not None else self.places.rank,
                comm.name if comm is not None else None, choice.op, choice.bytes, choice.algo,
                choice.proto, choice.channels, comm.size if comm is not None else None,
                choice.predicted_ns)  # fmt: skip

    def has_room(self, key: tuple[Any, ...]) -> bool:
        """Whether a choice is counted: there may be so many different ones."""
        return key in self.chosen or len(self.chosen) < _MOST_CHOICES

    def choice(self, text: bytes, writer: Writer, offset: int) -> bool:
        key = self.chosen_key(text, writer, offset)
        if key is None:
            return False
        if self.has_room(key):
            self.chosen[key] += 1
        else:
            self.c.odd("too_many_choices", "more different choices than are kept", "lost",
                       offset=offset)  # fmt: skip
        return True

    def finish(self) -> None:
        """Adds the choices. Raises RankUnknown where there were collectives and no rank at all."""
        for key, count in self.chosen.items():
            rank, comm, op, size, algo, proto, channels, n, predicted = key
            self.c.add("tuning", rank=rank, comm=comm, op=op, bytes=size, algo=algo, proto=proto,
                       channels=channels, n_ranks=n, predicted_ns=predicted, count=count,
                       source=SOURCE)  # fmt: skip
        if not self.no_rank:
            return
        if not self.places.host_of_rank:
            raise RankUnknown(
                f"{self.no_rank} collectives of processes whose rank nothing says: give it with "
                "--rank for a log of one process (or log the subsystem INIT too)",
                path=self.c.source.name,
            )
        self.c.odd("rank_unknown_rows", "collectives of processes of unknown rank; left out",
                   "lost", count=self.no_rank)  # fmt: skip
