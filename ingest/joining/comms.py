"""Communicators over all sources of a job: one name for each, members from what each rank says."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from .. import schema
from ..matching.hosts import replace_column
from ..matching.participations import codes, ints, texts
from ..schema import Problem

CUT_DIGITS = 14
"""Hexadecimal digits, of those without leading zeros, that Inspector keeps of an id."""

_CUT = re.compile(r"nccl-([0-9a-f]{1,14})\*")
_WHOLE = re.compile(r"nccl-([0-9a-f]{16})")


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
    """The rows with members where each rank of a communicator says its own place.

    A list that a source states stands; one that ranks tell must cover every place, by one rank
    each. `member` and `member_place` are null in what is returned.
    """
    rows = comms.to_pylist()
    places: dict[str, set[tuple[int, int]]] = {}
    size: dict[str, set[int]] = {}
    stated: dict[str, set[tuple[int, ...]]] = {}
    for row in rows:
        comm = row["comm"]
        if comm is None:
            continue
        if row["size"] is not None:
            size.setdefault(comm, set()).add(row["size"])
        if row["ranks"] is not None:
            stated.setdefault(comm, set()).add(tuple(row["ranks"]))
        if row["member"] is not None and row["member_place"] is not None:
            places.setdefault(comm, set()).add((row["member_place"], row["member"]))
    members: dict[str, list[int]] = {}
    odd = []
    for comm in sorted(places):
        told = sorted(places[comm])
        at, who = {p for p, _ in told}, {m for _, m in told}
        if len(at) < len(told) or len(who) < len(told) or len(size.get(comm, ())) > 1:
            odd.append(comm)
        elif size.get(comm) == {len(told)} and at == set(range(len(told))):
            members[comm] = [m for _, m in told]
            if any(s != tuple(members[comm]) for s in stated.get(comm, ())):
                odd.append(comm)
    problems = []
    if odd:
        problems.append(
            Problem(
                "comm_members_contradict",
                f"ranks of a communicator ({odd[0]}) contradict each other about its members or "
                "its size: are the sources of one run?",
                count=len(odd),
            )
        )
    ranks = [
        r["ranks"] if r["ranks"] is not None or r["comm"] in stated else members.get(r["comm"])
        for r in rows
    ]
    for name, values in (
        ("ranks", pa.array(ranks, pa.list_(pa.int32()))),
        ("member", pa.nulls(len(rows), pa.int32())),
        ("member_place", pa.nulls(len(rows), pa.int32())),
    ):
        comms = replace_column(comms, schema.COMMS, name, values)
    return comms, problems
