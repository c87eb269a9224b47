"""Notebooks that answer one question each, in SQL cells over the library."""
