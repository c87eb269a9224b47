"""Communicators over all sources of a job: one name for each, members from what each rank says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from .. import schema
from ..matching.hosts import replace_column
from ..matching.lists import Lists, coded
from ..matching.participations import codes, ints, runs, texts
from ..schema import Problem

CUT_DIGITS = 14
"""Hexadecimal digits, of those without leading zeros, that Inspector keeps of an id."""

_NULL = -(1 << 63)
_pc: Any = pyarrow.compute

_CUT = re.compile(r"nccl-([0-9a-f]{1,14})\*")
_WHOLE = re.compile(r"nccl-([0-9a-f]{16})")


def ids(names: pa.ChunkedArray) -> list[str]:
    """Those of the names that are the library's ids, whole or cut."""
    found = names.unique().cast(pa.string())
    return found.filter(_pc.match_substring_regex(found, r"^nccl-[0-9a-f]{1,16}\*?$")).to_pylist()


def is_cut(text: str) -> bool:
    """Whether a communicator's name is the beginning of one."""
    return _CUT.fullmatch(text) is not None


def whole_names(said: Iterable[str | None], sizes: dict[str, set[int]]) -> dict[str, str]:
    """The whole name of each communicator of which a source cut the id, where only one fits.

    `sizes` are the sizes that sources say of each: with others than the cut one's none fits.
    """
    known = {t for t in said if t}
    whole: dict[str, list[str]] = {}
    for text in sorted(known):
        found = _WHOLE.fullmatch(text)
        if found is not None:
            whole.setdefault(found[1].lstrip("0")[:CUT_DIGITS], []).append(text)
    out = {}
    for text in sorted(known):
        found = _CUT.fullmatch(text)
        if found is None:
            continue
        mine = sizes.get(text, set())
        fitting = [
            w
            for w in whole.get(found[1], [])
            if not mine or not sizes.get(w) or mine & sizes[w]
        ]  # fmt: skip
        if len(fitting) == 1:
            out[text] = fitting[0]
    return out


def sizes_of(*tables: tuple[pa.Table, str]) -> dict[str, set[int]]:
    """Sizes that rows (table, name of its column) say of each communicator."""
    out: dict[str, set[int]] = {}
    for table, column in tables:
        code, words = codes(table.column("comm"))
        there = (code >= 0) & table.column(column).is_valid().to_numpy()
        size = ints(table, column)[there]
        # a 32-bit size and a code side by side: one sort
        pairs = np.unique((code[there] << 32) + size + (1 << 31))
        for comm, low in zip((pairs >> 32).tolist(), (pairs & 0xFFFFFFFF).tolist(), strict=True):
            out.setdefault(words[comm], set()).add(low - (1 << 31))
    return out


def renamed(table: pa.Table, declared: schema.Table, names: dict[str, str]) -> pa.Table:
    """The table with these communicators' names replaced."""
    if not names or not table.num_rows:
        return table
    code, words = codes(table.column("comm"))
    return replace_column(table, declared, "comm", texts(code, [names.get(w, w) for w in words]))


def assembled(comms: pa.Table) -> tuple[pa.Table, list[Problem]]:
    """What is said of communicators, with members where each rank of one says its own place.

    A list that a source states stands; one that ranks tell must cover every place, by one rank
    each. `member` and `member_place` are null in what is returned; rows that then say the same
    are one, the first of them.
    """
    if not comms.num_rows:
        return comms, []
    comm, words = codes(comms.column("comm"))
    size, member, place = (ints(comms, c, _NULL) for c in ("size", "member", "member_place"))
    lists = coded(comms.column("ranks"))
    told = _told(comm, size, member, place, len(words))
    stated = np.zeros(len(words) + 1, bool)
    stated[comm[lists.code >= 0]] = True
    stated[-1] = True  # nobody says the members of a communicator without a name
    odd, distinct = told.odd.copy(), list(lists.distinct)
    codes_of = {tuple(ranks): k for k, ranks in enumerate(distinct)}
    of_comm = np.full(len(words) + 1, -1, np.int64)
    for c, members in told.members.items():
        of_comm[c] = codes_of.setdefault(tuple(members), len(distinct))
        if of_comm[c] == len(distinct):
            distinct.append(members)
    odd[comm[(lists.code >= 0) & (of_comm[comm] >= 0) & (lists.code != of_comm[comm])]] = True
    problems = []
    if odd.any():
        problems.append(
            Problem(
                "comm_members_contradict",
                f"ranks of a communicator ({words[int(odd.argmax())]}) contradict each other about "
                "its members or its size: are the sources of one run?",
                count=int(odd.sum()),
            )
        )
    code = np.where((lists.code < 0) & ~stated[comm], of_comm[comm], lists.code)
    at = _first_of_each(comms, comm, size, code)
    comms = comms.take(pa.array(at))
    for name, values in (
        ("ranks", Lists(code[at], distinct).column()),
        ("member", pa.nulls(len(at), pa.int32())),
        ("member_place", pa.nulls(len(at), pa.int32())),
    ):
        comms = replace_column(comms, schema.COMMS, name, values)
    return comms, problems


class _Told(NamedTuple):
    """What ranks say of their own places, by code of the communicator."""

    odd: np.ndarray
    """bool: they contradict each other"""
    members: dict[int, list[int | None]]
    """in order, of those of which every place is told"""


def _told(
    comm: np.ndarray, size: np.ndarray, member: np.ndarray, place: np.ndarray, n_comms: int
) -> _Told:
    named = comm >= 0
    sized = named & (size != _NULL)
    order, first = runs(comm[sized], size[sized])
    one = sized.nonzero()[0][order[first]]
    n_sizes = np.bincount(comm[one], minlength=n_comms)
    said = np.full(n_comms, _NULL)
    said[comm[one]] = size[one]
    tells = named & (member != _NULL) & (place != _NULL)
    order, first = runs(comm[tells], place[tells], member[tells])
    rows = tells.nonzero()[0][order[first]]  # each told place once, by communicator and place
    comm, place, member = comm[rows], place[rows], member[rows]
    n_told = np.bincount(comm, minlength=n_comms)
    order, first = runs(comm, place)
    n_places = np.bincount(comm[order[first]], minlength=n_comms)
    order, first = runs(comm, member)
    n_members = np.bincount(comm[order[first]], minlength=n_comms)
    odd = (n_places < n_told) | (n_members < n_told) | ((n_told > 0) & (n_sizes > 1))
    start = np.cumsum(n_told) - n_told
    whole = ~odd & (n_told > 0) & (n_sizes == 1) & (said == n_told)
    at = np.flatnonzero(whole)
    # Places differ and are in order: they are all, if the first is 0 and the last the last.
    at = at[(place[start[at]] == 0) & (place[start[at] + n_told[at] - 1] == n_told[at] - 1)]
    members = member.tolist()
    return _Told(odd, {c: members[start[c] : start[c] + n_told[c]] for c in at.tolist()})


def _first_of_each(
    comms: pa.Table, comm: np.ndarray, size: np.ndarray, ranks: np.ndarray
) -> np.ndarray:
    """The first of the rows that are alike in all but who says it, in the order of the table."""
    keys = [comm, size, ranks]
    for name in ("name", "description", "dim", "dim_source", "dim_reason", "backend"):
        key, words = codes(comms.column(name))
        if len(words) > 1 or (words and (key < 0).any()):
            keys.append(key)
    order, first = runs(*keys)
    return np.sort(order[first])
