"""Where ranks are: the host of each, and their place in it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from ..policy import ReplayJob


class Places(NamedTuple):
    """Hosts and local ranks by global rank; -1 where a rank's is not known."""

    host_of: np.ndarray
    """int64 [r]: code of each rank's host into `names`."""
    local_of: np.ndarray
    """int64 [r]: its place in the host, from 0."""
    names: tuple[str, ...]

    @classmethod
    def of(cls, job: ReplayJob) -> Places:
        """The places of a job's ranks, from its `ranks`.

        A host that the job does not know is -1; a local rank that nothing says is the rank's place
        among those of its host, by number.
        """
        ranks = job.facts.get("ranks")
        if ranks is None or not len(ranks):
            return cls(np.empty(0, np.int64), np.empty(0, np.int64), ())
        ranks = ranks.unique("rank", keep="first", maintain_order=True).filter(pl.col("rank") >= 0)
        n = int(ranks["rank"].to_numpy().max(initial=-1)) + 1
        host_of, local_of = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
        host = _column(ranks, "host", pl.String)
        if "host_source" in ranks.columns:
            unknown = ranks["host_source"].cast(pl.String).fill_null("") == "unknown"
            host = host.set(unknown, None)
        names = tuple(sorted(host.drop_nulls().unique().to_list()))
        code = {name: i for i, name in enumerate(names)}
        at = ranks["rank"].to_numpy()
        host_of[at] = [-1 if h is None else code[h] for h in host]
        local_of[at] = _column(ranks, "local_rank", pl.Int64).fill_null(-1).to_numpy()
        for h in range(len(names)):
            there = np.flatnonzero(host_of == h)
            if (local_of[there] < 0).all():
                local_of[there] = np.arange(len(there))
        return cls(host_of, local_of, names)

    def host(self, ranks: np.ndarray) -> np.ndarray:
        """int64 [k]: the code of each rank's host, -1 unknown."""
        return _at(self.host_of, ranks)

    def local(self, ranks: np.ndarray) -> np.ndarray:
        """int64 [k]: each rank's place in its host, -1 unknown."""
        return _at(self.local_of, ranks)

    def hosts_of(self, ranks: np.ndarray) -> int:
        """How many hosts the ranks are on; 0 where the host of one is not known."""
        hosts = self.host(ranks)
        return 0 if (hosts < 0).any() else len(np.unique(hosts))

    def per_host(self, ranks: np.ndarray) -> int | None:
        """Ranks on each host, where that is the same on all; else None."""
        hosts = self.host(ranks)
        if not len(hosts) or (hosts < 0).any():
            return None
        counts = np.unique(hosts, return_counts=True)[1]
        return int(counts[0]) if (counts == counts[0]).all() else None


def _column(ranks: pl.DataFrame, name: str, dtype: type[pl.DataType]) -> pl.Series:
    if name in ranks.columns:
        return ranks[name].cast(dtype)
    return pl.Series(name, [None] * len(ranks), dtype=dtype)


def _at(of: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    ranks = np.asarray(ranks, np.int64)
    inside = (ranks >= 0) & (ranks < len(of))
    out = np.full(len(ranks), -1, np.int64)
    out[inside] = of[ranks[inside]]
    return out
