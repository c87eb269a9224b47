"""Weights to rollout GPUs: counted bytes, and NCCL M2N's order of gain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retime.ingest.errors import UsageError
from retime.replay.costs.resharding import Layout, messages, time_ns, volumes

LARGE = Layout(256, 128, 32, 64)


def test_one_copy_a_domain():
    gpu, domain = (volumes(LARGE, 671e9, way) for way in ("gpu", "domain"))
    assert gpu.crossing_bytes == pytest.approx(2684e9)
    assert domain.crossing_bytes == pytest.approx(1342e9)
    assert time_ns(gpu, 50e9, 1e15) / 1e9 == pytest.approx(0.42, abs=0.005)
    assert time_ns(domain, 50e9, 1e15) / 1e9 == pytest.approx(0.21, abs=0.005)
    # 5.78 s to 2.77 s is reported without its inputs: the order of d/t = 2 (assumed here).
    assert gpu.crossing_bytes / domain.crossing_bytes == pytest.approx(5.78 / 2.77, rel=0.2)


@pytest.mark.parametrize(("m", "n", "k"), [(4, 6, 8), (256, 128, 256), (3, 3, 3)])
def test_messages_of_contiguous_shards(m, n, k):
    assert messages(m, n) == k
    # Counted: pairs whose intervals overlap.
    pairs = sum(i * n < (j + 1) * m and j * m < (i + 1) * n for i in range(m) for j in range(n))
    assert pairs == k


@given(st.integers(1, 64), st.integers(0, 5), st.integers(0, 5), st.integers(0, 3))
def test_crossing_falls_by_domain_over_width(m, t, d, more):
    width, domain = 2**t, 2**d
    n = max(width, domain) * 2**more
    layout = Layout(m, n, width, domain)
    gpu, one = volumes(layout, 1e9, "gpu"), volumes(layout, 1e9, "domain")
    assert gpu.crossing_bytes / one.crossing_bytes == pytest.approx(max(1, domain / width))
    # Every target ends with its share of the model.
    assert one.target_bytes + one.inside_bytes == pytest.approx(1e9 / width)


def test_counts_that_do_not_divide():
    with pytest.raises(UsageError, match="do not divide"):
        volumes(Layout(1, 10, 4, 5), 1.0, "gpu")
    with pytest.raises(UsageError, match="1 or more"):
        volumes(Layout(1, 10, 0, 5), 1.0, "gpu")


def test_a_job_that_broadcasts(rings):
    job = rings.job(op="broadcast", algo="ring", n=9, hosts=1, sizes=(1 << 30,))
    spec = "reshard:width=2,domain=4,bandwidth=50GB/s,inside=450GB/s"
    after = rings.under(job, spec)
    ratio = rings.took_us(after, 1 << 30, job) / rings.took_us(job, 1 << 30)
    # One source: 8/2 models before, 8/4 after.
    assert ratio == pytest.approx(0.5, rel=1e-6)
    same = rings.under(job, spec.replace("reshard:", "reshard:way=gpu,"))
    assert np.array_equal(same.graph.dur_ns, job.graph.dur_ns)


def test_a_job_without_weights_to_move(rings):
    job = rings.job()
    after = rings.under(job, "reshard")
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert "the job has no broadcast" in after.warnings[-1]
