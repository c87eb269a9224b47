"""Lines of benchmarks: what an algorithm is called in them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from retime.ingest.schema import TABLES
from retime.replay import models
from retime.replay.calibration import link_sources
from retime.replay.graph import Kind
from retime.replay.policy import ReplayJob


def curves(algo: str, took: np.ndarray, sizes: np.ndarray) -> pl.DataFrame:
    rows = {"op": "all_reduce", "algo": algo, "n_ranks": 8, "source": "t"}
    columns = {
        c.name: [
            {"bytes": int(b), "time_ns": round(t)}.get(c.name, rows.get(c.name))
            for b, t in zip(sizes, took, strict=True)
        ]
        for c in TABLES["cost_curves"].columns
    }
    frame = pl.from_arrow(TABLES["cost_curves"].batch(columns))
    assert isinstance(frame, pl.DataFrame)
    return frame


def test_nccls_tree_is_the_double_binary_tree(graph_of_nothing):
    sizes = np.geomspace(1e9, 100e9, 8)
    took = models.time_ns("all_reduce", "double-tree", 8, sizes, 5_000.0, 300e9)
    frame = curves("TREE", took, sizes)
    job = ReplayJob(graph_of_nothing, facts={"tables": lambda name: frame})
    found = link_sources.curve(job, "all_reduce", 8)
    assert found is not None
    assert found.algo == "double-tree"
    # 2 M/B with many pieces; as an unsegmented tree it would be 6 M/B: 900 GB/s.
    assert found.bandwidth_bytes_per_s == pytest.approx(300e9, rel=0.05)


@pytest.fixture
def graph_of_nothing(tables):
    from retime.replay.traced import build as kineto

    tables.kernel(0, "work", 0, 1, step=0)
    tables.step(0, 0, 0, 1)
    graph = kineto.build(tables.frames(), "nothing").graph
    assert not (graph.kind == Kind.TRANSFER).any()
    return graph
