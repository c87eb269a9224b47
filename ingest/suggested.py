"""Commands that texts suggest: as they can be typed, with the warehouse that an option named."""

from __future__ import annotations

import shlex

_warehouse = ""


def named(warehouse: str | None) -> None:
    """Says which warehouse this command line names by an option; nothing of it in Python."""
    global _warehouse
    _warehouse = warehouse or ""


def command(*words: str, warehouse: str | None = None) -> str:
    """`retime` and these words, quoted for a shell where they need it.

    With the option that the user gave, or with `warehouse` where the text may be read elsewhere:
    else it would be about another one.
    """
    place = _warehouse if warehouse is None else warehouse
    option = ["--warehouse", place] if place else []
    return shlex.join(["retime", *words, *option])
