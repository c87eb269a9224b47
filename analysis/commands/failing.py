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
    end = "" if text.endswith("?") else "."
    return fail(f"{text.rstrip('.')}{end} `{path} --help` has the options.", 2)


def what(error: Exception) -> str:
    """An error that nobody foresaw, in words."""
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"


def of_files(error: Exception) -> str | None:
    """What to say of an error of DuckDB's outside a query of the user's; None for any other.

    The queries are retime's own, so it is the files: someone else's warehouse, or a damaged one.
    """
    if not any(c.__module__.lstrip("_").startswith("duckdb") for c in type(error).__mro__):
        return None
    if type(error).__name__ == "OutOfMemoryException":
        from ..limits import OutOfMemory

        return str(OutOfMemory(error))
    lines = [s for s in str(error).splitlines() if s.strip()]
    said = lines[0] if lines else type(error).__name__
    return f"a file of the warehouse is not as it should be: {said.rstrip('.')}; ingest it again"


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
