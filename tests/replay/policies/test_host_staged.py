"""Through host memory: counted bytes, ThunderEP's order, and jobs of one host."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay.costs import staging
from retime.replay.policy import BadParam

PCIE = staging.Host(25.6e9, 1.0, np.inf, np.inf, 0.0, 0.0)


def test_one_copy_of_256_mb():
    both = staging.Bytes(np.array(256e6), np.array(256e6))
    assert staging.time_ns(both, PCIE, 1) == pytest.approx(20e6)
    chunked = PCIE._replace(chunk_bytes=1e6)
    assert staging.time_ns(both, chunked, 1) == pytest.approx(10e6 + 1e6 / 25.6, rel=1e-6)


@pytest.mark.parametrize(
    ("readers", "took_us", "gain"), [(2, 4_300.8, 1.33), (8, 3_225.6, 1.78), (1000, 2_870.1, 2.0)]
)
def test_a_shared_buffer_on_dispatch(rings, readers, took_us, gain):
    # 70 MiB down and 70 up at 25.6 GB/s, one after the other, are 5,734.4 us in copies; written
    # once for 8 readers 8.75 down and 70 up are 3,225.6: 1.78 times, and 2 at most (by hand;
    # ThunderEP reports 2.00 for dispatch, and 1.53 for combine, of which this says nothing).
    size = 80 << 20
    job = rings.job(op="all_to_all", algo="pairwise", hosts=1, alpha_ns=0.0, bandwidth=12.8e9,
                    sizes=(size,))  # fmt: skip
    assert rings.took_us(job, size) == pytest.approx(5_734.4, abs=0.1)
    spec = f"host-staged:medium=shared,recorded=copies,readers={readers},dram=1e15,chunk=0"
    after = rings.under(job, spec)
    assert rings.took_us(after, size) == pytest.approx(took_us, rel=1e-4)
    assert 5_734.4 / took_us == pytest.approx(gain, abs=5e-3)
    assert any(f"gains {gain:.2f} times on dispatch" in a for a in after.assumptions)


def test_what_is_combined_gains_nothing_by_a_shared_buffer(rings):
    # Of dispatch k ranks read the same bytes; what comes back are k partial sums, each another.
    size = 80 << 20
    job = rings.job(op="all_to_all", algo="pairwise", hosts=1, sizes=(8 << 20, size))
    whole = "host-staged:recorded=copies,medium=shared,chunk=0,dram=1e15"
    dispatch, combine = (
        rings.took_us(rings.under(job, f"{whole},readers={k}"), size) for k in (8, 1)
    )
    assert combine == rings.took_us(job, size)
    assert combine / dispatch == pytest.approx(1.78, abs=5e-3)


def test_both_directions_at_once_are_slower():
    # A100, PCIe 4: 24.8 GB/s each way alone, together 24 down and 11 up (NVIDIA forum 352186). One
    # share for both: 0.44 of 24.8 is what the slower of them keeps, and that one counts.
    both = staging.Bytes(np.array(256e6), np.array(256e6))
    host = PCIE._replace(pcie=24.8e9, duplex=0.44, chunk_bytes=1.0)
    assert staging.time_ns(both, host, 1) == pytest.approx(max(256e6 / 24, 256e6 / 11), rel=0.01)


def test_memory_and_sockets_bound_it():
    of = staging.moved("all_gather", 8, 8e9)
    slow = PCIE._replace(dram=10e9, chunk_bytes=1.0)
    assert staging.time_ns(of, slow, 8) == pytest.approx(8 * 14e9 / 10e9 * 1e9, rel=1e-6)
    far = PCIE._replace(numa=1e9, remote=0.5, chunk_bytes=1.0)
    assert staging.time_ns(of, far, 8) == pytest.approx(0.5 * 8 * 7e9 / 1e9 * 1e9, rel=1e-6)


def test_without_peer_to_peer_it_takes_longer(rings):
    job = rings.job(op="all_to_all", algo="pairwise", hosts=1, sizes=(8 << 20, 80 << 20))
    after = rings.under(job, "host-staged")
    before, now = rings.took_us(job, 80 << 20), rings.took_us(after, 80 << 20)
    # 70 MiB at 25.6 GB/s each way, and 8 x 140 MiB at 204 GB/s: the memory is the bound.
    assert now == pytest.approx(
        8 * 140 * (1 << 20) / 204e9 * 1e6 + (1 << 20) / 25.6e9 * 1e6, rel=0.01
    )
    assert now > before


def test_the_same_way_changes_nothing(rings):
    job = rings.job(op="all_to_all", algo="pairwise", hosts=1)
    after = rings.under(job, "host-staged:medium=copies,recorded=copies")
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)


def test_peer_to_peer_instead_of_copies_is_of_the_devices_links(rings):
    # 70 MiB through host memory at 25.6 GB/s, by copies: no fit of it says what NVLink does.
    size = 80 << 20
    job = rings.job(op="all_to_all", algo="pairwise", hosts=1, alpha_ns=0.0, bandwidth=25.6e9,
                    sizes=(8 << 20, size))  # fmt: skip
    after = rings.under(job, "host-staged:medium=p2p,recorded=copies,dram=1e15,chunk=1")
    # H100: 370.8 GB/s and 1 us a message.
    expected = 70 * (1 << 20) / 370.8e9 * 1e6 + 7
    assert rings.took_us(after, size) == pytest.approx(expected, rel=1e-3)
    assert any("370.8" in a or "371" in a for a in after.assumptions)


def test_hosts_have_no_memory_in_common(rings):
    job = rings.job(op="all_to_all", algo="pairwise", hosts=2)
    after = rings.under(job, "host-staged")
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert any("several hosts" in w for w in after.warnings)


@pytest.mark.parametrize(
    "spec", ["readers=0", "duplex=0", "duplex=2", "remote=-1", "chunk=-1", "op=send"]
)
def test_out_of_range(rings, spec):
    with pytest.raises(BadParam):
        rings.under(rings.job(op="all_to_all", algo="pairwise"), f"host-staged:{spec}")
