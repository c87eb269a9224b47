"""Matching: which participations are one collective, and the clocks that follow."""

from .resolution import Resolved, resolve

__all__ = ["Resolved", "resolve"]
