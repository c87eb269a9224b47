"""Lateness by step and its slope, on arrivals whose answers are worked out by hand."""

from __future__ import annotations

import pytest


def arrivals(part, behind: list[int], transfer_ns: int = 10):
    """Three ranks, one all-reduce of 1000 bytes a step; rank 2 comes so much after the others."""
    rows = []
    for step, late in enumerate(behind):
        t = 10_000 * step
        for r in range(3):
            start = t + (late if r == 2 else 0)
            end = t + max(late, 0) + transfer_ns
            rows.append(
                part(r, start, end, collective_id=step, step=step, in_bytes=1000, out_bytes=1000)
            )
    return rows


def trend(con, rank: int, columns: str) -> list[tuple]:
    return con.execute(
        f"SELECT {columns} FROM lateness_trend WHERE rank = {rank} ORDER BY step"
    ).fetchall()


def test_a_rank_that_comes_later_and_later_while_bandwidth_holds(open_job, one_host, part):
    con = open_job(ranks=one_host(0, 1, 2), collectives=arrivals(part, [0, 10, 20, 30, 40]))
    assert trend(con, 2, "step, lateness_ns, collectives, slope_ns_per_step") == [
        (0, 0, 1, 10.0), (1, 10, 1, 10.0), (2, 20, 1, 10.0), (3, 30, 1, 10.0), (4, 40, 1, 10.0),
    ]  # fmt: skip
    # 1000 bytes * 4/3 in 10 ns, step for step
    gbps = trend(con, 2, "busbw_transfer_gbps, busbw_slope_gbps_per_step")
    assert gbps == [(pytest.approx(1000 * 4 / 3 / 10), pytest.approx(0))] * 5
    assert trend(con, 0, "lateness_ns, slope_ns_per_step") == [(0, 0.0)] * 5


def test_one_odd_step_does_not_make_a_trend(open_job, one_host, part):
    # pairs (0, 4), (1, 5), (2, 6): slopes 10, 10, -235
    behind = [0, 10, 1000, 30, 40, 50, 60]
    con = open_job(ranks=one_host(0, 1, 2), collectives=arrivals(part, behind))
    assert set(trend(con, 2, "slope_ns_per_step, slope_error_ns_per_step")) == {(10.0, 0.0)}


def test_the_error_is_from_how_the_pairs_scatter(open_job, one_host, part):
    # pairs (0, 3), (1, 4), (2, 5): slopes 8, 10, 14; median 10, MAD 2
    behind = [0, 0, 0, 24, 30, 42]
    con = open_job(ranks=one_host(0, 1, 2), collectives=arrivals(part, behind))
    expected = pytest.approx((10.0, 1.2533 * 1.4826 * 2 / 3**0.5))
    assert trend(con, 2, "slope_ns_per_step, slope_error_ns_per_step")[0] == expected


def test_the_step_is_the_mean_over_its_collectives(open_job, one_host, part):
    rows = [
        part(r, t + late * (r == 2), t + late + 5, collective_id=i, step=7)
        for i, (t, late) in enumerate([(0, 0), (100, 0), (200, 30), (300, 70)])
        for r in range(3)
    ]
    con = open_job(ranks=one_host(0, 1, 2), collectives=rows)
    assert trend(con, 2, "lateness_ns, median_lateness_ns, collectives, slope_ns_per_step") == [
        (25, 0, 4, None)
    ]


def test_two_steps_have_a_slope_and_no_error(open_job, one_host, part):
    con = open_job(ranks=one_host(0, 1, 2), collectives=arrivals(part, [0, 10]))
    assert trend(con, 2, "slope_ns_per_step, slope_error_ns_per_step") == [(10.0, None)] * 2


def test_a_rank_alone_and_what_is_outside_steps_have_no_rows(open_job, one_host, part):
    con = open_job(
        ranks=one_host(0, 1),
        collectives=[
            part(0, 0, 10, step=1),
            part(0, 20, 30, collective_id=2), part(1, 25, 30, collective_id=2),
        ],
    )  # fmt: skip
    assert con.execute("SELECT count(*) FROM lateness_trend").fetchall() == [(0,)]
    assert open_job().execute("SELECT count(*) FROM lateness_trend").fetchall() == [(0,)]
