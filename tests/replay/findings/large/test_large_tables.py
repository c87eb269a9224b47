"""Findings by shares are those of the whole graph, for jobs of any kind."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from retime.ingest.errors import UnusableInput
from retime.ingest.tasks import shares
from retime.replay import load
from retime.replay.findings import computed
from retime.replay.findings.large import contract
from retime.replay.findings.large import tables as by_share


@pytest.fixture(autouse=True)
def a_share_a_rank(monkeypatch):
    monkeypatch.setattr(shares, "SHARE_ROWS", 1)


def snapshot(frames, folder):
    """What a warehouse gives of these tables, the events of each rank in a file."""
    folder.mkdir(exist_ok=True)
    files = {}
    for name, frame in frames.items():
        parts = [frame]
        if name == "events":
            parts = frame.partition_by("rank", maintain_order=True)
        files[name] = []
        for part in parts:
            path = folder / f"{name}-{len(files[name])}.parquet"
            part.write_parquet(path)
            files[name].append(str(path))
    return SimpleNamespace(job="job", files=files, kernels=(), pruned=())


def both(frames, folder):
    """The tables of the whole graph and by shares, as rows."""
    job = snapshot(frames, folder / "job")
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    found = by_share.tables(job, scratch)
    assert found is not None
    whole = computed._of_graph(job)
    assert found.keys() == whole.keys()
    return {n: (whole[n].to_pylist(), found[n].to_pylist()) for n in whole}


def fill(tables, seed):
    """Ranks that launch from two threads to two streams, wait for them, and meet in groups; with
    clocks that are off, work that only some have, and kernels that nobody launched."""
    rng = np.random.default_rng(seed)
    ranks, steps = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    host, device = np.zeros((ranks, 2)), np.zeros((ranks, 2))
    instance = correlation = 0
    for step in range(steps):
        begin = device.max(axis=1) + rng.uniform(0, 3, ranks)
        for _ in range(int(rng.integers(1, 5))):
            for rank in range(ranks):
                for _ in range(int(rng.integers(0, 4))):
                    thread, stream = rng.integers(0, 2, 2)
                    correlation += 1
                    at = host[rank, thread] + rng.uniform(0, 20)
                    host[rank, thread] = at + rng.uniform(1, 5)
                    launched = rng.random() < 0.8
                    if launched:
                        tables.call(rank, "cudaLaunchKernel", at, host[rank, thread],
                                    thread=f"t{thread}", correlation=correlation,
                                    step=step)  # fmt: skip
                    start = max(device[rank, stream], at) + rng.uniform(0, 3)
                    device[rank, stream] = start + rng.uniform(0, 30)
                    tables.kernel(rank, f"k{rng.integers(3)}", start, device[rank, stream],
                                  stream=7 + stream, step=step,
                                  correlation=correlation if launched else None)  # fmt: skip
                if rng.random() < 0.3:
                    until = max(device[rank].max(), host[rank, 0] + 1)
                    tables.call(rank, "cudaDeviceSynchronize", host[rank, 0], until, step=step)
                    host[rank, 0] = until
            group = rng.permutation(ranks)[: int(rng.integers(1, ranks + 1))].tolist()
            arrive = {r: device[r, 1] + rng.uniform(0, 3) for r in group}
            until = max(arrive.values()) + rng.uniform(0, 10)
            for rank in group:
                # Now and then a rank leaves before the last one came: a clock is off.
                end = max(arrive[rank], until - 15 * (rng.random() < 0.1))
                op = ("all_reduce", "broadcast")[instance % 2]
                tables.part(rank, op, arrive[rank], end, instance=instance, step=step, stream=8,
                            group_size=len(group), root=group[0])  # fmt: skip
                device[rank] = max(device[rank, 0], end), end
            instance += 1
        for rank in range(ranks):
            end = max(device[rank].max(), begin[rank] + 1)
            device[rank] = end
            tables.step(rank, step, begin[rank], end)
    return tied(tables)


def tied(tables):
    """The tables, of ranks on one clock."""
    frames = tables.frames()
    return frames | {"ranks": frames["ranks"].with_columns(clock_error_ns=pl.lit(0, pl.Int64))}


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32 - 1), most=st.integers(1, 5))
def test_of_any_job(seed, most, tables, tmp_path):
    frames = fill(type(tables)(), seed)
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder, pytest.MonkeyPatch.context() as m:
        m.setattr(contract, "MOST", most)
        for whole, found in both(frames, Path(folder)).values():
            assert found == whole


def crossed(tables):
    """Two ranks that meet twice, each in another order: a circle that one collective leaves."""
    for rank in (0, 1):
        for k in (0, 1):
            tables.part(rank, "all_reduce", 100 * k, 100 * k + 100, instance=(k + rank) % 2, step=0)
        tables.step(rank, 0, 0, 200)
    return tied(tables)


def test_a_circle_is_left_to_the_whole_graph(tables, tmp_path):
    job = snapshot(crossed(tables), tmp_path / "job")
    assert by_share.tables(job, tmp_path) is None
    assert any("in a circle" in warning for warning in load.load(job).warnings)
    job.manifests = [SimpleNamespace(tables={"events": [SimpleNamespace(rows=10_000_000)]})]
    assert computed.is_large(job)
    assert computed.tables(job)["replay_scores"].num_rows == 2


def test_clocks_are_looked_at_before_events_are(tables, tmp_path):
    tables.part(0, "all_reduce", 0, 100, instance=0, step=0)
    tables.part(1, "all_reduce", 0, 100, instance=0, step=0)
    tables.step(0, 0, 0, 100)
    job = snapshot(tables.frames(), tmp_path / "job")
    job.files["events"] = [str(tmp_path / "gone.parquet")]
    with pytest.raises(UnusableInput, match="clocks that nothing ties together"):
        by_share.tables(job, tmp_path)
