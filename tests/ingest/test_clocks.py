"""Clocks of hosts: known skews, drifts and jitter come back within the errors that are stated."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from retime.ingest import matching
from retime.ingest.matching import clocks


def beside(name):
    """A helper module in this folder (tests are not a package)."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sim = beside("simulated")
US, MS, S = sim.US, sim.MS, sim.S
WORLD8 = (tuple(range(8)),)
SKEWS = (0, 50 * MS, -50 * MS, 12_345_678)
DRIFTS = (0.0, 20.0, -20.0, 7.0)


def rank_row(resolved, rank):
    return next(r for r in resolved.ranks.to_pylist() if r["rank"] == rank)


def on_job_clock(resolved, job, rank, local_ns):
    """The documented correction: offset at the middle of the trace, drift around it."""
    row = rank_row(resolved, rank)
    host = [r for r in job.ranks if r["host"] == row["host"]]
    anchor = (min(r["start_ns"] for r in host) + max(r["end_ns"] for r in host)) // 2
    drift = row["clock_drift_ppm"] or 0.0
    return local_ns + row["clock_offset_ns"] - round(drift * 1e-6 * (local_ns - anchor))


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_skews_and_drifts_of_four_hosts_come_back_within_the_stated_error(numbered, seed):
    program = [
        sim.Op("w", WORLD8),
        sim.Op("tp", ((0, 1), (2, 3), (4, 5), (6, 7)), "all_gather", 1 << 16, 500 * US, 40 * US),
        sim.Op("dp", ((0, 2, 4, 6), (1, 3, 5, 7)), "reduce_scatter", 1 << 22),
    ]
    job = sim.simulate(
        program, ranks=8, per_host=2, steps=60, step_gap_ns=500 * MS, offset_ns=SKEWS,
        drift_ppm=DRIFTS, numbered=numbered, seed=seed,
    )  # fmt: skip
    out = matching.resolve(**job.tables())
    assert out.clocks == "aligned"
    assert sim.wrong(job, out) == []
    assert {r["match"] for v in sim.instances(job, out).values() for r in v} == {
        "exact" if numbered else "order"
    }
    for rank in range(8):
        row = rank_row(out, rank)
        assert row["clock_error_ns"] < 100 * US
        host = rank // 2
        for true_ns in (1 * S, 15 * S, 29 * S):
            read = sim.local(true_ns, host, SKEWS, DRIFTS)
            reference = sim.local(true_ns, 0, SKEWS, DRIFTS)
            error = on_job_clock(out, job, rank, read) - reference
            assert abs(error) <= max(row["clock_error_ns"], 1), (rank, true_ns, error)
    assert rank_row(out, 1)["clock_offset_ns"] == 0
    assert rank_row(out, 1)["clock_error_ns"] == 0
    assert rank_row(out, 1)["clock_drift_ppm"] is None
    assert rank_row(out, 4)["clock_drift_ppm"] == pytest.approx(-20, abs=3)


def test_a_chain_of_hosts_is_tied_through_its_links():
    # hosts 0-1, 1-2 and 2-3 share collectives, 0 and 3 share none
    program = [sim.Op(f"c{i}", ((i, i + 1),)) for i in range(3)]
    job = sim.simulate(program, ranks=4, per_host=1, steps=20, offset_ns=SKEWS)
    out = matching.resolve(**job.tables())
    assert out.clocks == "aligned"
    errors = []
    for rank in range(4):
        row = rank_row(out, rank)
        assert abs(row["clock_offset_ns"] - SKEWS[rank]) <= row["clock_error_ns"]
        errors.append(row["clock_error_ns"])
    assert errors[0] == 0
    assert max(errors) < 100 * US


