"""Columns that the rows of a block of the plain form are read into, a chunk of them at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .plain import COLUMNS

NULL = int(np.iinfo(np.int64).min)
"""No integer of a text: those here have 18 digits at most."""

INTEGERS = ("step", "microbatch", "layer", "rank", "token", "count", "tokens", "expert",
            "physical_expert", "expert_rank")  # fmt: skip
TEXTS = ("block", "token_class", "id_space", "source")
CLASSES = ("real", "padding", "dropped")
SPACES = ("logical", "physical")
MOST_WORDS = 256
"""Distinct texts of a block; more are for the forgiving reader."""
MOST_FIELDS = 1000

N_INTEGERS, N_TEXTS = len(INTEGERS), len(TEXTS)
SUM = N_INTEGERS + N_TEXTS
EXPERTS, WEIGHTS, SKIPPED = SUM + 1, SUM + 2, SUM + 3
NAMES = (*INTEGERS, *TEXTS, "weight_sum", "experts", "weights")
PLACE = {n: i for i, n in enumerate(NAMES)}
"""Number of each column in a scan; `SKIPPED` is one that is not read."""
assert set(NAMES) == set(COLUMNS)

CHUNK_ROWS = 2048
"""Rows of a text that are read before they are summed: they stay near the processor."""
PAD = 16
"""Bytes of room behind the lines: a key is compared eight bytes at once."""


class Columns(NamedTuple):
    """Columns of rows: `NULL`, -1 for a text and NaN for a sum are null.

    Only what `used` says holds anything. A column lies in one piece, so that those without cost
    nothing.
    """

    integers: np.ndarray
    """[INTEGERS, rows]"""
    texts: np.ndarray
    """[TEXTS, rows], codes of words"""
    sums: np.ndarray
    ids: np.ndarray
    """the elements of `experts`, those of row i from `id_ends[i]` to `id_ends[i + 1]`"""
    id_ends: np.ndarray
    listed: np.ndarray
    """whether `experts` is there, a byte a row"""
    weights: np.ndarray
    weight_ends: np.ndarray
    weighed: np.ndarray
    used: np.ndarray
    """by `PLACE`"""
    class_of: np.ndarray
    """by code of a word: its place among CLASSES or SPACES, where it is one of them"""


def room(n_rows: int, n_elements: int) -> Columns:
    """Columns for so many rows, with so many elements in lists of each kind."""
    return Columns(
        np.empty((N_INTEGERS, n_rows), np.int64), np.empty((N_TEXTS, n_rows), np.int32),
        np.empty(n_rows), np.empty(n_elements, np.int64), np.zeros(n_rows + 1, np.int64),
        np.empty(n_rows, np.uint8), np.empty(n_elements), np.zeros(n_rows + 1, np.int64),
        np.empty(n_rows, np.uint8), np.zeros(SKIPPED + 1, np.int64),
        np.zeros(MOST_WORDS, np.int64),
    )  # fmt: skip


class State(NamedTuple):
    """Places in the state of a block's sums, all integers."""

    at: int = 0
    """where the lines that were not read yet begin"""
    rows: int = 1
    """rows of the chunk in `Columns`"""
    row: int = 2
    """the next of them to be summed"""
    n_words: int = 3
    lists: int = 4
    """whether the block's rows are lists of experts; -1 before the first"""
    counted: int = 5
    """whether they have a count; -1 before the first"""
    n_places: int = 6
    n_groups: int = 7
    place: int = 8
    """of the row before; -1 before the first"""
    needed: int = 9
    """groups that there has to be room for"""
    rank: int = 10
    """what stands for no rank"""
    seed: int = 11


STATE = State()
DONE, GROW, NOT_PLAIN = 0, 1, -1
"""What summing ends with: all summed, room is wanting, the block is for the forgiving reader."""

PLACE_KEYS = ("step", "microbatch", "layer", "rank", "expert_rank", "block", "source")
"""What the rows of a place share, in this order."""

GROUP_KEYS = ("place", "expert", "physical_expert", "token_class", "tokens", "weights")
"""Columns of the integers of a group; `weights` counts those in its sum."""
