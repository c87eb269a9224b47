"""The tasks of traced ranks, and the edges among them: what a graph is put together from."""
