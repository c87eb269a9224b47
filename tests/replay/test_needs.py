"""A job that lacks what a policy needs: each of them says what to record, and guesses no gain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from retime.replay import policies, run
from retime.replay.graph import Kind

from . import random_jobs


@pytest.fixture(scope="module")
def whole():
    """Two hosts of four ranks, every operation, no routing, splits, grids or storage traffic."""
    return random_jobs.job(*random_jobs._tasks(np.random.default_rng(3), 2, 4, 3, 4), 2, 4)


def hosts(job):
    """Nobody says which ranks share a host, nor what device they are."""
    nothing = {"host": pl.String, "device_name": pl.String, "n_sms": pl.Int64}
    none = [pl.lit(None, t).alias(c) for c, t in nothing.items()]
    return replace(job, facts={**job.facts, "ranks": job.facts["ranks"].with_columns(none)})


def sizes(job):
    """No collective has a size."""
    graph = job.graph.with_(bytes=np.zeros_like(job.graph.bytes))
    return replace(job, graph=graph, facts={**job.facts, "measured": graph})


def others(job):
    """One rank was recorded of all that take part."""
    graph = job.graph
    mine = (graph.rank == 0) | (graph.kind == Kind.JOIN)
    graph = graph.with_(collective=np.where(mine, graph.collective, -1),
                        kind=np.where(mine, graph.kind, Kind.COMPUTE))  # fmt: skip
    return replace(job, graph=graph, facts={**job.facts, "measured": graph})


def as_is(job):
    """What this policy needs is in no traced job, unless somebody recorded it."""
    return job


SIZES = "record sizes (record_shapes"
ROUTING = "record the router's choices"
SPLITS = "record all-to-alls with their splits"

LACKING = [
    ("algorithm", sizes, SIZES),
    ("algorithm", others, "record every rank"),
    ("algorithm:protocol=LL", hosts, "give machine, one of"),
    ("hierarchical", sizes, SIZES),
    ("hierarchical", hosts, "record the hosts"),
    ("align-arrivals", others, "record every rank of a communicator"),
    ("scale-fabric", sizes, SIZES),
    ("scale-fabric", hosts, "record the hosts"),
    ("overlap", sizes, SIZES),
    ("overlap", others, "record every rank"),
    ("tile-overlap", as_is, "record kernels with their grids"),
    ("tile-overlap", sizes, SIZES),
    ("sm-budget", as_is, "record kernels with their grids"),
    ("sm-budget", as_is, "NCCL's channels (NCCL_DEBUG=INFO)"),
    ("megakernel", as_is, "record kernels and all-to-alls of an MoE job"),
    ("datapath", sizes, SIZES),
    ("launch-path", sizes, SIZES),
    ("launch-path", hosts, "record the hosts"),
    ("rail-balance", sizes, SIZES),
    ("rail-balance", hosts, "record host names"),
    ("wave-schedule", as_is, SPLITS),
    ("wave-schedule", hosts, "record host names"),
    ("wave-schedule", as_is, "state gamma, or gamma=fit"),
    ("select", as_is, SPLITS),
    ("select", hosts, "record host names"),
    ("select", as_is, "too few all-to-alls"),
    ("batch-a2a", sizes, SIZES),
    ("congestion-aware", as_is, "link counters of a switch tell"),
    ("isolate-storage", as_is, "record it as transfers of class storage"),
    ("isolate-storage:what=stage,bandwidth=5GB/s", as_is, "DataLoader ranges"),
    ("optical", sizes, SIZES),
    ("optical", hosts, "record the hosts"),
    ("compress", sizes, SIZES),
    ("replicate-experts", as_is, ROUTING),
    ("place-experts", as_is, ROUTING),
    ("host-staged", sizes, SIZES),
    ("host-staged", hosts, "record the hosts"),
    ("reshard", sizes, SIZES),
    ("reshard", as_is, "who holds which part of the weights"),
    ("parallelism:pp=2", as_is, "does not say the model: give model=NAME or layers"),
    ("on-package", sizes, SIZES),
    ("on-package", others, "record every rank"),
]
"""Policy, what the job has not, and part of the sentence that says what to record or to give."""

SAYS_NOTHING = {"checkpoint"}
"""Needs of the trace: nothing but its steps."""


def test_every_policy_is_in_the_table():
    of = {spec.split(":")[0] for spec, _, _ in LACKING} | SAYS_NOTHING
    assert of == set(policies.REGISTRY)
    (needs,) = policies.REGISTRY["checkpoint"].needs
    assert needs.startswith("nothing of the trace")


GUESSES = {
    "overlap", "wave-schedule", "select", "launch-path", "optical", "host-staged", "reshard",
}  # fmt: skip
"""Policies that go on without, and say what they took; the others leave the job as measured."""


@pytest.mark.parametrize(("spec", "without", "says"), LACKING)
def test_what_the_trace_lacks_is_named_and_no_gain_is_guessed(whole, spec, without, says):
    (entry,) = run.replay(without(whole), [spec])["policies"]
    assert any(says in w for w in entry["warnings"]), entry["warnings"]
    assert not any("\n" in w for w in entry["warnings"])
    if spec.split(":")[0] not in GUESSES:
        assert entry["gain_pct"] == 0


def test_the_same_job_with_all_of_it_is_not_asked_for_it(whole):
    """The sentences are of what is missing: hosts, sizes and ranks that are there are not asked."""
    for spec in ("hierarchical", "launch-path", "optical", "host-staged", "scale-fabric"):
        (entry,) = run.replay(whole, [spec])["policies"]
        assert not any("record" in w.split("recorded")[0] for w in entry["warnings"]), spec
