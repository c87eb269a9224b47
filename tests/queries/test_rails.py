"""Loads of rails by hand: derived from placement, measured, and what each may not claim."""

import math
import random

import pytest
from retime import Warehouse
from retime.queries import loader

from .conftest import write

MIB = 1 << 20


@pytest.fixture
def opened(open_job):
    """`open_job`, with `rail_load` computed once: most tests ask it several times."""

    def open_it(**tables):
        con = open_job(**tables)
        loader.materialise(con, "rail_load")
        return con

    return open_it


@pytest.fixture
def hosts():
    """`hosts(2, 8)`: ranks of two hosts (h0, h1) with eight GPUs each, on one clock."""

    def rows(n_hosts, n_local):
        return [
            {"rank": h * n_local + i, "host": f"h{h}", "local_rank": i, "start_ns": 0,
             "end_ns": 10**9, "clock_offset_ns": 0, "clock_error_ns": 0}
            for h in range(n_hosts) for i in range(n_local)
        ]  # fmt: skip

    return rows


def comm(n, name="w"):
    return [{"comm": name, "ranks": list(range(n)), "size": n}]


def loads(con, more="true"):
    """host, rail, sent, received, bytes of each row of `rail_load`."""
    return con.sql(f"""
        SELECT host, rail, sent_bytes, received_bytes, bytes FROM rail_load
        WHERE {more} ORDER BY ALL
    """).fetchall()


def all_reduce(part, n, size, **more):
    return [
        part(r, 0, 1000, in_bytes=size, out_bytes=size, group_size=n, event_id=r, **more)
        for r in range(n)
    ]


def test_one_continuous_ring_crosses_over_one_nic(opened, hosts, part):
    """DESIGN's figure: 192 MiB over 16 ranks of two hosts, 720 MiB in both directions."""
    ring = [{"kind": "ring", "comm": "w", "channel": 0, "rank": r, "peer_rank": (r + 1) % 16,
             "host": f"h{r // 8}"} for r in range(16)]  # fmt: skip
    nics = [{"kind": "nic", "host": f"h{h}", "device": "mlx5_0"} for h in (0, 1)]
    links = [
        {"kind": "link", "comm": "w", "channel": 0, "rank": a, "peer_rank": b,
         "host": f"h{a // 8}", "device": "mlx5_0", "via": "NET/IB/GDRDMA"}
        for a, b in ((7, 8), (8, 7), (15, 0), (0, 15))
    ]  # fmt: skip
    con = opened(
        ranks=hosts(2, 8), comms=comm(16), topology=[*ring, *nics, *links],
        collectives=all_reduce(part, 16, 192 * MIB, algo="ring"),
    )  # fmt: skip
    # An edge of the ring carries 2 * 15/16 * 192 = 360 MiB; two of them cross, one each way.
    assert loads(con) == [
        ("h0", 0, 360 * MIB, 360 * MIB, 720 * MIB),
        ("h1", 0, 360 * MIB, 360 * MIB, 720 * MIB),
    ]
    assert con.sql("SELECT DISTINCT nic, source, unit, collectives, is_best, how FROM rail_load"
    ).fetchall() == [
        ("mlx5_0", "derived", "bytes", 1, True, "ring, channels and NICs of the log")
    ]  # fmt: skip


def test_idle_nics_count(opened, hosts, part):
    """The same ring with eight NICs a host, of which it uses the fourth."""
    nics = [{"kind": "nic", "host": f"h{h}", "device": f"mlx5_{i}"}
            for h in (0, 1) for i in range(8)]  # fmt: skip
    ring = [{"kind": "ring", "comm": "w", "channel": 0, "rank": r, "peer_rank": (r + 1) % 16}
            for r in range(16)]  # fmt: skip
    links = [
        {"kind": "link", "comm": "w", "channel": 0, "rank": a, "peer_rank": b,
         "host": f"h{a // 8}", "device": "mlx5_3", "via": "NET/IB"}
        for a, b in ((7, 8), (8, 7), (15, 0), (0, 15))
    ]  # fmt: skip
    con = opened(
        ranks=hosts(2, 8), comms=comm(16), topology=[*ring, *nics, *links],
        collectives=all_reduce(part, 16, 192 * MIB),
    )  # fmt: skip
    used = [(h, 3, 360 * MIB, 360 * MIB, 720 * MIB) for h in ("h0", "h1")]
    assert loads(con, "bytes > 0") == used
    (row,) = con.sql("FROM rail_imbalance").pl().to_dicts()
    # Two of 16 carry all: max/mean 8, variance 7 means squared, Jain 2/16.
    assert row == {
        "job": "j", "step": None, "window_by": "tenth of the job", "window_start_ns": 0,
        "window_ns": 100, "source": "derived", "unit": "bytes", "n_rails": 16, "idle_rails": 14,
        "bytes": 1440 * MIB, "max_over_mean": 8, "cv": pytest.approx(math.sqrt(7)),
        "jain": 0.125, "busy_max_over_mean": 8, "busy_cv": pytest.approx(math.sqrt(7)),
        "busy_jain": 0.125, "busiest_host": "h0", "busiest_rail": 3, "busiest_nic": "mlx5_3",
        "is_best": True,
    }  # fmt: skip


