"""Second pass over an NCCL debug log: its messages as rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..collect import Collector
from ..texts import lines
from .debug_log_calls import Calls
from .debug_log_identity import Members, identify
from .debug_log_lines import MAX_LINE_BYTES, Message, messages
from .debug_log_links import Links
from .debug_log_places import Places
from .debug_log_survey import Survey, survey
from .nccl_tests_text import TableReader

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_MOST_KINDS = 300
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
    _identities(c, found, members, rank)
    reader = _Reader(c, Places(found, members, rank))
    table = TableReader(source.name) if found.has_table else None
    for offset, line, _ in lines(source, c.odd, MAX_LINE_BYTES):
        if table is not None:
            table.feed(line.decode("utf-8", "replace"), offset)
        if b" NCCL " in line:
            found_here = messages(line)
            for message in found_here:
                reader.take(message, offset + message.start)
            if not found_here and b" NCCL INFO " in line:
                c.odd("no_header", "lines of the library without the process that wrote them; "
                      "left out", "warning", offset=offset)  # fmt: skip
            yield from c.full()
    reader.finish()
    if table is not None:
        table.rows(c)
    yield from c.rest()


def _identities(c: Collector, found: Survey, members: dict[str, Members], rank: int | None) -> None:
    """Rows of `ranks` and `comms`."""
    version = found.versions.most_common(1)[0][0] if found.versions else None
    if version is not None:
        c.odd("library_version", f"the library is {version}", "info",
              count=found.versions.total())  # fmt: skip
    if len(found.versions) > 1:
        told = ", ".join(sorted(found.versions)[:8])
        c.odd("several_versions", f"ranks name different libraries: {told}", "warning")
    by_rank = {p.rank: p for p in found.processes.values() if p.rank is not None}
    for number, p in sorted(by_rank.items()):
        c.add("ranks", rank=number, host=p.host, host_source="recorded", pid=p.pid,
              device=p.device, local_rank=p.local_rank, device_name=p.device_name,
              world_size=max((k.size for k in p.comms), default=None), clock="none",
              source=c.source.name)  # fmt: skip
    if not by_rank and rank is not None:
        c.add("ranks", rank=rank, clock="none", source=c.source.name)
    one_of = {k.name: k for k in found.comms}
    for name, known in members.items():
        common: dict[str, Any] = {
            "comm": name, "size": known.size, "dim": "unknown", "dim_source": "none",
            "backend": version or "nccl",
        }  # fmt: skip
        if (color := one_of[name].color) is not None:
            common["description"] = f"split, color {color}"
        ranks = known.ranks()
        if ranks is not None or not known.by_place:
            c.add("comms", ranks=ranks, **common)
            continue
        for place, member in sorted(known.by_place.items()):
            c.add("comms", member=member, member_place=place, **common)


class _Reader:
    """Gives each message to what reads its kind, and counts those that nothing reads."""

    def __init__(self, c: Collector, places: Places):
        self.c, self.places = c, places
        self.passed_over: Counter[str] = Counter()
        self.first_passed_over: int | None = None
        self.links = Links(c, places, self.passed_over)
        self.calls = Calls(c, places)

    def take(self, message: Message, offset: int) -> None:
        """One message of the log, at its byte offset."""
        text, writer = message.text, message.writer
        host = self.places.found.host_of(writer.host, writer.pid)
        if host != writer.host:
            writer = writer._replace(host=host)
        if message.level == "WARN":
            shown = "".join(ch for ch in text[:200].decode(errors="replace") if ch.isprintable())
            self.c.odd("nccl_warning", f"the library warned, first: {shown}", "warning",
                       offset=offset)  # fmt: skip
            return
        read: bool | None = None
        if message.level != "INFO":
            pass
        elif text.startswith((b"Channel ", b"Ring ")):
            read = self.links.link(text, writer, offset) or self.links.ring(text, writer, offset)
        elif text.startswith((b"Trees ", b"Tree ")):
            read = self.links.trees(text, writer, offset)
        elif b": opCount " in text[:64]:
            read = self.calls.collective(text, writer, offset)
        elif b" Bytes -> Algo " in text[:96]:
            read = self.calls.choice(text, writer, offset)
        elif (text.startswith(b"NET/") and self.links.nics(text, writer)) or any(
            word in text[:1024] for word in _READ_BEFORE
        ):
            read = True
        if read is False:
            self.c.odd("cut_line", "messages that are cut, or that another text ran into", "lost",
                       offset=offset)  # fmt: skip
        elif read is None:
            self._pass_over(message, offset)

    def _pass_over(self, message: Message, offset: int) -> None:
        if self.first_passed_over is None:
            self.first_passed_over = offset
        words = _NUMBERS.sub("N", message.text[:80].decode(errors="replace")).split()[:5]
        kind = "".join(ch for ch in " ".join(words) if ch.isprintable())
        if message.level != "INFO":
            kind = f"{message.level} {kind}"
        if kind not in self.passed_over and len(self.passed_over) >= _MOST_KINDS:
            kind = "others"
        self.passed_over[kind] += 1

    def finish(self) -> None:
        """What was added up, and what was passed over. Raises RankUnknown as `Calls` does."""
        self.calls.finish()
        if self.passed_over:
            most = ", ".join(f"{kind!r} {n}" for kind, n in self.passed_over.most_common(12))
            self.c.odd("other_lines", f"messages that give no row, most frequent: {most}", "info",
                       offset=self.first_passed_over, count=self.passed_over.total())  # fmt: skip
