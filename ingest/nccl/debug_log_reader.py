"""Messages of an NCCL debug log, one after another: each to what reads its kind."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from .debug_log_lines import Message, Writer, messages
from .debug_log_links import Links

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..collect import Collector
    from .debug_log_calls import Calls
    from .debug_log_places import Places

_MOST_KINDS = 300
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_READ_BEFORE = (b"Init COMPLETE", b"Init START", b" nRanks ", b"COMPLETE", b"CCL version")


class Reader:
    """Gives each message to what reads its kind, and counts those that nothing reads."""

    def __init__(
        self, c: Collector, places: Places, calls: Calls, make_links: Callable[..., Links]
    ):
        self.c, self.places = c, places
        self.passed_over: Counter[str] = Counter()
        self.first_passed_over: int | None = None
        self.links = make_links(c, places, self.passed_over)
        self.calls = calls

    def line(self, line: bytes, offset: int) -> None:
        """A line that has the library's mark, at its byte offset."""
        found = messages(line)
        for message in found:
            self.take(message, offset + message.start)
        if not found and b" NCCL INFO " in line:
            self.c.odd("no_header", "lines of the library without the process that wrote them; "
                       "left out", "warning", offset=offset)  # fmt: skip

    def written_by(self, message: Message) -> Writer:
        """Who wrote a message, under its host's own name."""
        writer = message.writer
        host = self.places.found.host_of(writer.host, writer.pid)
        return writer if host == writer.host else writer._replace(host=host)

    def take(self, message: Message, offset: int) -> None:
        """One message of the log, at its byte offset."""
        text, writer = message.text, self.written_by(message)
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
        self.passed_over[self.kind(message)] += 1

    def kind(self, message: Message) -> str:
        """What a message that gives no row is counted as."""
        words = _NUMBERS.sub("N", message.text[:80].decode(errors="replace")).split()[:5]
        kind = "".join(ch for ch in " ".join(words) if ch.isprintable())
        if message.level != "INFO":
            kind = f"{message.level} {kind}"
        if kind not in self.passed_over and len(self.passed_over) >= _MOST_KINDS:
            return "others"
        return kind

    def finish(self) -> None:
        """What was added up, and what was passed over. Raises RankUnknown as `Calls` does."""
        self.calls.finish()
        if self.passed_over:
            most = ", ".join(f"{kind!r} {n}" for kind, n in self.passed_over.most_common(12))
            self.c.odd("other_lines", f"messages that give no row, most frequent: {most}", "info",
                       offset=self.first_passed_over, count=self.passed_over.total())  # fmt: skip
