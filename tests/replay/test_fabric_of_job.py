"""The fabric of a replay: given, a preset as large as the job, or built from its topology."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from retime.ingest.errors import UsageError
from retime.ingest.schema import TABLES
from retime.replay import fabric, graph, load
from retime.replay.calibration import calibrate
from retime.replay.policy import ReplayJob
from retime.replay.retiming import seats


def job_on(hosts, each, tables=None):
    """A job without tasks, of so many ranks on so many hosts (hosts named backwards)."""
    empty, _ = graph.build(0, np.empty(0), np.empty(0))
    n = hosts * each
    ranks = pl.DataFrame(
        {
            "rank": np.arange(n),
            "host": [f"h{hosts - r // each:02}" for r in range(n)],
            "local_rank": [r % each for r in range(n)],
        }
    )
    comms = pl.DataFrame({"comm": ["world", "tp"], "dim": ["world", "tp"],
                          "ranks": [list(range(n)), list(range(each))]})  # fmt: skip
    facts = {"ranks": ranks, "comms": comms, "measured": empty}
    return ReplayJob(empty, "seated", facts | ({"tables": tables} if tables else {}))


def test_a_preset_has_as_many_hosts_as_the_job_needs():
    job = load.with_fabric(job_on(3, 8), "h100")
    assert (job.facts["fabric"].hosts, job.facts["fabric"].gpus) == (3, 24)
    assert load.with_fabric(job_on(1, 8), "h100").facts["fabric"].hosts == 1
    # Hosts of four GPUs fill a domain of 72 or several.
    assert load.with_fabric(job_on(20, 4), "gb200-nvl72").facts["fabric"].gpus == 144


def test_ranks_sit_host_by_host_from_the_lowest_rank():
    job = load.with_fabric(job_on(3, 8), "h100")
    seat, why = seats.gpus(job, job.facts["fabric"])
    assert why == ""
    assert seat.tolist() == list(range(24))


def test_without_hosts_ranks_sit_in_their_order():
    job = job_on(2, 8)
    job = replace(job, facts={**job.facts, "ranks": None})
    assert seats.gpus(job, fabric.preset("h100", 16))[0].tolist() == list(range(16))


def test_what_is_given_counts_before_the_topology():
    given = fabric.preset("a100")
    job = load.with_fabric(job_on(1, 8), given)
    assert job.facts["fabric"] is given
    assert load.with_fabric(job).facts["fabric"] is given
    assert "fabric" not in load.with_fabric(job_on(1, 8)).facts


def test_a_topology_that_says_enough_is_one():
    rows = [
        {"host": "h01", "device": f"gpu{i}", "kind": "gpu", "bandwidth_bytes_per_s": None}
        for i in range(8)
    ]
    columns = {c.name: [r.get(c.name) for r in rows] for c in TABLES["topology"].columns}
    topology = pl.from_arrow(TABLES["topology"].batch(columns))
    empty = {name: pl.from_arrow(t.schema.empty_table()) for name, t in TABLES.items()}
    tables = {**empty, "topology": topology}.__getitem__
    built = load.with_fabric(job_on(1, 8, tables)).facts["fabric"]
    assert built.gpus_per_host == 8


def test_an_unknown_preset_says_what_there_is():
    with pytest.raises(UsageError, match="no fabric preset is called 'h101': h100"):
        load.with_fabric(job_on(1, 8), "h101")


def test_links_of_a_fabric_where_the_job_has_no_collectives():
    job = load.with_fabric(job_on(2, 8), "h100")
    inside = calibrate.link(job, "tp", "all_reduce")
    assert (inside.source, inside.level) == ("fabric", "intra host")
    # 18 links of 20.6 GB/s in NCCL's topo.h, and 48.5 of a NIC's 50 GB/s (SimAI).
    assert inside.bandwidth_bytes_per_s == pytest.approx(370.8e9, rel=0.01)
    across = calibrate.link(job, "world", "all_reduce")
    assert (across.source, across.level) == ("fabric", "inter host")
    assert across.bandwidth_bytes_per_s == pytest.approx(48.5e9, rel=0.01)
