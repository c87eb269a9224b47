"""Participations that no source timed: counted where they were seen, never in a wait."""

import math


def rows(con, sql):
    return con.sql(sql).fetchall()


def test_an_untimed_rank_counts_as_seen_and_makes_waits_lower_bounds(open_job, one_host, part):
    more = {"group_size": 3, "in_bytes": 100, "out_bytes": 100}
    con = open_job(
        ranks=one_host(0, 1, 2),
        collectives=[
            part(0, 10, 60, **more), part(1, 30, 60, **more), part(2, None, None, **more),
        ],
    )  # fmt: skip
    assert rows(con, "SELECT rank, wait_ns, transfer_ns, ready_known, n_seen FROM waits "
                     "ORDER BY rank") == [(0, 20, 30, False, 3), (1, 0, 30, False, 3)]  # fmt: skip
    assert rows(
        con,
        "SELECT n_seen, first_start_ns, end_ns, wait_ns, last_rank, n_clocks "
        "FROM collective_instances",
    ) == [(3, 10, 60, 20, 1, 1)]


def test_one_timed_rank_of_two_says_nothing_about_its_wait(open_job, one_host, part):
    con = open_job(
        ranks=one_host(0, 1),
        collectives=[part(0, 10, 60, group_size=2), part(1, None, None, group_size=2)],
    )
    assert rows(con, "SELECT rank, wait_known FROM waits") == [(0, False)]
    assert rows(con, "SELECT n_seen, wait_ns, transfer_ns FROM collective_instances") == [
        (2, None, None)
    ]


def test_a_job_without_times_has_instances_without_times_and_nothing_else(open_job, one_host, part):
    con = open_job(
        ranks=one_host(0, 1),
        collectives=[
            part(r, None, None, in_bytes=64, out_bytes=64, group_size=2, comm="w", exec_ns=5,
                 event_id=r)
            for r in (0, 1)
        ],
    )  # fmt: skip
    (row,) = rows(con, "FROM collective_instances")
    names = [c[0] for c in con.sql("FROM collective_instances").description]
    got = dict(zip(names, row, strict=True))
    assert (got["n_seen"], got["n_ranks"], got["n_clocks"], got["bytes"]) == (2, 2, 0, 64)
    timed = ("first_start_ns", "ready_ns", "end_ns", "wait_ns", "transfer_ns", "algbw_gbps",
             "busbw_gbps", "last_rank", "skew_ns")  # fmt: skip
    assert [got[c] for c in timed] == [None] * len(timed)
    for view in ("waits", "late_ranks", "sync_tax", "bandwidth", "overlap", "step_breakdown",
                 "idle_gaps"):  # fmt: skip
        assert rows(con, f"FROM {view}") == []
    assert not any(isinstance(v, float) and math.isnan(v) for v in row)


def test_a_watchdogs_times_are_no_times(open_job, one_host, part):
    con = open_job(
        ranks=one_host(0, 1),
        collectives=[
            part(0, 10, 60, timing="watchdog"), part(1, 30, 90, timing="kernel"),
        ],
    )  # fmt: skip
    assert rows(con, "SELECT rank, end_ns FROM waits") == [(1, 90)]


def test_ranks_of_a_host_with_clocks_of_their_own_are_not_compared(open_job, one_host, part):
    ranks = [r | {"clock": "process", "clock_error_ns": None} for r in one_host(0, 1)]
    con = open_job(ranks=ranks, collectives=[part(0, 10, 60), part(1, 30, 60)])
    assert rows(con, "SELECT n_clocks, wait_ns, ready_ns FROM collective_instances") == [
        (2, 0, None)
    ]
    assert rows(con, "SELECT rank, wait_ns, ready_known FROM waits ORDER BY rank") == [
        (0, 0, False), (1, 0, False),
    ]  # fmt: skip


def test_their_waits_have_the_error_of_what_ties_them(open_job, one_host, part):
    ranks = [
        r | {"clock": "process", "clock_error_ns": 7 * r["rank"], "clock_offset_ns": 0}
        for r in one_host(0, 1)
    ]
    con = open_job(ranks=ranks, collectives=[part(0, 10, 60), part(1, 30, 60)])
    assert rows(con, "SELECT rank, wait_ns, clock_error_ns FROM waits ORDER BY rank") == [
        (0, 20, 7), (1, 0, 7),
    ]  # fmt: skip
