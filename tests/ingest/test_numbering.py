"""Whose numbers are whose: what counts apart never matches across ranks by number."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from retime.ingest import joining, matching

spec = importlib.util.spec_from_file_location("joined", Path(__file__).with_name("joined.py"))
see = importlib.util.module_from_spec(spec)
spec.loader.exec_module(see)

OPS = ("all_reduce", "all_gather")
WHOLE = [{"comm": see.NCCL, "size": 2, "ranks": [0, 1]}]


def resolve(rows, clock="process"):
    """Rows of ranks 0 and 1, joined and matched."""
    told = see.ranks(0, 1, clock=clock)
    joined = joining.join(see.table("collectives", rows), told, see.table("comms", WHOLE))
    return matching.resolve(
        joined.collectives, joined.ranks, joined.comms, see.table("steps", [])
    )  # fmt: skip


def instances(rows, resolved):
    """Truths of the rows of each collective of two ranks, and what matched it."""
    truth = {r["event_id"]: r["truth"] for r in rows}
    found = {}
    for row in resolved.collectives.to_pylist():
        found.setdefault(row["collective_id"], []).append((truth[row["event_id"]], row["match"]))
    return [rows for rows in found.values() if len(rows) > 1]


def two(first, second):
    """What two kinds of sources say of the same operations, one on each rank."""
    ops = [see.operations(rank=r, steps=4, ops=OPS) for r in (0, 1)]
    return first(ops[0]) + second(ops[1])


def nsys(ops):
    """Ids of nsys: on all ranks the same, of any start, over all operations."""
    return [r | {"source": "nsys"} for r in see.kineto(ops, comm=see.NCCL, numbered=True)]


@pytest.mark.parametrize("kind", [see.profiler, see.inspector, see.nccl_log, nsys])
def test_numbers_of_one_kind_match_on_both_ranks(kind):
    rows = two(kind, kind)
    found = instances(rows, resolve(rows))
    assert len(found) == 24
    assert all({m for _, m in x} == {"exact"} and len({t for t, _ in x}) == 1 for x in found)


def test_profiler_and_inspector_have_the_library_s_numbers():
    rows = two(see.profiler, see.inspector)
    found = instances(rows, resolve(rows))
    assert [len({t for t, _ in x}) for x in found] == [1] * 24


@pytest.mark.parametrize(
    ("first", "second"),
    [(see.profiler, see.nccl_log), (see.inspector, nsys), (see.nccl_log, nsys)],
)
def test_numbers_that_are_counted_apart_match_nothing(first, second):
    """A log loses lines, and the library launches groups in another order than they were called."""
    rows = two(first, second)
    assert instances(rows, resolve(rows)) == []
    ids = [r["collective_id"] for r in resolve(rows).collectives.to_pylist()]
    assert len(set(ids)) == len(rows)


def test_a_joined_row_has_the_numbers_that_its_sources_name_says():
    """The profiler's, which then are none: a log's would be taken for the library's."""
    ops = see.operations(steps=4, ops=OPS)
    views = see.profiler(ops)
    for row in views:
        row["seq"] = None
    table = see.table("collectives", [*views, *see.nccl_log(ops)])
    clocks = joining.shifts.clocks_of(table, see.ranks(0, clock="process"))
    view = joining.rows.read(table, clocks)
    groups = joining.rows.Groups(view)
    groups.link(*(np.flatnonzero(view.kind == k) for k in (0, 1)))
    merged = joining.merge.merge(table, view, groups)
    assert set(merged.table["source"].to_pylist()) == {"profiler+nccl-log"}
    assert merged.table["seq"].to_pylist() == [None] * len(ops)


@pytest.mark.parametrize("op", [None, "unknown"])
def test_what_an_unknown_operation_counts_is_not_known(op):
    rows = two(see.profiler, see.profiler)
    for row in rows:
        row["op"] = op
        row["in_bytes"] = row["out_bytes"] = 64
    assert instances(rows, resolve(rows)) == []


def test_an_unknown_operation_is_no_other_communicator_s():
    """Lanes are told apart though an operation has no name: one more than the last of another."""
    names = ["nccl-000000000000000a", "nccl-000000000000000b"]
    rows = []
    for rank in (0, 1):
        for k, (comm, op) in enumerate([(names[0], "all_reduce"), (names[1], None)]):
            rows.append({
                "truth": k, "rank": rank, "comm": comm, "op": op, "seq": 3, "source": "profiler",
                "event_id": 10 * rank + k, "group_size": 2,
            })  # fmt: skip
    table, ranks = see.table("collectives", rows), see.ranks(0, 1, clock="process")
    order, read = matching.participations.read(
        table, ranks, matching.hosts.clock_domains(ranks), names.copy()
    )  # fmt: skip
    assert len(order) == 4
    assert len(set(read.lane.tolist())) == 2
