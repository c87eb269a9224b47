"""`Places`: hosts of ranks, their place in them, and what is not known."""

from __future__ import annotations

import numpy as np
import polars as pl
from retime.replay import graph
from retime.replay.policy import ReplayJob
from retime.replay.retiming.places import Places


def job(**columns):
    empty, _ = graph.build(0, np.empty(0), np.empty(0))
    return ReplayJob(empty, facts={"ranks": pl.DataFrame(columns)} if columns else {})


def test_hosts_and_local_ranks():
    places = Places.of(
        job(rank=[0, 1, 2, 3, 5], host=["b", "b", "a", "a", "a"], local_rank=[0, 1, 0, 1, 2])
    )
    assert places.names == ("a", "b")
    assert places.host(np.array([0, 2, 4, 5, 9, -1])).tolist() == [1, 0, -1, 0, -1, -1]
    assert places.local(np.array([1, 5, 4])).tolist() == [1, 2, -1]
    assert places.hosts_of(np.array([0, 1])) == 1
    assert places.hosts_of(np.array([0, 1, 2, 3])) == 2
    assert places.per_host(np.array([0, 1, 2, 3])) == 2
    assert places.per_host(np.array([0, 1, 2])) is None


def test_what_is_not_known():
    assert Places.of(job()).host(np.array([0])).tolist() == [-1]
    assert Places.of(job()).per_host(np.array([], np.int64)) is None
    guessed = Places.of(job(rank=[0, 1], host=["x", "x"], host_source=["recorded", "unknown"]))
    assert guessed.host(np.array([0, 1])).tolist() == [0, -1]
    assert guessed.hosts_of(np.array([0, 1])) == 0
    # without a local rank, the place among those of the host
    unsaid = Places.of(job(rank=[4, 6], host=["x", "x"]))
    assert unsaid.local(np.array([4, 6])).tolist() == [0, 1]
