"""Which parallel dimension each communicator serves, and how that was found.

In this order; the first that tells decides: what the user set for it, what a source says of it
(its description or a record), that it holds all ranks, the degrees that the user gave, another
communicator of the same members that is described, its operations (`rules`), and that groups of
the same size and stride do the same. Where evidence contradicts itself the dimension is unknown
and a problem says so.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ..matching.lists import Lists, coded
from ..schema import Problem
from ..settings import Settings
from .bare import FOUND, SAID, bare_rows, filled, plain_rows, sizes, told_by
from .layout import DIMS, form, in_mesh, partitions, stride_of
from .profile import Profile
from .rules import Finding, Group, by_operations, chain, late_sums, sums_shards

__all__ = ["DIMS", "decide", "form", "matches"]

_pc: Any = pyarrow.compute

_TELLING = re.compile(r"parallel|_and_|embed", re.I)
"""A description that means something else than one dimension: nothing is inferred against it."""


class Comm(NamedTuple):
    """A communicator while its dimension is found."""

    row: dict
    members: tuple[int, ...] | None
    group: Group

    @property
    def name(self) -> str:
        return self.row["comm"]

    @property
    def told(self) -> bool:
        """Whether its description claims something."""
        return (
            _TELLING.search(f"{self.row['description'] or ''} {self.row['name'] or ''}") is not None
        )


def decide(
    comms: pa.Table,
    collectives: pa.Table,
    ranks: pa.Table,
    steps: pa.Table,
    world: int | None,
    said: Settings,
) -> tuple[pa.Table, list[Problem]]:
    """`comms` with dim, dim_source and dim_reason filled, and what was unclear."""
    if not len(comms) and not said.degrees:
        return comms, []
    size, lists = sizes(comms), coded(comms.column("ranks"))
    dim = comms.column("dim").cast(pa.string()).combine_chunks()
    is_open = _pc.is_in(dim, pa.array([None, "unknown"])).to_numpy(zero_copy_only=False)
    used: dict[str, Profile] = {}
    if len(collectives) and (is_open & (size > 1)).any():
        from .measure import profiles  # only now: it takes Polars, and most jobs need none of it

        asked = comms.column("comm").filter(pa.array(is_open & (size > 1))).to_pylist()
        used = profiles(collectives, steps, asked)
    plain = plain_rows(comms, is_open, used, said)
    bare = bare_rows(comms, lists, plain)
    nothing = np.flatnonzero(bare & (size > 1))
    rest = np.flatnonzero(~bare)
    teller = told_by(comms, lists, plain & ~bare)[rest]
    at = rest[teller == rest]
    rows = _rows(comms, at, lists)
    of_members = _Placed(_hosts(ranks))
    all_of = [_comm(r, used, of_members) for r in rows]
    problems: list[Problem] = []
    _set_by_user(all_of, said)
    _by_degrees(all_of, said.degrees, world, problems)
    _by_members(all_of)
    seen = sorted({r for r in ranks["rank"].to_pylist() if r is not None})
    _by_operations(all_of, seen, world, problems)
    place = pa.array(np.searchsorted(at, teller))
    found = {c: pa.array([r[c] for r in rows], pa.string()).take(place) for c in FOUND}
    return filled(comms, rest, found, nothing), problems


def _rows(comms: pa.Table, at: np.ndarray, lists: Lists) -> list[dict]:
    """Rows by column; those with the same members share the list of them."""
    taken = comms.drop_columns(["ranks"]).take(pa.array(at))
    kinds = [pa.string() if pa.types.is_dictionary(f.type) else f.type for f in taken.schema]
    taken = taken.cast(pa.schema(list(zip(taken.column_names, kinds, strict=True))))
    columns = {c: taken.column(c).to_pylist() for c in taken.column_names}
    distinct = [*lists.distinct, None]
    columns["ranks"] = [distinct[k] for k in lists.code[at].tolist()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def matches(pattern: str, row: dict) -> bool:
    """Whether a pattern (`*`, `?`, `[...]`; case does not count) fits identity, name, description.

    The whole of it, so that `1` is not `10`.
    """
    texts = (row["comm"], row["name"], row["description"])
    return any(t and fnmatchcase(t.lower(), pattern.lower()) for t in texts)


def _size(row: dict) -> int:
    return row["size"] or len(row["ranks"] or ())


class _Placed:
    """Members in order and how many machines they are on; many communicators have the same."""

    def __init__(self, hosts: dict[int, str]):
        self._hosts = hosts
        self._known: dict[tuple, tuple[tuple[int, ...] | None, int | None]] = {}

    def of(self, ranks: list[int | None] | None) -> tuple[tuple[int, ...] | None, int | None]:
        """(members in rising order, machines), each None where it is not known."""
        key = tuple(ranks or ())
        known = self._known.get(key)
        if known is None:
            said = sorted({r for r in key if r is not None})
            members = tuple(said) if said and len(said) == len(key) else None
            places = {self._hosts.get(r) for r in members or ()}
            n_hosts = len(places) if places and None not in places else None
            known = self._known[key] = members, n_hosts
        return known


def _comm(row: dict, used: dict[str, Profile], placed: _Placed) -> Comm:
    members, n_hosts = placed.of(row["ranks"])
    return Comm(row, members, Group(members, _size(row), n_hosts, used.get(row["comm"])))


def _hosts(ranks: pa.Table) -> dict[int, str]:
    both = zip(ranks["rank"].to_pylist(), ranks["host"].to_pylist(), strict=True)
    return {r: h for r, h in both if r is not None and h is not None}


def _give(comm: Comm, dim: str, source: str, why: str | None = None) -> None:
    comm.row.update(dim=dim, dim_source=source, dim_reason=why)


def _unknown(comm: Comm) -> bool:
    """A dimension is still to be found; one that the user called unknown stays so."""
    return comm.row["dim"] in (None, "unknown") and comm.row["dim_source"] != "set by user"


def _set_by_user(all_of: list[Comm], said: Settings) -> None:
    for comm in all_of:
        rule = next((r for r in said.dims if matches(r.pattern, comm.row)), None)
        if rule is not None:
            _give(comm, rule.dim, "set by user", f"matches {rule.pattern}")


def _by_degrees(
    all_of: list[Comm], degrees: dict[str, int], world: int | None, problems: list[Problem]
) -> None:
    """Communicators that lie along one dimension of the mesh that the user described."""
    if not degrees:
        return
    product = math.prod(degrees.values())
    if world is not None and product != world:
        problems.append(
            Problem(
                "dim_unclear",
                f"the degrees that were set make {product} ranks, the job has {world}: they are "
                "not used; set others with retime dims --degrees",
            )
        )
        return
    odd = sorted(
        f"{c.row['dim']} {form(c.members)}"
        for c in all_of
        if c.row["dim_source"] in SAID and c.members and degrees.get(c.row["dim"], 0) > 0
        and len(c.members) > 1 and c.row["dim"] not in in_mesh(c.members, degrees)
    )  # fmt: skip
    if odd:
        problems.append(
            Problem(
                "dim_unclear",
                f"the degrees that were set are not how described communicators lie ({odd[0]}): "
                "is their order from the fastest-varying to the slowest?",
                "info",
                len(odd),
            )
        )
    mesh = ",".join(f"{d}={n}" for d, n in degrees.items())
    for comm in all_of:
        if _unknown(comm) and comm.members:
            found = in_mesh(comm.members, degrees)
            if len(found) == 1:
                _give(comm, found[0], "degrees", f"its members in {mesh}")


def _by_members(all_of: list[Comm]) -> None:
    """A communicator that nothing describes serves what the described ones of its members do."""
    described = defaultdict(set)
    for comm in all_of:
        if comm.members and (comm.told or comm.row["dim_source"] in SAID):
            described[comm.members].add(comm.row["dim"])
    for comm in all_of:
        if _unknown(comm) and not comm.told and comm.members and len(comm.members) > 1:
            dims = described.get(comm.members, set())
            if len(dims) == 1 and (dim := next(iter(dims))) not in (None, "unknown"):
                _give(comm, dim, "members", "a described communicator has the same members")


def _by_operations(
    all_of: list[Comm], seen: list[int], world: int | None, problems: list[Problem]
) -> None:
    """Fills what operations tell of communicators that nothing else tells of."""
    free = [c for c in all_of if _unknown(c) and not c.told and c.group.size > 1]
    found: dict[str, list[Finding]] = defaultdict(list)
    for comm in free:
        if (finding := by_operations(comm.group)) is not None:
            found[comm.name].append(finding)
    _pairs_that_chain(free, found)
    shapes = defaultdict(list)
    for comm in free:
        if comm.members:
            shapes[len(comm.members), stride_of(comm.members)].append(comm)
    for alike in shapes.values():
        whole = world is not None and 2 * len(seen) >= world
        if whole and partitions([c.members or () for c in alike], seen):
            for comm in alike:
                if late_sums(comm.group.profile):
                    found[comm.name].append(
                        Finding("dp", "large all-reduces after the forward pass")
                    )
    _replicas(free, found)
    unclear = _settle(all_of, free, found)
    for alike in shapes.values():
        _same_shape(alike)
    for comm in all_of:
        if _unknown(comm) and comm.told and comm.group.size > 1:
            comm.row["dim_reason"] = "its description names no single dimension"
    for comm in free:
        if _unknown(comm):
            maybe = [f.why for f in found[comm.name] if f.dim is None]
            comm.row["dim_reason"] = maybe[0] if maybe else _by_layout(comm.group)
    if unclear:
        problems.append(
            Problem(
                "dim_unclear",
                f"what is known of a communicator speaks for several dimensions ({unclear[0]}): "
                "unknown; retime dims --set says what it is",
                "info",
                len(unclear),
            )
        )


def _pairs_that_chain(free: list[Comm], found: dict[str, list[Finding]]) -> None:
    """Communicators of two ranks each that together make a chain of more: a pipeline's hops."""
    pairs = [
        c for c in free
        if c.group.size == 2 and c.group.profile is not None and c.group.profile.edges
        and any(f.dim is None and f.why.startswith("pp or cp") for f in found[c.name])
    ]  # fmt: skip
    next_to: dict[int, set[int]] = defaultdict(set)
    for comm in pairs:
        for a, b in (comm.group.profile or _NONE).edges:
            next_to[a].add(b)
            next_to[b].add(a)
    for comm in pairs:
        edges = (comm.group.profile or _NONE).edges
        ranks = _walk(next_to, next(iter(edges))[0])
        if len(ranks) < 3:
            continue
        mine = frozenset(
            e for c in pairs for e in (c.group.profile or _NONE).edges if e[0] in ranks
        )
        finding = chain(mine, sorted(ranks))
        if finding is not None and finding.dim is not None:
            found[comm.name].insert(0, finding)


