"""Lines of benchmarks: what an algorithm is called in them."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import pytest
from retime.ingest.schema import TABLES
from retime.replay import models
from retime.replay.calibration import hockney, link_sources
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


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("all_reduce", "allreduce"), ("reduce_scatter", "reducescatter"),
        ("all_gather", "allgather"), ("broadcast", "broadcast"), ("reduce", "reduce"),
    ],
)  # fmt: skip
def test_real_benchmarks_have_two_classes(graph_of_nothing, retime_traces, op, name):
    """8 A100 of one host (nccl-tests by superbenchmark): NCCL's protocols change between 256 KiB
    and 4 MiB. One line is off by 31 to 44 % at nine in ten points, two by 4 to 11 %."""
    text = (retime_traces / f"nccl_tests/superbenchmark/nccl_{name}.log").read_text()
    # size, count, type, perhaps redop and root; then time, two rates and errors, in both places.
    found = re.findall(
        r"^ +(\d+) +\d+ +float .*?(\d+\.?\d*) +\S+ +\S+ +\S+ +(\d+\.?\d*) +\S+ +\S+ +\S+ *$",
        text, re.M,
    )  # fmt: skip
    points = [(int(size), 1e3 * float(t)) for size, *times in found if int(size) for t in times]
    assert len(points) > 50
    sizes, took = np.array(points).T
    frame = curves("", took, sizes).with_columns(op=pl.lit(op), algo=pl.lit(None, pl.String))
    job = ReplayJob(graph_of_nothing, facts={"tables": lambda name: frame})
    fit = link_sources.curve(job, op, 8)
    assert fit is not None
    small, large = fit.classes
    assert 2**18 < small.up_to_bytes < 2**22
    assert small.alpha_ns < large.alpha_ns
    assert small.bandwidth_bytes_per_s < large.bandwidth_bytes_per_s / 4
    # 12 links of 20 GB/s in NCCL's topo.h: rings reach nine tenths of them.
    assert 210e9 < large.bandwidth_bytes_per_s < 240e9
    p, q = hockney.coefficients(op, "ring", 8)
    line = p * fit.alpha_ns + q * sizes * 1e9 / fit.bandwidth_bytes_per_s
    assert fit.error_pct < 11
    assert hockney.error_pct(line, took) > 30
    assert fit.outside(2**40)
