"""Rail balance of recorded all-to-alls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from retime.replay import fabric
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
    job = a2a_job([[skewed() / 1e6]], took_us=100.0)
    slow = under(job, "rail-balance:nic=50GB/s,nvlink=160GB/s,alpha=10us")
    assert moved_ns(slow)[0] == pytest.approx(100e3, rel=1e-3)


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
