"""Long names in little room: their middle is left out, and no two of a list become alike."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 60
"""Columns of the screen for a kernel's name where nothing else bounds it; the JSON has all."""

ROUNDS = 4
"""So often names that look alike are told apart by where they differ, before they are numbered."""


def width(text: str) -> int:
    """Columns of the screen that `text` takes: two for a wide character."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shorter(text: str, room: int = LONGEST) -> str:
    """`text` in at most `room` columns, its middle left out: names differ at both ends."""
    if width(text) <= room:
        return text
    tail = max(0, (room - 1) // 3)
    return f"{_head(text, max(0, room - 1 - tail))}…{_tail(text, tail)}"


def apart(texts: Sequence[str], room: int = LONGEST) -> list[str]:
    """Each of `texts` in at most `room` columns; texts that differ differ still.

    Where `shorter` would make some alike they show the place at which they differ; where there is
    no room for that they end in a number, by their order.
    """
    short = {text: shorter(text, room) for text in texts}
    places: dict[str, list[int]] = {text: [] for text in short}
    for _ in range(ROUNDS):
        alike = _alike(short)
        if not alike:
            break
        for group in alike:
            start = _common(group)
            for text in group:
                places[text] = sorted({*places[text], start})
                short[text] = _with(text, places[text], room)
    taken = set(short.values())
    for group in _alike(short):
        n = 0
        for text in group:
            n += 1
            while (numbered := _numbered(text, n, room)) in taken:
                n += 1
            taken.add(numbered)
            short[text] = numbered
    return [short[text] for text in texts]


def _alike(short: dict[str, str]) -> list[list[str]]:
    """Groups of texts that are shown alike."""
    groups: dict[str, list[str]] = {}
    for text, shown in short.items():
        groups.setdefault(shown, []).append(text)
    return [g for g in groups.values() if len(g) > 1]


def _common(texts: Sequence[str]) -> int:
    """How many characters all of several different texts begin with."""
    first, last = min(texts), max(texts)
    differ = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return next(differ, len(first))


def _with(text: str, places: Sequence[int], room: int) -> str:
    """The beginning of `text` and what is at each of some places in it, in `room` columns."""
    each = max(1, room // (len(places) + 1) - 1)
    # Some of what names share before it shows that it is a part of a word which differs.
    before = min(2, each - 1)
    pieces = [(0, each)]
    for start in (max(0, place - before) for place in places):
        first, end = pieces[-1]
        if start <= end + 1:
            pieces[-1] = first, start + each
        else:
            pieces.append((start, start + each))
    while len(longer := _longer(pieces, len(text))) and width(_joined(text, longer)) <= room:
        pieces = longer
    return shorter(_joined(text, pieces), room)


def _longer(pieces: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """The pieces with the last of them, or the first, one character longer; none where all is."""
    (*others, (start, end)) = pieces
    if end < length:
        return [*others, (start, end + 1)]
    (first, end), *others = pieces
    return [(first, end + 1), *others] if others and end + 1 < others[0][0] else []


def _joined(text: str, pieces: list[tuple[int, int]]) -> str:
    cut = "…" if pieces[-1][1] < len(text) else ""
    return "…".join(text[a:b] for a, b in pieces) + cut


def _numbered(text: str, n: int, room: int) -> str:
    mark = f" #{n}"
    return shorter(text, max(1, room - len(mark))) + mark


def _head(text: str, room: int) -> str:
    return text[: _fitting(text, room)].rstrip()


def _tail(text: str, room: int) -> str:
    back = text[::-1]
    return back[: _fitting(back, room)][::-1].lstrip()


def _fitting(text: str, room: int) -> int:
    """How many characters of `text`, from its first, take at most `room` columns."""
    if text.isascii():
        return min(len(text), room)
    used = 0
    for n, c in enumerate(text):
        used += width(c)
        if used > room:
            return n
    return len(text)
