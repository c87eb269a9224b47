"""Moves: from whom to whom, how much, in which round. What patterns are made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np


class Moves(NamedTuple):
    """k moves; arrays are [k]. A rank's rounds follow one another; ranks need not keep step."""

    src: np.ndarray
    dst: np.ndarray
    size_bytes: np.ndarray
    round: np.ndarray


def moves(src, dst, size_bytes, rnd: Any = 0) -> Moves:
    """Moves from arrays, or numbers that all of them share."""
    src, dst, size, rnd = np.broadcast_arrays(src, dst, size_bytes, rnd)
    return Moves(
        src.astype(np.int64).ravel(), dst.astype(np.int64).ravel(),
        size.astype(np.float64).ravel(), rnd.astype(np.int64).ravel(),
    )  # fmt: skip


def concatenated(parts: Iterable[Moves]) -> Moves:
    """All of them; rounds are as they are."""
    kept = list(parts)
    if not kept:
        return moves(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0))
    return Moves(*(np.concatenate(arrays) for arrays in zip(*kept, strict=True)))


def in_turn(*parts: Moves) -> Moves:
    """Each after the one before: its rounds numbered on from there."""
    out, at = [], 0
    for part in parts:
        out.append(part._replace(round=part.round + at))
        at += int(part.round.max(initial=-1)) + 1
    return concatenated(out)


def backwards(made: Moves) -> Moves:
    """The same in reverse: receivers send, the last round first (a broadcast's reduction)."""
    last = int(made.round.max(initial=0))
    return Moves(made.dst, made.src, made.size_bytes, last - made.round)


def rerooted(made: Moves, n: int, root: int) -> Moves:
    """The same with rank 0's part played by `root`."""
    if not 0 <= root < n:
        raise ValueError(f"root {root} is not among them")
    return made._replace(src=(made.src + root) % n, dst=(made.dst + root) % n)
