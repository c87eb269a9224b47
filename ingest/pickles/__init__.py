"""Pickles and saved arrays from strangers: read by a machine in which nothing can run."""
