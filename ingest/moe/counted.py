"""Choices of tokens counted by expert, by compiled code where that pays."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..machine_code import Functions
from .kept_code import functions
from .tally_fast_code import CODE

MAX_EXPERTS = 1 << 16
"""No model has so many experts in a layer: an id from here on is damage, not an expert."""

COUNT_AT_ONCE = 1 << 21
FEW_IDS = 1 << 10
"""Compiled code that is there counts so many and more."""


class Counted(NamedTuple):
    """The choices of some tokens, by expert."""

    experts: np.ndarray
    """Ids that were chosen, ascending."""
    tokens: np.ndarray
    weights: np.ndarray | None
    """Sum of the gate weights by expert; null where none were given."""
    n_padding: int
    """Tokens that chose no expert at all: fake or padded ones."""
    n_dropped: int
    """Choices that no expert took, of tokens that have another."""
    n_beyond: int
    """Ids that no expert can have."""
    n_bad_weights: int
    """Weights that are no finite number; left out of the sums."""


def count(ids: np.ndarray, weights: np.ndarray | None = None) -> Counted:
    """Counts `ids` [tokens, choices] (integers, -1 for none) and sums `weights` of that shape.

    A column in which no token has a choice is not a choice: some writers fill up to a fixed width.
    """
    fast = None if ids.size < FEW_IDS else functions(CODE, ids.size)
    if fast is not None:
        return _count_fast(fast, ids, weights)
    used = (ids != -1).any(axis=0)
    parts = []
    n_padding = n_dropped = n_beyond = n_bad = 0
    rows = max(1, COUNT_AT_ONCE // max(1, ids.shape[1]))
    for at in range(0, len(ids), rows):
        part = ids[at : at + rows].astype(np.int64, copy=False)
        chosen = part != -1
        good = (part >= 0) & (part < MAX_EXPERTS)
        n_beyond += int((chosen & ~good).sum())
        some = chosen.any(axis=1)
        n_padding += int((~some).sum())
        n_dropped += int((~chosen[some][:, used]).sum())
        flat = part[good]
        w = None
        if weights is not None:
            w = weights[at : at + rows][good].astype(np.float64)
            finite = np.isfinite(w)
            n_bad += int((~finite).sum())
            w = np.where(finite, w, 0.0)
        parts.append(_by_expert(flat, np.ones(len(flat), np.int64), w))
    experts, tokens, sums = parts[0] if parts else _by_expert(*_NOTHING)
    if len(parts) > 1:
        all_sums = None if weights is None else np.concatenate([p[2] for p in parts])
        all_ids, n = (np.concatenate([p[i] for p in parts]) for i in (0, 1))
        experts, tokens, sums = _by_expert(all_ids, n, all_sums)
    kept = None if weights is None else sums
    return Counted(experts, tokens, kept, n_padding, n_dropped, n_beyond, n_bad)


def _count_fast(fast: Functions, ids: np.ndarray, weights: np.ndarray | None) -> Counted:
    """The same by compiled code."""
    if ids.dtype == np.uint8 and weights is None and ids.shape[1]:
        tokens = np.zeros(256, np.int64)
        fast["count_bytes"](ids, tokens)
        experts = np.flatnonzero(tokens)
        return Counted(experts, tokens[experts], None, 0, 0, 0, 0)
    scratch = _scratch()
    scratch.told[:] = 0
    try:
        return _count_parts(fast, ids, weights, scratch)
    finally:
        # The next count begins with none, however this one ends.
        end = scratch.told[4]
        scratch.tokens[:end] = 0
        scratch.sums[:end] = 0.0


def count_text(fast: Functions, buf: np.ndarray, at: int) -> tuple[int, int, Counted] | None:
    """(one past it, tokens, choices) of the array of each token's choices that a text has at a
    place; None where it is none, or has another choice than an expert that can be. Behind it is
    something else than a blank, a digit or a comma."""
    scratch = _scratch()
    shape = np.zeros(3, np.int64)
    try:
        end = fast["count_rows"](buf, at, scratch.tokens, shape)
        found = scratch.tokens[: shape[2]]
        experts = np.flatnonzero(found)
        counted = Counted(experts, found[experts], None, 0, 0, 0, 0)
    finally:
        scratch.tokens[: shape[2]] = 0
    return None if end < 0 else (end, int(shape[0]), counted)


def _count_parts(
    fast: Functions, ids: np.ndarray, weights: np.ndarray | None, scratch: _Scratch
) -> Counted:
    rows = max(1, COUNT_AT_ONCE // max(1, ids.shape[1]))
    told = scratch.told
    total = np.zeros(0)
    for at in range(0, len(ids), rows):
        part = _in_order(ids[at : at + rows], np.int64)
        w = _NONE if weights is None else _in_order(weights[at : at + rows], np.float64)
        fast["count_into"](part, w, scratch.tokens, scratch.sums, told)
        if weights is not None:
            # Summed part by part, as above.
            total = added(total, scratch.sums[: told[4]])
            scratch.sums[: told[4]] = 0.0
    n_padding, missing, n_beyond, n_bad, end = told.tolist()
    found = scratch.tokens[:end]
    experts = np.flatnonzero(found)
    tokens = found[experts]
    kept = None if weights is None else total[experts]
    n_dropped = _dropped(fast, ids, rows) if missing else 0
    return Counted(experts, tokens, kept, n_padding, n_dropped, n_beyond, n_bad)


def _dropped(fast: Functions, ids: np.ndarray, rows: int) -> int:
    """Choices of none, of tokens that have another, in columns with any choice."""
    used = np.zeros(ids.shape[1], np.uint8)
    for at in range(0, len(ids), rows):
        if fast["used_columns"](_in_order(ids[at : at + rows], np.int64), used) == len(used):
            break
    return sum(
        fast["dropped"](_in_order(ids[at : at + rows], np.int64), used)
        for at in range(0, len(ids), rows)
    )


def _in_order(values: np.ndarray, kind: type) -> np.ndarray:
    return np.ascontiguousarray(values, kind)


class _Scratch(threading.local):
    """Sums by expert, zero between two counts: pages that were never touched cost more to get than
    a few experts to count."""

    def __init__(self):
        self.tokens = np.zeros(MAX_EXPERTS, np.int64)
        self.sums = np.zeros(MAX_EXPERTS)
        self.told = np.zeros(5, np.int64)


@functools.cache
def _scratch() -> _Scratch:
    return _Scratch()


_NONE = np.zeros((0, 0))
_NOTHING = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def _by_expert(
    ids: np.ndarray, n: np.ndarray, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Distinct ids, ascending, with the sums of `n` and of `weights` for each."""
    places, experts = ids, None
    if len(ids) * 8 < int(ids.max(initial=0)):
        # Few ids, one of them large: an array up to it would cost more than they do.
        experts, places = np.unique(ids, return_inverse=True)
    tokens = np.bincount(places, n).astype(np.int64)
    sums = None if weights is None else np.bincount(places, weights)
    if experts is not None:
        return experts, tokens, sums
    experts = np.flatnonzero(tokens)
    return experts, tokens[experts], None if sums is None else sums[experts]


def added(sums: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Sums by expert with more of them; `more` reaches at least as far."""
    out = more.astype(sums.dtype)
    out[: len(sums)] += sums
    return out


def tell_odd(counted: Counted, odd: Callable[..., None], **place: Any) -> None:
    """Notes what `count` left out."""
    if counted.n_beyond:
        told = f"an expert id below -1 or from {MAX_EXPERTS} on; left out of the counts"
        odd("expert_out_of_range", told, "lost", count=counted.n_beyond, **place)
    if counted.n_bad_weights:
        told = "a gate weight that is no finite number; left out of the sum"
        odd("bad_weight", told, count=counted.n_bad_weights, **place)
