"""Overlap, step breakdown, idle gaps and kernel stats on timelines worked out by hand."""

from __future__ import annotations

import pytest


@pytest.fixture
def timeline(open_job, one_host, event, part):
    """One step [10, 100) of rank 0, whose all-reduce 20-50 is ready when rank 1 starts at 40."""
    return open_job(
        ranks=one_host(0, 1),
        steps=[{"rank": 0, "step": 3, "start_ns": 10, "end_ns": 100}],
        collectives=[part(0, 20, 50, event_id=2), part(1, 40, 50, event_id=102)],
        events=[
            event(0, 1, "kernel", 10, 30, category="gemm", correlation=1, stream=7),
            event(0, 2, "kernel", 20, 50, category="comm", correlation=2, stream=9),
            event(0, 3, "memcpy", 45, 60, correlation=3, stream=7),
            event(0, 4, "kernel", 70, 80, category="gemm", correlation=4, stream=7),
            event(0, 5, "kernel", 85, 90, category="gemm", correlation=5, stream=7),
            event(0, 14, "runtime", 65, 68, correlation=4, thread="t"),
            event(0, 15, "runtime", 69, 70, correlation=5, thread="t"),
            # neither is work of the device
            event(0, 20, "gpu_annotation", 10, 100, stream=7),
            event(0, 21, "sync", 60, 70, stream=7),
            event(1, 102, "kernel", 40, 50, category="comm", stream=9),
        ],
    )


def test_every_nanosecond_of_a_step_has_one_class(timeline):
    rows = timeline.execute(
        "SELECT step, class, ns FROM step_breakdown WHERE rank = 0 ORDER BY class"
    ).fetchall()
    assert rows == [
        (3, "compute", 25),  # 10-20, 70-80, 85-90
        (3, "compute_with_comm", 10),  # 20-30
        (3, "exposed_memcpy", 10),  # 50-60
        (3, "exposed_transfer", 10),  # 40-50, with or without the copy
        (3, "exposed_wait", 10),  # 30-40
        (3, "idle_launch_bound", 10),  # 60-70: launched at 65
        (3, "idle_unknown", 10),  # 90-100: nothing follows
        (3, "idle_waiting_for_stream", 5),  # 80-85: launched at 69
    ]


def test_overlap_is_a_union_met_by_a_union(timeline):
    assert timeline.execute("FROM overlap WHERE rank = 0").fetchall() == [
        ("j", 0, 3, 30, 35, 10, 20, 10 / 30)
    ]
    assert timeline.execute("FROM overlap WHERE rank = 1").fetchall() == [
        ("j", 1, None, 10, 0, 0, 10, 0.0)
    ]


def test_gaps_have_a_before_an_after_and_a_launch(timeline):
    assert timeline.execute("FROM idle_gaps WHERE rank = 0 ORDER BY gap").fetchall() == [
        ("j", 0, 3, 0, 60, 10, "idle_launch_bound", "memcpy3", "kernel4", 65),
        ("j", 0, 3, 1, 80, 5, "idle_waiting_for_stream", "kernel4", "kernel5", 69),
        ("j", 0, 3, 2, 90, 10, "idle_unknown", "kernel5", None, None),
    ]