def test_hierarchical_crosses_over_all_nics(opened, hosts, part):
    """DESIGN's figure: 384 MiB in both directions together, over eight NICs."""
    con = opened(
        ranks=hosts(2, 8), comms=comm(16),
        collectives=all_reduce(part, 16, 192 * MIB, algo="hierarchical"),
    )  # fmt: skip
    # A rank's shard is 24 MiB; a ring of two hosts sends it once each way.
    assert loads(con) == [
        (f"h{h}", i, 24 * MIB, 24 * MIB, 48 * MIB) for h in (0, 1) for i in range(8)
    ]
    assert con.sql("SELECT sum(bytes) FROM rail_load WHERE host = 'h0'").fetchall() == [
        (384 * MIB,)
    ]
    assert con.sql("SELECT max_over_mean, cv, jain FROM rail_imbalance").fetchall() == [(1, 0, 1)]


def test_a_ring_that_no_log_tells_goes_evenly_over_its_members(opened, hosts, part):
    con = opened(
        ranks=hosts(2, 2), comms=[{"comm": "w", "ranks": [0, 2, 3], "size": 3}],
        collectives=[
            part(r, 0, 10, op="all_gather", in_bytes=300, out_bytes=900, group_size=3, event_id=r)
            for r in (0, 2, 3)
        ],
    )  # fmt: skip
    # 2/3 of 900 bytes go in and out of each host: over one rail of h0, over two of h1.
    assert loads(con) == [
        ("h0", 0, 600, 600, 1200), ("h0", 1, 0, 0, 0),
        ("h1", 0, 300, 300, 600), ("h1", 1, 300, 300, 600),
    ]  # fmt: skip
    assert con.sql("SELECT DISTINCT how FROM rail_load ORDER BY 1").fetchall() == [
        ("idle",),
        ("ring assumed, evenly over members; one rail a local rank (assumed)",),
    ]
    (row,) = con.sql("SELECT max_over_mean, cv, jain FROM rail_imbalance").fetchall()
    # 1200, 0, 600, 600: mean 600, squares of deviations 360000 twice.
    assert row == pytest.approx((2, math.sqrt(0.5), 2400**2 / (4 * (1440000 + 2 * 360000))))


def test_only_the_channels_in_use_carry(opened, hosts, part):
    """Two channels, one over each NIC; a small operation uses the first alone."""
    orders = {0: [0, 1, 2, 3], 1: [1, 0, 3, 2]}
    ring = [
        {"kind": "ring", "comm": "log", "channel": c, "rank": o[i], "peer_rank": o[(i + 1) % 4]}
        for c, o in orders.items() for i in range(4)
    ]  # fmt: skip
    nics = [{"kind": "nic", "host": f"h{h}", "device": f"n{i}"} for h in (0, 1) for i in (0, 1)]
    # The log and the profile name the communicator differently; its members are the same.
    con = opened(
        ranks=hosts(2, 2), comms=comm(4) + comm(4, "log"), topology=ring + nics,
        collectives=all_reduce(part, 4, 1000, channels=1)
        + all_reduce(part, 4, 4000, channels=8, collective_id=2),
    )  # fmt: skip
    # 2 * 3/4: 1500 bytes on channel 0 (out at 1, in at 2, out at 3, in at 0); then 3000 on each.
    assert loads(con) == [
        ("h0", 0, 3000, 4500, 7500), ("h0", 1, 4500, 3000, 7500),
        ("h1", 0, 3000, 4500, 7500), ("h1", 1, 4500, 3000, 7500),
    ]  # fmt: skip
    assert con.sql("SELECT DISTINCT how FROM rail_load").fetchall() == [
        ("ring assumed, channels of the log, rails of the ranks",)
    ]


def test_a_tree_that_a_log_tells(opened, hosts, part):
    # 3 -> 2 -> 0 <- 1 with the edge 2 -> 0 between hosts.
    tree = [{"kind": "tree", "comm": "w", "channel": 0, "rank": a, "peer_rank": b}
            for a, b in ((3, 2), (2, 0), (1, 0))]  # fmt: skip
    con = opened(
        ranks=hosts(2, 2), comms=comm(4), topology=tree,
        collectives=all_reduce(part, 4, 1000, algo="tree"),
    )  # fmt: skip
    # The whole vector goes up and comes down.
    assert loads(con, "bytes > 0") == [("h0", 0, 1000, 1000, 2000), ("h1", 0, 1000, 1000, 2000)]


