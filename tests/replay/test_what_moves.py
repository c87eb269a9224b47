"""Bytes through every policy, and steps under faster links: properties over random jobs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from retime.replay import policies, run
from retime.replay.graph import Kind

from .random_jobs import jobs
from .test_any_order import SPECS

QUIET = settings(
    deadline=None, max_examples=4, suppress_health_check=list(HealthCheck), derandomize=True
)

CHANGE = {"batch-a2a", "compress", "reshard", "parallelism"}
"""Policies that move fewer bytes, or other ones: their figures are in their own tests."""


def after(job, spec):
    """Step (ns) and graph under one policy, and the job's own."""
    base = run.baseline(job)
    (tries,) = run.plan([spec])
    return run.estimate(base, tries)["step_ns"], run.timelines(base, tries).after.graph, base


def by_rank(graph):
    """Bytes of the transfers of each rank and communicator, whatever they were cut into."""
    task = graph.kind == Kind.TRANSFER
    key = graph.rank[task].astype(np.int64) * (len(graph.comm_names) + 1) + graph.comm[task]
    codes, place = np.unique(key, return_inverse=True)
    return dict(zip(codes.tolist(), np.bincount(place, graph.bytes[task]).tolist(), strict=True))


@pytest.mark.parametrize("spec", [s for n, s in SPECS.items() if n not in CHANGE])
@QUIET
@given(job=jobs())
def test_other_links_and_other_times_move_the_same_bytes(spec, job):
    _, graph, base = after(job, spec)
    assert by_rank(graph) == by_rank(base.job.graph)


@QUIET
@given(job=jobs(), chunk=st.sampled_from(["64KiB", "100KB", "1MiB"]))
def test_buckets_hold_what_they_were_cut_from(job, chunk):
    _, graph, base = after(job, f"overlap:until=step,chunk={chunk}")
    assert by_rank(graph) == by_rank(base.job.graph)
    moved = graph.kind == Kind.TRANSFER
    assert (graph.bytes[moved] >= 0).all()


@QUIET
@given(job=jobs(), ratio=st.floats(0.3, 1.0))
def test_compression_moves_its_ratio(job, ratio):
    spec = ("compress", {"op": ("all_gather",), "ratio": ratio, "least": 1})
    _, graph, base = after(job, spec)
    task = graph.kind == Kind.TRANSFER
    was = base.job.graph.bytes[task]
    gathers = base.job.graph.is_(Kind.TRANSFER)[task] & base.job.graph.ops("all_gather")[task]
    np.testing.assert_allclose(graph.bytes[task][gathers], ratio * was[gathers], atol=0.51)
    assert (graph.bytes[task][~gathers] == was[~gathers]).all()


FASTER = [
    "scale-fabric:link=all,factor={x}",
    "scale-fabric:link=scale-up,factor={x}",
    "scale-fabric:link=scale-out,factor={x}",
    "datapath:alpha=1,beta={x}",
    "datapath:alpha=0,beta={x}",
]


@pytest.mark.parametrize("spec", FASTER)
@QUIET
@given(job=jobs(), by=st.floats(1.0, 8.0), more=st.floats(1.0, 4.0))
def test_more_bandwidth_never_lengthens_a_step(spec, job, by, more):
    """As recorded, faster, faster still: on links that nobody else uses."""
    measured = round(float(run.baseline(job).measured_ns.mean()))
    less, most = (after(job, spec.format(x=x))[0] for x in (by, by * more))
    assert most <= less + 1 <= measured + 2


@QUIET
@given(job=jobs(), ratio=st.floats(0.3, 1.0))
def test_fewer_bytes_by_a_free_codec_never_lengthen_a_step(job, ratio):
    # Codecs that cost nothing: what is left is fewer bytes on the same links.
    spec = {"op": ("all_gather", "reduce_scatter"), "ratio": ratio, "least": 1,
            "encode": 1e30, "decode": 1e30}  # fmt: skip
    step, _, base = after(job, ("compress", spec))
    assert step <= round(float(base.measured_ns.mean())) + 1


@QUIET
@given(job=jobs(), load=st.sampled_from([0.0, 0.1, 0.5, 0.95]), other=st.integers(1, 3))
def test_no_pattern_round_a_loaded_link_is_worse_than_the_one_that_ran(job, load, other):
    spec = ("congestion-aware", {"between": (f"0-{other}",), "load": load})
    _, graph, base = after(job, spec)
    assert (graph.dur_ns <= base.job.graph.dur_ns).all()


@QUIET
@given(job=jobs(), gamma=st.sampled_from([0.0, 0.02, 0.5]))
def test_a_selection_is_never_slower_than_native(job, gamma):
    _, graph, base = after(job, ("select", {"gamma": gamma}))
    assert (graph.dur_ns <= base.job.graph.dur_ns).all()


def test_policies_that_change_bytes_are_known():
    assert set(policies.REGISTRY) >= CHANGE
