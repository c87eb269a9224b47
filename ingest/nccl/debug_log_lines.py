"""Messages of NCCL's debug log within the lines of any log: who wrote them, and their text."""

from __future__ import annotations

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
    found: list[tuple[int, int, Writer, str]] = []
    at, floor = line.find(_MARK), 0
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


def _header(before: bytes) -> tuple[int, Writer] | None:
    """(where the host begins, writer) of the text before a mark; None where it is no header."""
    words = before.rsplit(b" ", 2)
    device = None
    if (number := _bracketed(words[-1])) is not None and len(words) > 1:
        device, address = number, words[-2]
        start = len(before) - len(words[-1]) - 1 - len(address)
    elif len(words) == 3 and (number := _bracketed(words[-2])) is not None:
        # A warning's source line stands between the device and the mark.
        device = number
        address = words[0].rsplit(b" ", 1)[-1]
        start = len(words[0]) - len(address)
    else:
        address = words[-1]
        start = len(before) - len(address)
    parts = address.rsplit(b":", 2)
    if len(parts) != 3 or not (_short(parts[1]) and _short(parts[2])):
        return None
    host = parts[0][len(parts[0].rstrip(_HOST_CHARS)) :].lstrip(b"-.")[-255:]
    if not host:
        return None
    start += len(parts[0]) - len(host)
    return start, Writer(host.decode("ascii"), int(parts[1]), int(parts[2]), device)


def _bracketed(word: bytes) -> int | None:
    if word[:1] == b"[" and word[-1:] == b"]" and word[1:-1].isdigit() and len(word) < 8:
        return int(word[1:-1])
    return None


def _short(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= 10
