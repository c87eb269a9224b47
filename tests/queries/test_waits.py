"""Waits and what is summed from them, on participations whose answers are worked out by hand."""

from __future__ import annotations

import pytest

WAITS = "SELECT rank, wait_ns, transfer_ns, wait_min_proxy_ns, is_last, ready_known, clock_error_ns"


def waits(con, order: str = "rank") -> list[tuple]:
    return con.execute(f"{WAITS} FROM waits ORDER BY {order}").fetchall()


def test_barrier_like_waits_for_the_last_to_start(open_job, one_host, part):
    # rank 2 starts last, at 30; rank 1 ends before that and so only waits
    con = open_job(
        ranks=one_host(0, 1, 2),
        collectives=[part(0, 10, 50), part(1, 0, 25), part(2, 30, 52)],
    )
    assert waits(con) == [
        (0, 20, 20, 18, False, True, 0),
        (1, 25, 0, 3, False, True, 0),
        (2, 0, 22, 0, True, True, 0),
    ]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        # the root starts at 20: rank 0 waits 20 for it, rank 2 (which came later) for nobody
        ("broadcast", [(0, 20, 30, True), (1, 0, 30, True), (2, 0, 10, True)]),
        ("scatter", [(0, 20, 30, True), (1, 0, 30, True), (2, 0, 10, True)]),
        # the root waits for rank 2, the others for nobody
        ("reduce", [(0, 0, 50, True), (1, 20, 10, True), (2, 0, 10, True)]),
        ("gather", [(0, 0, 50, True), (1, 20, 10, True), (2, 0, 10, True)]),
        # everybody waits for rank 2, at 40
        ("all_to_all", [(0, 40, 10, True), (1, 20, 10, True), (2, 0, 10, True)]),
    ],
)
def test_rooted_operations_wait_for_the_root_or_the_root_for_all(
    open_job, one_host, part, op, expected
):
    con = open_job(
        ranks=one_host(0, 1, 2),
        collectives=[part(r, s, 50, op=op, root=1) for r, s in ((0, 0), (1, 20), (2, 40))],
    )
    rows = con.execute("SELECT rank, wait_ns, transfer_ns, ready_known FROM waits ORDER BY rank")
    assert rows.fetchall() == expected


def test_a_broadcast_whose_root_left_no_trace_has_no_known_wait(open_job, one_host, part):
    con = open_job(
        ranks=one_host(0, 2),
        collectives=[part(0, 0, 50, op="broadcast", root=1, group_size=3)],
    )
    assert waits(con) == [(0, 0, 50, 0, True, False, 0)]


def test_send_and_recv_wait_for_each_other(open_job, one_host, part):
    con = open_job(
        ranks=one_host(0, 1, 2),
        collectives=[
            part(0, 0, 60, op="send", peer=1),
            part(1, 40, 60, op="recv", peer=0),
            part(2, 0, 9, op="send", peer=3, collective_id=2, match="partial"),
        ],
    )
    assert waits(con) == [
        (0, 40, 20, 40, False, True, 0),
        (1, 0, 20, 0, True, True, 0),
        (2, 0, 9, 0, True, False, 0),
    ]
    assert con.execute(
        "SELECT op, n_ranks, n_seen FROM collective_instances ORDER BY collective_id"
    ).fetchall() == [("send_recv", 2, 2), ("send", 2, 1)]


def group(part, rank, start, end, *pairs):
    """Rows of a kernel that exchanges with several peers: `pairs` are (collective_id, peer)."""
    return [
        part(rank, start, end, op="send_recv", collective_id=i, peer=p, event_id=rank,
             group_size=4, coalesced=2 * len(pairs))
        for i, p in pairs
    ]  # fmt: skip


def test_pairs_of_one_communicator_do_not_wait_for_each_other(open_job, one_host, part):
    con = open_job(
        ranks=one_host(0, 1, 2, 3),
        collectives=[
            *group(part, 0, 0, 10, (1, 1)), *group(part, 1, 2, 10, (1, 0)),
            *group(part, 2, 30, 42, (2, 3)), *group(part, 3, 31, 42, (2, 2)),
        ],
    )  # fmt: skip
    rows = con.execute("SELECT rank, wait_ns, ready_known, n_ranks, n_seen FROM waits ORDER BY 1")
    assert rows.fetchall() == [
        (0, 2, True, 2, 2), (1, 0, True, 2, 2), (2, 1, True, 2, 2), (3, 0, True, 2, 2),
    ]  # fmt: skip