def test_an_uneven_all_to_all(opened, hosts, part):
    """Two rails a host; rank 1 sends nearly all it has to the other host."""
    splits = {0: [4, 4, 1, 1], 1: [0, 1, 7, 2], 2: [2, 2, 3, 3], 3: [0, 0, 0, 10]}
    got = {r: [splits[s][r] for s in range(4)] for r in range(4)}
    rows = [
        part(r, 0, 10, op="all_to_all", in_bytes=100 * sum(splits[r]),
             out_bytes=100 * sum(got[r]), in_splits=splits[r], out_splits=got[r], group_size=4,
             event_id=r)
        for r in range(4)
    ]  # fmt: skip
    con = opened(ranks=hosts(2, 2), comms=comm(4), collectives=rows)
    assert loads(con) == [
        ("h0", 0, 200, 200, 400), ("h0", 1, 900, 200, 1100),
        ("h1", 0, 400, 800, 1200), ("h1", 1, 0, 300, 300),
    ]  # fmt: skip
    (row,) = con.sql("SELECT max_over_mean, cv, jain, busiest_host, busiest_rail "
                     "FROM rail_imbalance").fetchall()  # fmt: skip
    # Mean 750; deviations 350, 350, 450, 450.
    deviation = math.sqrt((2 * 350**2 + 2 * 450**2) / 4)
    assert row[:2] == pytest.approx((1.6, deviation / 750))
    assert row[2] == pytest.approx(3000**2 / (4 * (400**2 + 1100**2 + 1200**2 + 300**2)))
    assert row[3:] == ("h1", 0)


def test_an_even_all_to_all_and_point_to_point(opened, hosts, part):
    rows = [
        part(r, 0, 10, op="all_to_all", in_bytes=400, out_bytes=400, group_size=4, event_id=r)
        for r in range(4)
    ]  # fmt: skip
    rows += [
        part(1, 20, 30, op="send", peer=2, in_bytes=50, collective_id=2, event_id=9),
        part(2, 20, 30, op="recv", peer=1, out_bytes=50, collective_id=2, event_id=10),
        part(0, 20, 30, op="send", peer=1, in_bytes=7, collective_id=3, event_id=11),
        part(1, 20, 30, op="recv", peer=0, out_bytes=7, collective_id=3, event_id=12),
    ]
    con = opened(ranks=hosts(2, 2), comms=comm(4), collectives=rows)
    assert con.sql("""
        SELECT host, rail, sum(sent_bytes), sum(received_bytes) FROM rail_load
        GROUP BY ALL ORDER BY ALL
    """).fetchall() == [
        ("h0", 0, 200, 200), ("h0", 1, 250, 200), ("h1", 0, 200, 250), ("h1", 1, 200, 200)
    ]  # fmt: skip


def test_a_gather_meets_at_its_root(opened, hosts, part):
    rows = [
        part(r, 0, 10, op="gather", root=0, in_bytes=100, out_bytes=400 if r == 0 else None,
             group_size=4, event_id=r)
        for r in range(4)
    ]  # fmt: skip
    con = opened(ranks=hosts(2, 2), comms=comm(4), collectives=rows)
    assert loads(con) == [
        ("h0", 0, 0, 200, 200), ("h0", 1, 0, 0, 0), ("h1", 0, 100, 0, 100), ("h1", 1, 100, 0, 100)
    ]  # fmt: skip


def test_windows_are_steps_where_there_are_steps(opened, hosts, part):
    steps = [{"rank": r, "step": s, "start_ns": s * 1000, "end_ns": s * 1000 + 1000}
             for r in (0, 1) for s in (1, 2)]  # fmt: skip
    rows = [
        part(r, start + 10 * r, start + 100, in_bytes=size, out_bytes=size, group_size=2,
             collective_id=i, step=step, event_id=10 * i + r)
        for i, (start, size, step) in enumerate(
            [(1000, 64, 1), (1050, 64, 1), (2000, 32, 2), (5000, 16, None)])
        for r in (0, 1)
    ]  # fmt: skip
    con = opened(ranks=hosts(2, 1), comms=comm(2), steps=steps, collectives=rows)
    assert con.sql("""
        SELECT step, window_by, window_start_ns, window_ns, bytes, busy_ns, collectives
        FROM rail_load WHERE host = 'h0' ORDER BY step NULLS LAST
    """).fetchall() == [
        # 1010 to 1100 and 1060 to 1150 are 140 ns of transfer.
        (1, "step", 1000, 1000, 256, 140, 2),
        (2, "step", 2000, 1000, 64, 90, 1),
        (None, "outside steps", None, None, 32, 90, 1),
    ]


