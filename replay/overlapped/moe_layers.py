"""MoE layers in a graph: a dispatch, the experts' computation behind it, and its combine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from ..graph import NULL, Kind, TaskGraph
from ..steps import participations


class Found(NamedTuple):
    """One layer's exchanges and what its ranks compute between them."""

    dispatch: int
    combine: int
    """Rows of the all-to-alls that were given."""
    ranks: np.ndarray
    """int64 [r]: in order."""
    transfers: np.ndarray
    """int64 [2, r]: tasks that dispatch and combine."""
    work: list[np.ndarray]
    """Tasks of each rank's computation between."""


def find(graph: TaskGraph, rows: pl.DataFrame, kernels: Sequence[str]) -> list[Found]:
    """Layers: an all-to-all, and the next of its communicator and step, between which every rank
    runs a kernel with one of `kernels` in its name.

    `rows` has `collective`, `comm`, `step`. Each all-to-all is of one layer at most.
    """
    names = [k.lower() for k in kernels]
    experts = [i for i, op in enumerate(graph.op_names) if any(k in op.lower() for k in names)]
    arrive, transfer = participations(graph)
    by_code: dict[int, dict[int, tuple[int, int]]] = {}
    wanted = set(rows["collective"].to_list())
    for a, t in zip(arrive.tolist(), transfer.tolist(), strict=True):
        code = int(graph.collective[t])
        if code in wanted:
            by_code.setdefault(code, {})[int(graph.rank[t])] = (a, t)
    work = np.flatnonzero((graph.kind == Kind.COMPUTE) & (graph.start_ns != NULL))
    work = work[np.lexsort((graph.start_ns[work], graph.rank[work]))]
    out: list[Found] = []
    first = {c: min(graph.start_ns[a] for a, _ in of.values()) for c, of in by_code.items()}
    numbered = rows.with_row_index("row").with_columns(
        at=pl.Series([first[c] for c in rows["collective"]], dtype=pl.Int64)
    )
    for _, group in numbered.sort("at").group_by("comm", "step", maintain_order=True):
        pending: tuple[int, int] | None = None
        for row, code in group.select("row", "collective").iter_rows():
            if pending is not None:
                layer = _between(graph, work, experts, by_code[pending[1]], by_code[code])
                if layer is not None:
                    out.append(Found(pending[0], row, *layer))
                    pending = None
                    continue
            pending = (row, code)
    return out


def _between(graph, work, experts, dispatch, combine):
    ranks = sorted(set(dispatch) & set(combine))
    if len(ranks) < 2 or len(ranks) < max(len(dispatch), len(combine)):
        return None
    tasks = []
    for rank in ranks:
        low, high = np.searchsorted(graph.rank[work], [rank, rank + 1])
        here = work[low:high]
        since, until = graph.end_ns[dispatch[rank][1]], graph.start_ns[combine[rank][0]]
        a, b = np.searchsorted(graph.start_ns[here], [since, until])
        if not np.isin(graph.op[here[a:b]], experts).any():
            return None
        tasks.append(here[a:b])
    both = np.array([[one[r][1] for r in ranks] for one in (dispatch, combine)])
    return np.array(ranks), both, tasks
