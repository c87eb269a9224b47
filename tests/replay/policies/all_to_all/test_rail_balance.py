"""Rail balance of recorded all-to-alls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from retime.replay import fabric, run
from retime.replay.calibration import machines
from retime.replay.graph import Kind
from retime.replay.moe import exchange, rails
from retime.replay.policies import rail_balance, resolve
from retime.replay.policy import BadParam

PORTS = "nic=50GB/s,nvlink=160GB/s,alpha=0"


def skewed():
    """800 MB from the first GPU of a host, evenly to the four of the other."""
    matrix = np.zeros((8, 8))
    matrix[0, 4:] = 200e6
    return matrix


def test_one_loaded_rail(a2a_job, under, moved_ns):
    # 16 ms over one NIC of 50 GB/s; balanced 4 ms, 3.75 ms of forwarding before it and 150 MB
    # over 160 GB/s after it (arithmetic). Measured: 20 ms, so all is a quarter longer.
    job = a2a_job([[skewed()]], took_us=20_000.0)
    serial = under(job, f"rail-balance:granularity=0,{PORTS}")
    expected = 20e6 * (4 + 3.75 + 0.9375) / 16
    assert moved_ns(serial) == [pytest.approx(expected, abs=1)]
    piped = under(job, f"rail-balance:granularity=0,forward=pipelined,chunk=0,{PORTS}")
    assert moved_ns(piped) == [pytest.approx(20e6 * 4 / 16, abs=1)]
    (said,) = [a for a in serial.assumptions if "busiest NIC" in a]
    # One of eight NICs sends it all, four of eight get it evenly; then four send.
    assert "out 8.000 to 2.000, in 2.000 to 2.000" in said
    assert "800 MB between hosts 150 % cross NVLink" in said
    # 800 MB out of one host and into the other, over four NICs of 50 GB/s: the bound of anyone.
    assert "needs 4 ms, in whatever way" in said


def test_ports_are_the_fabrics_where_there_is_one(a2a_job, under):
    # Four GPUs a host share two NICs of 25 GB/s, of which 0.9 are reached: 11.25 GB/s a GPU.
    lab = fabric.Fabric(
        "lab", 2, 4,
        scale_up=fabric.ScaleUp(fabric.LinkClass("nvlink", 300e9, 0.8), 4),
        pcie=fabric.Pcie(fabric.LinkClass("pcie", 32e9)),
        nic=fabric.Nic(fabric.LinkClass("nic", 25e9, 0.9), 2, (0, 0, 1, 1), (0, 0)),
        network=fabric.Network("rail", 2, 2),
    )  # fmt: skip
    job = a2a_job([[skewed()]], took_us=20_000.0)
    after = under(replace(job, facts={**job.facts, "fabric": lab}), "rail-balance")
    (said,) = [a for a in after.assumptions if "NIC carries" in a]
    assert "carries 11.25 GB/s, its links in the host 240 GB/s" in said
    assert "fabric lab" in said


def test_gain_is_what_rails_bound_not_latency(a2a_job, under, moved_ns):
    # A token is not split, so only the hop after the network is new: its message within the host,
    # a microsecond on an H100 (an NVLink crossing and no more software than NVLink's).
    job = a2a_job([[skewed() / 1e6]], took_us=100.0)
    slow = under(job, "rail-balance:nic=50GB/s,nvlink=160GB/s,alpha=10us")
    inside = machines.INTRA_ALPHA_NS
    assert moved_ns(slow)[0] == pytest.approx(100e3 + inside, abs=20)
    # Split evenly there is a hop before it, too.
    both = under(job, "rail-balance:granularity=0,nic=50GB/s,nvlink=160GB/s,alpha=10us")
    assert moved_ns(both)[0] == pytest.approx(100e3 + 2 * inside, abs=20)


def test_even_exchanges_gain_nothing(a2a_job, under, moved_ns):
    job = a2a_job([[np.full((8, 8), 1e6)]], splits=False)
    after = under(job, f"rail-balance:{PORTS},granularity=0,forward=pipelined,chunk=0")
    assert moved_ns(after) == moved_ns(job)
    assert any("taken to be even" in w and "record" in w for w in after.warnings)
    # What is forwarded from the wrong rail costs, when nothing is beside it.
    serial = under(job, f"rail-balance:{PORTS}")
    assert moved_ns(serial)[0] > moved_ns(job)[0]


@pytest.mark.parametrize("forward", ["serial", "pipelined"])
def test_neutral_changes_nothing(a2a_job, under, unchanged, forward):
    rng = np.random.default_rng(0)
    job = a2a_job([[rng.integers(1, 1000, (8, 8)) * 1e4] for _ in range(3)], took_us=777.0)
    after = under(job, ("rail-balance", {**rail_balance.NEUTRAL, "forward": forward}))
    assert unchanged(job, after)


@pytest.mark.parametrize(
    ("hosts", "places", "named", "says"),
    [
        (1, 8, True, "stays on one host"),
        (8, 1, True, "no other rail"),
        (2, 4, False, "hosts of its ranks are not known"),
    ],
)
def test_where_there_are_no_rails_nothing_changes(
    a2a_job, under, unchanged, hosts, places, named, says
):
    job = a2a_job([[np.full((8, 8), 1e6)]], hosts=hosts, places=places, named=named)
    after = under(job, "rail-balance")
    assert unchanged(job, after)
    assert any(says in w for w in after.warnings)


def test_hosts_can_be_told(a2a_job, under, moved_ns):
    job = a2a_job([[skewed()]], took_us=20_000.0, named=False)
    after = under(job, f"rail-balance:granularity=0,forward=pipelined,chunk=0,local=4,{PORTS}")
    assert moved_ns(after) == [pytest.approx(5e6, abs=1)]
    known = under(a2a_job([[skewed()]], took_us=20_000.0), "rail-balance:local=2")
    assert any("local=2 is not used" in w for w in known.warnings)


@pytest.mark.parametrize("given", [{"granularity": -1}, {"local": 0}])
def test_what_is_out_of_range(a2a_job, under, given):
    with pytest.raises(BadParam):
        under(a2a_job([[skewed()]]), ("rail-balance", given))


def test_path_is_one_of_three():
    with pytest.raises(BadParam, match="two-hop"):
        resolve("rail-balance:native=bus")


def test_what_moved_before_the_last_arrival_comes_back(a2a_job, under, moved_ns):
    # The busiest port needs 16 ms; after rank 7's arrival, 20 ms later, it took 10. Balanced it
    # needs 4 + 3.75 + 0.9375 (above); rank 7 is as late as before, so as much moves early: 6 / 16.
    job = a2a_job([[skewed()]], took_us=10_000.0, late_us={7: 20_000.0})
    after = under(job, f"rail-balance:granularity=0,{PORTS}")
    share = (4 + 3.75 + 0.9375) / 16
    assert moved_ns(after) == [pytest.approx(10e6 * share, rel=1e-3)]
    said = [a for a in after.assumptions if "after their last arrival" in a]
    assert len(said) == 1
    assert "0 ms of it come back" in said[0]
    # Had members waited twice as long before, half of it would have to move after the last.
    found = exchange.find(run.baseline(job).job, nic=50e9, nvlink=160e9, alpha=0.0)
    assert found.exchanges[0].early_ns == pytest.approx(6e6, rel=1e-3)
    assert found.exchanges[0].aligned_ns == pytest.approx(16e6, rel=1e-3)
    assert found.was is not None
    found = found._replace(was=found.was._replace(late_ns=2 * found.was.late_ns))
    half = exchange.retimed(found, np.array([16e6]), np.array([4e6]))
    assert moved_ns(half) == [pytest.approx((10e6 + 3e6) / 4, rel=1e-3)]
    # Nothing changes where the policy changes nothing.
    assert moved_ns(exchange.retimed(found, np.ones(1), np.ones(1))) == [10_000_000]


def test_members_are_done_with_their_own_ports(a2a_job, under):
    # Balanced, one of two hosts sends all, so the other's ports are busy, too: together, but for
    # what the first forwards before, 600 of its 800 MB out of GPU 0 (200 into each other).
    where = rails.layout(np.arange(8) // 4, np.arange(8) % 4)
    now = rails.balanced(skewed(), where)
    done = rails.done(now, where, rails.Speeds(50e9, 160e9))
    took = np.array([4 + 3.75, *[4 + 1.25] * 3, *[4 + 150 / 160] * 4])
    assert done == pytest.approx(took / took.max())
    # What ends early in the model ends early in the job.
    graph = under(
        a2a_job([[skewed()]], took_us=16_000.0), f"rail-balance:granularity=0,{PORTS}"
    ).graph
    task = graph.kind == Kind.TRANSFER
    last = 4e6 + 3.75e6 + 0.9375e6
    by_rank = dict(zip(graph.rank[task].tolist(), graph.dur_ns[task].tolist(), strict=True))
    assert [by_rank[r] for r in range(8)] == pytest.approx(list(last * done), abs=2)