_NONE = Profile({}, {}, {}, {}, frozenset(), False, {}, 0)


def _walk(next_to: dict[int, set[int]], start: int) -> set[int]:
    seen, todo = {start}, [start]
    while todo:
        for other in next_to[todo.pop()] - seen:
            seen.add(other)
            todo.append(other)
    return seen


def _replicas(free: list[Comm], found: dict[str, list[Finding]]) -> None:
    """Sharded groups whose shards groups across them add up: fsdp, and dp."""
    of_rank: dict[int, list[Comm]] = defaultdict(list)
    used = [c for c in free if c.group.profile is not None]
    for comm in used:
        for r in comm.members or ():
            of_rank[r].append(comm)
    for a in used:
        for b in {c.name: c for r in (a.members or ())[:1] for c in of_rank[r]}.values():
            if a.name == b.name or len(set(a.members or ()).intersection(b.members or ())) != 1:
                continue
            if sums_shards(a.group.profile, b.group.profile):
                found[a.name].insert(0, Finding("fsdp", f"{b.name} adds up its shards"))
                found[b.name].insert(0, Finding("dp", f"adds up the shards of {a.name}"))


def _settle(all_of: list[Comm], free: list[Comm], found: dict[str, list[Finding]]) -> list[str]:
    """Gives what was found where nothing speaks against it; says what was not clear."""
    unclear = []
    for comm in free:
        dims = sorted({f.dim for f in found[comm.name] if f.dim is not None})
        if len(dims) == 1:
            why = next(f.why for f in found[comm.name] if f.dim == dims[0])
            _give(comm, dims[0], "operations", why)
        elif dims:
            unclear.append(f"{comm.name}: {' and '.join(dims)}")
    if all(comm.row["dim_source"] != "operations" for comm in free):
        return unclear
    # A rank is in one group of a dimension; only a pipeline may have one for each hop.
    groups: dict[tuple[int, str], set[int]] = defaultdict(set)
    numbers: dict[tuple[int, ...], int] = {}
    for comm in all_of:
        if comm.members and len(comm.members) > 1 and comm.row["dim"] not in ("pp", "world"):
            # A number for the members: a tuple is hashed anew each time, in whole.
            number = numbers.setdefault(comm.members, len(numbers))
            for r in comm.members:
                groups[r, comm.row["dim"]].add(number)
    for comm in free:
        dim = comm.row["dim"]
        if comm.row["dim_source"] == "operations" and comm.members and dim != "pp":
            others = groups[comm.members[0], dim]
            if len(others) > 1:
                unclear.append(f"{comm.name}: a second {dim} of rank {comm.members[0]}")
                comm.row.update(dim="unknown", dim_source="none", dim_reason=f"a second {dim}?")
    return unclear


def _same_shape(alike: list[Comm]) -> None:
    """Groups of one size and stride without a rank in common do the same."""
    dims = {c.row["dim"] for c in alike if not _unknown(c)}
    apart = partitions([c.members or () for c in alike], ())
    if len(dims) == 1 and apart and alike[0].members and stride_of(alike[0].members):
        for comm in alike:
            if _unknown(comm) and comm.group.profile is None:
                one = next(c for c in alike if not _unknown(c))
                _give(comm, next(iter(dims)), "size+stride", f"lies as {one.name} does")


def _by_layout(group: Group) -> str | None:
    """What a group might be by its members alone."""
    if group.members is None:
        return None
    if group.close:
        return f"tp, cp, ep or fsdp: {group.size} consecutive ranks of one host"
    stride = stride_of(group.members)
    return (
        f"dp, cp, fsdp or pp: ranks {stride} apart" if stride is not None and stride > 1 else None
    )
