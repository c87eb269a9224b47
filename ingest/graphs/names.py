"""The rank of an execution trace, which its file name tells if anything does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import RankUnknown
from ..values import MAX_RANK, rank_in_name

if TYPE_CHECKING:
    from ..sources import Source

_END = r"(?:\.json|\.et|\.eg)*(?:\.gz|\.zst)?"
_TRACE = re.compile(
    r"(?:^|[._-])(?:et|eg|execution[._-]?(?:trace|graph))[._-]?(\d{1,7})(?:[._-]?plus)?" + _END,
    re.I,
)
_NUMBERED = re.compile(r"(?:.*[^\d.]\.)?(\d{1,7})" + _END, re.I)


def rank_of(name: str, *, numbered: bool = False) -> int | None:
    """The rank in a source's name; None where there is none from 0 to MAX_RANK.

    `rank3` in the name or as a folder first, then `x_et_3.json` and `x_eg_3.json` as PyTorch's
    tools call them; where `numbered`, also `x.3.et`, `x.3.json` and `3.json`, as Chakra's and
    PARAM's do (elsewhere that number may be a version's last).
    """
    found = rank_in_name(name)
    if found is not None:
        return found
    file = re.split(r"[/\\!]", name)[-1][-1000:]
    m = next((m for m in _TRACE.finditer(file) if m.end() == len(file)), None)
    if m is None and numbered:
        m = _NUMBERED.fullmatch(file)
    if m is None or int(m[1]) > MAX_RANK:
        return None
    return int(m[1])


def rank_told(source: Source, rank: int | None, what: str) -> int:
    """The rank in the source's name, else `rank`, for a format (`what`) with no place for it.

    Raises RankUnknown where neither is there.
    """
    found = rank_of(source.name, numbered=True)
    found = rank if found is None else found
    if found is None:
        raise RankUnknown(
            f"a {what} trace does not say its rank, and its name has none: give it with --rank N",
            path=source.name,
        )
    return found