def test_routing_counts_tokens(opened, hosts):
    def route(rank, to, tokens, token_class="real", step=3):
        return {"step": step, "layer": 0, "rank": rank, "expert": to, "expert_rank": to,
                "tokens": tokens, "token_class": token_class}  # fmt: skip

    con = opened(
        ranks=hosts(2, 2),
        routing=[route(0, 1, 500), route(0, 2, 40), route(1, 2, 30), route(3, 0, 10),
                 route(0, 3, 1000, "dropped"), route(None, 2, 9000)],
    )  # fmt: skip
    assert con.sql("""
        SELECT step, window_by, host, rail, unit, tokens, bytes, busy_ns FROM rail_load ORDER BY ALL
    """).fetchall() == [
        (3, "step", "h0", 0, "tokens", 50, None, None),
        (3, "step", "h0", 1, "tokens", 30, None, None),
        (3, "step", "h1", 0, "tokens", 70, None, None),
        (3, "step", "h1", 1, "tokens", 10, None, None),
    ]
    assert con.sql("SELECT max_over_mean, bytes, busy_cv FROM rail_imbalance").fetchall() == [
        (1.75, None, None)
    ]


@pytest.mark.parametrize("watched", [3, 4])
def test_the_two_are_never_added_and_measured_wins_where_it_sees_all(opened, hosts, part, watched):
    def moved(rank, direction, n_bytes, start, end, **more):
        return {"rank": rank, "direction": direction, "bytes": n_bytes, "start_ns": start,
                "end_ns": end, "measured": True, "via": "NET", "clock": "host",
                "collective_id": 1, "source": "profiler"} | more  # fmt: skip

    ours = [
        moved(0, "send", 300, 0, 40), moved(0, "recv", 290, 10, 50),
        # Single steps of the proxy: times on the wire.
        moved(0, "send", None, 0, 10), moved(0, "recv", None, 5, 20),
        moved(0, "recv", None, 30, 40),
        # Within the host, and what another source says of the same.
        moved(0, "send", 9999, 0, 40, via="P2P/IPC"),
        moved(0, "send", 300, 0, 40, source="inspector"),
        # What a log said of links is no measurement.
        moved(0, "send", 5000, 0, 40, measured=False, source="nccl-log"),
        moved(2, "send", 290, 0, 30), moved(2, "recv", 300, 0, 30),
    ]  # fmt: skip
    rows = [
        part(r, 0, 100, in_bytes=200, out_bytes=200, group_size=4, event_id=r,
             source="kineto+profiler" if r in (0, 1) or r == watched - 1 else "kineto")
        for r in range(4)
    ]  # fmt: skip
    steps = [{"rank": 0, "step": 1, "start_ns": 0, "end_ns": 200}]
    con = opened(ranks=hosts(2, 2), comms=comm(4), collectives=rows, transfers=ours, steps=steps)
    # Of rank 3, whose rail carried something, nothing is known unless the profiler was on in it.
    derived, measured = watched == 3, watched == 4
    idle = [("measured", "h1", 1, 3, 0, 0, 0, 0, True)] if measured else []
    assert con.sql("""
        SELECT source, host, rail, rank, sent_bytes, received_bytes, bytes, busy_ns, is_best
        FROM rail_load ORDER BY ALL
    """).fetchall() == [
        # 2 * 3/4 * 200 = 300 in and out of each host, by two members.
        *(("derived", f"h{r // 2}", r % 2, r, 150, 150, 300, 100, derived) for r in range(4)),
        ("measured", "h0", 0, 0, 300, 290, 590, 30, measured),
        # The profiler was on in rank 1, and saw nothing.
        ("measured", "h0", 1, 1, 0, 0, 0, 0, measured),
        ("measured", "h1", 0, 2, 290, 300, 590, 30, measured),
        *idle,
    ]  # fmt: skip
    assert con.sql("""
        SELECT source, n_rails, idle_rails, max_over_mean, is_best FROM rail_imbalance
        ORDER BY ALL
    """).fetchall() == [
        ("derived", 4, 0, 1, derived),
        ("measured", watched, watched - 2, watched / 2, measured),
    ]


def test_a_crumb_of_one_rank_is_not_the_window(opened, hosts, part):
    """Seven bytes that rank 0's proxy sent, of an all-reduce over four rails."""
    crumb = {"rank": 0, "host": "h0", "nic": "mlx0", "bytes": 7, "start_ns": 0, "end_ns": 50,
             "direction": "send", "measured": True, "via": "NET/IB", "source": "profiler",
             "collective_id": 1}  # fmt: skip
    steps = [{"rank": r, "step": 0, "start_ns": 0, "end_ns": 2000} for r in range(4)]
    con = opened(
        ranks=hosts(2, 2), comms=comm(4), collectives=all_reduce(part, 4, 4000, step=0),
        transfers=[crumb], steps=steps,
    )  # fmt: skip
    # 2 * 3/4 * 4000 in and out of each host, by two members. The NIC is rank 0's alone.
    assert con.sql("""
        SELECT source, host, rail, nic, rank, bytes, is_best FROM rail_load ORDER BY ALL
    """).fetchall() == [
        ("derived", "h0", 0, "mlx0", 0, 6000, True), ("derived", "h0", 1, None, 1, 6000, True),
        ("derived", "h1", 0, None, 2, 6000, True), ("derived", "h1", 1, None, 3, 6000, True),
        ("measured", "h0", 0, "mlx0", 0, 7, False),
    ]  # fmt: skip
    assert con.sql(
        "SELECT source, n_rails, bytes, is_best FROM rail_imbalance ORDER BY ALL"
    ).fetchall() == [("derived", 4, 24000, True), ("measured", 1, 7, False)]


