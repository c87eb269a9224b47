"""Values that a stranger wrote: integers, scaled decimals, sizes, ranks in names, short texts."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation

MAX_RANK = (1 << 23) - 1
"""The highest rank: its event ids fill 63 bits."""


def integer(value: object) -> int | None:
    """An integer of 64 bits as it is; None for anything else, also for a bool and for text."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -(1 << 63) <= value < 1 << 63 else None


def as_int(value: object) -> int | None:
    """An integer of any size, also from text or a float without a fraction; else None."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = int(value)  # type: ignore[call-overload]
        return number if not isinstance(value, float) or number == value else None
    except (TypeError, ValueError, OverflowError):
        return None


def as_size(value: object) -> int | None:
    """A number of ranks, 1 to MAX_RANK + 1; None for anything else."""
    number = as_int(value)
    return number if number is not None and 0 < number <= MAX_RANK + 1 else None


_DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")


def exact(text: str, places: int) -> int | None:
    """A decimal text times 10**places as an integer, rounded half to even, never through a float.

    None where it is no number, or one of more than 21 digits.
    """
    if not text.isascii() or not _DECIMAL.fullmatch(text):
        return None
    try:
        number = Decimal(text)
        if number.is_zero() or number.adjusted() < -places - 1:
            return 0
        if number.adjusted() + places > 20:
            return None
        context = Context(prec=len(text) + 30)
        return int(number.scaleb(places, context).to_integral_value(ROUND_HALF_EVEN, context))
    except InvalidOperation:
        return None


def scaled(value: object, places: int) -> int | None:
    """A number, or its text with white space around it, times 10**places as `exact` gives it.

    So `scaled("1.5", 3)` is microseconds as ns. None where it is no number, or beyond 64 bits.
    """
    if isinstance(value, int):
        small = integer(value)
        return None if small is None else integer(small * 10**places)
    if isinstance(value, float | Decimal):
        value = str(value)
    return integer(exact(value.strip(), places)) if isinstance(value, str) else None


def printable(text: str, most: int) -> str:
    """The first characters of a text for a message, `?` for what cannot be printed."""
    return "".join(c if c.isprintable() else "?" for c in text[:most])


_RANK_IN_NAME = re.compile(
    r"(?<![a-zA-Z])((?:local|node|group|host|dp|tp|pp|ep|cp|sp)[-_. ]?)?"
    r"rank[-_. =]*\[?(\d{1,7})(?!\d)",
    re.I,
)
_RANK_FOLDER = re.compile(r"\[?rank[-_. =]*\[?(\d{1,7})\]?", re.I)


def rank_in_name(name: str) -> int | None:
    """The rank in a file's name (`rank0`, `rank-34`, `rank_12`, `[rank7]`), else a folder's.

    A folder's whole name must be the rank (`rank3/trace.json`): jobs and tests are called all
    sorts. None where there is none, where two differ, or where only a local or group rank is named.
    """
    *folders, file = re.split(r"[/\\!]", name)
    found = {int(n) for kind, n in _RANK_IN_NAME.findall(file) if not kind}
    if not found:
        found = {int(m[1]) for f in folders if (m := _RANK_FOLDER.fullmatch(f))}
    return found.pop() if len(found) == 1 and max(found) <= MAX_RANK else None
