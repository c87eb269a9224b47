"""Many jobs beside each other: late hosts, slower fabric, slower kernels, a line a job."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

import pytest
from retime.queries import loader

from .conftest import write

MONDAY = 1_772_409_600 * 10**9
"""2026-03-02, 00:00 UTC."""
DAY = 86_400 * 10**9
SECOND = 10**9


def ranks(start: int, *hosts: str, source: str = "recorded", device: str = "H100") -> list[dict]:
    common = {"start_ns": start, "end_ns": start + 1000, "host_source": source}
    clock = {"clock": "host", "clock_offset_ns": 0, "clock_error_ns": 0, "device_name": device}
    return [{"rank": r, "host": h} | common | clock for r, h in enumerate(hosts)]


def reduced(start: int, id: int, end: int, *starts: int, op: str = "all_reduce", **more: Any):
    """Participations in one collective of 1,000 bytes on comm w, each rank from its start on."""
    one = {"collective_id": id, "comm": "w", "op": op, "match": "exact", "in_bytes": 1000}
    return [
        {"rank": r, "start_ns": start + s, "end_ns": start + end} | one | more
        for r, s in enumerate(starts)
    ]


def comm(n: int) -> list[dict]:
    return [{"comm": "w", "ranks": list(range(n)), "size": n, "dim": "dp"}]


@pytest.fixture
def fleet(tmp_path: Path):
    """Three jobs. n2 is late by 100 in each; in b, n3 is late by 20 once as well.

    a on a Monday and b on the Tuesday move 1,000 bytes in 100 ns, c on the Monday after in 125.
    """
    tuesday, next_monday = MONDAY + DAY + SECOND, MONDAY + 7 * DAY
    jobs = {
        "a": {
            "ranks": ranks(MONDAY, "n1", "n2"),
            "comms": comm(2),
            "collectives": reduced(MONDAY, 1, 200, 0, 100),
        },
        "b": {
            "ranks": ranks(tuesday, "n2", "n3"),
            "comms": comm(2),
            "collectives": [
                *reduced(tuesday, 1, 200, 100, 0),
                *reduced(tuesday, 2, 420, 300, 320),
            ],
        },
        "c": {
            "ranks": ranks(next_monday, "n1", "n2"),
            "comms": comm(2),
            "collectives": reduced(next_monday, 1, 225, 0, 100),
        },
    }

    def connect(**more: dict):
        made = {j: write(tmp_path / j, t) for j, t in {**jobs, **more}.items()}
        return loader.connect(made, threads=1)

    return connect


def test_a_host_that_is_late_again_and_again(fleet):
    rows = fleet().execute(
        "SELECT host, jobs, jobs_compared, jobs_latest, jobs_latest_expected, "
        "round(p_value, 9), round(p_value_any, 9), "
        "jobs_first_rank, jobs_latest_first_rank, wait_caused_ns, wait_share, "
        "median_lateness_ns, times_last, times_within_error, first_seen_ns, last_seen_ns "
        "FROM fleet_hosts ORDER BY host"
    )
    tuesday, monday = MONDAY + DAY + SECOND, MONDAY + 7 * DAY
    assert rows.fetchall() == [
        ("n1", 2, 2, 0, 1.0, 1.0, 1.0, 2, 0, 0, 0.0, 0, 0, 0, MONDAY, monday),
        # each of its three jobs has two hosts: by chance 1/2 * 1/2 * 1/2, for any of three 3/8
        ("n2", 3, 3, 3, 1.5, 0.125, 0.375, 1, 1, 300, 300 / 320, 100, 3, 0, MONDAY, monday),
        ("n3", 1, 1, 0, 0.5, 1.0, 1.0, 0, 0, 20, 20 / 120, 0, 1, 0, tuesday, tuesday),
    ]


def test_a_host_in_each_of_its_jobs(fleet):
    rows = fleet().execute(
        "SELECT job, host, ranks, ranks_compared, has_first_rank, participations, times_last, "
        "wait_caused_ns, job_wait_ns, median_lateness_ns, is_latest, chance "
        "FROM fleet_host_jobs WHERE job <> 'c' ORDER BY ALL"
    )
    # the median start of two is the lower: n2 is 100 behind it, and in its second collective 0
    assert rows.fetchall() == [
        ("a", "n1", 1, 1, True, 1, 0, 0, 100, 0, False, 0.5),
        ("a", "n2", 1, 1, False, 1, 1, 100, 100, 100, True, 0.5),
        ("b", "n2", 1, 1, True, 2, 1, 100, 120, 0, True, 0.5),
        ("b", "n3", 1, 1, False, 2, 1, 20, 120, 0, False, 0.5),
    ]


def test_names_that_were_inferred_are_no_host_of_another_job(fleet):
    inferred = {
        "ranks": ranks(MONDAY, "n1", "n2", source="inferred"),
        "collectives": reduced(MONDAY, 1, 200, 100, 0),
    }
    con = fleet(d=inferred)
    assert con.execute("SELECT sum(jobs) FROM fleet_hosts").fetchall() == [(6,)]
    assert con.execute("SELECT count(*) FROM fleet_host_jobs WHERE job = 'd'").fetchall() == [(0,)]


def test_a_job_in_which_nobody_can_say_who_was_latest_decides_nothing(fleet):
    def one(job_ranks: list[dict], rows: list[dict]):
        con = fleet(z={"ranks": job_ranks, "collectives": rows})
        return con.execute(
            "SELECT host, is_latest, chance, wait_caused_ns, times_within_error "
            "FROM fleet_host_jobs WHERE job = 'z' ORDER BY host"
        ).fetchall()

    late = reduced(MONDAY, 1, 200, 0, 100)
    unsure = [r | {"clock_error_ns": 500} for r in ranks(MONDAY, "n1", "n2")]
    assert one(unsure, late) == [("n1", None, None, 0, 0), ("n2", None, None, 0, 1)]
    strange = [r | {"host": r["host"] + "x"} for r in unsure]
    assert one(strange, late)[1] == ("n2x", None, None, 0, 1)
    ask = "SELECT jobs_compared, p_value, p_value_any FROM fleet_hosts WHERE host = 'n2x'"
    con = fleet(z={"ranks": strange, "collectives": late})
    assert con.execute(ask).fetchall() == [(0, None, None)]
    # a pipeline's schedule makes somebody last: no host's fault
    sent = reduced(MONDAY, 1, 200, 0, 100, op="send_recv", peer=None)
    sent = [r | {"peer": 1 - r["rank"]} for r in sent]
    assert one(ranks(MONDAY, "n1", "n2"), sent) == [
        ("n1", None, None, 0, 0), ("n2", None, None, 0, 0),
    ]  # fmt: skip
    # one host: nobody to compare with
    assert one(ranks(MONDAY, "n1", "n1"), late) == [("n1", None, None, 100, 0)]
    # a third rank's host has no name of its own
    nameless = [*ranks(MONDAY, "n1", "n2"), {**ranks(MONDAY, "x")[0], "rank": 2, "host": None}]
    three = reduced(MONDAY, 1, 200, 0, 100, 50)
    assert [row[1] for row in one(nameless, three)] == [None, None]


def test_ranks_of_a_host_share_its_chance(fleet):
    con = fleet(z={
        "ranks": ranks(MONDAY, "n1", "n1", "n1", "n2"),
        "collectives": reduced(MONDAY, 1, 200, 0, 10, 20, 120),
    })  # fmt: skip
    rows = con.execute(
        "SELECT host, ranks, chance, is_latest, wait_caused_ns, median_lateness_ns "
        "FROM fleet_host_jobs WHERE job = 'z' ORDER BY host"
    )
    # with the last but one they would have started at 20: 100 of each of three ranks' waits;
    # behind the median start, 10, they are -10, 0 and 10
    assert rows.fetchall() == [
        ("n1", 3, 0.75, False, 0, 0), ("n2", 1, 0.25, True, 300, 110),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("k", "n", "p", "expected"),
    [(2, 3, 0.5, 0.5), (3, 3, 1 / 3, 1 / 27), (0, 5, 0.2, 1.0), (1, 2, 1.0, 1.0), (1, 2, 0.0, 0.0),
     (600, 1000, 0.5, 1.364232e-10)],
)  # fmt: skip
def test_the_binomial_tail(k, n, p, expected):
    con = loader.connect({})
    ((got,),) = con.execute(f"SELECT _at_least({k}, {n}, {p}::DOUBLE)").fetchall()
    exact = sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))
    assert got == pytest.approx(expected, rel=1e-6)
    assert got == pytest.approx(exact, rel=1e-9)


def test_no_comparison_has_no_probability():
    con = loader.connect({})
    assert con.execute("SELECT _at_least(0, 0, NULL)").fetchall() == [(None,)]


def test_fabric_that_is_slower_this_week(fleet):
    rows = fleet().execute(
        "SELECT per, bucket, device_name, dim, op, size_class, n_ranks, n_hosts, jobs, "
        "collectives, busbw_transfer_gbps, lowest_gbps, highest_gbps, earlier_jobs, earlier_gbps, "
        "earlier_lowest_gbps, round(change, 9) FROM fleet_fabric ORDER BY per, bucket"
    )
    what = ("H100", "dp", "all_reduce", "<4KiB", 2, 2)
    first, second = datetime.date(2026, 3, 2), datetime.date(2026, 3, 9)
    # 1,000 bytes in 100 ns are 10 GB/s; the factor of two ranks is 1
    assert rows.fetchall() == [
        ("day", first, *what, 1, 1, 10, 10, 10, 0, None, None, None),
        ("day", datetime.date(2026, 3, 3), *what, 1, 2, 10, 10, 10, 1, 10, 10, 0),
        ("day", second, *what, 1, 1, 8, 8, 8, 2, 10, 10, -0.2),
        ("week", first, *what, 2, 3, 10, 10, 10, 0, None, None, None),
        ("week", second, *what, 1, 1, 8, 8, 8, 2, 10, 10, -0.2),
    ]


def test_a_job_counts_once_however_many_collectives_it_has(fleet):
    start = MONDAY + 8 * DAY
    many = [row for i in range(5) for row in reduced(start, i, 50 + 1000 * i, *[1000 * i] * 2)]
    few = {"ranks": ranks(start, "n4", "n5"), "comms": comm(2)}
    con = fleet(
        many={**few, "collectives": many},
        one={**few, "collectives": reduced(start, 1, 100, 0, 0)},
        other={**few, "collectives": reduced(start, 1, 200, 0, 0)},
    )
    rows = con.execute(
        "SELECT jobs, collectives, busbw_transfer_gbps FROM fleet_fabric "
        "WHERE per = 'day' AND bucket = '2026-03-10'"
    )
    assert rows.fetchall() == [(3, 7, 10)]  # of 20, 10 and 5


def test_fabric_needs_every_rank_of_a_collective(fleet):
    half = {
        "ranks": ranks(MONDAY, "n1", "n2"),
        "comms": comm(4),
        "collectives": reduced(MONDAY, 1, 200, 0, 100, group_size=4),
    }
    con = fleet(z=half)
    assert con.execute("SELECT DISTINCT n_ranks FROM fleet_fabric").fetchall() == [(2,)]


def test_kernels_that_are_slower_on_a_host(fleet, event):
    def kernels(slow: int, *durations: int) -> list[dict]:
        return [
            event(r, 10 * r + i, "kernel", 0, d + slow * i, name="gemm", category="gemm")
            for r, d in enumerate(durations)
            for i in range(3)
        ]

    con = fleet(
        d={"ranks": ranks(MONDAY, "n1", "n2", "n3"), "events": kernels(0, 100, 130, 110)},
        e={"ranks": ranks(MONDAY, "n2", "n3"), "events": kernels(1, 119, 99)},
        alone={"ranks": ranks(MONDAY, "n2", "n2"), "events": kernels(0, 1, 2)},
    )
    rows = con.execute(
        "SELECT host, name, category, jobs, launches, median_ns, others_median_ns, "
        "round(ratio, 6), jobs_slowest, round(p_value, 9), excess_ns "
        "FROM fleet_kernels ORDER BY host"
    )
    assert rows.fetchall() == [
        ("n1", "gemm", "gemm", 1, 3, 100, 120, round(100 / 120, 6), 0, 1.0, -60),
        # 130 against the median 105 of 100 and 110, then 120 against 100: chances 1/3 and 1/2
        ("n2", "gemm", "gemm", 2, 6, 125, 102.5, round((130 / 105 + 1.2) / 2, 6), 2,
         round((5 / 12) ** 2, 9), 135),
        ("n3", "gemm", "gemm", 2, 6, 105, 117.5, round((110 / 115 + 100 / 120) / 2, 6), 0, 1.0,
         -75),
    ]  # fmt: skip


def test_communication_is_no_kernel_of_a_host(fleet, event):
    comms = [
        event(r, r, "kernel", 0, 100 + r, name="ncclKernel", category="comm") for r in range(2)
    ]
    con = fleet(d={"ranks": ranks(MONDAY, "n1", "n2"), "events": comms})
    assert con.execute("SELECT count(*) FROM fleet_kernels").fetchall() == [(0,)]


def test_a_line_a_job(tmp_path, event):
    t = MONDAY
    comm_kernel = {"category": "comm", "stream": 9}
    starts = {0: 100, 1: 200}
    events = [
        row
        for r, s in starts.items()
        for row in (
            event(r, 10 * r, "kernel", t, t + s, category="gemm", stream=7),
            event(r, 10 * r + 1, "kernel", t + s, t + 300, **comm_kernel),
        )
    ]
    parts = [
        row | {"event_id": 10 * row["rank"] + 1, "step": 0}
        for row in reduced(t, 1, 300, starts[0], starts[1])
    ]
    edges = [(0, 400), (400, 600), (600, 800)]
    steps = [
        {"rank": r, "step": i, "start_ns": t + a, "end_ns": t + b}
        for r in starts
        for i, (a, b) in enumerate(edges)
    ]
    full = {
        "jobs": [{"world_size": 4, "created_at_ns": t + DAY, "clocks": "one-host"}],
        "ranks": ranks(t, "n1", "n1"),
        "steps": steps,
        "events": events,
        "comms": comm(2),
        "collectives": parts,
    }
    no_steps = {**full, "steps": [], "ranks": ranks(0, "n1", None, device=None)}  # type: ignore
    con = loader.connect({
        "empty": write(tmp_path / "empty", {"jobs": [{"created_at_ns": 5}]}),
        "full": write(tmp_path / "full", full),
        "no steps": write(tmp_path / "no", {k: v for k, v in no_steps.items() if v}),
    })  # fmt: skip
    rows = con.execute("FROM fleet_jobs ORDER BY job").fetchall()
    nothing = (None,) * 7
    assert rows == [
        ("empty", 5, "ingest", 0, None, None, None, 0, None, None, None, *nothing[1:], None, 0,
         None),
        # of 2 x 800 ns: rank 0 computes 100, waits 100; rank 1 computes 200; both move 100
        ("full", t, "trace", 2, 4, 1, "H100", 3, 267, 200, "steps", 300 / 1600, 100 / 1600,
         200 / 1600, 0, 0, 1000 / 1600, 100 / 300, 2, "one-host"),
        # 600 ns of trace, no idle; a clock that counts from 0 says no day
        ("no steps", t + DAY, "ingest", 2, 4, None, None, 0, None, None, "trace", 0.5, 100 / 600,
         200 / 600, 0, 0, 0, 100 / 300, 2, "one-host"),
    ]  # fmt: skip