def sampled(start, rank=None, end=None):
    return {"rank": rank, "host": "h0", "nic": "mlx5_0", "bytes": 1000, "start_ns": start,
            "end_ns": end or start + 100, "direction": "send", "measured": True, "via": "NET/IB",
            "source": "nsys"}  # fmt: skip


@pytest.mark.parametrize(
    ("samples", "sent"),
    [
        ([sampled(0), sampled(0)], 1000),
        # What the second one tells of the time that the first one leaves out: 1 ns of 100.
        ([sampled(0), sampled(1)], 1010),
        ([sampled(0, 0), sampled(1, 1)], 1000),
        # 250 ns at 10 bytes a ns, each half of it told twice.
        ([sampled(s) for s in (0, 50, 100, 150)], 2500),
        ([sampled(0), sampled(100)], 2000),
        ([sampled(0), sampled(10, end=60)], 1000),
    ],
)
def test_reports_of_one_host_tell_the_same_bytes(opened, hosts, samples, sent):
    con = opened(ranks=hosts(1, 2), transfers=samples)
    assert con.sql("SELECT sum(bytes), sum(sent_bytes) FROM rail_load").fetchall() == [(sent, sent)]


def test_ranks_of_one_host_read_the_same_counter(opened, hosts):
    def samples(rank, name, *values):
        return [{"rank": rank, "host": "h0", "device": "mlx5_0", "name": name, "time_ns": 100 * i,
                 "value": v} for i, v in enumerate(values)]  # fmt: skip

    counters = [*samples(1, "tx_bytes", 0, 1000), *samples(0, "tx_bytes", 0, 1000, 1500)]
    con = opened(ranks=hosts(1, 2), counters=counters)
    assert con.sql("SELECT nic, sum(sent_bytes) FROM rail_load GROUP BY ALL").fetchall() == [
        ("mlx5_0", 1500)
    ]


def test_counters_of_one_nic_are_not_added(opened, hosts):
    """The port's counts what the network device's leaves out."""
    counters = [
        {"host": "h0", "device": "mlx5_0", "name": name, "time_ns": t, "value": t * rate}
        for name, rate in (("tx_bytes", 1.0), ("tx_bytes_phy", 3.0)) for t in (0, 100)
    ]  # fmt: skip
    con = opened(ranks=hosts(1, 2), counters=counters)
    assert con.sql("SELECT sum(bytes) FROM rail_load").fetchall() == [(300,)]


def test_counters_of_nics_see_all_and_win_over_the_proxy(opened, hosts):
    def nic(name, direction, n_bytes, start):
        return {"host": "h0", "nic": name, "direction": direction, "bytes": n_bytes,
                "start_ns": start, "end_ns": start + 10, "measured": True, "via": "NET/IB",
                "clock": "host", "source": "nsys"}  # fmt: skip

    con = opened(
        ranks=hosts(1, 2),
        transfers=[
            nic("mlx5_10", "send", 100, 0), nic("mlx5_2", "recv", 30, 0),
            nic("mlx5_2", "send", 0, 5), nic("mlx5_10", "send", 100, 10),
            {"rank": 0, "bytes": 77, "start_ns": 0, "end_ns": 10, "measured": True, "via": "NET",
             "direction": "send", "source": "profiler", "clock": "host"},
        ],
    )  # fmt: skip
    assert con.sql("""
        SELECT nic, rail, rank, sum(sent_bytes), sum(received_bytes), sum(busy_ns), min(source)
        FROM rail_load GROUP BY ALL ORDER BY rail
    """).fetchall() == [
        ("mlx5_2", 0, 0, 0, 30, 10, "measured"), ("mlx5_10", 1, 1, 200, 0, 20, "measured")
    ]  # fmt: skip


def test_counters_that_only_grow(opened, hosts):
    def sample(name, time_ns, value):
        return {"host": "h0", "device": "mlx5_0", "name": name, "time_ns": time_ns, "value": value}

    con = opened(
        ranks=hosts(1, 1),
        counters=[
            sample("port_xmit_data", 0, 1000), sample("port_xmit_data", 10, 1100),
            # It was reset.
            sample("port_xmit_data", 20, 5), sample("port_xmit_data", 30, 30),
            sample("rx_bytes", 0, 7), sample("rx_bytes", 30, 47),
            sample("temperature", 0, 1), sample("temperature", 30, 90),
        ],
    )  # fmt: skip
    # Words of four bytes: 4 * (100 + 25).
    assert con.sql("""
        SELECT nic, sum(sent_bytes), sum(received_bytes), any_value(how) FROM rail_load GROUP BY ALL
    """).fetchall() == [("mlx5_0", 500, 40, "counters, NIC named by the source")]


