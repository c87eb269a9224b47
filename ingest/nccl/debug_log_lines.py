"""Messages of NCCL's debug log within the lines of any log: who wrote them, and their text."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

_MARK = b" NCCL "
_LEVELS = (b"INFO ", b"WARN ", b"TRACE ", b"CALL ")
_HOST_CHARS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
_HEADER_BYTES = 512
"""How far before the mark its header may begin (a host's name has at most 255 characters)."""

MAX_LINE_BYTES = 1 << 20


class Writer(NamedTuple):
    """Who wrote a message: host, process, thread and current device (None where not said)."""

    host: str
    pid: int
    tid: int
    device: int | None


class Message(NamedTuple):
    """One message: place in its line, writer, level (INFO, WARN, TRACE or CALL) and text."""

    start: int
    writer: Writer
    level: str
    text: bytes


def messages(line: bytes) -> list[Message]:
    """The messages `host:pid:tid [device] NCCL INFO ...` in a line, wherever they stand.

    Launchers prefix lines, and lines of several writers run together: a message ends where the
    next one's host begins. What has the mark but no header before it is left out.
    """
    at, floor = line.find(_MARK), 0
    if at >= 0 and line.startswith(b"INFO ", at + 6) and line.find(_MARK, at + 6) < 0:
        # Nearly every line: one message.
        low = max(0, at - _HEADER_BYTES)
        header = _header(line[low:at])
        if header is None:
            return []
        return [Message(low + header[0], header[1], "INFO", line[at + 11 :])]
    found: list[tuple[int, int, Writer, str]] = []
    while at >= 0:
        text = at + len(_MARK)
        level = next((word for word in _LEVELS if line.startswith(word, text)), None)
        if level is not None:
            low = max(floor, at - _HEADER_BYTES)
            header = _header(line[low:at])
            if header is not None:
                begin, writer = header
                text += len(level)
                found.append((low + begin, text, writer, level[:-1].decode()))
                floor = text
        at = line.find(_MARK, text)
    ends = [*(start for start, *_ in found[1:]), len(line)][: len(found)]
    return [
        Message(start, writer, level, line[text:end])
        for (start, text, writer, level), end in zip(found, ends, strict=True)
    ]


@lru_cache(maxsize=1 << 14)
def _header(before: bytes) -> tuple[int, Writer] | None:
    """(where the host begins, writer) of the text before a mark; None where it is no header."""
    before, blank, last = before.rpartition(b" ")
    device, found = None, _address(last)
    # A warning's source line, or a trace's time and function, may stand after the device.
    for _ in range(3):
        if found is not None or device is not None:
            break
        device = _bracketed(last)
        before, blank, last = before.rpartition(b" ")
        if device is not None:
            found = _address(last)
    if found is None:
        return None
    host, pid, tid = found
    start = len(before) + len(blank) + last.rindex(host + b":" + pid)
    return start, Writer(host.decode("ascii"), int(pid), int(tid), device)


def _address(word: bytes) -> tuple[bytes, bytes, bytes] | None:
    """(host, pid, tid) at the end of a word."""
    parts = word.rsplit(b":", 2)
    if len(parts) != 3 or not (_short(parts[1]) and _short(parts[2])):
        return None
    host = parts[0][len(parts[0].rstrip(_HOST_CHARS)) :].lstrip(b"-.")[-255:]
    return (host, parts[1], parts[2]) if host else None


def _bracketed(word: bytes) -> int | None:
    if word[:1] == b"[" and word[-1:] == b"]" and word[1:-1].isdigit() and len(word) < 8:
        return int(word[1:-1])
    return None


def _short(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= 10