def test_hosts_that_nothing_ties_are_named_and_left_alone():
    program = [sim.Op("a", ((0, 1),)), sim.Op("b", ((2, 3),))]
    job = sim.simulate(program, ranks=4, per_host=1, offset_ns=SKEWS)
    out = matching.resolve(**job.tables())
    assert out.clocks == "partly-aligned"
    assert [rank_row(out, r)["clock_error_ns"] is None for r in range(4)] == [
        False, False, True, True,
    ]  # fmt: skip
    assert [rank_row(out, r)["clock_offset_ns"] for r in (2, 3)] == [0, 0]
    said = [p for p in out.problems if p.code == "clocks_unaligned"]
    assert len(said) == 1
    assert "2, 3" in said[0].message
    # still matched: by number it needs no clocks
    assert {r["match"] for v in sim.instances(job, out).values() for r in v} == {"exact"}


def test_one_host_needs_no_correction():
    job = sim.simulate([sim.Op("w", WORLD8)], ranks=8)
    out = matching.resolve(**job.tables())
    assert out.clocks == "one-host"
    assert out.ranks["clock_offset_ns"].to_pylist() == [0] * 8
    assert out.ranks["clock_error_ns"].to_pylist() == [0] * 8


def test_no_rank_ends_before_the_last_one_starts_on_the_common_clock():
    job = sim.simulate([sim.Op("w", WORLD8)], ranks=8, per_host=2, steps=40, offset_ns=SKEWS)
    out = matching.resolve(**job.tables())
    for rows in sim.instances(job, out).values():
        ready = max(on_job_clock(out, job, r["rank"], r["start_ns"]) for r in rows)
        first = min(on_job_clock(out, job, r["rank"], r["end_ns"]) for r in rows)
        assert ready <= first


def test_outliers_do_not_pull_an_offset():
    # one collective in five ends 3 ms late on domain 1
    n = 100
    instance = np.repeat(np.arange(n), 2)
    domain = np.tile([0, 1], n)
    start = np.repeat(np.arange(n) * 10 * MS, 2)
    end = start + 5 * MS
    end[1::10] += 3 * MS
    start[1::2] += 7 * MS
    end[1::2] += 7 * MS
    found = clocks.estimate(instance, domain, start, end, np.zeros(2, np.int64))
    assert found.component.tolist() == [0, 0]
    assert abs(found.offset_ns[1] + 7 * MS) < 10 * US


def long_and_short(n_long, n_short, lag_ns, odd_ns=0):
    """Two domains, the second 7 ms behind: it ends long collectives `lag_ns` later."""
    took = np.array([200 * MS] * n_long + [1 * MS] * n_short)
    lag = np.array([lag_ns] * n_long + [0] * n_short)
    lag[-1] += odd_ns
    at = np.arange(len(took)) * 300 * MS
    rng = np.random.default_rng(5)
    ends = [at + took, at + took + lag - 7 * MS]
    ends = [e + rng.integers(-20 * US, 20 * US, len(at)) for e in ends]
    instance = np.tile(np.arange(len(took)), 2)
    domain = np.repeat([0, 1], len(took))
    end = np.concatenate(ends)
    return clocks.estimate(instance, domain, end - np.tile(took, 2), end, np.zeros(2, np.int64))


def test_the_ends_of_short_collectives_tell_more_than_those_of_long_ones():
    found = long_and_short(24, 6, 3 * MS)
    assert abs(found.offset_ns[1] - 7 * MS) < 200 * US
    assert abs(found.offset_ns[1] - 7 * MS) < found.error_ns[1]


def test_one_short_collective_that_ends_oddly_does_not_pull_an_offset():
    found = long_and_short(24, 6, 0, odd_ns=50 * MS)
    assert abs(found.offset_ns[1] - 7 * MS) < 100 * US


def test_weighted_medians_are_of_each_group():
    groups, middle = clocks._group_median(
        np.array([7, 7, 7, 3, 3, 3, 3]), np.array([5.0, 1.0, 9.0, 1.0, 2.0, 3.0, 4.0]),
        np.array([1.0, 1.0, 10.0, 1e-12, 1e-12, 1e-12, 1e-12]),
    )  # fmt: skip
    assert groups.tolist() == [3, 7]
    assert middle.tolist() == [2.0, 9.0]


def test_nothing_in_nothing_out():
    empty = np.empty(0, np.int64)
    found = clocks.estimate(empty, empty, empty, empty, empty)
    assert len(found.offset_ns) == 0