def test_a_kernel_with_two_peers_waits_for_the_later_and_counts_once(open_job, one_host, part):
    # ranks in a line; 0 and 1 wait for what they exchange with, not for 3
    con = open_job(
        ranks=one_host(0, 1, 2, 3),
        collectives=[
            *group(part, 0, 0, 15, (1, 1)),
            *group(part, 1, 10, 35, (1, 0), (2, 2)),
            *group(part, 2, 30, 45, (2, 1), (3, 3)),
            *group(part, 3, 40, 45, (3, 2)),
        ],
    )
    rows = con.execute(
        "SELECT rank, collective_id, wait_ns, transfer_ns, is_last, ready_known FROM waits "
        "ORDER BY rank"
    )
    assert rows.fetchall() == [
        (0, 1, 10, 5, False, True), (1, 2, 20, 5, False, True), (2, 3, 10, 5, False, True),
        (3, 3, 0, 5, True, True),
    ]  # fmt: skip
    assert con.execute("SELECT sum(wait_ns), sum(transfer_ns) FROM sync_tax").fetchall() == [
        (40, 20)
    ]
    assert con.execute(
        "SELECT rank, collectives, times_last, wait_caused_ns, wait_ns FROM late_ranks ORDER BY 1"
    ).fetchall() == [(0, 1, 0, 0, 10), (1, 2, 1, 10, 20), (2, 2, 1, 20, 10), (3, 1, 1, 10, 0)]


def test_a_kernel_of_which_one_peer_left_no_trace_has_no_known_wait(open_job, one_host, part):
    con = open_job(
        ranks=one_host(0, 1),
        collectives=[
            *group(part, 0, 10, 15, (1, 1)), *group(part, 1, 0, 15, (1, 0), (2, 2)),
        ],
    )  # fmt: skip
    rows = con.execute("SELECT rank, wait_ns, ready_known FROM waits ORDER BY rank")
    assert rows.fetchall() == [(0, 0, True), (1, 10, False)]


def test_a_group_with_nobody_knows_whom_has_no_known_wait(open_job, one_host, part):
    alone = part(0, 0, 9, op="send_recv", comm=None, match="partial", coalesced=2)
    con = open_job(ranks=one_host(0), collectives=[alone])
    assert waits(con) == [(0, 0, 9, 0, True, False, 0)]


def test_missing_ranks_make_ready_a_lower_bound(open_job, one_host, part):
    con = open_job(
        ranks=one_host(0, 1),
        collectives=[part(r, 10 * r, 40, group_size=4, match="partial") for r in (0, 1)],
    )
    rows = con.execute("SELECT wait_ns, ready_known, n_ranks, n_seen, match FROM waits ORDER BY 1")
    assert rows.fetchall() == [(0, False, 4, 2, "partial"), (10, False, 4, 2, "partial")]


def test_participations_that_nothing_matched_stand_alone(open_job, one_host, part):
    lone = {"collective_id": None, "match": None}
    con = open_job(
        ranks=one_host(0, 1), collectives=[part(0, 0, 50, **lone), part(1, 40, 50, **lone)]
    )
    assert [(r[1], r[2]) for r in waits(con)] == [(0, 50), (0, 10)]
    assert con.execute("FROM collective_instances").fetchall() == []
    assert con.execute("SELECT collectives FROM sync_tax").fetchall() == [(2,)]


def test_offsets_and_drift_put_hosts_on_one_clock(open_job, part):
    # host b is 1000 ns ahead in the middle of its trace (at 2,000,000) and gains 100 ppm, so at
    # 3,000,000 of its own it is 100 ns further ahead: 3,000,000 - 1000 - 100 = 2,998,900
    ranks = [
        {"rank": 0, "host": "a", "start_ns": 0, "end_ns": 4_000_000}
        | {"clock_offset_ns": 0, "clock_error_ns": 0},
        {"rank": 1, "host": "b", "start_ns": 1_000_000, "end_ns": 3_000_000}
        | {"clock_offset_ns": -1000, "clock_drift_ppm": 100.0, "clock_error_ns": 7},
    ]
    con = open_job(
        ranks=ranks,
        collectives=[part(0, 2_998_000, 2_999_900), part(1, 3_000_000, 3_001_000)],
    )
    assert waits(con) == [
        (0, 900, 1000, 900, False, True, 7),
        (1, 0, 1000, 0, True, True, 7),
    ]
    assert con.execute(
        "SELECT ready_ns, end_ns, skew_ns, clock_error_ns, last_rank, n_clocks "
        "FROM collective_instances"
    ).fetchall() == [(2_998_900, 2_999_900, 900, 7, 1, 1)]


