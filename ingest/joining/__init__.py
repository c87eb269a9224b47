"""Joining: what several sources say of one operation of a rank becomes one participation."""

from .join import Joined, Shift, join

__all__ = ["Joined", "Shift", "join"]
