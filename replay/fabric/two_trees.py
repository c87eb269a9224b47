"""Two binary trees that carry half of the bytes each, in pieces that follow one another.

A rank that passes on in one tree is a leaf of the other, so that all ports are used (Sanders, Speck
and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009). The first
tree is the in-order one, the second its mirror image, or for an odd number of ranks shifted by one.
"""

from __future__ import annotations

import math

import numpy as np

PIECE_BYTES = 512 << 10
MAX_PIECES = 32

Made = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def parents(n: int) -> np.ndarray:
    """int64 [n]: each rank's parent in the in-order binary tree rooted at 0; the root's is -1."""
    rank = np.arange(n)
    low = rank & -rank
    up = (rank ^ low) | (low << 1)
    out = np.where(up < n, up, rank ^ low)
    out[:1] = -1
    return out


def pair(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The parents of both trees, int64 [n] each."""
    first = parents(n)
    rank = np.arange(n)
    other = n - 1 - rank if n % 2 == 0 else (rank + 1) % n
    second = np.full(n, -1)
    second[other] = np.where(first >= 0, other[first], -1)
    return first, second


def all_reduce(n: int, size: float, pieces: int = 0) -> Made:
    """Up and down both trees; a piece comes down as soon as the root has it."""
    return _laid(pair(n), size, pieces, up=True, down=True)


def broadcast(n: int, size: float, root: int = 0, pieces: int = 0) -> Made:
    """Down both trees of the other ranks, whose roots `root` feeds."""
    return _laid(_fed(n, root), size, pieces, up=False, down=True)


def reduce(n: int, size: float, root: int = 0, pieces: int = 0) -> Made:
    """Up both trees of the other ranks, whose roots feed `root`."""
    return _laid(_fed(n, root), size, pieces, up=True, down=False)


def _fed(n: int, root: int) -> tuple[np.ndarray, np.ndarray]:
    if not 0 <= root < n:
        raise ValueError(f"root {root} is not among them")
    out = []
    for tree in pair(n - 1) if n > 1 else (np.zeros(0, np.int64),) * 2:
        whole = np.full(n, -1)
        other = (root + 1 + np.arange(n - 1)) % n
        whole[other] = np.where(tree >= 0, other[tree], root)
        out.append(whole)
    return out[0], out[1]


def pieces_of(size: float) -> int:
    """Pieces that half of the bytes are cut into: of PIECE_BYTES, up to MAX_PIECES."""
    return min(MAX_PIECES, max(1, math.ceil(size / 2 / PIECE_BYTES)))


def _laid(trees, size: float, pieces: int, *, up: bool, down: bool) -> Made:
    if pieces < 0:
        raise ValueError(f"pieces is {pieces}: 1 or more, or 0 to choose them by size")
    half = size / 2
    k = pieces or pieces_of(size)
    src, dst, owner, pred, at = [], [], [], [], 0
    for parent in trees:
        n = len(parent)
        child = np.flatnonzero(parent >= 0)
        c = len(child)
        place = np.full(n, -1)
        place[child] = np.arange(c)
        edge = np.tile(np.arange(c), k)
        above = place[parent[child]] if c else child
        # Flow `at + piece * c + edge` goes up an edge, and further on one comes down it.
        blocks = []
        if up:
            blocks.append((child[edge], parent[child][edge]))
            deeper = np.flatnonzero(above >= 0)
            for p in range(k):
                owner.append(at + p * c + above[deeper])
                pred.append(at + p * c + deeper)
            _in_sequence(owner, pred, at, c, k)
        base = at + (k * c if up else 0)
        if down:
            blocks.append((parent[child][edge], child[edge]))
            inner, top = np.flatnonzero(above >= 0), np.flatnonzero(above < 0)
            for p in range(k):
                owner.append(base + p * c + inner)
                pred.append(base + p * c + above[inner])
                if up:
                    owner.append(np.repeat(base + p * c + top, len(top)))
                    pred.append(np.tile(at + p * c + top, len(top)))
            _in_sequence(owner, pred, base, c, k)
        for a, b in blocks:
            src.append(a)
            dst.append(b)
            at += k * c
    source = np.concatenate(src) if src else np.zeros(0, np.int64)
    owners = np.concatenate(owner).astype(np.int64) if owner else np.zeros(0, np.int64)
    order = np.argsort(owners, kind="stable")
    ptr = np.zeros(len(source) + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=len(source)), out=ptr[1:])
    preds = np.concatenate(pred)[order] if pred else np.zeros(0, np.int64)
    return (
        source, np.concatenate(dst) if dst else source.copy(),
        np.full(len(source), half / k), ptr, preds.astype(np.int64),
    )  # fmt: skip


def _in_sequence(owner: list, pred: list, base: int, c: int, k: int) -> None:
    """A piece goes over an edge when the one before it is through."""
    later = base + np.arange(c, k * c)
    owner.append(later)
    pred.append(later - c)
