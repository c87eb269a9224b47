"""Communicators of which nothing tells a dimension, set aside: a log may have tens of thousands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from .. import schema
from ..matching.hosts import replace_column
from ..matching.lists import Lists
from ..matching.participations import code, codes, ints, occurrence
from ..settings import Settings
from .profile import Profile

_pc: Any = pyarrow.compute

SAID = ("description", "recorded")
"""Words of `dim_source`: a source says it."""

FOUND = ("dim", "dim_source", "dim_reason")
"""Columns that are filled here."""


def sizes(comms: pa.Table) -> np.ndarray:
    """int64[rows]: members of each communicator, 0 where nobody says."""
    said, ranks = ints(comms, "size", 0), comms.column("ranks")
    listed = _pc.list_value_length(ranks).fill_null(0).to_numpy(zero_copy_only=False)
    return np.where(said != 0, said, listed)


def plain_rows(
    comms: pa.Table, is_open: np.ndarray, used: dict[str, Profile], said: Settings
) -> np.ndarray:
    """bool[rows]: undescribed and without operations, where the user says nothing either."""
    if said.dims or said.degrees:
        return np.zeros(len(comms), bool)
    plain = is_open.copy()
    for name in ("name", "description"):
        plain &= comms.column(name).is_null().to_numpy()
    source = comms.column("dim_source").cast(pa.string())
    plain &= ~_pc.is_in(source, pa.array([*SAID, "set by user"])).to_numpy()
    if used:
        plain &= ~_pc.is_in(comms.column("comm").cast(pa.string()), pa.array(list(used))).to_numpy()
    return plain


def bare_rows(comms: pa.Table, lists: Lists, plain: np.ndarray) -> np.ndarray:
    """bool[rows]: nothing tells of its dimension, and it tells nothing of others'.

    Of the `plain_rows` those of no more than one rank, or of members that nobody knows.
    """
    few = np.array([len(ranks) < 2 for ranks in lists.distinct] + [False])[lists.code]
    return plain & ((lists.code < 0) | (few & (sizes(comms) < 2)))


def told_by(comms: pa.Table, lists: Lists, plain: np.ndarray) -> np.ndarray:
    """int64[rows]: the row whose dimension is each row's too, most often itself.

    A job that makes its groups anew has `plain_rows` of the same members many times. From the
    third on they are as the second, which already says that these members are not only once there.
    """
    of, at = np.arange(len(comms)), np.flatnonzero(plain)
    found = comms.select(list(FOUND)).take(pa.array(at))
    words = [codes(found.column(name))[0] for name in FOUND]
    kind = code(lists.code[at], sizes(comms)[at], *words)
    nth, second = occurrence(kind), np.zeros(len(at), np.int64)
    second[kind[nth == 1]] = at[nth == 1]
    of[at[nth > 1]] = second[kind[nth > 1]]
    return of


def filled(
    comms: pa.Table, at: np.ndarray, found: dict[str, pa.Array], nothing: np.ndarray
) -> pa.Table:
    """The table with what was found of the rows `at`, and no reason for those of `nothing`."""
    for name in FOUND:
        old = comms.column(name).cast(pa.string()).combine_chunks()
        index = np.arange(len(old))
        index[at] = len(old) + np.arange(len(at))
        if name == "dim_reason":
            index[nothing] = -1
        new = pa.concat_arrays([old, found[name]]).take(pa.array(index, mask=index < 0))
        comms = replace_column(comms, schema.COMMS, name, new)
    return comms
