"""Second pass over an NCCL debug log: its messages as rows."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..collect import Collector
from ..errors import RankUnknown
from ..schema import event_id
from ..texts import lines
from . import debug_log_text as say
from .debug_log_identity import Members, identify
from .debug_log_lines import MAX_LINE_BYTES, Message, Writer, messages
from .debug_log_survey import Comm, Process, Survey, survey
from .nccl_tests_text import TableReader

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

SOURCE = "nccl-log"
_MOST_SEEN = 2_000_000
_MOST_KINDS = 300
_MOST_NICS = 100_000
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_READ_BEFORE = (b"Init COMPLETE", b"Init START", b" nRanks ", b"COMPLETE", b"CCL version")


def tables_of(source: Source, rank: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """All rows of a log; nothing at all where no message is in it.

    Raises UsageError as `identify` does, and RankUnknown where there are collectives and nobody
    says whose.
    """
    c = Collector(source)
    found = survey(source, c)
    if not found.has_message:
        return
    members = identify(found, rank, c)
    rows = _Rows(c, found, members, rank)
    rows.identities()
    table = TableReader(source.name) if found.has_table else None
    for offset, line, complete in lines(source, c.odd, MAX_LINE_BYTES):
        if table is not None:
            table.feed(line.decode("utf-8", "replace"), offset)
        if b" NCCL " in line:
            for message in messages(line):
                rows.take(message, offset + message.start)
            yield from c.full()
            if not complete:
                c.odd("last_line_cut", "the last line has no end: it may be cut", "info",
                      offset=offset)  # fmt: skip
    rows.finish()
    if table is not None:
        table.rows(c)
    yield from c.rest()


class _Rows:
    """The rows of one log, and what is held while it is read."""

    def __init__(self, c: Collector, found: Survey, members: dict[str, Members], rank: int | None):
        self.c, self.found, self.members, self.rank = c, found, members, rank
        self.seen: set[tuple[Any, ...]] = set()
        self.kinds: Counter[str] = Counter()
        self.tuning: Counter[tuple[Any, ...]] = Counter()
        self.nic_names: dict[tuple[str, int, str, int], str] = {}
        self.nic_of_host: dict[tuple[str, str, int], str] = {}
        self.first_other: int | None = None
        self.no_rank = 0
        self.made = {
            thread: [k.begun if k.made is None else k.made for k in comms]
            for thread, comms in found.by_thread.items()
        }
        self.host_of_rank: dict[int, str] = {}

    def identities(self) -> None:
        """Rows of `ranks` and `comms`."""
        c, found = self.c, self.found
        version = found.versions.most_common(1)[0][0] if found.versions else None
        if version is not None:
            c.odd("library_version", f"the library is {version}", "info",
                  count=found.versions.total())  # fmt: skip
        if len(found.versions) > 1:
            told = ", ".join(sorted(found.versions)[:8])
            c.odd("several_versions", f"ranks name different libraries: {told}", "warning")
        by_rank = {p.rank: p for p in found.processes.values() if p.rank is not None}
        for rank, p in sorted(by_rank.items()):
            self.host_of_rank[rank] = p.host
            c.add("ranks", rank=rank, host=p.host, host_source="recorded", pid=p.pid,
                  device=p.device, local_rank=p.local_rank, device_name=p.device_name,
                  world_size=max((k.size for k in p.comms), default=None), clock="none",
                  source=c.source.name)  # fmt: skip
        if not by_rank and self.rank is not None:
            c.add("ranks", rank=self.rank, clock="none", source=c.source.name)
        parents = {k.name: k for k in found.comms}
        for name, known in self.members.items():
            common: dict[str, Any] = {
                "comm": name, "size": known.size, "dim": "unknown", "dim_source": "none",
                "backend": version or "nccl",
            }  # fmt: skip
            first = parents[name]
            if first.color is not None:
                common["description"] = f"split, color {first.color}"
            ranks = known.ranks()
            if ranks is not None or not known.by_place:
                c.add("comms", ranks=ranks, **common)
                continue
            for place, rank in sorted(known.by_place.items()):
                c.add("comms", member=rank, member_place=place, **common)

    def take(self, message: Message, offset: int) -> None:
        """One message of the log, at its byte offset."""
        text = message.text
        writer = message.writer
        host = self.found.host_of(writer.host, writer.pid)
        if host != writer.host:
            writer = writer._replace(host=host)
        if message.level == "WARN":
            shown = "".join(ch for ch in text[:200].decode(errors="replace") if ch.isprintable())
            self.c.odd("nccl_warning", f"the library warned, first: {shown}", "warning",
                       offset=offset)  # fmt: skip
            return
        if message.level == "INFO":
            if text.startswith((b"Channel ", b"Ring ")):
                if self._link(text, writer, offset) or self._ring(text, writer, offset):
                    return
            elif text.startswith((b"Trees ", b"Tree ")):
                if self._trees(text, writer, offset):
                    return
            elif b": opCount " in text[:64]:
                if self._collective(text, writer, offset):
                    return
            elif b" Bytes -> Algo " in text[:96]:
                if self._choice(text, writer, offset):
                    return
            elif text.startswith(b"NET/") and self._nics(text, writer):
                return
            elif any(word in text for word in _READ_BEFORE):
                return
        self._other(message, offset)

    def finish(self) -> None:
        """Rows that were added up, and what was passed over. Raises RankUnknown."""
        for (rank, comm, op, size, algo, proto, channels, n, predicted), count in (
            self.tuning.items()
        ):
            self.c.add("tuning", rank=rank, comm=comm, op=op, bytes=size, algo=algo, proto=proto,
                       channels=channels, n_ranks=n, predicted_ns=predicted, count=count,
                       source=SOURCE)  # fmt: skip
        if self.no_rank:
            if all(p.rank is None for p in self.found.processes.values()) and self.rank is None:
                raise RankUnknown(
                    f"{self.no_rank} collectives of a process that names no communicator: give "
                    "its global rank with --rank (or log the subsystem INIT too)",
                    path=self.c.source.name,
                )
            self.c.odd("rank_unknown_rows", "collectives of processes of unknown rank; left out",
                       "lost", count=self.no_rank)  # fmt: skip
        if self.kinds:
            most = ", ".join(f"{kind!r} {n}" for kind, n in self.kinds.most_common(12))
            self.c.odd("other_lines", f"messages that give no row, most frequent: {most}", "info",
                       offset=self.first_other, count=self.kinds.total())  # fmt: skip

    def _other(self, message: Message, offset: int) -> None:
        if self.first_other is None:
            self.first_other = offset
        words = _NUMBERS.sub("N", message.text[:80].decode(errors="replace")).split()[:5]
        kind = "".join(ch for ch in " ".join(words) if ch.isprintable())
        if message.level != "INFO":
            kind = f"{message.level} {kind}"
        if kind not in self.kinds and len(self.kinds) >= _MOST_KINDS:
            kind = "others"
        self.kinds[kind] += 1

    def _process(self, writer: Writer) -> Process | None:
        if writer.device is None:
            return None
        return self.found.processes.get((writer.host, writer.pid, writer.device))

    def _comm(
        self, writer: Writer, offset: int, pointer: bytes | None, me: int | None, highest: int
    ) -> Comm | None:
        """The communicator that a line is of, which mostly does not name it.

        By its pointer; else the one that its thread is making; else the only one alive in its
        process that fits the ranks.
        """
        if pointer is not None:
            return self.found.comm_of_pointer(writer.host, writer.pid, pointer, offset)
        thread = (writer.host, writer.pid, writer.tid)
        comms = self.found.by_thread.get(thread)
        if comms:
            at = bisect_left(self.made[thread], offset)
            for comm in comms[at : at + 1] + comms[max(at - 1, 0) : at]:
                begins = comm.begun if comm.begun != comm.made else 0
                if begins <= offset and me in (None, comm.place) and highest < comm.size:
                    return comm
        process = self._process(writer)
        fits = [
            comm
            for comm in (process.comms[-64:] if process is not None else ())
            if comm.begun <= offset and (comm.ended is None or comm.ended > offset)
            and me in (None, comm.place) and highest < comm.size
        ]  # fmt: skip
        return fits[0] if len(fits) == 1 else None

    def _new(self, key: tuple[Any, ...]) -> bool:
        if key in self.seen:
            return False
        if len(self.seen) >= _MOST_SEEN:
            self.seen.clear()
        self.seen.add(key)
        return True

    def _rank_at(self, comm: Comm | None, place: int) -> int | None:
        return None if comm is None else self.members[comm.name].rank_of(place)

    def _link(self, text: bytes, writer: Writer, offset: int) -> bool:
        link = say.link(text)
        if link is None:
            return False
        comm = self._comm(writer, offset, link.comm, link.me, max(link.me, link.peer))
        process = comm.process if comm is not None else self._process(writer)
        if comm is None:
            self.c.odd("link_of_unknown_comm", "links of which no line says the communicator: "
                       "their peers are unknown", "info", offset=offset)  # fmt: skip
        rank = process.rank if process is not None else None
        peer = self._rank_at(comm, link.peer)
        nic = None
        if link.net is not None:
            nic = self._nic(writer, link.net, link.index)
        name = comm.name if comm is not None else None
        place = (writer.host, writer.pid, name, link.channel, link.me, link.peer, link.via, nic)
        if self._new(("link", *place)):
            self.c.add("topology", host=writer.host, device=nic, kind="link", rank=rank,
                       peer_rank=peer, peer=self.host_of_rank.get(peer) if peer is not None
                       else None, comm=name, channel=link.channel, via=link.via,
                       source=SOURCE)  # fmt: skip
        if nic is not None and rank is not None:
            key = ("transfer", rank, nic, link.channel, peer, link.direction, link.via)
            if self._new(key):
                self.c.add("transfers", rank=rank, host=writer.host, nic=nic,
                           channel=link.channel, peer_rank=peer, direction=link.direction,
                           traffic_class="collective", measured=False, via=link.via,
                           source=SOURCE)  # fmt: skip
        return True

    def _nic(self, writer: Writer, net: str, index: int | None) -> str:
        if index is None:
            return net
        kind = "IB" if net.startswith("IB") else net
        name = self.nic_names.get((writer.host, writer.pid, kind, index))
        return name or self.nic_of_host.get((writer.host, kind, index)) or f"{net}/{index}"

    def _nics(self, text: bytes, writer: Writer) -> bool:
        found = say.nics(text)
        if found is None:
            return False
        net, devices = found
        kind = "IB" if net.startswith("IB") else net
        for index, name in devices:
            if len(self.nic_names) < _MOST_NICS:
                self.nic_names[(writer.host, writer.pid, kind, index)] = name
                self.nic_of_host[(writer.host, kind, index)] = name
            if self._new(("nic", writer.host, net, name)):
                self.c.add("topology", host=writer.host, device=name, kind="nic",
                           via=f"NET/{net}", source=SOURCE)  # fmt: skip
        return True

    def _edge(self, kind: str, comm: Comm | None, channel: int, low: int, high: int,
              writer: Writer) -> None:  # fmt: skip
        whose = comm.name if comm is not None else (writer.host, writer.pid, writer.tid)
        if not self._new((kind, whose, channel, low, high)):
            return
        rank = self._rank_at(comm, low)
        host = self.host_of_rank.get(rank) if rank is not None else None
        self.c.add("topology", host=host, kind=kind, rank=rank,
                   peer_rank=self._rank_at(comm, high), channel=channel,
                   comm=comm.name if comm is not None else None, source=SOURCE)  # fmt: skip

    def _ring(self, text: bytes, writer: Writer, offset: int) -> bool:
        if part := say.ring_part(text):
            channel, before, me, after = part
            comm = self._comm(writer, offset, say.of_comm(text), me, max(before, me, after))
            for low, high in ((before, me), (me, after)):
                if low >= 0 and high >= 0 and low != high:
                    self._edge("ring", comm, channel, low, high, writer)
            return True
        found = say.ring(text)
        if found is None:
            self._cut(text, offset)
            return False
        channel, order = found
        comm = self._comm(writer, offset, say.of_comm(text), order[0] if order else None,
                          max(order, default=0))  # fmt: skip
        size = comm.size if comm is not None else len(order)
        if len(order) < size:
            self.c.odd("ring_cut", "rings whose line is cut: their last links are not known",
                       "lost", offset=offset)  # fmt: skip
        if len(order) == 1 and size == 1:
            self.kinds["ring of one rank"] += 1
            return True
        ends = order[1:] + (order[:1] if len(order) >= size else [])
        for low, high in zip(order, ends, strict=False):
            self._edge("ring", comm, channel, low, high, writer)
        return True

    def _trees(self, text: bytes, writer: Writer, offset: int) -> bool:
        found, cut = say.trees(text)
        if cut:
            self.c.odd("tree_cut", "channels whose trees are cut off with their line (NCCL prints "
                       "about 1000 bytes of one)", "lost", offset=offset, count=cut)  # fmt: skip
        pointer = say.of_comm(text)
        for channel, me, parent, children in found:
            comm = self._comm(writer, offset, pointer, me, max(me, parent, *children))
            if parent >= 0:
                self._edge("tree", comm, channel, me, parent, writer)
            for child in children:
                if child >= 0:
                    self._edge("tree", comm, channel, child, me, writer)
        return bool(found)

    def _cut(self, text: bytes, offset: int) -> None:
        self.c.odd("cut_line", "messages that are cut or run into by another one", "lost",
                   offset=offset)  # fmt: skip

    def _collective(self, text: bytes, writer: Writer, offset: int) -> bool:
        call = say.collective(text)
        if call is None:
            self._cut(text, offset)
            return False
        comm = self.found.comm_of_pointer(writer.host, writer.pid, call.comm, offset)
        if comm is not None and call.op in ("reduce", "gather", "scatter"):
            call = say.collective(text, comm.place) or call
        process = comm.process if comm is not None else self._process(writer)
        rank = process.rank if process is not None else None
        rank = self.rank if rank is None else rank
        if rank is None:
            self.no_rank += 1
            return True
        seq = None
        p2p = call.op in ("send", "recv")
        if comm is None:
            self.c.odd("comm_unknown", "collectives on communicators that no line names (log the "
                       "subsystem INIT too)", "warning", offset=offset, rank=rank)  # fmt: skip
        elif not p2p:
            seq = comm.seq
            comm.seq += 1
        if call.dtype is None:
            self.c.odd("dtype_unknown", "element types of unknown number; sizes are null",
                       "warning", offset=offset)  # fmt: skip
        root = None if call.root is None else self._rank_at(comm, call.root)
        peer = None if call.peer is None else self._rank_at(comm, call.peer)
        self.c.add("collectives", comm=comm.name if comm is not None else None, seq=seq,
                   rank=rank, op=call.op, dtype=call.dtype, in_bytes=call.in_bytes,
                   out_bytes=call.out_bytes, group_size=call.size, root=root, peer=peer,
                   event_id=event_id(rank, SOURCE, offset), source=SOURCE)  # fmt: skip
        return True

    def _choice(self, text: bytes, writer: Writer, offset: int) -> bool:
        choice = say.choice(text)
        if choice is None:
            self._cut(text, offset)
            return False
        # Only a communicator's first rank prints its choices.
        comm = self._comm(writer, offset, choice.comm, 0, 0)
        process = comm.process if comm is not None else self._process(writer)
        key = (process.rank if process is not None else self.rank,
               comm.name if comm is not None else None, choice.op, choice.bytes, choice.algo,
               choice.proto, choice.channels, comm.size if comm is not None else None,
               choice.predicted_ns)  # fmt: skip
        if key not in self.tuning and len(self.tuning) >= _MOST_SEEN // 10:
            self.c.odd("too_many_choices", "more different choices than are kept", "lost",
                       offset=offset)  # fmt: skip
            return True
        self.tuning[key] += 1
        return True
