"""The kinds of change, a module each: `pairs()` gives those of its kind."""