def test_hosts_that_nothing_ties_together_are_not_compared(open_job, part):
    # ranks 0, 1 on host a (the reference), 2, 3 on host b, whose clock is somewhere else
    ranks = [{"rank": r, "host": "a", "clock_offset_ns": 0, "clock_error_ns": 0} for r in (0, 1)]
    ranks += [{"rank": r, "host": "b", "clock_offset_ns": 0} for r in (2, 3)]
    con = open_job(
        ranks=ranks,
        collectives=[
            part(0, 0, 100, in_bytes=8),
            part(1, 30, 100, in_bytes=8),
            part(2, 9000, 9070, in_bytes=8),
            part(3, 9010, 9070, in_bytes=8),
        ],
    )
    # waits within each host only; the proxy compares durations: the shortest is 60
    assert waits(con) == [
        (0, 30, 70, 40, None, False, 0),
        (1, 0, 70, 10, None, False, 0),
        (2, 10, 60, 10, None, False, 0),
        (3, 0, 60, 0, None, False, 0),
    ]
    assert con.execute(
        "SELECT wait_ns, n_clocks, ready_ns, transfer_ns, skew_ns, last_rank, clock_error_ns, "
        "algbw_gbps, busbw_transfer_gbps FROM collective_instances"
    ).fetchall() == [(40, 2, None, None, None, None, None, None, None)]


@pytest.mark.parametrize(
    ("op", "in_bytes", "out_bytes", "size", "bus_factor"),
    [
        ("all_reduce", 800, 800, 800, 1.5),
        ("all_gather", 200, 800, 800, 0.75),
        ("reduce_scatter", 800, 200, 800, 0.75),
        ("all_gather", 200, None, 800, 0.75),
        ("reduce_scatter", None, 200, 800, 0.75),
        ("all_to_all", 800, 800, 800, 0.75),
        ("broadcast", 800, 800, 800, 1.0),
        ("reduce", 800, 800, 800, 1.0),
        ("barrier", 4, 4, None, None),
        ("unknown", 800, 800, 800, None),
    ],
)
def test_bandwidth_counts_bytes_as_nccl_tests_does(
    open_job, one_host, part, op, in_bytes, out_bytes, size, bus_factor
):
    # 4 ranks, first start 0, ready 60, end 100: 800 bytes in 100 ns are 8 GB/s, in 40 ns 20 GB/s
    sizes = {"op": op, "root": 3, "in_bytes": in_bytes, "out_bytes": out_bytes}
    con = open_job(
        ranks=one_host(0, 1, 2, 3),
        collectives=[part(r, 20 * r, 100, **sizes) for r in range(4)],
    )
    got = con.execute(
        "SELECT bytes, algbw_gbps, busbw_gbps, busbw_transfer_gbps FROM collective_instances"
    ).fetchone()
    if size is None:
        assert got == (None, None, None, None)
    elif bus_factor is None:
        assert got == (800, 8.0, None, None)
    else:
        assert got == (size, 8.0, 8 * bus_factor, 20 * bus_factor)


def test_bandwidth_takes_medians_by_comm_op_and_size_class(open_job, one_host, part):
    # three all-reduces of 8000 bytes over 2 ranks (factor 1) in 1000, 2000 and 8000 ns
    rows = [
        part(r, 0, end, collective_id=i, in_bytes=8000, out_bytes=8000)
        for i, end in enumerate((1000, 2000, 8000))
        for r in (0, 1)
    ]
    net = {"rank": 0, "measured": True, "via": "NET/IB", "source": "profiler"}
    carried = [net | {"bytes": b, "collective_id": i} for i, b in ((0, 5), (0, 6), (2, 7))]
    con = open_job(
        ranks=one_host(0, 1), collectives=rows, transfers=carried,
        comms=[{"comm": "w", "dim": "dp", "size": 2}],
    )  # fmt: skip
    assert con.execute("FROM bandwidth").fetchall() == [
        ("j", "w", "dp", "all_reduce", "4KiB-64KiB", 2, 3, 24000, 4.0, 4.0, 4.0, 4.0, 8.0, 18)
    ]


def test_nics_carry_what_was_sent_over_the_network_by_one_source_a_rank(open_job, one_host, part):
    def carried(rank, n_bytes, via="NET/IB", source="profiler", **more):
        row = {"collective_id": 1, "measured": True, "direction": "send"}
        return row | {"rank": rank, "bytes": n_bytes, "via": via, "source": source} | more

    con = open_job(
        ranks=one_host(0, 1, 2),
        collectives=[part(r, 0, 100, in_bytes=8000, out_bytes=8000) for r in (0, 1, 2)],
        transfers=[
            # rank 0: 100 + 20 by the profiler, which the Inspector tells as well
            carried(0, 100), carried(0, 20, "NET"), carried(0, None),
            carried(0, 120, "NET", "inspector"),
            # what comes in went out elsewhere; links in a host and plans of a log carry nothing
            carried(0, 5000, direction="recv"), carried(0, 5000, "P2P/IPC"),
            carried(0, 5000, "SHM"), carried(0, 5000, None), carried(0, 5000, measured=False),
            carried(0, 5000, "NETHER"), carried(0, 5000, measured=None),
            # rank 1: the profiler saw what came in alone
            carried(1, 7, "NET", "inspector"), carried(1, 9, "NET/IB", "nsys"),
            carried(1, 5000, direction="recv"),
            # rank 2: Ascend says no direction
            carried(2, 1000, "RDMA", "ascend", direction=None),
            carried(2, 300, "RDMA/ROCE", "ascend", direction=None),
            carried(2, 5000, "HCCS", "ascend", direction=None),
            carried(2, 5000, "SDMA/HCCS", "ascend", direction=None),
        ],
    )  # fmt: skip
    assert con.execute("SELECT nic_bytes FROM bandwidth").fetchall() == [(120 + 7 + 1300,)]


