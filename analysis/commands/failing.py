"""Errors as one sentence on stderr."""

from __future__ import annotations

import sys
from typing import Any


def is_usage(error: Exception) -> bool:
    """Is it the parser of options that raised?"""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def usage(error: Any) -> int:
    """Says what is wrong with the options; exit code 2."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "retime"
    text = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        print(text, file=sys.stderr)
        return 2
    return fail(f"{text.rstrip('.')}. `{path} --help` has the options.", 2)


def what(error: Exception) -> str:
    """An error that nobody foresaw, in words."""
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"


LONGEST_MESSAGE = 2000
"""Characters of an error."""


def fail(message: str, code: int) -> int:
    """One sentence on stderr; returns the exit code."""
    from ..screen import clean

    text = clean(" ".join(message.split()))
    if len(text) > LONGEST_MESSAGE:
        # What was typed is in it, however long.
        half = LONGEST_MESSAGE // 2
        text = f"{text[:half]} ... {text[-half:]}"
    print(f"retime: {text}", file=sys.stderr)
    return code
