"""What a verification can find: one row each, with what to do about it."""

from __future__ import annotations

import shlex
from typing import NamedTuple

LOST = "lost"
"""Rows that were there cannot be read, or what is read is not what was written."""

WARNING = "warning"
"""Something is wrong, and no row of the job is the worse for it."""

INFO = "info"
"""Nothing is wrong: something that whoever looks after a warehouse may want to know."""

SEVERITIES = (LOST, WARNING, INFO)


class Finding(NamedTuple):
    """Something about a job: how bad, what kind, where, in words, and what to do.

    `do` is a command, or what to do in words; `done` says what a repair did.
    """

    job: str
    severity: str
    code: str
    file: str
    what: str
    do: str
    done: str = ""


def command(*words: str) -> str:
    """A command line of retime, as a shell takes it."""
    return shlex.join(["retime", *words])
