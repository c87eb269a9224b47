"""A graph is the same however the ranks of its job are shared out, from frames or from files."""

from __future__ import annotations

import itertools
from functools import partial

import polars as pl
import pytest
from retime.ingest.errors import WarehouseError
from retime.ingest.tasks import shares
from retime.ingest.tasks.events import of_frame
from retime.ingest.tasks.job import ALL, Share
from retime.replay.graph import Kind
from retime.replay.traced import build as kineto

from .stored_jobs import same

RANKS = 4


@pytest.fixture
def frames(tables):
    """Ranks that launch alike, a collective each step, kernels of two ranks in one ns."""
    for rank in range(RANKS):
        for step in range(2):
            t = step * 1_000
            tables.step(rank, step, t, t + 1_000)
            for k in range(3):
                correlation = 10 * step + k + 1
                tables.call(rank, "cudaLaunchKernel", t + 20 * k, t + 20 * k + 5,
                            correlation=correlation, thread=f"t{k % 2}")  # fmt: skip
                end = t + 200 + 150 * k + (rank if k else 0)
                tables.kernel(rank, f"k{k}", t + 100 + 150 * k, end, stream=7 + k % 2,
                              correlation=correlation, step=step, grid_blocks=rank)  # fmt: skip
            tables.call(rank, "cudaDeviceSynchronize", t + 80, t + 700 + rank)
            tables.part(rank, "all_reduce", t + 600 + rank, t + 690, instance=step, step=step,
                        group_size=RANKS)  # fmt: skip
    return tables.frames()


def small(frames):
    return {name: frame for name, frame in frames.items() if name != "events"}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_by_some_ranks_at_a_time(frames, size):
    cuts = [ALL.min, *range(size, RANKS, size), ALL.max]
    of = [
        Share(low, high - (high < ALL.max), partial(
            of_frame, frames["events"].filter(pl.col("rank").is_between(low, high - 1))
        ))
        for low, high in itertools.pairwise(cuts)
    ]  # fmt: skip
    same(kineto.build(frames), kineto.of_shares(small(frames), of))


def test_from_files_of_which_one_has_several_ranks_and_two_have_one(frames, tmp_path, monkeypatch):
    monkeypatch.setattr(shares, "SHARE_ROWS", 1)
    events = frames["events"]
    parts = (
        events.filter(pl.col("rank") < 2),
        events.filter((pl.col("rank") == 2) & (pl.col("kind").cast(pl.String) == "kernel")),
        events.filter((pl.col("rank") == 2) & (pl.col("kind").cast(pl.String) != "kernel")),
        events.filter(pl.col("rank") == 3),
    )
    paths = [tmp_path / f"{i}.parquet" for i in range(len(parts))]
    for part, path in zip(parts, paths, strict=True):
        part.write_parquet(path)
    of = shares.of_files(paths[::-1], {})
    assert [(s.low, s.high) for s in of] == [(ALL.min, 1), (2, 2), (3, ALL.max)]
    same(kineto.build(frames), kineto.of_shares(small(frames), of))


def test_a_file_with_other_ranks_than_it_says_gives_no_wrong_graph(frames, tmp_path, monkeypatch):
    monkeypatch.setattr(shares, "SHARE_ROWS", 1)
    paths = [tmp_path / f"{rank}.parquet" for rank in range(RANKS)]
    for rank, path in enumerate(paths):
        frames["events"].filter(pl.col("rank") == rank).write_parquet(path)
    true = shares._looked_at
    lies = {str(paths[2]): 3, str(paths[3]): 2}

    def looked_at(path):
        said = lies.get(path)
        found = true(path)
        return found if said is None else found._replace(low=said, high=said)

    monkeypatch.setattr(shares, "_looked_at", looked_at)
    of = shares.of_files(paths, {})
    with pytest.raises(WarehouseError, match=r"[23]\.parquet: .*rows of other ranks"):
        kineto.of_shares(small(frames), of)


def test_a_rank_whose_collectives_are_on_the_host_needs_its_host_events(tables):
    tables.step(0, 0, 0, 100)
    tables.kernel(0, "k", 10, 20, step=0)
    tables.host(0, "aten::add", 30, 40)
    tables.step(1, 0, 0, 100)
    tables.kernel(1, "k", 10, 20, step=0)
    tables.host(1, "aten::add", 30, 40)
    at = tables.host(1, "c10d::barrier", 50, 60)
    tables.part(1, "barrier", 50, 60, instance=0, event=at, step=0)
    graph = kineto.build(tables.frames()).graph
    hosts = {int(r) for r in graph.rank[graph.is_(Kind.HOST)]}
    assert hosts == {1}