def test_bytes_within_a_host_are_no_nics(open_job, one_host, part):
    link = {"rank": 0, "collective_id": 1, "measured": True, "bytes": 8, "source": "ascend"}
    con = open_job(
        ranks=one_host(0, 1),
        collectives=[part(r, 0, 100, in_bytes=8000, out_bytes=8000) for r in (0, 1)],
        transfers=[link | {"via": "HCCS"}],
    )
    assert con.execute("SELECT nic_bytes FROM bandwidth").fetchall() == [(None,)]


def test_size_classes_hold_their_lower_bound(open_job):
    con = open_job()
    edges = [0, 4095, 4096, 65535, 65536, 2**20 - 1, 2**20, 2**24, 2**28, None]
    got = con.execute(
        "SELECT size_class(unnest(?::BIGINT[]))", [edges]
    ).fetchall()  # fmt: skip
    assert [g[0] for g in got] == [
        "<4KiB", "<4KiB", "4KiB-64KiB", "4KiB-64KiB", "64KiB-1MiB", "64KiB-1MiB", "1MiB-16MiB",
        "16MiB-256MiB", ">=256MiB", "unknown",
    ]  # fmt: skip


def test_sync_tax_is_wait_over_duration_and_the_median_ranks_share(open_job, one_host, part):
    # waits 80, 60, 0 of durations 100, 80, 20: ranks' shares 0.8, 0.75, 0; together 140 / 200
    con = open_job(
        ranks=one_host(0, 1, 2),
        comms=[{"comm": "w", "dim": "dp", "size": 3}],
        collectives=[part(r, s, 100, in_bytes=4, out_bytes=4) for r, s in enumerate((0, 20, 80))],
    )
    assert con.execute("FROM sync_tax").fetchall() == [
        ("j", "dp", "all_reduce", "<4KiB", 140, 60, 0.7, 0.75, 0.7, 1, 0, 0)
    ]


def test_late_ranks_are_charged_for_what_only_they_caused(open_job, one_host, part):
    # collective 1: starts 0, 10, 50 of which the last costs each other 40 of its wait;
    # collective 2: starts 5, 0, 5: rank 0 and 2 tie, the lower is named, and it costs nobody
    starts = {1: (0, 10, 50), 2: (105, 100, 105)}
    con = open_job(
        ranks=one_host(0, 1, 2),
        collectives=[
            part(r, s, 70 if i == 1 else 170, collective_id=i)
            for i, at in starts.items()
            for r, s in enumerate(at)
        ],
    )
    rows = con.execute(
        "SELECT rank, collectives, times_last, last_share, wait_caused_ns, wait_ns, "
        "median_lateness_ns, times_within_error FROM late_ranks ORDER BY rank"
    ).fetchall()
    # medians of starts: 10 and 105; lateness of rank 0: -10 and 0, the lower of two
    assert rows == [
        (0, 2, 1, 0.5, 0, 50, -10, 0),
        (1, 2, 0, 0.0, 0, 45, -5, 0),
        (2, 2, 1, 0.5, 80, 0, 0, 0),
    ]


def test_sizes_without_a_sum_are_not_known(open_job, one_host, part):
    huge = 2**63 - 1
    con = open_job(
        ranks=one_host(0, 1),
        collectives=[
            part(r, 0, 100, in_bytes=huge, out_bytes=huge, collective_id=i, event_id=i)
            for r in (0, 1) for i in (1, 2)
        ],
        transfers=[
            {"collective_id": 1, "measured": True, "direction": "send", "rank": r, "bytes": huge,
             "via": "NET", "source": "profiler"} for r in (0, 1)
        ],
    )  # fmt: skip
    found = con.sql("SELECT collectives, bytes, nic_bytes FROM bandwidth").fetchall()
    assert found == [(2, None, None)]


def test_of_two_communicators_of_one_collective_the_first_by_name_is_told(open_job, one_host, part):
    con = open_job(
        ranks=one_host(0, 1),
        comms=[{"comm": "a", "size": 2}, {"comm": "b", "size": 2, "dim": "tp"}],
        collectives=[part(0, 0, 100, comm="b"), part(1, 5, 100, comm="a")],
    )
    rows = con.sql("SELECT comm, dim FROM collective_instances").fetchall()
    assert rows == [("a", None)]
