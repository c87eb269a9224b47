"""SMs that communication holds, and compute beside it, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import retime


def kernel(event_id, start, end, name="gemm", category="gemm", rank=0, **more):
    return {
        "rank": rank, "event_id": event_id, "kind": "kernel", "name": name, "category": category,
        "device": 0, "start_ns": start, "dur_ns": end - start, "grid_blocks": 64,
        "block_threads": 128,
    } | more  # fmt: skip


def comm(event_id, start, end, **more):
    return (
        kernel(event_id, start, end)
        | {"name": "nccl", "category": "comm", "grid_blocks": 24}
        | more
    )


def budget(con, columns="kernels, blocks, active_sms, total_ns, overlapped_ns"):
    return con.sql(f"SELECT {columns} FROM sm_budget ORDER BY name, comm").fetchall()


def test_blocks_are_sms_up_to_those_of_the_device(open_job):
    events = [comm(1, 0, 10), comm(2, 20, 30, grid_blocks=200)]
    con = open_job(events=events, ranks=[{"rank": 0, "n_sms": 132}])
    columns = "kernels, blocks, active_sms, sm_share, blocks_source"
    assert budget(con, columns) == [(2, 112.0, 78.0, (24 / 132 + 1) / 2, "grid")]


def test_compute_under_communication_is_counted_once(open_job):
    # Communication 0-100; compute 40-70 and 60-90 on two streams: 50 of it, then 120-150 without.
    events = [comm(1, 0, 100), kernel(2, 40, 70), kernel(3, 60, 90), kernel(4, 120, 150)]
    assert budget(open_job(events=events)) == [(1, 24.0, 24.0, 100, 50)]


def test_kernels_that_overlap_each_other_share_the_compute_beside_them(open_job):
    events = [comm(1, 0, 60), comm(2, 40, 100, name="other"), kernel(3, 50, 80)]
    con = open_job(events=events)
    assert budget(con, "name, total_ns, overlapped_ns") == [("nccl", 60, 10), ("other", 60, 30)]


def test_compute_counts_for_the_communication_that_it_ran_beside(open_job):
    # It ends as the second begins, and another one shares 60 with the second and 20 with the first.
    events = [comm(1, 0, 100), comm(2, 100, 200, name="second")]
    con = open_job(events=[*events, kernel(3, 0, 100)])
    assert budget(con, "name, compute_ns") == [("nccl", 100), ("second", 0)]
    con = open_job(events=[*events, kernel(3, 80, 160)])
    assert budget(con, "name, compute_ns") == [("nccl", 0), ("second", 80)]


def test_compute_that_began_before_all_communication_counts_beside_the_first(open_job):
    # 20 without any, then 45 beside it.
    events = [comm(1, 100, 200), comm(2, 150, 300, name="second"), kernel(3, 80, 145)]
    assert budget(open_job(events=events), "name, compute_ns") == [("nccl", 65), ("second", 0)]


def test_channels_stand_in_for_a_grid_that_is_not_known(open_job, part):
    events = [comm(1, 0, 10, grid_blocks=None)]
    con = open_job(events=events, collectives=[part(0, 0, 10, event_id=1, channels=8)])
    assert budget(con, "comm, blocks, blocks_source") == [("w", 8.0, "channels")]


def test_the_slowdown_compares_kernels_of_one_name_and_grid(open_job):
    # Alone 10 (three times), beside communication 15 (three times); another grid is another kernel.
    events = [comm(1, 1000, 1100)]
    events += [kernel(10 + i, 20 * i, 20 * i + 10) for i in range(3)]
    events += [kernel(20 + i, 1000 + 20 * i, 1015 + 20 * i) for i in range(3)]
    events += [kernel(30 + i, 200 + 5 * i, 203 + 5 * i, grid_blocks=8) for i in range(3)]
    con = open_job(events=events)
    assert budget(con, "compute_ns, compute_slowdown, compared") == [(45, 1.5, 3)]


def test_two_kernels_are_too_few_to_compare(open_job):
    events = [comm(1, 1000, 1100), kernel(2, 0, 10), kernel(3, 20, 30), kernel(4, 40, 50)]
    events += [kernel(20 + i, 1000 + 20 * i, 1015 + 20 * i) for i in range(2)]
    con = open_job(events=events)
    assert budget(con, "compute_ns, compute_slowdown, compared") == [(30, None, 0)]


def test_a_kernel_mostly_outside_is_neither_beside_nor_alone(open_job):
    events = [comm(1, 100, 200), kernel(2, 80, 110), kernel(3, 0, 10)]
    columns = "overlapped_ns, compute_ns, compute_slowdown"
    assert budget(open_job(events=events), columns) == [(10, 0, None)]


def test_a_job_without_communication_has_no_rows(open_job):
    assert budget(open_job(events=[kernel(1, 0, 10)])) == []


def test_overlap_of_the_bundled_job_is_that_of_the_overlap_view(demo_job: Path, tmp_path: Path):
    """Its communication kernels never overlap each other, so their parts add up to the whole."""
    wh = retime.open(tmp_path / "wh")
    wh.ingest([demo_job], job="demo")
    con = wh.connect("demo")
    ((parts, blocks),) = con.sql("SELECT sum(overlapped_ns), max(blocks) FROM sm_budget").fetchall()
    ((whole,),) = con.sql("SELECT sum(overlap_ns) FROM overlap").fetchall()
    assert parts == whole > 0
    # 24 is the `grid` of every NCCL kernel in the eight files.
    assert blocks == 24
    ((slowdown,),) = con.sql("SELECT max(compute_slowdown) FROM sm_budget").fetchall()
    assert slowdown == pytest.approx(2.2, abs=0.1)
