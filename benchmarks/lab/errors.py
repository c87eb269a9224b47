"""What can go wrong with the lab, each said with the command that mends it."""

from __future__ import annotations


class LabError(Exception):
    """A sentence that says what was found and what to do."""