def test_gaps_are_cut_at_steps_and_told_by_what_the_host_did(open_job, one_host, event):
    con = open_job(
        ranks=one_host(0),
        steps=[
            {"rank": 0, "step": 1, "start_ns": 0, "end_ns": 100},
            {"rank": 0, "step": 2, "start_ns": 100, "end_ns": 200},
        ],
        events=[
            event(0, 1, "kernel", 0, 50),
            event(0, 2, "kernel", 130, 150, correlation=2),
            event(0, 3, "kernel", 180, 190, correlation=3),
            event(0, 4, "kernel", 250, 260, correlation=4),
            # launched at 120, after a synchronisation that held the thread until 55
            event(0, 10, "runtime", 10, 55, name="cudaStreamSynchronize", thread="t"),
            event(0, 12, "runtime", 120, 125, correlation=2, thread="t"),
            # launched at 175: 18 of the 25 since the gap began went to the data loader
            event(0, 30, "annotation", 152, 170, name="enumerate(DataLoader)#x", thread="t"),
            event(0, 13, "runtime", 175, 176, correlation=3, thread="t"),
            # launched at 195, where neither explains it; another thread's calls do not count
            event(0, 31, "runtime", 190, 194, name="cudaDeviceSynchronize", thread="u"),
            event(0, 14, "runtime", 195, 196, correlation=4, thread="t"),
        ],
    )
    rows = con.execute(
        "SELECT step, start_ns, dur_ns, class, before, after FROM idle_gaps ORDER BY 2"
    )
    assert rows.fetchall() == [
        (1, 50, 50, "idle_waiting_for_host", "kernel1", "kernel2"),
        (2, 100, 30, "idle_waiting_for_host", "kernel1", "kernel2"),
        (2, 150, 30, "idle_data_loading", "kernel2", "kernel3"),
        (2, 190, 10, "idle_launch_bound", "kernel3", "kernel4"),
        (None, 200, 50, "idle_launch_bound", "kernel3", "kernel4"),
    ]
    sums = con.execute("SELECT step, sum(ns) FROM step_breakdown GROUP BY step ORDER BY step")
    assert sums.fetchall() == [(1, 100), (2, 100), (None, 60)]


def test_a_short_visit_to_the_data_loader_is_not_data_loading(open_job, one_host, event):
    con = open_job(
        ranks=one_host(0),
        events=[
            event(0, 1, "kernel", 0, 50),
            event(0, 2, "kernel", 100, 150, correlation=2),
            event(0, 9, "annotation", 60, 70, name="enumerate(DataLoader)#x", thread="t"),
            event(0, 12, "runtime", 90, 95, correlation=2, thread="t"),
        ],
    )
    assert con.execute("SELECT class, dur_ns FROM idle_gaps").fetchall() == [
        ("idle_launch_bound", 50)
    ]


def test_loading_is_what_its_names_say_and_adds_up_over_ranges(open_job, one_host, event):
    # The launch at 910 comes 820 after the gap began: two ranges of 300 each (one of them holds
    # another) are more than half of that; one alone is not.
    def rows(*loads):
        return [
            event(0, 1, "kernel", 0, 90),
            event(0, 2, "kernel", 920, 950, correlation=2),
            event(0, 12, "runtime", 910, 915, correlation=2, thread="t"),
            *(event(0, 20 + i, "annotation", a, b, name=name, thread="t")
              for i, (a, b, name) in enumerate(loads)),
        ]  # fmt: skip

    def classes(*loads):
        con = open_job(ranks=one_host(0), events=rows(*loads))
        return con.execute("SELECT class, dur_ns FROM idle_gaps").fetchall()

    loader = "enumerate(DataLoader)#x"
    two = [(100, 400, loader), (150, 200, loader), (500, 800, "batch-generator")]
    assert classes(*two) == [("idle_data_loading", 830)]
    assert classes(*two[:2]) == [("idle_launch_bound", 830)]
    assert classes((50, 800, "batch-generator")) == [("idle_data_loading", 830)]


def test_a_step_without_any_work_is_idle_throughout(open_job, one_host):
    con = open_job(ranks=one_host(0), steps=[{"rank": 0, "step": 1, "start_ns": 5, "end_ns": 9}])
    assert con.execute("FROM step_breakdown").fetchall() == [("j", 0, 1, "idle_unknown", 4)]
    assert con.execute("FROM overlap").fetchall() == [("j", 0, 1, 0, 0, 0, 0, None)]


def test_operations_that_share_a_kernel_move_bytes_from_the_first_on(
    open_job, one_host, event, part
):
    # one kernel 0-100 carries two operations, ready at 80 and at 30
    con = open_job(
        ranks=one_host(0, 1),
        collectives=[
            part(0, 0, 100, event_id=1, coalesced=2),
            part(1, 80, 100, event_id=9),
            part(0, 0, 100, event_id=1, coalesced=2, collective_id=2),
            part(1, 30, 100, event_id=8, collective_id=2),
        ],
        events=[event(0, 1, "kernel", 0, 100, category="comm")],
    )
    rows = con.execute("SELECT class, ns FROM step_breakdown WHERE rank = 0 ORDER BY class")
    assert rows.fetchall() == [("exposed_transfer", 70), ("exposed_wait", 30)]


