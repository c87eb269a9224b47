"""Matching of participations without times, and of numbers that count each operation for itself."""

import importlib.util
import random
from pathlib import Path

import pytest
from retime.ingest import matching
from retime.ingest.matching import hosts

spec = importlib.util.spec_from_file_location("simulated", Path(__file__).with_name("simulated.py"))
sim = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sim)
FOUR = ((0, 1, 2, 3),)
TWO_OPS = [sim.Op("nccl-00000000000000aa", FOUR), sim.Op("nccl-00000000000000aa", FOUR,
                                                         "all_gather")]  # fmt: skip


def untimed(job, ranks):
    for row in job.rows:
        if row["rank"] in ranks:
            row.update(start_ns=None, end_ns=None)
    for row in job.ranks:
        if row["rank"] in ranks:
            row.update(start_ns=None, end_ns=None, clock="none")
    return job


def matched(job):
    out = matching.resolve(**job.tables())
    assert sim.wrong(job, out) == []
    found = sim.instances(job, out)
    return out, sorted((len(v), v[0]["match"]) for v in found.values())


def test_rows_without_times_match_by_number():
    job = untimed(sim.simulate([sim.Op("w", FOUR), sim.Op("w", FOUR, "all_gather")], ranks=4), {2})
    out, found = matched(job)
    assert found == [(4, "exact")] * 12
    assert out.clocks == "one-host"
    errors = {r["rank"]: r["clock_error_ns"] for r in out.ranks.to_pylist()}
    assert errors == {0: 0, 1: 0, 2: None, 3: 0}


def test_a_job_without_times_matches_by_number_and_has_no_clocks():
    out, found = matched(untimed(sim.simulate([sim.Op("w", FOUR)], ranks=4), {0, 1, 2, 3}))
    assert found == [(4, "exact")] * 6
    assert out.clocks == "untimed"
    assert "clocks_unaligned" not in {p.code for p in out.problems}


def test_without_numbers_only_what_has_times_matches():
    job = sim.simulate([sim.Op("w", FOUR)], ranks=4, numbered=False)
    _, found = matched(untimed(job, {3}))
    assert found == [(1, "partial")] * 6 + [(3, "partial")] * 6


def test_the_lowest_rank_without_times_is_not_the_clock_that_others_are_tied_to():
    job = sim.simulate([sim.Op("w", FOUR)], ranks=4, per_host=1, offset_ns=(0, 7, 900, 40_000))
    out, found = matched(untimed(job, {0}))
    assert found == [(4, "exact")] * 6
    assert out.clocks == "aligned"
    assert [r["clock_error_ns"] is None for r in out.ranks.to_pylist()] == [True] + [False] * 3


def by_function(job):
    """The job numbered as the communication library does: each operation for itself."""
    counts = {}
    for row in job.rows:
        key = (row["comm"], row["rank"], row["op"])
        row["seq"] = counts[key] = counts.get(key, -1) + 1
    return job


@pytest.mark.parametrize("times", [True, False])
def test_numbers_that_count_each_operation_match_within_it(times):
    job = by_function(sim.simulate(TWO_OPS, ranks=4))
    for row in job.rows:
        row["dtype"] = None
        if not times:
            row["in_bytes"] = row["out_bytes"] = None
    out, found = matched(job if times else untimed(job, {0, 1, 2, 3}))
    assert found == [(4, "exact")] * 12
    assert len(set(out.collectives["collective_id"].to_pylist())) == 12
    shuffled = sim.Job(random.Random(1).sample(job.rows, len(job.rows)), job.ranks, job.comms)
    ids = {r["event_id"]: r["collective_id"] for r in out.collectives.to_pylist()}
    again = matching.resolve(**shuffled.tables()).collectives.to_pylist()
    assert {r["event_id"]: r["collective_id"] for r in again} == ids


def test_a_row_left_beside_the_timed_one_of_its_number_does_not_take_its_place():
    job = sim.simulate([sim.Op("w", FOUR)], ranks=4)
    beside = [
        {**r, "start_ns": None, "end_ns": None, "event_id": r["event_id"] + (1 << 30),
         "truth": r["truth"] + 1000, "source": "flight-recorder"}
        for r in job.rows if r["rank"] == 0
    ]  # fmt: skip
    job = job._replace(rows=beside + job.rows)
    _, found = matched(job)
    assert found == [(1, "partial")] * 6 + [(4, "exact")] * 6


def test_ranks_of_one_host_with_clocks_of_their_own_are_aligned_like_hosts():
    job = sim.simulate([sim.Op("w", FOUR)], ranks=4, per_host=1, offset_ns=(0, 7 * sim.S))
    for row in job.ranks:
        row |= {"host": "one", "clock": "process"}
    out, found = matched(job)
    assert found == [(4, "exact")] * 6
    assert out.clocks == "aligned"
    offsets = out.ranks["clock_offset_ns"].to_pylist()
    assert abs(offsets[1] - offsets[0] - 7 * sim.S) < sim.MS
    assert hosts.clock_domains(sim.table("ranks", job.ranks)).tolist() == [0, 1, 2, 3]
