"""Uploads: a node's traces into a shared warehouse, tried until they are in, never in the way."""
