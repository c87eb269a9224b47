"""Closed forms of what moves, waits and fails, apart from any job: what policies compute with."""