def test_a_rank_without_gpu_is_measured_on_its_host(open_job, one_host, event, part):
    # gloo's own thread carries the collective 30-60; the operator that started it is no compute,
    # and neither is a copy that gloo makes inside
    con = open_job(
        ranks=one_host(0, 1),
        collectives=[part(0, 30, 60, event_id=1), part(1, 50, 60, event_id=101)],
        events=[
            event(0, 1, "annotation", 30, 60, name="gloo:all_reduce", thread="gloo"),
            event(0, 2, "host_op", 35, 58, name="aten::copy_", thread="gloo"),
            event(0, 3, "host_op", 0, 40, name="aten::mm", thread="main"),
            event(0, 4, "host_op", 5, 10, name="aten::empty", thread="main"),
            event(0, 5, "host_op", 41, 43, name="c10d::allreduce_", thread="main"),
            event(0, 6, "host_op", 41, 43, name="record_param_comms", thread="main"),
        ],
    )
    assert con.execute("FROM overlap WHERE rank = 0").fetchall() == [
        ("j", 0, None, 30, 40, 10, 20, 10 / 30)
    ]
    rows = con.execute("SELECT class, ns FROM step_breakdown WHERE rank = 0 ORDER BY class")
    assert rows.fetchall() == [
        ("compute", 30),
        ("compute_with_comm", 10),
        ("exposed_transfer", 10),
        ("exposed_wait", 10),
    ]


def test_kernel_stats_counts_by_name(open_job, one_host, event):
    con = open_job(
        ranks=one_host(0),
        events=[
            *(event(0, i, "kernel", 0, d, name="a", category="gemm") for i, d in enumerate((1, 9))),
            *(event(0, i, "kernel", 0, i, name="b", category="comm") for i in range(1, 101)),
            event(0, 200, "memcpy", 0, 4, name="Memcpy HtoD", category="copy"),
            event(0, 201, "host_op", 0, 4),
        ],
    )
    assert con.execute("FROM kernel_stats ORDER BY name").fetchall() == [
        ("j", 0, "Memcpy HtoD", "memcpy", "copy", 1, 4, 4, 4),
        ("j", 0, "a", "kernel", "gemm", 2, 10, 1, 9),
        ("j", 0, "b", "kernel", "comm", 100, 5050, 50, 99),
    ]


def test_what_one_rank_saw_of_many_is_neither_wait_nor_transfer(open_job, one_host, event, part):
    con = open_job(
        ranks=one_host(0),
        comms=[{"comm": "w", "dim": "dp", "size": 4}],
        collectives=[part(0, 0, 30, event_id=1, op="all_reduce", in_bytes=8, out_bytes=8)],
        events=[
            event(0, 1, "kernel", 0, 30, category="comm"),
            # a kernel that no participation speaks of
            event(0, 2, "kernel", 40, 50, category="comm"),
        ],
    )
    assert con.execute("SELECT class, ns FROM step_breakdown ORDER BY class").fetchall() == [
        ("exposed_comm_unsplit", 40),
        ("idle_unknown", 10),
    ]
    tax = "SELECT wait_ns, transfer_ns, tau_share, proxy_tau_share, unsplit_ns FROM sync_tax"
    assert con.execute(tax).fetchall() == [(None, None, None, None, 30)]
    speed = "SELECT busbw_transfer_gbps, algbw_transfer_gbps, busbw_gbps > 0 FROM bandwidth"
    assert con.execute(speed).fetchall() == [(None, None, True)]
    assert con.execute("SELECT wait_known, wait_ns, transfer_ns FROM waits").fetchall() == [
        (False, 0, 30)
    ]