def test_what_is_not_known_is_not_derived(opened, hosts, part):
    more = {"in_bytes": 64, "out_bytes": 64, "group_size": 4}
    rows = [
        part(0, 0, 10, event_id=1, **more | {"comm": "gone"}),
        part(0, 0, 10, event_id=2, op="send", collective_id=2, **more),
        part(0, 0, 10, event_id=3, algo="nvls", collective_id=3, **more),
        part(0, 0, 10, event_id=4, collective_id=None, **more),
        part(0, 0, 10, event_id=5, collective_id=5, group_size=4),
        part(0, 0, 10, event_id=6, collective_id=6, op="all_to_all", in_splits=[1, 2], **more),
        part(0, 0, 10, event_id=7, collective_id=7, op="barrier"),
    ]
    con = opened(ranks=hosts(2, 2), comms=comm(4), collectives=rows)
    assert con.sql("FROM rail_load").fetchall() == []
    assert con.sql("FROM rail_imbalance").fetchall() == []
    assert con.sql("""
        SELECT op, reason, operations, bytes FROM rail_left_out ORDER BY reason
    """).fetchall() == [
        ("all_reduce", "members or their hosts unknown", 1, 64),
        ("all_reduce", "no form for this operation under this algorithm", 1, 64),
        ("all_reduce", "not matched across ranks", 1, 64),
        ("send", "peer unknown", 1, 64),
        ("all_reduce", "size unknown", 1, None),
        ("all_to_all", "splits are cut off", 1, 64),
    ]


def test_one_host_and_no_job_have_no_derived_rails(opened, hosts, part):
    con = opened(ranks=hosts(1, 4), comms=comm(4), collectives=all_reduce(part, 4, 100))
    assert con.sql("FROM rail_load").fetchall() == []
    assert con.sql("FROM rail_left_out").fetchall() == []
    con = loader.connect({})
    for view in ("rail_load", "rail_imbalance", "rail_left_out"):
        assert con.sql(f"FROM {view}").fetchall() == []


def ingested(retime_traces, tmp_path, name, collectives):
    """The ranks, communicators and topology of a real log, with collectives made by hand."""
    wh = Warehouse(str(tmp_path / "wh"))
    wh.ingest([retime_traces / "nccl_logs" / name], job="log")
    files = {**wh.store.snapshot("log").files}
    con = loader.connect({"log": files})
    for view in ("rail_load", "rail_imbalance", "rail_left_out"):
        # A log tells links, and no operation that used them.
        assert con.sql(f"FROM {view}").fetchall() == []
    files |= write(tmp_path / "made", {"collectives": collectives(con)})
    con = loader.connect({"log": files})
    loader.materialise(con, "rail_load")
    return con


def made(comm, ranks, size, **more):
    row = {"collective_id": 1, "comm": comm, "op": "all_reduce", "match": "exact",
           "in_bytes": size, "out_bytes": size, "group_size": len(ranks)}  # fmt: skip
    return [{"rank": r, "event_id": r} | row | more for r in ranks]


def test_the_channels_of_a_real_log_of_two_hosts(retime_traces, tmp_path):
    """16 A100 on two hosts with four EFA adapters: eight channels, two over each adapter."""

    def rows(con):
        ((comm, ranks),) = con.sql("SELECT comm, ranks FROM comms").fetchall()
        return made(comm, ranks, 192 * MIB)

    con = ingested(retime_traces, tmp_path, "awsome-distributed-training", rows)
    # 720 MiB in both directions over each host's edge, as for one ring, now over four adapters.
    assert con.sql("""
        SELECT right(host, 1), rail, nic, sent_bytes, received_bytes, window_by, busy_ns
        FROM rail_load ORDER BY ALL
    """).fetchall() == [
        (h, i, f"AWS Libfabric/{i}", 90 * MIB, 90 * MIB, "job", None)
        for h in "12"
        for i in range(4)
    ]
    assert con.sql("SELECT DISTINCT how FROM rail_load").fetchall() == [
        ("ring assumed, channels and NICs of the log",)
    ]
    assert con.sql("SELECT max_over_mean, jain, busy_jain FROM rail_imbalance").fetchall() == [
        (1, 1, None)
    ]


