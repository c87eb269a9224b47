"""Data dependencies of a PyTorch execution trace, from the tensors that its nodes name."""

from __future__ import annotations

MAX_TENSORS = 1 << 20
"""Tensors remembered; the one first written longest ago goes first."""

WRITERS = 6
"""Nodes remembered for a tensor: a chain of wrappers that give it out one after another."""


class Writers:
    """Who wrote which tensor, while nodes go by in the order in which they ended.

    A node depends on the latest node begun before it, and ended, that gave the tensor out: of a
    chain of wrappers that is the innermost. A write through another view of the same storage is not
    seen: it names another tensor.
    """

    def __init__(self) -> None:
        self._of: dict[int, tuple[int, ...]] = {}
        self.forgotten = 0

    def deps(self, node: int, read: list[int]) -> list[int]:
        """The nodes whose output this one reads, rising, without itself."""
        found = set()
        for tensor in read:
            before = [w for w in self._of.get(tensor, ()) if w < node]
            if before:
                found.add(max(before))
        return sorted(found)

    def wrote(self, node: int, written: list[int]) -> None:
        """Notes a node's outputs."""
        for tensor in written:
            self._of[tensor] = (*self._of.get(tensor, ()), node)[-WRITERS:]
        while len(self._of) > MAX_TENSORS:
            del self._of[next(iter(self._of))]
            self.forgotten += 1
