"""Joining: what several sources say of one operation of a rank becomes one participation."""

from .joined import Joined, Shift, join

__all__ = ["Joined", "Shift", "join"]