def test_the_channels_of_a_real_log_of_sixteen_hosts(retime_traces, tmp_path):
    """64 V100 on 16 hosts with four adapters each, of which NCCL uses two."""

    def rows(con):
        found = con.sql("""
            SELECT comm, ranks FROM comms WHERE size IN (16, 64)
            QUALIFY row_number() OVER (PARTITION BY size ORDER BY comm) = 1 ORDER BY size
        """).fetchall()
        (one_a_host, few), (world, all_) = found
        return [
            *made(one_a_host, few, 16 << 20, step=1),
            *made(world, all_, 64 << 20, step=2, collective_id=2),
        ]

    con = ingested(retime_traces, tmp_path, "bigscience/gpt2-meg", rows)
    # One rank a host: 2 * 15/16 * 16 MiB in and out, both channels over the second adapter.
    assert con.sql("""
        SELECT nic, sent_bytes, received_bytes, count(*) FROM rail_load WHERE step = 1
        GROUP BY ALL ORDER BY ALL
    """).fetchall() == [
        ("hfi1_0", 0, 0, 16), ("hfi1_1", 30 * MIB, 30 * MIB, 16), ("hfi1_2", 0, 0, 16),
        ("hfi1_3", 0, 0, 16),
    ]  # fmt: skip
    assert con.sql("""
        SELECT step, n_rails, idle_rails, max_over_mean, jain FROM rail_imbalance ORDER BY step
    """).fetchall() == [(1, 64, 48, 4, 0.25), (2, 64, 32, 2, 0.5)]
    # The log cuts rings of more than 20 ranks: evenly over the adapters that the links name,
    # 2 * 63/64 * 64 MiB in and out of each host.
    assert con.sql("""
        SELECT nic, sent_bytes, received_bytes, count(*) FROM rail_load WHERE step = 2 AND bytes > 0
        GROUP BY ALL ORDER BY ALL
    """).fetchall() == [
        ("hfi1_1", 63 * MIB, 63 * MIB, 16), ("hfi1_3", 63 * MIB, 63 * MIB, 16)
    ]  # fmt: skip
    assert con.sql(
        "SELECT DISTINCT how FROM rail_load WHERE step = 2 AND bytes > 0"
    ).fetchall() == [("ring assumed, evenly over members; NIC of the rank's links",)]


def test_the_proxy_of_a_profiler_file(tmp_path):
    """A rank's file of NCCL's example plugin: two proxy operations, one with a step on the wire."""

    def event(name, cat, ph, ts, args="{}"):
        return (f'{{"name": "{name}", "cat": "{cat}", "ph": "{ph}", "id": 0, "pid": 9, "tid": 1, '
                f'"ts": {ts:.6f}, "args": {args}}},\n')  # fmt: skip

    def both(name, cat, start, end, args, inside=""):
        return event(name, cat, "b", start, args) + inside + event(name, cat, "e", end)

    proxy = '{"Channel": 0, "Peer": 0, "Steps": 14, "ChunkSize": 32768, "transSize": %d}'
    collective = (
        '{"SeqNum": 0, "CommHash": 673864846479792718, "Rank": 1, "Count": 32768, "Datatype": '
        '"ncclFloat32", "Algorithm": "RING", "Protocol": "LL", "nChannels": 2}'
    )
    text = "[\n" + both(
        "Group", "GROUP", 10, 900, '{"groupId": 0}',
        both(
            "AllReduce", "COLL", 20, 800, collective,
            both("Recv", "PROXY", 30, 700, proxy % 229376,
                 both("RecvWait", "NET", 100, 160, '{"Step": 0}'))
            + both("Send", "PROXY", 40, 600, proxy % 100),
        ),
    ) + "{}]\n"  # fmt: skip
    (tmp_path / "dump-host7-9.txt").write_text(text)
    wh = Warehouse(str(tmp_path / "wh"))
    wh.ingest([tmp_path / "dump-host7-9.txt"], job="profiled")
    job = wh.job("profiled")
    # The step on the wire began in the second tenth, what it is a step of in the first.
    columns = ("host", "rank", "rail", "nic", "source", "unit", "sent_bytes", "received_bytes",
               "bytes", "busy_ns", "collectives", "is_best", "how")  # fmt: skip
    assert job.rail_load().select(columns).rows() == [
        ("host7", 1, 0, None, "measured", "bytes", 100, 229376, 229476, 0, 1, True,
         "profiler, one rail a local rank (assumed)"),
        ("host7", 1, 0, None, "measured", "bytes", 0, 0, 0, 60_000, 1, True,
         "profiler, one rail a local rank (assumed)"),
    ]  # fmt: skip
    # The other rank left no file: nothing says where it ran.
    assert job.rail_left_out()["reason"].to_list() == ["members or their hosts unknown"]


def test_whose_rail_is_whose(open_job, hosts):
    """A recorded rail names the NIC; without one, neighbours share where NICs are fewer."""

    def rails(ranks, nics, **tables):
        topology = [{"kind": "nic", "host": "h0"} | n for n in nics]
        con = open_job(ranks=ranks, topology=topology, **tables)
        return con.sql("SELECT rank, nic, rail, how FROM _rank_rails ORDER BY rank").fetchall()

    two = [{"device": "mlx5_0"}, {"device": "mlx5_10", "plane": 1}]
    assert [r[:3] for r in rails(hosts(1, 4), two)] == [
        (0, "mlx5_0", 0), (1, "mlx5_0", 0), (2, "mlx5_10", 1), (3, "mlx5_10", 1)
    ]  # fmt: skip
    recorded = [r | {"rail": 5 - r["rank"]} for r in hosts(1, 2)]
    named = [{"device": "b", "rail": 4}, {"device": "a", "rail": 5}]
    how = "recorded rail of the rank"
    assert rails(recorded, named) == [(0, "a", 5, how), (1, "b", 4, how)]
    assert rails(recorded, []) == [(0, None, 5, how), (1, None, 4, how)]
    # What one rank's traffic names is that rank's, of several NICs the one of most bytes.
    moved = [
        {"rank": 1, "nic": nic, "bytes": n, "measured": True, "via": "NET/IB", "source": "profiler"}
        for nic, n in (("mlx5_4", 10), ("mlx5_7", 900))
    ]  # fmt: skip
    assert rails(hosts(1, 2), [], transfers=moved) == [
        (0, None, 0, "one rail a local rank (assumed)"),
        (1, "mlx5_7", 1, "NIC of the rank's traffic"),
    ]
    assert rails(hosts(1, 2), two[:1], transfers=moved) == [
        (0, "mlx5_0", 0, "NIC by local rank (assumed)"),
        (1, "mlx5_7", 1, "NIC of the rank's traffic"),
    ]
    assert rails([{"rank": 3}], []) == [(3, None, None, "host unknown")]


def test_jobs_stand_apart_and_what_is_sent_arrives(hosts, part, tmp_path):
    """Ten jobs of random placements and sizes at once; every one keeps its sums."""
    rng = random.Random(4)
    files, wanted = {}, {}
    for job in "abcdefghij":
        n_hosts, n_local = rng.choice([(2, 1), (2, 4), (3, 2), (4, 3)])
        members = rng.sample(range(n_hosts * n_local), rng.randint(2, n_hosts * n_local))
        spanned = len({r // n_local for r in members})
        size, n = rng.randint(1, 1 << 40), len(members)
        algo = rng.choice([None, "ring", "tree", "hierarchical"])
        over = spanned if algo in ("tree", "hierarchical") else n
        # What goes in and out of each host that it spans, whichever rails it takes.
        wanted[job] = 2 * (over - 1) / over * size * spanned if spanned > 1 else None
        files[job] = write(tmp_path / job, {
            "ranks": hosts(n_hosts, n_local),
            "comms": [{"comm": "w", "ranks": members, "size": n}],
            "collectives": [
                part(r, 0, 9, in_bytes=size, out_bytes=size, group_size=n, algo=algo, event_id=r)
                for r in members
            ],
        })  # fmt: skip
    con = loader.connect(files)
    loader.materialise(con, "rail_load")
    found = con.sql("""
        SELECT job, sum(sent_bytes)::DOUBLE, sum(received_bytes)::DOUBLE FROM rail_load GROUP BY job
    """).fetchall()
    # A byte is rounded away at most by each rail.
    for job, sent, received in found:
        assert sent == received == pytest.approx(wanted[job], rel=1e-12, abs=12), job
    assert {j for j, *_ in found} == {j for j, bytes_ in wanted.items() if bytes_}
    shapes = con.sql("SELECT n_rails, max_over_mean, cv, jain FROM rail_imbalance").fetchall()
    for n, max_over_mean, cv, jain in shapes:
        assert 1 <= max_over_mean <= n + 1e-9
        assert 1 / n - 1e-9 <= jain <= 1 + 1e-9
        # Jain's index and the coefficient of variation say the same.
        assert jain == pytest.approx(1 / (1 + cv**2))


def test_loads_without_a_sum_are_not_known(opened, hosts, part):
    huge = {"in_bytes": 2**63 - 1, "out_bytes": 2**63 - 1, "group_size": 4}
    rows = [part(0, 0, 10, event_id=i, op="send", collective_id=i, **huge) for i in (1, 2)]
    moved = [
        {"rank": r, "bytes": 2**63 - 1, "via": "NET/IB", "nic": f"n{r}", "direction": "send",
         "measured": True, "source": "profiler", "start_ns": 0, "end_ns": 10}
        for r in (0, 1)
    ]  # fmt: skip
    con = opened(ranks=hosts(2, 2), comms=comm(4), collectives=rows, transfers=moved)
    found = con.sql("SELECT reason, operations, bytes FROM rail_left_out").fetchall()
    assert found == [("peer unknown", 2, None)]
    assert con.sql("SELECT DISTINCT bytes FROM rail_imbalance").fetchall() == [(None,)]
